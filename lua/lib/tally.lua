-- tally: jobs a tenant has waiting in `due` (w), running (r) and dead (d). A zero is removed,
-- so a tenant without work costs nothing.
local function tally_add(tally_key, place, tenant, by)
  if by ~= 0 and redis.call('HINCRBY', tally_key, place .. ' ' .. tenant, by) == 0 then
    redis.call('HDEL', tally_key, place .. ' ' .. tenant)
  end
end

local function tally_all(tally_key, place, counts, sign)
  for tenant, count in pairs(counts) do
    tally_add(tally_key, place, tenant, sign * count)
  end
end

-- What a shard did since it was made, by kind of event; see `totals`.
local function tally_totals(totals_key, counts)
  for what, count in pairs(counts) do
    if count > 0 then
      redis.call('HINCRBY', totals_key, what, count)
    end
  end
end
