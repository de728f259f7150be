-- cancel: waiting, ready or running -> gone. For a running job the lease is ended under its worker,
-- which learns it at the next renewal and stops the handler.
-- KEYS[1] jobs      -- hash
-- KEYS[2] due       -- zset
-- KEYS[3] leases    -- zset
-- KEYS[4] tally     -- hash
-- KEYS[5] totals    -- hash
-- KEYS[6] lane:     -- stream, completed with a lane's name
-- KEYS[7] overflow: -- zset, completed with a lane's name
-- KEYS[8] result:   -- string, completed with a job's id
-- ARGV[1] id : str
-- ARGV[2] lease : str      -- the lease it was seen with, or empty
-- ARGV[3] keep_ms : int    -- how long to remember that it was cancelled
-- ARGV[4] limit : int      -- entries of the lane to look through: its bound
-- RETURNS {word}: cancelled, again (it was cancelled before), dead, gone, unreadable, or moved (running with another lease: look again)
-- @include record
-- @include tally
local raw = redis.call('HGET', jobs_key, id)
if not raw then
  local kept = redis.call('GET', result_prefix .. id)
  return { kept == 'c' and 'again' or 'gone' }
end
local r = open_record(raw)
if not r then
  return { 'unreadable' }
end
if r.state == 'd' then
  return { 'dead' }
end
local member, place = r.lane .. '/' .. id, nil
if redis.call('ZREM', due_key, member) == 1 then
  place = 'w'
elseif redis.call('ZREM', overflow_prefix .. r.lane, member) == 1 then
  place = 'overflow'
elseif lease ~= '' and redis.call('ZREM', leases_key, lease) == 1 then
  place = 'r'
else
  for _, entry in ipairs(redis.call('XRANGE', lane_prefix .. r.lane, '-', '+', 'COUNT', limit)) do
    if entry[2][2] == id then
      redis.call('XDEL', lane_prefix .. r.lane, entry[1])
      place = 'lane'
      break
    end
  end
end
if not place then
  return { 'moved' }
end
redis.call('HDEL', jobs_key, id)
if place == 'w' or place == 'r' then
  tally_add(tally_key, place, r.tenant, -1)
elseif place == 'lane' and redis.call('XLEN', lane_prefix .. r.lane) == 0 then
  -- The tenant may stay in the ring with nothing to give; its next visit removes it.
  redis.call('DEL', lane_prefix .. r.lane)
end
redis.call('SET', result_prefix .. id, 'c', 'PX', math.max(1, keep_ms))
redis.call('HINCRBY', totals_key, 'cancelled', 1)
return { 'cancelled' }
