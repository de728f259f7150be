-- peek: changes nothing. The schedules whose time has come, oldest first, with what is needed to fire them.
-- KEYS[1] plan     -- hash
-- KEYS[2] planned  -- hash
-- KEYS[3] plans    -- zset
-- ARGV[1] now_ms : int  -- 0: Redis' clock
-- ARGV[2] limit : int
-- RETURNS {now, ms until the next one is due or -1, plan, look, state, body, plan, look, state, body...}
-- @include clock
local now = clock(now_ms)
local found = redis.call('ZRANGEBYSCORE', plans_key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
local answer, names, looks = { now, 0 }, {}, {}
for n = 1, #found, 2 do
  names[#names + 1] = found[n]
  looks[#looks + 1] = found[n + 1]
end
if #names < limit then
  local head = redis.call('ZRANGE', plans_key, #names, #names, 'WITHSCORES')[2]
  answer[2] = head and math.max(1, math.ceil(tonumber(head) - now)) or -1
end
if #names == 0 then
  return answer
end
local parents = {}
for n, name in ipairs(names) do
  parents[n] = name:sub(-1) == '!' and name:sub(1, -2) or name
end
local states = redis.call('HMGET', planned_key, unpack(names))
local bodies = redis.call('HMGET', plan_key, unpack(parents))
for n, name in ipairs(names) do
  answer[#answer + 1] = name
  answer[#answer + 1] = looks[n]
  answer[#answer + 1] = states[n] or ''
  answer[#answer + 1] = bodies[n] or ''
end
return answer
