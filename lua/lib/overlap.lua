-- overlap: which occurrences of a schedule live at this instant. Asked of their records, not counted: a run that
-- crashed cannot leave a place taken.
-- @include removal
-- @include history

-- Those of the schedule's list that live, as {id, record, occurrence}, the oldest first.
local function living(k, plan, s)
  local ids, found, occurrences = {}, {}, {}
  if s.live == '-' then
    return found
  end
  for occurrence in s.live:gmatch('[^,]+') do
    occurrences[#occurrences + 1] = occurrence
    ids[#ids + 1] = occurrence_id(plan, occurrence)
  end
  for n, raw in ipairs(redis.call('HMGET', k.jobs, unpack(ids))) do
    if raw and raw:byte() == 113 then
      found[#found + 1] = { ids[n], raw, occurrences[n] }
    end
  end
  return found
end

-- Remembers an occurrence for the next decision, with the `kept` youngest of those that still live.
local function remember(s, live, occurrence, kept)
  local list = {}
  for n = math.max(1, #live - kept + 2), #live do
    -- A backfill may come to one that lives.
    if live[n][3] ~= occurrence then
      list[#list + 1] = live[n][3]
    end
  end
  list[#list + 1] = occurrence
  s.live = table.concat(list, ',')
end

-- Leases carry no index by job; one matching pass, in C, serves a whole call.
local leases_by_id = nil
local function lease_of(leases_key, id)
  if not leases_by_id then
    leases_by_id = {}
    local cursor = '0'
    repeat
      local reply = redis.call('ZSCAN', leases_key, cursor, 'MATCH', '*@*#*', 'COUNT', 100000)
      cursor = reply[1]
      for n = 1, #reply[2], 2 do
        leases_by_id[reply[2][n]:match('^(.*)#%d+@') or ''] = reply[2][n]
      end
    until cursor == '0'
  end
  return leases_by_id[id] or ''
end

-- Ends what lives, wherever it is; a worker that runs it learns so at its next renewal.
local function cancel_living(k, now, plan, s, live, limit)
  local REMEMBERED_MS = 3600000
  for _, one in ipairs(live) do
    local r, lease = open_record(one[2]), lease_of(k.leases, one[1])
    if r and remove_job(k, one[1], r, lease, REMEMBERED_MS, limit) then
      local run = unreported_run(r, lease:match('#%d+@(%S+)$') or '-', now, 'cancelled', 'the next occurrence replaced it')
      note_run(k, now, s, plan, one[3], run, 0)
    end
  end
end
