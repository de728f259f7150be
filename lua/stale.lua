-- stale: changes no state. Adds the run of a worker that came back too late to its job, if the job still lives.
-- Sent twice, it adds the run once: the same run does not stand in a record two times.
-- KEYS[1] jobs    -- hash
-- KEYS[2] totals  -- hash
-- ARGV[1] late : rest  -- per run: id, run
-- RETURNS {runs added}
-- @include record
local added = 0
for n = late, #ARGV, 2 do
  local raw = redis.call('HGET', jobs_key, ARGV[n])
  local r = raw and open_record(raw)
  if r and not r.runs:find(ARGV[n + 1], 1, true) then
    add_run(r, ARGV[n + 1])
    redis.call('HSET', jobs_key, ARGV[n], seal_record(r))
    redis.call('HINCRBY', totals_key, 'stale', 1)
    added = added + 1
  end
end
return { added }
