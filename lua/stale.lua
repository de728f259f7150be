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

-- An occurrence's run is also in its schedule's history, where it must not stand twice either. What was noted as
-- cancelled, when nobody knew more, is told by its worker now.
local function note_late(now, id, run)
  local plan, occurrence = plan_of(id)
  if not plan then
    return
  end
  local key, cancelled = history_prefix .. plan, run:gsub(' stale ', ' cancelled ', 1)
  for _, entry in ipairs(redis.call('XREVRANGE', key, '+', '-', 'COUNT', SEEN)) do
    local told = entry[2][4]
    if told == run or told == cancelled then
      return
    elseif entry[2][2] == occurrence and told:find('^%d+ %S+ 0 %d+ cancelled ') then
      redis.call('XDEL', key, entry[1])
      run = cancelled
    end
  end
  note_attempt(k, now, id, run)
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
  note_late(clock(now_ms), ARGV[n], ARGV[n + 1])
end
return { added }
