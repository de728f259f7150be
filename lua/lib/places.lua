-- places: every place of one job, for those who check invariant 1. A place is {kind, where, rank, entry}:
--
--   due       where: the member                      lease  where: the member
--   overflow  where: `<lane of the key> <member>`    dead   where: the entry
--   lane      where: the lane
--
-- The caller names where it has seen the job; the rest is looked for as far as it is needed. A look costs
-- entries of the caller's budget: `spent` counts them.
local RANK = { due = 1, overflow = 2, lane = 3, lease = 4, dead = 5 }
local spent = 0

-- All entries of a lane by job id, at most `limit` of them; read once a call.
local lanes_read = {}
local function read_lane(key, limit)
  local lane = lanes_read[key]
  if not lane then
    -- A job is there once, unless something is broken: tables only for the second entry, 2,000 of them take 1 ms.
    lane = { first = {}, more = {} }
    local entries = redis.call('XRANGE', key, '-', '+', 'COUNT', limit + 1)
    for _, entry in ipairs(entries) do
      local id = entry[2][2]
      if lane.first[id] then
        lane.more[id] = lane.more[id] or {}
        table.insert(lane.more[id], entry[1])
      else
        lane.first[id] = entry[1]
      end
    end
    lane.is_cut = #entries > limit
    spent = spent + #entries
    lanes_read[key] = lane
  end
  return lane
end

-- Leases carry no index by job: a matching scan, in C, at about 0.1 us a lease.
local function leases_of(leases_key, id)
  local pattern = id:gsub('[%*%?%[%]\\]', '\\%0') .. '#*'
  local found, cursor = {}, '0'
  repeat
    local reply = redis.call('ZSCAN', leases_key, cursor, 'MATCH', pattern, 'COUNT', 100000)
    cursor = reply[1]
    for n = 1, #reply[2], 2 do
      found[#found + 1] = reply[2][n]
    end
  until cursor == '0'
  spent = spent + math.floor(redis.call('ZCARD', leases_key) / 10)
  return found
end

-- k: the keys; seen: {kind, where}...; r: the record, or nil. Answers the places, and whether it could not see all.
local function find_places(k, id, seen, r, limit)
  local found, known = {}, {}
  local function add(kind, where, entry)
    local name = kind .. ' ' .. where .. ' ' .. (entry or '')
    if not known[name] then
      known[name] = true
      found[#found + 1] = { kind = kind, where = where, rank = RANK[kind], entry = entry }
    end
  end
  local function look(kind, where)
    if kind == 'due' and redis.call('ZSCORE', k.due, where) then
      add(kind, where)
    elseif kind == 'overflow' then
      local lane, member = where:match('^(%S+) (.*)$')
      if redis.call('ZSCORE', k.overflow .. lane, member) then
        add(kind, where)
      end
    elseif kind == 'lease' and redis.call('ZSCORE', k.leases, where) then
      add(kind, where)
    elseif kind == 'dead' and where:find('^%d+%-%d+$') then
      local entry = redis.call('XRANGE', k.dead, where, where)[1]
      if entry and entry[2][2] == id then
        add(kind, where)
      end
    elseif kind == 'lane' then
      local lane = read_lane(k.lane .. where, limit)
      if lane.first[id] then
        add(kind, where, lane.first[id])
      end
      for _, entry in ipairs(lane.more[id] or {}) do
        add(kind, where, entry)
      end
    end
    spent = spent + 1
  end

  for _, place in ipairs(seen) do
    look(place[1], place[2])
  end
  if not r then
    return found, false
  end
  look('due', r.lane .. '/' .. id)
  look('overflow', r.lane .. ' ' .. r.lane .. '/' .. id)
  look('dead', r.mark)
  if #found > 0 then
    return found, false
  end
  look('lane', r.lane)
  if #found > 0 then
    return found, false
  end
  for _, lease in ipairs(leases_of(k.leases, id)) do
    look('lease', lease)
  end
  return found, #found == 0 and read_lane(k.lane .. r.lane, limit).is_cut
end

local function remove_place(k, place)
  if place.kind == 'due' then
    redis.call('ZREM', k.due, place.where)
  elseif place.kind == 'overflow' then
    local lane, member = place.where:match('^(%S+) (.*)$')
    redis.call('ZREM', k.overflow .. lane, member)
  elseif place.kind == 'lease' then
    redis.call('ZREM', k.leases, place.where)
  elseif place.kind == 'dead' then
    redis.call('XDEL', k.dead, place.where)
  else
    redis.call('XDEL', k.lane .. place.where, place.entry)
    if redis.call('XLEN', k.lane .. place.where) == 0 then
      redis.call('DEL', k.lane .. place.where)
    end
  end
end
