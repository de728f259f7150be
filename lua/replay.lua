-- replay: dead -> waiting. A dead letter gets a new set of attempts and is due now; its runs stay with it.
-- KEYS[1] jobs    -- hash
-- KEYS[2] due     -- zset
-- KEYS[3] dead    -- stream
-- KEYS[4] tally   -- hash
-- KEYS[5] totals  -- hash
-- KEYS[6] alarm   -- list
-- ARGV[1] now_ms : int   -- 0: Redis' clock
-- ARGV[2] letters : rest -- ids
-- RETURNS {replayed, index of each that is not dead...}
-- @include clock
-- @include giveback
-- @include wake
local now = clock(now_ms)
local answer = { 0 }
for n = letters, #ARGV do
  local raw = redis.call('HGET', jobs_key, ARGV[n])
  local r = raw and open_record(raw)
  if r and r.state == 'd' then
    redis.call('XDEL', dead_key, r.mark)
    tally_add(tally_key, 'd', r.tenant, -1)
    r.state, r.attempts, r.mark = 'q', 0, '0'
    put_waiting(due_key, jobs_key, tally_key, ARGV[n], r, now)
    answer[1] = answer[1] + 1
  else
    answer[#answer + 1] = n - letters
  end
end
if answer[1] > 0 then
  ring_alarm(alarm_key, due_key, now)
  redis.call('HINCRBY', totals_key, 'replayed', answer[1])
end
return answer
