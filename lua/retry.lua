-- retry: running -> waiting. A failed run ends; its job becomes due again after a delay.
-- KEYS[1] leases  -- zset
-- KEYS[2] jobs    -- hash
-- KEYS[3] due     -- zset
-- KEYS[4] tally   -- hash
-- KEYS[5] totals  -- hash
-- KEYS[6] alarm   -- list
-- KEYS[7] planned -- hash
-- KEYS[8] plans   -- zset
-- KEYS[9] history: -- stream, completed with a plan's name
-- KEYS[10] call   -- string, the caller's own
-- ARGV[1] now_ms : int   -- 0: Redis' clock
-- ARGV[2] seq : int      -- the caller's call number
-- ARGV[3] failed : rest  -- per job: lease, id, 1 if an attempt is used up, most attempts, delay in ms, run
-- RETURNS {put back, index of each stale one...}
-- @include clock
-- @include once
-- @include giveback
-- @include history
local before = answered(call_key, seq)
if before then
  return before
end
-- A first write that frees lets the script through on a full server.
redis.call('ZREM', leases_key, '')
local now = clock(now_ms)
local answer, earliest = { 0 }, nil
local k = { planned = planned_key, plans = plans_key, alarm = alarm_key, history = history_prefix }
for n = failed, #ARGV, 6 do
  local id = ARGV[n + 1]
  local raw = redis.call('HGET', jobs_key, id)
  local r = raw and open_record(raw)
  if r and redis.call('ZREM', leases_key, ARGV[n]) == 1 then
    add_run(r, ARGV[n + 5])
    r.attempts = r.attempts + tonumber(ARGV[n + 2])
    r.max = tonumber(ARGV[n + 3])
    local at = now + tonumber(ARGV[n + 4])
    put_waiting(due_key, jobs_key, tally_key, id, r, at)
    tally_add(tally_key, 'r', r.tenant, -1)
    note_attempt(k, now, id, ARGV[n + 5])
    if not earliest or at < earliest then
      earliest = at
    end
    answer[1] = answer[1] + 1
  else
    answer[#answer + 1] = (n - failed) / 6
  end
end
if earliest then
  ring_alarm(alarm_key, due_key, earliest)
end
redis.call('HINCRBY', totals_key, 'retried', answer[1])
return answer_once(call_key, seq, answer)
