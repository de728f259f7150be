-- ring: which tenants have ready work, and where.
--
-- `ringed` maps a tenant to "<marks> <deficit>": a mark for each of its places that holds work,
-- h n l for the lanes (high, normal, low) and H N L for their overflows. A tenant is in the ring
-- list exactly while it has a field here. Marks save an XLEN or EXISTS a place and a visit.
local LANE_SUFFIX = { h = ':h', n = '', l = ':l' }

local function lane_letter(lane)
  return lane:match(':(%a)$') or 'n'
end

local function marks_of(state)
  if not state then
    return '', 0
  end
  local marks, deficit = state:match('^([hnlHNL]+) (%d+)$')
  -- A foreign hand wrote something else: no marks, rather than an error that would stop the shard.
  return marks or '', tonumber(deficit) or 0
end
