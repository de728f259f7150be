-- renew: running -> running. Leases that are still held end later; a lease that is gone stays gone.
-- KEYS[1] leases  -- zset
-- ARGV[1] now_ms : int    -- 0: Redis' clock
-- ARGV[2] lease_ms : int
-- ARGV[3] held : rest     -- leases
-- RETURNS {renewed, index of each lost one...}
-- @include clock
local now = clock(now_ms)
local scores = redis.call('ZMSCORE', leases_key, unpack(ARGV, held))
local answer, kept = { 0 }, {}
for n = 1, #scores do
  if scores[n] then
    kept[#kept + 1] = now + lease_ms
    kept[#kept + 1] = ARGV[held + n - 1]
  else
    answer[#answer + 1] = n - 1
  end
end
answer[1] = #kept / 2
if #kept > 0 then
  -- A first write that frees lets the script through on a full server: a renewal needs no memory.
  redis.call('ZREM', leases_key, '')
  redis.call('ZADD', leases_key, 'XX', unpack(kept))
end
return answer
