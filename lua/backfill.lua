-- backfill: changes no state. Begins the making of a schedule's past occurrences, or ends it before its time.
-- KEYS[1] planned  -- hash
-- KEYS[2] plans    -- zset
-- KEYS[3] alarm    -- list
-- KEYS[4] call     -- string, the caller's own
-- ARGV[1] now_ms : int  -- 0: Redis' clock
-- ARGV[2] seq : int     -- the caller's call number
-- ARGV[3] name : str
-- ARGV[4] first : str   -- ms of the first occurrence; 0: stop the one that is under way
-- ARGV[5] last : str    -- ms of the end of the range
-- ARGV[6] count : str   -- occurrences in it
-- RETURNS {1: begun or stopped, 0: no such schedule or nothing under way, -1: another one is under way}
-- @include clock
-- @include once
-- @include plan
-- @include wake
local before = answered(call_key, seq)
if before then
  return before
end
local states = redis.call('HMGET', planned_key, name, name .. '!')
local s = states[1] and open_plan(states[1])
if first == '0' then
  redis.call('ZREM', plans_key, name .. '!')
  return answer_once(call_key, seq, { redis.call('HDEL', planned_key, name .. '!') })
elseif not s then
  return answer_once(call_key, seq, { 0 })
elseif states[2] then
  return answer_once(call_key, seq, { -1 })
end
local now = clock(now_ms)
s.cursor, s.mode, s.made, s.missed, s.skipped = first, '-', 0, 0, 0
s.catch, s.live = string.format('%.0f', now), last .. '/' .. count
redis.call('HSET', planned_key, name .. '!', seal_plan(s))
redis.call('ZADD', plans_key, now, name .. '!')
ring_alarm(alarm_key, plans_key, now)
return answer_once(call_key, seq, { 1 })
