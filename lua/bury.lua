-- bury: running -> dead. The job keeps its record, with this run added, and waits for a human.
-- KEYS[1] leases  -- zset
-- KEYS[2] jobs    -- hash
-- KEYS[3] dead    -- stream
-- KEYS[4] tally   -- hash
-- KEYS[5] totals  -- hash
-- KEYS[6] call    -- string, the caller's own
-- ARGV[1] seq : int      -- the caller's call number
-- ARGV[2] failed : rest  -- per job: lease, id, reason, run
-- RETURNS {buried, index of each stale one...}
-- @include once
-- @include giveback
local before = answered(call_key, seq)
if before then
  return before
end
-- A first write that frees lets the script through on a full server.
redis.call('ZREM', leases_key, '')
local answer = { 0 }
for n = failed, #ARGV, 4 do
  local id = ARGV[n + 1]
  local raw = redis.call('HGET', jobs_key, id)
  local r = raw and open_record(raw)
  if r and redis.call('ZREM', leases_key, ARGV[n]) == 1 then
    add_run(r, ARGV[n + 3])
    r.attempts = r.attempts + 1
    put_dead(dead_key, jobs_key, tally_key, id, r, ARGV[n + 2])
    tally_add(tally_key, 'r', r.tenant, -1)
    answer[1] = answer[1] + 1
  else
    answer[#answer + 1] = (n - failed) / 4
  end
end
redis.call('HINCRBY', totals_key, 'buried', answer[1])
return answer_once(call_key, seq, answer)
