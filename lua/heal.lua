-- heal: changes no state. Puts schedules right whose next time is missing or impossible, if they are still as they were seen.
-- KEYS[1] plan     -- hash
-- KEYS[2] planned  -- hash
-- KEYS[3] plans    -- zset
-- KEYS[4] roster   -- zset
-- KEYS[5] totals   -- hash
-- KEYS[6] alarm    -- list
-- ARGV[1] now_ms : int    -- 0: Redis' clock
-- ARGV[2] wrong : rest    -- per schedule: plan, state as seen (may be empty), state as it should be (= to keep), look in ms (0: none)
-- RETURNS {healed}
-- @include clock
-- @include plan
-- @include wake
local now = clock(now_ms)
local healed, earliest = 0, nil
for n = wrong, #ARGV, 4 do
  local name, seen, state, look = unpack(ARGV, n, n + 3)
  local plan = name:gsub('!$', '')
  if (redis.call('HGET', planned_key, name) or '') == seen and redis.call('HEXISTS', plan_key, plan) == 1 then
    if state ~= '=' then
      redis.call('HSET', planned_key, name, state)
    end
    redis.call('ZADD', roster_key, 0, plan)
    if look == '0' then
      redis.call('ZREM', plans_key, name)
    else
      redis.call('ZADD', plans_key, look, name)
      earliest = math.min(earliest or now, tonumber(look))
    end
    healed = healed + 1
  end
end
if earliest then
  ring_alarm(alarm_key, plans_key, earliest)
end
if healed > 0 then
  redis.call('HINCRBY', totals_key, 'healed', healed)
end
return { healed }
