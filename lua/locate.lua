-- locate: changes nothing. Where a job is, as one consistent answer.
-- KEYS[1] jobs      -- hash
-- KEYS[2] due       -- zset
-- KEYS[3] lane:     -- stream, completed with a lane's name
-- KEYS[4] overflow: -- zset, completed with a lane's name
-- KEYS[5] result:   -- string, completed with a job's id
-- ARGV[1] id : str
-- ARGV[2] limit : int  -- entries of the lane to look through: its bound
-- RETURNS {word, record or kept result, run time or place in the lane}: waiting, overflow, ready, running, dead, kept, gone, unreadable
-- @include record
local raw = redis.call('HGET', jobs_key, id)
if not raw then
  local kept = redis.call('GET', result_prefix .. id)
  if kept then
    return { 'kept', kept, '' }
  end
  return { 'gone', '', '' }
end
local r = open_record(raw)
if not r then
  return { 'unreadable', raw, '' }
end
if r.state == 'd' then
  return { 'dead', raw, r.mark }
end
local member = r.lane .. '/' .. id
local at = redis.call('ZSCORE', due_key, member)
if at then
  return { 'waiting', raw, at }
end
at = redis.call('ZSCORE', overflow_prefix .. r.lane, member)
if at then
  return { 'overflow', raw, at }
end
for n, entry in ipairs(redis.call('XRANGE', lane_prefix .. r.lane, '-', '+', 'COUNT', limit)) do
  if entry[2][2] == id then
    return { 'ready', raw, tostring(n) }
  end
end
return { 'running', raw, '' }
