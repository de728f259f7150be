-- clock: Redis' clock in ms, or the caller's where a test moves time (invariant 2).
local function clock(given_ms)
  if given_ms > 0 then
    return given_ms
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
