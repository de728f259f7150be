-- recover: running -> waiting, or dead when the budget is used up. Takes jobs back whose leases ended:
-- their host is lost, or hangs. The run counts as an attempt, so a job that kills hosts ends among the dead.
-- KEYS[1] leases  -- zset
-- KEYS[2] jobs    -- hash
-- KEYS[3] due     -- zset
-- KEYS[4] dead    -- stream
-- KEYS[5] tally   -- hash
-- KEYS[6] totals  -- hash
-- KEYS[7] alarm   -- list
-- KEYS[8] looked  -- string
-- KEYS[9] planned -- hash
-- KEYS[10] plans  -- zset
-- KEYS[11] history: -- stream, completed with a plan's name
-- ARGV[1] now_ms : int     -- 0: Redis' clock
-- ARGV[2] limit : int
-- ARGV[3] gap_ms : int     -- nobody looked for longer than this: the server, or all schedulers, were away
-- ARGV[4] amnesty_ms : int -- how long nothing is taken back then; 0: no amnesty
-- RETURNS {leases ended, of them to the dead letters, ms until the next lease ends or -1 when nothing runs}
-- @include clock
-- @include giveback
-- @include history
local now = clock(now_ms)
-- A first write that frees lets the script through on a full server.
redis.call('ZREM', leases_key, '')
if amnesty_ms > 0 then
  -- After an outage leases have ended that nobody could renew: the living have their turn first. This is decided here,
  -- by Redis' clock, because a scheduler that just started, or whose call was on its way, knows of no outage.
  local last, pardoned = (redis.call('GET', looked_key) or ''):match('^(%d+) (%d+)$')
  pardoned = tonumber(pardoned) or 0
  -- Not again so soon: a scheduler that is always late must not put recovery off for ever.
  if last and now - tonumber(last) > gap_ms and now - pardoned > 10 * amnesty_ms then
    pardoned = now + amnesty_ms
  end
  redis.call('SET', looked_key, string.format('%.0f %.0f', now, pardoned))
  if now < pardoned then
    return { 0, 0, pardoned - now }
  end
end
local ended = redis.call('ZRANGEBYSCORE', leases_key, '-inf', now, 'LIMIT', 0, limit)
local buried, waiting = 0, false
local k = { planned = planned_key, plans = plans_key, alarm = alarm_key, history = history_prefix }
for _, lease in ipairs(ended) do
  redis.call('ZREM', leases_key, lease)
  local id, worker = lease:match('^(.*)#%d+@(%S+)$')
  local raw = id and redis.call('HGET', jobs_key, id)
  local r = raw and open_record(raw)
  if r and r.state == 'q' then
    add_run(r, unreported_run(r, worker, now, 'lost', 'its lease ended without an answer'))
    r.attempts = r.attempts + 1
    tally_add(tally_key, 'r', r.tenant, -1)
    if r.attempts >= r.max then
      put_dead(dead_key, jobs_key, tally_key, id, r, 'its lease ended without an answer; no attempts left')
      note_end(k, now, id, r.last_run)
      buried = buried + 1
    else
      put_waiting(due_key, jobs_key, tally_key, id, r, now)
      note_attempt(k, now, id, r.last_run)
      waiting = true
    end
  end
end
if waiting then
  ring_alarm(alarm_key, due_key, now)
end
if #ended > 0 then
  redis.call('HINCRBY', totals_key, 'recovered', #ended)
  redis.call('HINCRBY', totals_key, 'buried', buried)
end
local head = redis.call('ZRANGE', leases_key, 0, 0, 'WITHSCORES')[2]
return { #ended, buried, head and math.max(0, math.ceil(tonumber(head) - now)) or -1 }
