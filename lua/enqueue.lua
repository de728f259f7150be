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
-- @include placing
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

local p = open_placing(
  { due = due_key, ring = ring_key, ringed = ringed_key, tally = tally_key, bell = bell_key, alarm = alarm_key, lane = lane_prefix },
  now,
  lane_bound
)
for _, n in ipairs(taken) do
  local id, lane, when = ids[n], ARGV[fresh + n * 4 - 3], ARGV[fresh + n * 4 - 2]
  local at = tonumber(when)
  if when:byte() == 43 then
    at = at + now
  end
  if id:sub(1, 2) == 'k-' then
    -- The id of a key comes again: what its last job left behind is not this one's.
    redis.call('DEL', result_prefix .. id, progress_prefix .. id)
  end
  if known[n] and open_record(known[n]) then
    -- A dead letter's key is used again: the letter makes room for the new job.
    redis.call('XDEL', dead_key, open_record(known[n]).mark)
    tally_add(tally_key, 'd', open_record(known[n]).tenant, -1)
  end
  place(p, id, lane, at)
end
close_placing(p)
redis.call('HINCRBY', totals_key, 'enqueued', #taken)
return answer_once(call_key, seq, answer)
