-- history: what became of a schedule's occurrences. A run that ends is added to the schedule's stream, and when
-- it was the last of its job, whoever waited for that end is looked at.
-- @include plan
-- @include wake

-- Adds one run, if the schedule still exists, and keeps the stream within its bounds.
local function note_run(k, now, s, plan, occurrence, run, size)
  local key = k.history .. plan
  -- Dated by the time that decides, so that a moved clock moves the history too.
  local at = string.format('%.0f-*', now)
  local added = redis.pcall('XADD', key, 'MAXLEN', s.kept, at, 'o', occurrence, 'r', run, 's', size)
  if type(added) == 'table' then
    -- The clock went back, or the server is older than such ids.
    redis.call('XADD', key, 'MAXLEN', s.kept, '*', 'o', occurrence, 'r', run, 's', size)
  end
  redis.call('XTRIM', key, 'MINID', string.format('%.0f', math.max(0, now - tonumber(s.keep_ms))))
  redis.call('PEXPIRE', key, s.keep_ms)
end

-- k: the keys planned, plans, alarm and history (a prefix). Does nothing for a job that is no occurrence.
local function note_attempt(k, now, id, run)
  local plan, occurrence = plan_of(id)
  local raw = plan and redis.call('HGET', k.planned, plan)
  local s = raw and open_plan(raw)
  if s then
    note_run(k, now, s, plan, occurrence, run, 0)
  end
end

local function note_end(k, now, id, run, size)
  local plan, occurrence = plan_of(id)
  if not plan then
    return
  end
  local states = redis.call('HMGET', k.planned, plan, plan .. '!')
  local s = states[1] and open_plan(states[1])
  if not s then
    return
  end
  note_run(k, now, s, plan, occurrence, run, size or 0)
  local woken = false
  if s.mode == 'c' or s.mode == 'w' then
    redis.call('ZADD', k.plans, now, plan)
    woken = true
  end
  local back = states[2] and open_plan(states[2])
  if back and back.mode == 'w' then
    redis.call('ZADD', k.plans, now, plan .. '!')
    woken = true
  end
  if woken then
    ring_alarm(k.alarm, k.plans, now)
  end
end
