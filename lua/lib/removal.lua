-- removal: takes a living job out of wherever it is. The caller has opened its record.
-- @include record
-- @include tally

-- The entries of a lane by job, at most `limit` of them; read once a call.
local lanes_seen = {}
local function lane_entry(key, id, limit)
  if not lanes_seen[key] then
    lanes_seen[key] = {}
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+', 'COUNT', limit)) do
      lanes_seen[key][entry[2][2]] = entry[1]
    end
  end
  return lanes_seen[key][id]
end

-- k: the keys jobs, due, leases, tally, totals, lane, overflow and result (prefixes). lease: the one it was seen
-- with, or empty. Answers false when it is in no place that was looked at.
local function remove_job(k, id, r, lease, keep_ms, limit)
  local member, place = r.lane .. '/' .. id, nil
  if redis.call('ZREM', k.due, member) == 1 then
    place = 'w'
  elseif redis.call('ZREM', k.overflow .. r.lane, member) == 1 then
    place = 'overflow'
  elseif lease ~= '' and redis.call('ZREM', k.leases, lease) == 1 then
    place = 'r'
  else
    local entry = lane_entry(k.lane .. r.lane, id, limit)
    if entry and redis.call('XDEL', k.lane .. r.lane, entry) == 1 then
      place = 'lane'
    end
  end
  if not place then
    return false
  end
  redis.call('HDEL', k.jobs, id)
  if place == 'w' or place == 'r' then
    tally_add(k.tally, place, r.tenant, -1)
  elseif place == 'lane' and redis.call('XLEN', k.lane .. r.lane) == 0 then
    -- The tenant may stay in the ring with nothing to give; its next visit removes it.
    redis.call('DEL', k.lane .. r.lane)
  end
  redis.call('SET', k.result .. id, 'c', 'PX', math.max(1, keep_ms))
  redis.call('HINCRBY', k.totals, 'cancelled', 1)
  return true
end
