-- removal: takes a living job out of wherever it is. The caller has opened its record.
-- @include record
-- @include tally

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
    for _, entry in ipairs(redis.call('XRANGE', k.lane .. r.lane, '-', '+', 'COUNT', limit)) do
      if entry[2][2] == id then
        redis.call('XDEL', k.lane .. r.lane, entry[1])
        place = 'lane'
        break
      end
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
