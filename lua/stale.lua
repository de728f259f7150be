-- stale: changes no state. Adds the run of a worker that came back too late to its job, if the job still lives.
-- Sent twice, it adds the run once: the same run does not stand in a record two times.
-- KEYS[1] jobs    -- hash
-- KEYS[2] totals  -- hash
-- KEYS[3] planned -- hash
-- KEYS[4] plans   -- zset
-- KEYS[5] alarm   -- list
-- KEYS[6] history: -- stream, completed with a plan's name
-- ARGV[1] now_ms : int -- 0: Redis' clock
-- ARGV[2] late : rest  -- per run: id, run
-- RETURNS {runs added}
-- @include clock
-- @include record
-- @include history
local k = { planned = planned_key, plans = plans_key, alarm = alarm_key, history = history_prefix }
local SEEN = 20

-- An occurrence's run is also in its schedule's history, where it must not stand twice either.
local function is_noted(id, run)
  local plan = plan_of(id)
  for _, entry in ipairs(plan and redis.call('XREVRANGE', history_prefix .. plan, '+', '-', 'COUNT', SEEN) or {}) do
    if entry[2][4] == run then
      return true
    end
  end
  return not plan
end

local added = 0
for n = late, #ARGV, 2 do
  local raw = redis.call('HGET', jobs_key, ARGV[n])
  local r = raw and open_record(raw)
  if r and not r.runs:find(ARGV[n + 1], 1, true) then
    add_run(r, ARGV[n + 1])
    redis.call('HSET', jobs_key, ARGV[n], seal_record(r))
    redis.call('HINCRBY', totals_key, 'stale', 1)
    added = added + 1
  end
  if not is_noted(ARGV[n], ARGV[n + 1]) then
    note_attempt(k, clock(now_ms), ARGV[n], ARGV[n + 1])
  end
end
return { added }
