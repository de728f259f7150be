-- cancel: waiting, ready or running -> gone. For a running job the lease is ended under its worker,
-- which learns it at the next renewal and stops the handler.
-- KEYS[1] jobs      -- hash
-- KEYS[2] due       -- zset
-- KEYS[3] leases    -- zset
-- KEYS[4] tally     -- hash
-- KEYS[5] totals    -- hash
-- KEYS[6] planned   -- hash
-- KEYS[7] plans     -- zset
-- KEYS[8] alarm     -- list
-- KEYS[9] lane:     -- stream, completed with a lane's name
-- KEYS[10] overflow: -- zset, completed with a lane's name
-- KEYS[11] result:  -- string, completed with a job's id
-- KEYS[12] history: -- stream, completed with a plan's name
-- ARGV[1] now_ms : int     -- 0: Redis' clock
-- ARGV[2] id : str
-- ARGV[3] lease : str      -- the lease it was seen with, or empty
-- ARGV[4] keep_ms : int    -- how long to remember that it was cancelled
-- ARGV[5] limit : int      -- entries of the lane to look through: its bound
-- RETURNS {word}: cancelled, again (it was cancelled before), dead, gone, unreadable, or moved (running with another lease: look again)
-- @include clock
-- @include removal
-- @include history
local raw = redis.call('HGET', jobs_key, id)
if not raw then
  local kept = redis.call('GET', result_prefix .. id)
  return { kept == 'c' and 'again' or 'gone' }
end
local r = open_record(raw)
if not r then
  return { 'unreadable' }
end
if r.state == 'd' then
  return { 'dead' }
end
local k = {
  jobs = jobs_key, due = due_key, leases = leases_key, tally = tally_key, totals = totals_key,
  lane = lane_prefix, overflow = overflow_prefix, result = result_prefix,
  planned = planned_key, plans = plans_key, alarm = alarm_key, history = history_prefix,
}
if not remove_job(k, id, r, lease, keep_ms, limit) then
  return { 'moved' }
end
local now = clock(now_ms)
note_end(k, now, id, unreported_run(r, lease:match('#%d+@(%S+)$') or '-', now, 'cancelled', 'somebody cancelled it'))
return { 'cancelled' }
