-- giveback: a job whose run was lost goes back to `due`, or to the dead letters when its budget is used up.
-- The caller has ended the lease, read the record and raised its counts.
-- @include record
-- @include tally
local function put_waiting(due_key, jobs_key, tally_key, id, r, at)
  redis.call('HSET', jobs_key, id, seal_record(r))
  redis.call('ZADD', due_key, at, r.lane .. '/' .. id)
  tally_add(tally_key, 'w', r.tenant, 1)
end

local function put_dead(dead_key, jobs_key, tally_key, id, r, why)
  r.state = 'd'
  r.mark = redis.call('XADD', dead_key, '*', 'id', id, 'tenant', r.tenant, 'error', why)
  redis.call('HSET', jobs_key, id, seal_record(r))
  tally_add(tally_key, 'd', r.tenant, 1)
end
