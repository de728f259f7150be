-- bury: running -> dead. The job keeps its record, with this run added, and waits for a human.
-- KEYS[1] leases  -- zset
-- KEYS[2] jobs    -- hash
-- KEYS[3] dead    -- stream
-- KEYS[4] tally   -- hash
-- KEYS[5] totals  -- hash
-- KEYS[6] planned -- hash
-- KEYS[7] plans   -- zset
-- KEYS[8] alarm   -- list
-- KEYS[9] history: -- stream, completed with a plan's name
-- KEYS[10] call   -- string, the caller's own
-- ARGV[1] now_ms : int   -- 0: Redis' clock
-- ARGV[2] seq : int      -- the caller's call number
-- ARGV[3] failed : rest  -- per job: lease, id, reason, run
-- RETURNS {buried, index of each stale one...}
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
local answer = { 0 }
local k = { planned = planned_key, plans = plans_key, alarm = alarm_key, history = history_prefix }
for n = failed, #ARGV, 4 do
  local id = ARGV[n + 1]
  local raw = redis.call('HGET', jobs_key, id)
  local r = raw and open_record(raw)
  if r and redis.call('ZREM', leases_key, ARGV[n]) == 1 then
    add_run(r, ARGV[n + 3])
    r.attempts = r.attempts + 1
    put_dead(dead_key, jobs_key, tally_key, id, r, ARGV[n + 2])
    tally_add(tally_key, 'r', r.tenant, -1)
    note_end(k, now, id, ARGV[n + 3])
    answer[1] = answer[1] + 1
  else
    answer[#answer + 1] = (n - failed) / 4
  end
end
redis.call('HINCRBY', totals_key, 'buried', answer[1])
return answer_once(call_key, seq, answer)
