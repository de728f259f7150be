-- progress: changes no state. Notes how far a run is, if its lease is still held.
-- KEYS[1] leases     -- zset
-- KEYS[2] progress:  -- string, completed with a job's id
-- ARGV[1] lease : str
-- ARGV[2] id : str
-- ARGV[3] note : str
-- ARGV[4] keep_ms : int
-- RETURNS {word}: noted, or stale
if not redis.call('ZSCORE', leases_key, lease) then
  return { 'stale' }
end
redis.call('SET', progress_prefix .. id, note, 'PX', keep_ms)
return { 'noted' }
