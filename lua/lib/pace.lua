-- pace: how fast a tenant catches up. `pace` maps a tenant to `<hour> <made in it> <usual> <next turn in ms>`: the
-- occurrences its schedules make in an hour, and when the next late one may be made.
local HOUR_MS = 3600000
local paces = {}

local function pace_of(pace_key, tenant, now)
  local p = paces[tenant]
  if not p then
    local hour, made, usual, turn = (redis.call('HGET', pace_key, tenant) or ''):match('^(%d+) (%d+) (%d+) (%d+)$')
    p = { hour = tonumber(hour) or 0, made = tonumber(made) or 0, usual = tonumber(usual) or 0, turn = tonumber(turn) or 0 }
    local this = math.floor(now / HOUR_MS)
    if p.hour ~= this then
      -- A quiet hour, say one of an outage, makes the usual number forget a tenth, not all.
      p.usual, p.made, p.hour = math.max(p.made, math.floor(p.usual * 0.9)), 0, this
    end
    paces[tenant] = p
  end
  return p
end

-- When the next late occurrence may be made: `factor` times as often as usual, and at least `floor` times an hour.
local function take_turn(pace_key, tenant, now, factor, floor)
  local p = pace_of(pace_key, tenant, now)
  local turn = math.max(now, p.turn)
  p.turn = turn + HOUR_MS / math.max(floor, factor * math.max(p.usual, p.made))
  return math.ceil(turn)
end

local function store_paces(pace_key)
  local fields = {}
  for tenant, p in pairs(paces) do
    fields[#fields + 1] = tenant
    fields[#fields + 1] = string.format('%.0f %.0f %.0f %.0f', p.hour, p.made, p.usual, math.ceil(p.turn))
  end
  if #fields > 0 then
    redis.call('HSET', pace_key, unpack(fields))
  end
end
