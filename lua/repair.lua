-- repair: nothing -> waiting, or dead when the record says so. The second look of `doctor`: all places of a
-- suspect in one step, and with `fix` what breaks invariant 1 is mended. The record is the truth: a job keeps
-- the most advanced place that fits its record, an entry that fits none goes, and a record is never removed.
-- KEYS[1] jobs      -- hash
-- KEYS[2] due       -- zset
-- KEYS[3] leases    -- zset
-- KEYS[4] dead      -- stream
-- KEYS[5] tally     -- hash
-- KEYS[6] totals    -- hash
-- KEYS[7] alarm     -- list
-- KEYS[8] lane:     -- stream, completed with a lane's name
-- KEYS[9] overflow: -- zset, completed with a lane's name
-- ARGV[1] now_ms : int       -- 0: Redis' clock
-- ARGV[2] fix : int          -- 0: only look
-- ARGV[3] limit : int        -- entries looked through, after which the rest is left for another call
-- ARGV[4] lane_limit : int   -- a lane that is longer is not searched to its end
-- ARGV[5] longest_ms : int   -- a lease that ends later than so far from now is absurd
-- ARGV[6] suspects : rest    -- per place seen, those of a job together: id, kind (or none), where
-- RETURNS {id, word, places...}: fine, nowhere, twice, astray, ghost, endless, unreadable, unsure, later (budget used up)
-- @include clock
-- @include giveback
-- @include places
-- @include wake
local GRACE_MS = 30000
local now = clock(now_ms)
local k = { due = due_key, leases = leases_key, dead = dead_key, lane = lane_prefix, overflow = overflow_prefix }

local function fits(place, r, id)
  if r.state == 'd' then
    return place.kind == 'dead' and place.where == r.mark
  end
  local member = r.lane .. '/' .. id
  return place.kind == 'lease'
    or (place.kind == 'due' and place.where == member)
    or (place.kind == 'overflow' and place.where == r.lane .. ' ' .. member)
    or (place.kind == 'lane' and place.where == r.lane)
end

local function fence_of(place)
  return place.kind == 'lease' and tonumber(place.where:match('#(%d+)@')) or 0
end

-- The place to keep: running before ready before waiting; of two leases the younger, of two entries the older.
local function best_of(found, r, id)
  local best, fitting = nil, 0
  for _, place in ipairs(found) do
    if r and fits(place, r, id) then
      fitting = fitting + 1
      if not best or place.rank > best.rank or (place.rank == best.rank and fence_of(place) > fence_of(best)) then
        best = place
      end
    end
  end
  return best, fitting
end

local function is_endless(place)
  local ends = place and place.kind == 'lease' and tonumber(redis.call('ZSCORE', leases_key, place.where))
  return ends and not (ends <= now + longest_ms)
end

local function judge(raw, r, found, unseen, best, fitting)
  if raw and not r then
    return 'unreadable'
  elseif not r then
    return #found > 0 and 'ghost' or 'fine'
  elseif unseen then
    return 'unsure'
  elseif #found == 0 then
    return 'nowhere'
  elseif fitting == 0 then
    return 'astray'
  elseif #found > 1 then
    return 'twice'
  end
  return is_endless(best) and 'endless' or 'fine'
end

local function mend(id, r, found, best)
  for _, place in ipairs(found) do
    if place ~= best then
      remove_place(k, place)
    end
  end
  if is_endless(best) then
    -- Its worker renews it within seconds if it lives; otherwise the job is taken back then.
    redis.call('ZADD', leases_key, 'XX', now + GRACE_MS, best.where)
  elseif r and not best and r.state == 'd' then
    put_dead(dead_key, jobs_key, tally_key, id, r, 'its dead letter was missing; doctor put it back')
  elseif r and not best then
    put_waiting(due_key, jobs_key, tally_key, id, r, now)
    ring_alarm(alarm_key, due_key, now)
  end
  redis.call('HINCRBY', totals_key, 'repaired', 1)
end

if fix == 1 then
  -- A first write that frees lets the script through on a full server.
  redis.call('ZREM', due_key, '')
end
local seen, order = {}, {}
for n = suspects, #ARGV, 3 do
  local id = ARGV[n]
  if not seen[id] then
    seen[id] = {}
    order[#order + 1] = id
  end
  table.insert(seen[id], { ARGV[n + 1], ARGV[n + 2] })
end
local answer = {}
for _, id in ipairs(order) do
  local word, names = 'later', {}
  if spent <= limit then
    local raw = redis.call('HGET', jobs_key, id)
    local r = raw and open_record(raw)
    if r and r.state ~= 'q' and r.state ~= 'd' then
      r = nil
    end
    local found, unseen = find_places(k, id, seen[id], r, lane_limit)
    local best, fitting = best_of(found, r, id)
    word = judge(raw, r, found, unseen, best, fitting)
    for n, place in ipairs(found) do
      names[n] = place.kind .. ' ' .. place.where
    end
    if fix == 1 and word ~= 'fine' and word ~= 'unsure' and word ~= 'unreadable' then
      mend(id, r, found, best)
    end
  end
  answer[#answer + 1] = id
  answer[#answer + 1] = word
  answer[#answer + 1] = table.concat(names, ', ')
end
return answer
