-- release: running -> waiting, or dead when a budget is used up. A worker gives back what it did not finish.
-- KEYS[1] leases  -- zset
-- KEYS[2] jobs    -- hash
-- KEYS[3] due     -- zset
-- KEYS[4] dead    -- stream
-- KEYS[5] tally   -- hash
-- KEYS[6] totals  -- hash
-- KEYS[7] alarm   -- list
-- KEYS[8] planned -- hash
-- KEYS[9] plans   -- zset
-- KEYS[10] history: -- stream, completed with a plan's name
-- KEYS[11] call   -- string, the caller's own
-- ARGV[1] now_ms : int         -- 0: Redis' clock
-- ARGV[2] seq : int            -- the caller's call number
-- ARGV[3] unknown_limit : int  -- how often a stray may go back
-- ARGV[4] held : rest          -- per job: lease, id, why (unstarted, lost or unknown), delay in ms
-- RETURNS {given back, index of each stale one...}
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
local answer, earliest, buried = { 0 }, nil, 0
local k = { planned = planned_key, plans = plans_key, alarm = alarm_key, history = history_prefix }
for n = held, #ARGV, 4 do
  local id, why = ARGV[n + 1], ARGV[n + 2]
  local raw = redis.call('HGET', jobs_key, id)
  local r = raw and open_record(raw)
  if r and redis.call('ZREM', leases_key, ARGV[n]) == 1 then
    local reason, worker = nil, ARGV[n]:match('^.*#%d+@(%S+)$')
    if why == 'lost' then
      add_run(r, unreported_run(r, worker, now, 'lost', 'its worker process died'))
      r.attempts = r.attempts + 1
      reason = r.attempts >= r.max and 'its worker process died; no attempts left'
    elseif why == 'unknown' then
      r.mark = tonumber(r.mark) + 1
      reason = r.mark >= unknown_limit and 'no worker knows its handler'
      if reason then
        add_run(r, unreported_run(r, worker, now, 'failed', reason))
      end
    end
    tally_add(tally_key, 'r', r.tenant, -1)
    if reason then
      put_dead(dead_key, jobs_key, tally_key, id, r, reason)
      note_end(k, now, id, r.last_run)
      buried = buried + 1
    else
      local at = now + tonumber(ARGV[n + 3])
      if r.last_run then
        note_attempt(k, now, id, r.last_run)
      end
      put_waiting(due_key, jobs_key, tally_key, id, r, at)
      if not earliest or at < earliest then
        earliest = at
      end
    end
    answer[1] = answer[1] + 1
  else
    answer[#answer + 1] = (n - held) / 4
  end
end
if earliest then
  ring_alarm(alarm_key, due_key, earliest)
end
redis.call('HINCRBY', totals_key, 'released', answer[1])
redis.call('HINCRBY', totals_key, 'buried', buried)
return answer_once(call_key, seq, answer)
