-- take: the next jobs of one tenant, from its lanes and then their overflows.
--
-- High work passes normal work that became ready up to AGING_MS earlier, normal passes low: a
-- priority is a head start, not a class of its own, so low work is never starved for ever.
-- Appends ids to `ids` and the commands that remove the entries to `ends`; answers the marks that remain.
local AGING_MS = 60000
local HEAD_START = { h = -AGING_MS, n = 0, l = AGING_MS }

local function without(marks, mark)
  return (marks:gsub(mark, ''))
end

-- Up to want + 1 entries of one place as {ready ms, id}: the extra one tells whether something remains.
local function peek(lane_prefix, overflow_prefix, lane, marks, letter, want)
  local found = {}
  if marks:find(letter, 1, true) then
    for n, entry in ipairs(redis.call('XRANGE', lane_prefix .. lane, '-', '+', 'COUNT', want + 1)) do
      found[n] = { entry[1], entry[2][2] }
    end
  end
  local lanes = #found
  if lanes <= want and marks:find(letter:upper(), 1, true) then
    local spilled = redis.call('ZRANGE', overflow_prefix .. lane, 0, want - lanes, 'WITHSCORES')
    for n = 1, #spilled, 2 do
      found[#found + 1] = { spilled[n + 1], spilled[n]:match('/(.*)$') }
    end
  end
  return found, lanes
end

-- Removes the first `count` of what peek found.
local function consume(lane_prefix, overflow_prefix, lane, marks, letter, found, lanes, count, ends)
  if count == 0 then
    return marks
  end
  local from_lane = math.min(count, lanes)
  if from_lane > 0 then
    -- An emptied stream still takes 400 bytes: delete it. Taking all that came means all was seen,
    -- because peek asks for one more than may be taken.
    if from_lane == lanes then
      ends[#ends + 1] = { 'DEL', lane_prefix .. lane }
      marks = without(marks, letter)
    else
      local command = { 'XDEL', lane_prefix .. lane }
      for n = 1, from_lane do
        command[n + 2] = found[n][1]
      end
      ends[#ends + 1] = command
    end
  end
  local from_overflow = count - from_lane
  if from_overflow > 0 then
    ends[#ends + 1] = { 'ZREMRANGEBYRANK', overflow_prefix .. lane, 0, from_overflow - 1 }
  end
  if count == #found then
    marks = without(marks, letter:upper())
  end
  return marks
end

local function take(lane_prefix, overflow_prefix, tenant, marks, want, ids, ends)
  local letters = {}
  for letter in marks:lower():gmatch('%a') do
    letters[letter] = true
  end
  local places, only = {}, nil
  for letter in pairs(letters) do
    local lane = tenant .. LANE_SUFFIX[letter]
    local found, lanes = peek(lane_prefix, overflow_prefix, lane, marks, letter, want)
    only = { letter = letter, lane = lane, found = found, lanes = lanes, used = 0 }
    places[#places + 1] = only
  end
  if #places == 1 then
    only.used = math.min(want, #only.found)
    for n = 1, only.used do
      ids[#ids + 1] = only.found[n][2]
    end
  else
    table.sort(places, function(a, b) return HEAD_START[a.letter] < HEAD_START[b.letter] end)
    for _ = 1, want do
      local best, best_ms = nil, nil
      for _, place in ipairs(places) do
        local next_one = place.found[place.used + 1]
        if next_one then
          local ms = tonumber(next_one[1]:match('^[%d.e+]+')) + HEAD_START[place.letter]
          if not best or ms < best_ms then
            best, best_ms = place, ms
          end
        end
      end
      if not best then
        break
      end
      best.used = best.used + 1
      ids[#ids + 1] = best.found[best.used][2]
    end
  end
  for _, p in ipairs(places) do
    marks = consume(lane_prefix, overflow_prefix, p.lane, marks, p.letter, p.found, p.lanes, p.used, ends)
  end
  -- Marks of places that turned out empty must go too, or the tenant would stay in the ring for ever.
  for _, p in ipairs(places) do
    if #p.found == 0 then
      marks = without(without(marks, p.letter), p.letter:upper())
    end
  end
  return marks
end
