-- promote: waiting -> ready. Moves due jobs to their lanes, at most `limit` of them, oldest first.
-- What finds its lane full goes to the lane's overflow, so the head of `due` stays clear for others.
-- KEYS[1] due       -- zset
-- KEYS[2] ring      -- list
-- KEYS[3] ringed    -- hash
-- KEYS[4] tally     -- hash
-- KEYS[5] bell      -- list
-- KEYS[6] lane:     -- stream, completed with a lane's name
-- KEYS[7] overflow: -- zset, completed with a lane's name
-- ARGV[1] now_ms : int     -- 0: Redis' clock
-- ARGV[2] limit : int
-- ARGV[3] lane_bound : int
-- RETURNS {moved, ms until the next one is due or -1 when nothing waits}
-- @include clock
-- @include tally
-- @include ring
-- @include wake
local now = clock(now_ms)
local members = redis.call('ZRANGEBYSCORE', due_key, '-inf', now, 'LIMIT', 0, limit)
if #members == 0 then
  local head = redis.call('ZRANGE', due_key, 0, 0, 'WITHSCORES')[2]
  return { 0, head and math.max(1, math.ceil(tonumber(head) - now)) or -1 }
end

local lanes, tenants, index = {}, {}, {}
local split = {}
for n, member in ipairs(members) do
  local slash = member:find('/', 1, true) or #member + 1
  local name = member:sub(1, slash - 1)
  local lane = lanes[name]
  if not lane then
    local tenant = name:match('^[^:]+')
    if not index[tenant] then
      tenants[#tenants + 1] = tenant
      index[tenant] = #tenants
    end
    lane = { name = name, key = lane_prefix .. name, tenant = index[tenant], letter = lane_letter(name) }
    lanes[name] = lane
    lanes[#lanes + 1] = lane
  end
  split[n] = { lane, member:sub(slash + 1) }
end

local states = redis.call('HMGET', ringed_key, unpack(tenants))
local marks, deficits, moved = {}, {}, {}
for n = 1, #tenants do
  marks[n], deficits[n] = marks_of(states[n])
  moved[tenants[n]] = 0
end
for _, lane in ipairs(lanes) do
  local held = marks[lane.tenant]
  lane.room = lane_bound
  if held:find(lane.letter:upper(), 1, true) then
    lane.room = 0
  elseif held:find(lane.letter, 1, true) then
    lane.room = lane_bound - redis.call('XLEN', lane.key)
  end
end

-- A first write that frees lets the script through on a full server: promotion is what drains it.
redis.call('ZREM', due_key, '')
local spilled = {}
for n, pair in ipairs(split) do
  local lane = pair[1]
  if lane.room > 0 then
    redis.call('XADD', lane.key, '*', 'i', pair[2])
    lane.room = lane.room - 1
    lane.filled = true
  else
    spilled[#spilled + 1] = n
  end
  moved[tenants[lane.tenant]] = moved[tenants[lane.tenant]] + 1
end
if #spilled > 0 then
  local names = {}
  for i, n in ipairs(spilled) do
    names[i] = members[n]
  end
  local scores = redis.call('ZMSCORE', due_key, unpack(names))
  for i, n in ipairs(spilled) do
    local lane = split[n][1]
    redis.call('ZADD', overflow_prefix .. lane.name, scores[i], names[i])
    lane.spilled = true
  end
end
redis.call('ZREM', due_key, unpack(members))
tally_all(tally_key, 'w', moved, -1)

local joined, changed = {}, {}
for _, lane in ipairs(lanes) do
  local t = lane.tenant
  local new = marks[t]
  if lane.filled and not new:find(lane.letter, 1, true) then
    new = new .. lane.letter
  end
  if lane.spilled and not new:find(lane.letter:upper(), 1, true) then
    new = new .. lane.letter:upper()
  end
  if new ~= marks[t] then
    if marks[t] == '' then
      joined[#joined + 1] = tenants[t]
    end
    marks[t] = new
    changed[#changed + 1] = t
  end
end
if #changed > 0 then
  local fields = {}
  for _, t in ipairs(changed) do
    fields[#fields + 1] = tenants[t]
    fields[#fields + 1] = marks[t] .. ' ' .. deficits[t]
  end
  redis.call('HSET', ringed_key, unpack(fields))
end
if #joined > 0 then
  redis.call('RPUSH', ring_key, unpack(joined))
end
ring_bell(bell_key)
return { #members, 0 }
