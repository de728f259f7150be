-- unschedule: changes no state. Removes a schedule, its backfill and its history. What runs, runs on.
-- KEYS[1] plan      -- hash
-- KEYS[2] planned   -- hash
-- KEYS[3] plans     -- zset
-- KEYS[4] roster    -- zset
-- KEYS[5] totals    -- hash
-- KEYS[6] pace      -- hash
-- KEYS[7] history:  -- stream, completed with a plan's name
-- KEYS[8] call      -- string, the caller's own
-- ARGV[1] seq : int   -- the caller's call number
-- ARGV[2] name : str
-- RETURNS {1 if it was there, else 0}
-- @include once
local before = answered(call_key, seq)
if before then
  return before
end
local raw = redis.call('HGET', planned_key, name)
local version = raw and tonumber(raw:match('^%d+')) or 0
redis.call('ZREM', plans_key, name, name .. '!')
local was = redis.call('HDEL', plan_key, name)
was = was + redis.call('HDEL', planned_key, name, name .. '!')
was = was + redis.call('ZREM', roster_key, name)
redis.call('DEL', history_prefix .. name)
if was > 0 then
  redis.call('HINCRBY', totals_key, 'unscheduled', 1)
  if version > (tonumber(redis.call('HGET', totals_key, 'versions')) or 0) then
    redis.call('HSET', totals_key, 'versions', version)
  end
  local tenant = name:match('^[^/]+')
  if redis.call('ZLEXCOUNT', roster_key, '[' .. tenant .. '/', '(' .. tenant .. '0') == 0 then
    redis.call('HDEL', pace_key, tenant)
  end
end
return answer_once(call_key, seq, { was > 0 and 1 or 0 })
