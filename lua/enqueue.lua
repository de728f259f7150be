-- enqueue: nothing -> waiting or ready. Stores new jobs; one whose id lives is left as it is.
-- A job that is due goes straight to its lane, unless something of the shard is overdue: then it
-- queues behind that, so order within a tenant holds.
-- KEYS[1] jobs      -- hash
-- KEYS[2] due       -- zset
-- KEYS[3] ring      -- list
-- KEYS[4] ringed    -- hash
-- KEYS[5] dead      -- stream
-- KEYS[6] tally     -- hash
-- KEYS[7] totals    -- hash
-- KEYS[8] bell      -- list
-- KEYS[9] alarm     -- list
-- KEYS[10] lane:    -- stream, completed with a lane's name
-- KEYS[11] result:  -- string, completed with a job's id
-- KEYS[12] progress: -- string, completed with a job's id
-- KEYS[13] call     -- string, the caller's own
-- ARGV[1] now_ms : int     -- 0: Redis' clock
-- ARGV[2] seq : int        -- the caller's call number
-- ARGV[3] lane_bound : int -- jobs a lane may hold
-- ARGV[4] fresh : rest     -- per job: id, lane, run time in ms ("+5000": from now), record
-- RETURNS {stored, index of each job that lived already...}
-- @include clock
-- @include once
-- @include record
-- @include tally
-- @include ring
-- @include wake
local before = answered(call_key, seq)
if before then
  return before
end
local now = clock(now_ms)

local ids = {}
for i = fresh, #ARGV, 4 do
  ids[#ids + 1] = ARGV[i]
end
local known = redis.call('HMGET', jobs_key, unpack(ids))

local answer, taken, seen = { 0 }, {}, {}
for n, id in ipairs(ids) do
  local old = known[n]
  if seen[id] or (old and old:byte() ~= 100) then
    answer[#answer + 1] = n - 1
  else
    seen[id] = true
    taken[#taken + 1] = n
  end
end
answer[1] = #taken
if #taken == 0 then
  return answer_once(call_key, seq, answer)
end

-- The first write stores records: on a full server it is refused before anything has changed.
local stored = {}
for _, n in ipairs(taken) do
  stored[#stored + 1] = ids[n]
  stored[#stored + 1] = ARGV[fresh + n * 4 - 1]
end
redis.call('HSET', jobs_key, unpack(stored))

local head = redis.call('ZRANGE', due_key, 0, 0, 'WITHSCORES')[2]
local direct = not head or tonumber(head) > now
local waiting, later, earliest = {}, {}, nil
local states, rung = {}, false
for _, n in ipairs(taken) do
  local id, lane, when = ids[n], ARGV[fresh + n * 4 - 3], ARGV[fresh + n * 4 - 2]
  local at = tonumber(when)
  if when:byte() == 43 then
    at = at + now
  end
  local tenant = lane:match('^[^:]+')
  if id:sub(1, 2) == 'k-' then
    -- The id of a key comes again: what its last job left behind is not this one's.
    redis.call('DEL', result_prefix .. id, progress_prefix .. id)
  end
  if known[n] and open_record(known[n]) then
    -- A dead letter's key is used again: the letter makes room for the new job.
    redis.call('XDEL', dead_key, open_record(known[n]).mark)
    tally_add(tally_key, 'd', open_record(known[n]).tenant, -1)
  end
  local placed = false
  if at <= now and direct then
    local state = states[lane]
    if not state then
      local marks = marks_of(redis.call('HGET', ringed_key, tenant))
      local letter = lane_letter(lane)
      state = { room = lane_bound, letter = letter, marks = marks }
      if marks:find(letter:upper(), 1, true) then
        state.room = 0
      elseif marks:find(letter, 1, true) then
        state.room = lane_bound - redis.call('XLEN', lane_prefix .. lane)
      end
      states[lane] = state
    end
    if state.room > 0 then
      redis.call('XADD', lane_prefix .. lane, '*', 'i', id)
      state.room = state.room - 1
      placed = true
      if not state.marks:find(state.letter, 1, true) then
        -- Another lane of the same tenant may have been marked by this very call: read again.
        local marks, deficit = marks_of(redis.call('HGET', ringed_key, tenant))
        if marks == '' then
          redis.call('RPUSH', ring_key, tenant)
        end
        state.marks = marks .. state.letter
        redis.call('HSET', ringed_key, tenant, state.marks .. ' ' .. deficit)
        rung = true
      end
    end
  end
  if not placed then
    waiting[#waiting + 1] = at
    waiting[#waiting + 1] = lane .. '/' .. id
    later[tenant] = (later[tenant] or 0) + 1
    if not earliest or at < earliest then
      earliest = at
    end
  end
end
if earliest then
  redis.call('ZADD', due_key, unpack(waiting))
  tally_all(tally_key, 'w', later, 1)
  ring_alarm(alarm_key, due_key, earliest)
end
if rung then
  ring_bell(bell_key)
end
redis.call('HINCRBY', totals_key, 'enqueued', #taken)
return answer_once(call_key, seq, answer)
