-- fire: nothing -> waiting or ready. Makes occurrences of schedules and sets their next times, each in one step, if the
-- schedule is still where the caller saw it. What overlap and pace allow is decided here, by what lives at this instant.
-- KEYS[1] planned    -- hash
-- KEYS[2] plans      -- zset
-- KEYS[3] pace       -- hash
-- KEYS[4] jobs       -- hash
-- KEYS[5] due        -- zset
-- KEYS[6] ring       -- list
-- KEYS[7] ringed     -- hash
-- KEYS[8] leases     -- zset
-- KEYS[9] dead       -- stream
-- KEYS[10] tally     -- hash
-- KEYS[11] totals    -- hash
-- KEYS[12] bell      -- list
-- KEYS[13] alarm     -- list
-- KEYS[14] lane:     -- stream, completed with a lane's name
-- KEYS[15] overflow: -- zset, completed with a lane's name
-- KEYS[16] result:   -- string, completed with a job's id
-- KEYS[17] history:  -- stream, completed with a plan's name
-- KEYS[18] call      -- string, the caller's own
-- ARGV[1] now_ms : int     -- 0: Redis' clock
-- ARGV[2] seq : int        -- the caller's call number; 0: the cursors are protection enough
-- ARGV[3] lane_bound : int
-- ARGV[4] factor : int     -- a catch-up may be so many times as fast as the tenant's schedules usually are
-- ARGV[5] floor : int      -- and at least so many starts an hour
-- ARGV[6] steps : rest     -- per schedule: plan, lane, record, and in words: kind (f make, l make the last, p pass on, c has it ended, t trigger, x cannot be read) version cursor occurrence at next look missed skipped catch overlap most
-- RETURNS {made 1, moved 0, passed on 2, skipped 3, waits for an end 4, waits for its turn 5...}
-- @include clock
-- @include once
-- @include placing
-- @include pace
-- @include overlap
local before = answered(call_key, seq)
if before then
  return before
end
local MOVED, MADE, PASSED, SKIPPED, WAITS, TURN = 0, 1, 2, 3, 4, 5
local now = clock(now_ms)
local k = {
  jobs = jobs_key, due = due_key, ring = ring_key, ringed = ringed_key, leases = leases_key, tally = tally_key,
  totals = totals_key, bell = bell_key, alarm = alarm_key, lane = lane_prefix, overflow = overflow_prefix,
  result = result_prefix, planned = planned_key, plans = plans_key, history = history_prefix,
}
local placing = open_placing(k, now, lane_bound)
local stored, scored, gone = {}, {}, {}
local counts = { fired = 0, missed = 0, overlapped = 0, caught_up = 0 }

-- States, read once; a backfill works on the list of its schedule.
local names, states, present = {}, {}, {}
for n = steps, #ARGV, 4 do
  local parent = ARGV[n]:gsub('!$', '')
  for _, name in ipairs({ ARGV[n], parent ~= ARGV[n] and parent or nil }) do
    if states[name] == nil then
      names[#names + 1] = name
      states[name] = false
    end
  end
end
for n, raw in ipairs(redis.call('HMGET', planned_key, unpack(names))) do
  states[names[n]], present[names[n]] = raw and open_plan(raw) or false, raw
end

local function look_at(name, at)
  scored[#scored + 1] = at
  scored[#scored + 1] = name
end

-- Makes the job, unless it lives; a dead letter of the same occurrence makes room.
local function make(id, lane, at, record)
  local old = redis.call('HGET', jobs_key, id)
  local r = old and open_record(old)
  if r and r.state == 'q' then
    return
  end
  redis.call('HSET', jobs_key, id, record)
  redis.call('DEL', result_prefix .. id)
  if r then
    redis.call('XDEL', dead_key, r.mark)
    tally_add(tally_key, 'd', r.tenant, -1)
  end
  place(placing, id, lane, at)
  counts.fired = counts.fired + 1
end

-- Holds the occurrence back: the cursor stays at it.
local function hold(name, s, mode, occurrence, catch, at)
  s.mode, s.cursor, s.catch = mode, occurrence, catch
  look_at(name, at)
end

local function advance(name, s, next_one, look, catch)
  local is_backfill = name:sub(-1) == '!'
  s.cursor, s.catch = next_one, catch
  if next_one == '-1' then
    s.cursor, s.mode = '0', 'c'
    look_at(name, now + WAIT_MS)
  elseif next_one == '0' then
    s.mode = 'e'
    gone[#gone + 1] = name
  else
    s.mode = '-'
    if tonumber(look) > now and not is_backfill then
      s.catch = '0' -- nothing is due any more: the catch-up is over
    end
    look_at(name, tonumber(look))
  end
end

local function step(name, lane, record, words)
  local kind, version, cursor, occurrence, at, next_one, look, missed, skipped, catch, overlap, most =
    words:match('^(%a) (%d+) (%d+) (%S+) (%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d+) (%a) (%d+)$')
  if kind == 'x' then
    -- The sweep will tell, and put back what it can. It must not be in the way meanwhile.
    if present[name] then
      look_at(name, now + WAIT_MS)
    else
      gone[#gone + 1] = name
    end
    return PASSED
  end
  local s, plan = states[name], name:gsub('!$', '')
  local parent, is_asked = states[plan], kind == 't'
  if not s or not parent or (not is_asked and (s.version ~= version or s.cursor ~= cursor)) then
    return MOVED
  elseif not is_asked and (s.mode == 'p' or s.mode == 'e') then
    gone[#gone + 1] = name -- not enabled, and yet it was looked at: a foreign hand put it there
    return MOVED
  end
  if s.mode == 'g' and not is_asked and tonumber(redis.call('ZSCORE', plans_key, name) or 0) > now then
    return MOVED -- another scheduler saw it at the same time, and its turn is yet to come
  elseif kind == 'p' then
    s.missed, counts.missed = s.missed + tonumber(missed), counts.missed + tonumber(missed)
    advance(name, s, next_one, look, catch)
    return PASSED
  end
  local live = living(k, plan, parent)
  if is_asked then
    -- A human asked for it: it is made whatever runs, and counts as running from now on.
    make(occurrence_id(plan, occurrence), lane, now, record)
    remember(parent, live, occurrence, LIVE_KEPT)
    return MADE
  elseif kind == 'c' then
    if #live > 0 then
      look_at(name, now + WAIT_MS)
    else
      hold(name, s, 'd', string.format('%.0f', now), '0', now)
    end
    return PASSED
  end
  s.missed, counts.missed = s.missed + tonumber(missed), counts.missed + tonumber(missed)
  local is_late, tenant = catch ~= '0', name:match('^[^/]+')
  local limit = overlap == 'a' and tonumber(most) or 1
  if overlap ~= 'c' and limit > 0 and #live >= limit then
    if is_late or overlap == 'q' then
      hold(name, s, 'w', occurrence, catch, now + WAIT_MS)
      return WAITS
    end
    s.skipped, counts.overlapped = s.skipped + 1, counts.overlapped + 1
    local why = 'the one before it still ran'
    note_run(k, now, s, plan, occurrence, string.format('0 - 0 %.0f skipped %d\n%s', now, #why, why), 0)
    advance(name, s, next_one, look, catch)
    return SKIPPED
  end
  if is_late and s.mode ~= 'g' then
    local turn = take_turn(pace_key, tenant, now, factor, floor)
    if turn > now then
      hold(name, s, 'g', occurrence, catch, turn)
      return TURN
    end
  end
  if overlap == 'c' and #live > 0 then
    cancel_living(k, now, plan, parent, live, 2 * lane_bound)
    live = {}
  end
  make(occurrence_id(plan, occurrence), lane, tonumber(at), record)
  remember(parent, live, occurrence, limit > 0 and LIVE_KEPT or LIVE_KEPT_FREELY)
  -- What became due while it was held is left out: one may wait.
  s.skipped, counts.overlapped = s.skipped + tonumber(skipped), counts.overlapped + tonumber(skipped)
  s.made = s.made + 1
  if is_late then
    counts.caught_up = counts.caught_up + 1
  else
    local p = pace_of(pace_key, tenant, now)
    p.made = p.made + 1
  end
  advance(name, s, kind == 'l' and '0' or next_one, look, catch)
  return MADE
end

local answer = {}
for n = steps, #ARGV, 4 do
  answer[#answer + 1] = step(ARGV[n], ARGV[n + 1], ARGV[n + 2], ARGV[n + 3])
end
close_placing(placing)
for _, name in ipairs(names) do
  if states[name] then
    stored[#stored + 1] = name
    stored[#stored + 1] = seal_plan(states[name])
  end
end
if #stored > 0 then
  redis.call('HSET', planned_key, unpack(stored))
end
if #scored > 0 then
  redis.call('ZADD', plans_key, 'XX', unpack(scored))
end
for _, name in ipairs(gone) do
  redis.call('ZREM', plans_key, name)
  if name:sub(-1) == '!' then
    redis.call('HDEL', planned_key, name)
  end
end
store_paces(pace_key)
tally_totals(totals_key, counts)
return answer_once(call_key, seq, answer)
