-- complete: running -> gone. Ends the leases that the caller still holds and forgets their jobs.
-- A job whose lease is not the caller's any more is left alone: its outcome belongs to another run.
-- KEYS[1] leases   -- zset
-- KEYS[2] jobs     -- hash
-- KEYS[3] tally    -- hash
-- KEYS[4] totals   -- hash
-- KEYS[5] planned  -- hash
-- KEYS[6] plans    -- zset
-- KEYS[7] alarm    -- list
-- KEYS[8] result:  -- string, completed with a job's id
-- KEYS[9] rate:    -- hash, completed with a minute
-- KEYS[10] history: -- stream, completed with a plan's name
-- KEYS[11] call    -- string, the caller's own
-- ARGV[1] now_ms : int  -- 0: Redis' clock
-- ARGV[2] seq : int     -- the caller's call number
-- ARGV[3] count : int   -- jobs
-- ARGV[4] results : int -- of them with a result to keep
-- ARGV[5] ended : rest  -- count leases, count ids, count tenants, per kept result: index, ms to keep, bytes; per occurrence of a schedule: index, run, bytes of its result
-- RETURNS {completed, index of each stale one...}
-- @include clock
-- @include once
-- @include tally
-- @include history
local before = answered(call_key, seq)
if before then
  return before
end
local now = clock(now_ms)
local ids_at, tenants_at, results_at = ended + count, ended + 2 * count, ended + 3 * count
local occurrences_at = results_at + 3 * results

local scores = redis.call('ZMSCORE', leases_key, unpack(ARGV, ended, ids_at - 1))
local answer, stale, by_tenant = { count }, {}, {}
for n = 1, count do
  if scores[n] then
    local tenant = ARGV[tenants_at + n - 1]
    by_tenant[tenant] = (by_tenant[tenant] or 0) + 1
  else
    stale[n] = true
    answer[#answer + 1] = n - 1
  end
end
answer[1] = count - (#answer - 1)

redis.call('ZREM', leases_key, unpack(ARGV, ended, ids_at - 1))
if answer[1] == count then
  redis.call('HDEL', jobs_key, unpack(ARGV, ids_at, tenants_at - 1))
else
  for n = 1, count do
    if not stale[n] then
      redis.call('HDEL', jobs_key, ARGV[ids_at + n - 1])
    end
  end
end
for n = results_at, occurrences_at - 1, 3 do
  local index = tonumber(ARGV[n])
  if not stale[index + 1] and tonumber(ARGV[n + 1]) > 0 then
    redis.call('SET', result_prefix .. ARGV[ids_at + index], ARGV[n + 2], 'PX', ARGV[n + 1])
  end
end
for n = occurrences_at, #ARGV, 3 do
  local index = tonumber(ARGV[n])
  if not stale[index + 1] then
    local k = { planned = planned_key, plans = plans_key, alarm = alarm_key, history = history_prefix }
    note_end(k, now, ARGV[ids_at + index], ARGV[n + 1], ARGV[n + 2])
  end
end
if answer[1] > 0 then
  local minute = rate_prefix .. math.floor(now / 60000)
  for tenant, done in pairs(by_tenant) do
    tally_add(tally_key, 'r', tenant, -done)
    redis.call('HINCRBY', minute, tenant, done)
  end
  redis.call('EXPIRE', minute, 180)
  redis.call('HINCRBY', totals_key, 'done', answer[1])
end
return answer_once(call_key, seq, answer)
