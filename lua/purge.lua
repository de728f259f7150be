-- purge: dead -> gone. Removes the dead letters named, or, when none is named, the oldest ones past
-- the kept count or age, at most `limit` of them.
-- KEYS[1] jobs    -- hash
-- KEYS[2] dead    -- stream
-- KEYS[3] tally   -- hash
-- KEYS[4] totals  -- hash
-- ARGV[1] now_ms : int     -- 0: Redis' clock
-- ARGV[2] limit : int
-- ARGV[3] kept : int       -- how many may stay
-- ARGV[4] age_ms : int     -- how old they may become
-- ARGV[5] letters : rest   -- ids
-- RETURNS {purged, index of each that is not dead...}
-- @include clock
-- @include record
-- @include tally
local answer = { 0 }
local function remove(id)
  local raw = redis.call('HGET', jobs_key, id)
  local r = raw and open_record(raw)
  if not r or r.state ~= 'd' then
    return false
  end
  redis.call('XDEL', dead_key, r.mark)
  redis.call('HDEL', jobs_key, id)
  tally_add(tally_key, 'd', r.tenant, -1)
  answer[1] = answer[1] + 1
  return true
end

if #ARGV >= letters then
  for n = letters, #ARGV do
    if not remove(ARGV[n]) then
      answer[#answer + 1] = n - letters
    end
  end
else
  local surplus = redis.call('XLEN', dead_key) - kept
  local oldest_ms = clock(now_ms) - age_ms
  for n, entry in ipairs(redis.call('XRANGE', dead_key, '-', '+', 'COUNT', limit) or {}) do
    if n > surplus and tonumber(entry[1]:match('^%d+')) >= oldest_ms then
      break
    end
    if not remove(entry[2][2]) then
      redis.call('XDEL', dead_key, entry[1])
    end
  end
end
if answer[1] > 0 then
  redis.call('HINCRBY', totals_key, 'purged', answer[1])
end
return answer
