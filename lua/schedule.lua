-- schedule: changes no state. Creates schedules or replaces them, if they are still as the caller saw them.
-- KEYS[1] plan     -- hash
-- KEYS[2] planned  -- hash
-- KEYS[3] plans    -- zset
-- KEYS[4] roster   -- zset
-- KEYS[5] totals   -- hash
-- KEYS[6] alarm    -- list
-- KEYS[7] call     -- string, the caller's own
-- ARGV[1] now_ms : int    -- 0: Redis' clock
-- ARGV[2] seq : int       -- the caller's call number
-- ARGV[3] quota : int     -- schedules a tenant may have
-- ARGV[4] others : int    -- how many the tenant has in other shards
-- ARGV[5] kept : str      -- runs kept of each (or =)
-- ARGV[6] keep_ms : str   -- and for how long
-- ARGV[7] wanted : rest   -- per schedule: plan, version it is seen with (0: it is new), body, mode (or =), cursor (or =; + before it keeps the counts), look (or =; 0: now)
-- RETURNS {new version each; 0: over the quota; -1 - version of what was found instead}
-- @include clock
-- @include once
-- @include plan
-- @include wake
local before = answered(call_key, seq)
if before then
  return before
end
local now = clock(now_ms)
local answer, earliest, rooms, stored = {}, nil, {}, 0
for n = wanted, #ARGV, 6 do
  local name, seen, body, mode, cursor, look = unpack(ARGV, n, n + 5)
  local raw = redis.call('HGET', planned_key, name)
  local s = raw and open_plan(raw)
  local tenant = name:match('^[^/]+')
  if not raw and not rooms[tenant] then
    rooms[tenant] = quota - others - redis.call('ZLEXCOUNT', roster_key, '[' .. tenant .. '/', '(' .. tenant .. '0')
  end
  if tonumber(seen) ~= (s and tonumber(s.version) or 0) then
    answer[#answer + 1] = -(s and tonumber(s.version) or 0) - 1
  elseif not raw and rooms[tenant] <= 0 then
    answer[#answer + 1] = 0
  else
    if not s then
      -- One that was deleted and made anew is not the same: versions go on behind those of the deleted ones.
      local used = redis.call('HGET', totals_key, 'versions') or '0'
      s = { version = used, cursor = '0', mode = '-', made = 0, missed = 0, skipped = 0, catch = '0', live = '-' }
      if not raw then
        rooms[tenant] = rooms[tenant] - 1
      end
    end
    s.version = string.format('%.0f', tonumber(s.version) + 1)
    if kept ~= '=' then
      s.kept, s.keep_ms = kept, keep_ms
    end
    if cursor:sub(1, 1) == '+' then
      s.cursor = cursor:sub(2)
    elseif cursor ~= '=' then
      -- Another rule: what the old one was owed is forgotten, and its runs are not counted against the new one.
      s.cursor, s.catch, s.made = cursor, '0', 0
    end
    if mode ~= '=' then
      -- Paused or resumed in the middle of a catch-up: what is missed is measured anew.
      s.mode, s.catch = mode, '0'
    end
    -- The first write stores the body: on a full server it is refused before anything has changed.
    redis.call('HSET', plan_key, name, body)
    redis.call('HSET', planned_key, name, seal_plan(s))
    redis.call('ZADD', roster_key, 0, name)
    if cursor ~= '=' and cursor:sub(1, 1) ~= '+' then
      -- Its backfill was counted by the old rule.
      redis.call('ZREM', plans_key, name .. '!')
      redis.call('HDEL', planned_key, name .. '!')
    end
    if s.mode == 'p' or s.mode == 'e' then
      redis.call('ZREM', plans_key, name)
    elseif look ~= '=' then
      local at = look == '0' and now or tonumber(look)
      redis.call('ZADD', plans_key, at, name)
      earliest = math.min(earliest or at, at)
    end
    answer[#answer + 1] = tonumber(s.version)
    stored = stored + 1
  end
end
if earliest then
  ring_alarm(alarm_key, plans_key, earliest)
end
if stored > 0 then
  redis.call('HINCRBY', totals_key, 'scheduled', stored)
end
return answer_once(call_key, seq, answer)
