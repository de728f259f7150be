-- recount: changes no state. Counts what tenants have waiting, running and dead and where they have ready work,
-- and with `fix` sets tally, marks and ring to it. More than `limit` entries are not counted: -1 stands for them.
-- KEYS[1] tally      -- hash
-- KEYS[2] due        -- zset
-- KEYS[3] leases     -- zset
-- KEYS[4] dead       -- stream
-- KEYS[5] jobs       -- hash
-- KEYS[6] ring       -- list
-- KEYS[7] ringed     -- hash
-- KEYS[8] bell       -- list
-- KEYS[9] lane:      -- stream, completed with a lane's name
-- KEYS[10] overflow: -- zset, completed with a lane's name
-- ARGV[1] fix : int       -- 0: only look
-- ARGV[2] limit : int
-- ARGV[3] tenants : rest
-- RETURNS {tenant, waiting, running, dead, the same three as tallied, marks due, marks set, times in the ring...}
-- @include ring
-- @include wake
local CHUNK = 100
local counts = { w = {}, r = {}, d = {} }
local function count(place, tenant)
  if tenant then
    counts[place][tenant] = (counts[place][tenant] or 0) + 1
  end
end

local is_counted = {
  w = redis.call('ZCARD', due_key) <= limit,
  r = redis.call('ZCARD', leases_key) <= limit,
  d = redis.call('XLEN', dead_key) <= limit,
}
if is_counted.w then
  for _, member in ipairs(redis.call('ZRANGE', due_key, 0, -1)) do
    count('w', member:match('^([^:/]+)'))
  end
end
if is_counted.r then
  local leases = redis.call('ZRANGE', leases_key, 0, -1)
  for start = 1, #leases, CHUNK do
    local ids = {}
    for n = start, math.min(start + CHUNK - 1, #leases) do
      ids[#ids + 1] = leases[n]:match('^(.*)#%d+@') or ''
    end
    for _, record in ipairs(redis.call('HMGET', jobs_key, unpack(ids))) do
      count('r', record and record:match('^%a ([^ :]+)'))
    end
  end
end
if is_counted.d then
  for _, entry in ipairs(redis.call('XRANGE', dead_key, '-', '+')) do
    count('d', entry[2][4])
  end
end

local function marks_due(tenant)
  local marks = ''
  for _, letter in ipairs({ 'h', 'n', 'l' }) do
    local lane = tenant .. LANE_SUFFIX[letter]
    if redis.call('XLEN', lane_prefix .. lane) > 0 then
      marks = marks .. letter
    elseif fix == 1 then
      -- A stream that a foreign hand emptied still takes 400 bytes.
      redis.call('DEL', lane_prefix .. lane)
    end
    if redis.call('ZCARD', overflow_prefix .. lane) > 0 then
      marks = marks .. letter:upper()
    end
  end
  return marks
end

local function set_tally(tenant, place, counted, tallied)
  if counted == 0 and tallied ~= 0 then
    redis.call('HDEL', tally_key, place .. ' ' .. tenant)
  elseif counted > 0 and counted ~= tallied then
    redis.call('HSET', tally_key, place .. ' ' .. tenant, counted)
  end
end

local function set_ring(tenant, due, deficit, times)
  if due == '' then
    redis.call('LREM', ring_key, 0, tenant)
    redis.call('HDEL', ringed_key, tenant)
    return
  end
  redis.call('HSET', ringed_key, tenant, due .. ' ' .. deficit)
  if times ~= 1 then
    redis.call('LREM', ring_key, 0, tenant)
    redis.call('RPUSH', ring_key, tenant)
  end
  ring_bell(bell_key)
end

if fix == 1 then
  -- A first write that frees lets the script through on a full server.
  redis.call('ZREM', due_key, '')
end
local answer = {}
for n = tenants, #ARGV do
  local tenant = ARGV[n]
  local counted, tallied = {}, {}
  for i, place in ipairs({ 'w', 'r', 'd' }) do
    counted[i] = is_counted[place] and (counts[place][tenant] or 0) or -1
    tallied[i] = tonumber(redis.call('HGET', tally_key, place .. ' ' .. tenant)) or 0
    if fix == 1 then
      set_tally(tenant, place, counted[i], tallied[i])
    end
  end
  local due = marks_due(tenant)
  local set, deficit = marks_of(redis.call('HGET', ringed_key, tenant))
  local times = #redis.call('LPOS', ring_key, tenant, 'COUNT', 0)
  if fix == 1 then
    set_ring(tenant, due, deficit or 0, times)
  end
  for _, value in ipairs({ tenant, counted[1], counted[2], counted[3], tallied[1], tallied[2], tallied[3] }) do
    answer[#answer + 1] = value
  end
  answer[#answer + 1] = due
  answer[#answer + 1] = set or ''
  answer[#answer + 1] = times
end
return answer
