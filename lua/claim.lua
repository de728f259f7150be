-- claim: ready -> running. Hands out up to `limit` jobs, each with a lease and a fencing token.
-- Walks the tenants of the ring by deficit round robin: a visit gives a tenant an even share of
-- the limit (rounded up); a tenant that the limit cut short stays first, with what it is owed.
-- KEYS[1] ring      -- list
-- KEYS[2] ringed    -- hash
-- KEYS[3] jobs      -- hash
-- KEYS[4] leases    -- zset
-- KEYS[5] fence     -- string
-- KEYS[6] tally     -- hash
-- KEYS[7] bell      -- list
-- KEYS[8] lane:     -- stream, completed with a lane's name
-- KEYS[9] overflow: -- zset, completed with a lane's name
-- ARGV[1] now_ms : int   -- 0: Redis' clock
-- ARGV[2] limit : int
-- ARGV[3] lease_ms : int
-- ARGV[4] worker : str   -- who will hold the leases
-- RETURNS {tenants left with ready work, first fence, id, record, id, record...}
-- @include clock
-- @include tally
-- @include ring
-- @include take
-- @include wake
local now = clock(now_ms)
local size = redis.call('LLEN', ring_key)
if size == 0 then
  return { 0, 0 }
end
local visited = redis.call('LRANGE', ring_key, 0, math.min(size, limit) - 1)
local states = redis.call('HMGET', ringed_key, unpack(visited))
-- Rounded up, so that a claim is filled; whom that cuts short is owed the rest.
local share = math.ceil(limit / size)

local ids, ends, running = {}, {}, {}
local first, last, set, gone = {}, {}, {}, {}
local visits = 0
for n, tenant in ipairs(visited) do
  if #ids >= limit then
    break
  end
  visits = n
  local marks, deficit = marks_of(states[n])
  local owed = deficit > 0 and deficit or share
  local want = math.min(owed, limit - #ids)
  local before = #ids
  marks = take(lane_prefix, overflow_prefix, tenant, marks, want, ids, ends)
  running[tenant] = #ids - before
  if marks == '' then
    gone[#gone + 1] = tenant
  else
    local cut = owed > want
    local list = cut and first or last
    list[#list + 1] = tenant
    set[#set + 1] = tenant
    set[#set + 1] = marks .. ' ' .. (cut and owed - want or 0)
  end
end

local records = #ids > 0 and redis.call('HMGET', jobs_key, unpack(ids)) or {}
local token = math.max((tonumber(redis.call('GET', fence_key)) or 0) + 1, now * 1000)
local answer, leased, ghosts = { 0, token }, {}, 0
for n, id in ipairs(ids) do
  local record = records[n]
  if record and record:find('^q [^ :]+[ :]') then
    leased[#leased + 1] = now + lease_ms
    leased[#leased + 1] = string.format('%s#%.0f@%s', id, token, worker)
    answer[#answer + 1] = id
    answer[#answer + 1] = record
    token = token + 1
  else
    -- An entry without a living record is a leftover of a foreign hand; it must not stop the lane.
    ghosts = ghosts + 1
  end
end

-- A first write that frees lets the script through on a full server: what is claimed soon leaves it.
redis.call('ZREM', leases_key, '')
if #leased > 0 then
  redis.call('SET', fence_key, string.format('%.0f', token - 1))
  redis.call('ZADD', leases_key, unpack(leased))
end
-- Leases stand before entries go: an error in between would deliver twice, never lose.
for _, done in ipairs(ends) do
  redis.call(unpack(done))
end
redis.call('LTRIM', ring_key, visits, -1)
if #last > 0 then
  redis.call('RPUSH', ring_key, unpack(last))
end
if #first > 0 then
  redis.call('LPUSH', ring_key, unpack(first))
end
if #gone > 0 then
  redis.call('HDEL', ringed_key, unpack(gone))
end
if #set > 0 then
  redis.call('HSET', ringed_key, unpack(set))
end
if ghosts == 0 then
  tally_all(tally_key, 'r', running, 1)
else
  for n = 3, #answer, 2 do
    tally_add(tally_key, 'r', answer[n + 1]:match('^%a ([^ :]+)'), 1)
  end
end
answer[1] = size - #gone
if answer[1] > 0 then
  ring_bell(bell_key)
end
return answer
