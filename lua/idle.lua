-- idle: changes nothing. Whether a shard has nothing ready, running or due.
-- KEYS[1] due     -- zset
-- KEYS[2] ring    -- list
-- KEYS[3] leases  -- zset
-- ARGV[1] now_ms : int  -- 0: Redis' clock
-- RETURNS {1 if idle, else 0}
-- @include clock
local head = redis.call('ZRANGE', due_key, 0, 0, 'WITHSCORES')[2]
local due_now = head and tonumber(head) <= clock(now_ms)
if due_now or redis.call('LLEN', ring_key) > 0 or redis.call('ZCARD', leases_key) > 0 then
  return { 0 }
end
return { 1 }
