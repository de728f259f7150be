-- placing: where a new job goes. One that is due goes straight to its lane, unless something of the shard is
-- overdue or the lane is full: then it queues behind that, so order within a tenant holds. The rest waits in `due`.
-- @include ring
-- @include tally
-- @include wake

-- k: the keys due, ring, ringed, tally, bell, alarm and lane (a prefix).
local function open_placing(k, now, lane_bound)
  local head = redis.call('ZRANGE', k.due, 0, 0, 'WITHSCORES')[2]
  return {
    k = k,
    now = now,
    lane_bound = lane_bound,
    direct = not head or tonumber(head) > now,
    states = {},
    waiting = {},
    later = {},
    earliest = nil,
    rung = false,
  }
end

local function lane_state(p, lane, tenant)
  local state = p.states[lane]
  if not state then
    local marks = marks_of(redis.call('HGET', p.k.ringed, tenant))
    local letter = lane_letter(lane)
    state = { room = p.lane_bound, letter = letter, marks = marks }
    if marks:find(letter:upper(), 1, true) then
      state.room = 0
    elseif marks:find(letter, 1, true) then
      state.room = p.lane_bound - redis.call('XLEN', p.k.lane .. lane)
    end
    p.states[lane] = state
  end
  return state
end

local function place(p, id, lane, at)
  local tenant = lane:match('^[^:]+')
  if at <= p.now and p.direct then
    local state = lane_state(p, lane, tenant)
    if state.room > 0 then
      redis.call('XADD', p.k.lane .. lane, '*', 'i', id)
      state.room = state.room - 1
      if not state.marks:find(state.letter, 1, true) then
        -- Another lane of the same tenant may have been marked by this very call: read again.
        local marks, deficit = marks_of(redis.call('HGET', p.k.ringed, tenant))
        if marks == '' then
          redis.call('RPUSH', p.k.ring, tenant)
        end
        state.marks = marks .. state.letter
        redis.call('HSET', p.k.ringed, tenant, state.marks .. ' ' .. deficit)
        p.rung = true
      end
      return
    end
  end
  p.waiting[#p.waiting + 1] = at
  p.waiting[#p.waiting + 1] = lane .. '/' .. id
  p.later[tenant] = (p.later[tenant] or 0) + 1
  if not p.earliest or at < p.earliest then
    p.earliest = at
  end
end

local function close_placing(p)
  if p.earliest then
    redis.call('ZADD', p.k.due, unpack(p.waiting))
    tally_all(p.k.tally, 'w', p.later, 1)
    ring_alarm(p.k.alarm, p.k.due, p.earliest)
  end
  if p.rung then
    ring_bell(p.k.bell)
  end
end
