-- wake: hints for those who sleep. A lost hint costs a second, never a job: sleepers look by themselves.
local BELLS_KEPT = 16

local function ring_bell(bell_key)
  if redis.call('LLEN', bell_key) < BELLS_KEPT then
    redis.call('RPUSH', bell_key, '1')
  end
end

-- Rings the schedulers when `at` is no later than everything that waits: somebody sleeps too long.
local function ring_alarm(alarm_key, due_key, at)
  local head = redis.call('ZRANGE', due_key, 0, 0, 'WITHSCORES')
  if head[2] and at <= tonumber(head[2]) and redis.call('LLEN', alarm_key) < BELLS_KEPT then
    redis.call('RPUSH', alarm_key, '1')
  end
end
