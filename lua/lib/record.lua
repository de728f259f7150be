-- record: the header of a job's record, the only part of it that Lua reads.
--
--   <state> <lane> <attempts> <max> <mark> <size>\n<body of size bytes><runs>
--
-- state     q: lives, d: among the dead letters
-- attempts  finished ones; the running one is not counted until it ends
-- mark      q: how often it went back as a stray (nobody knew its handler); d: its entry in `dead`
-- A new record has neither mark (0) nor size (all the rest): six bytes less, ten million times.
-- runs      <attempt> <worker> <start ms> <end ms> <outcome> <bytes>\n<error>, one after the other
local RUNS_KEPT_BYTES = 16384

local function open_record(raw)
  local state, lane, attempts, max, mark, size, start = raw:match('^(%a) (%S+) (%d+) (%d+) ?(%S*) ?(%d*)\n()')
  if not start or (mark == '') ~= (size == '') then
    return nil
  end
  size = tonumber(size) or #raw - start + 1
  return {
    state = state,
    lane = lane,
    tenant = lane:match('^[^:]+'),
    attempts = tonumber(attempts),
    max = tonumber(max),
    mark = mark == '' and '0' or mark,
    size = size,
    body = raw:sub(start, start + size - 1),
    runs = raw:sub(start + size),
  }
end

local function seal_record(r)
  local runs = r.runs
  if #runs > RUNS_KEPT_BYTES then
    runs = r.last_run or ''
  end
  return string.format('%s %s %d %d %s %d\n', r.state, r.lane, r.attempts, r.max, r.mark, r.size) .. r.body .. runs
end

local function add_run(r, run)
  r.last_run = run
  r.runs = r.runs .. run
end

-- A run that nobody lived to report, or that never began.
local function unreported_run(r, worker, now, outcome, why)
  return string.format('%d %s 0 %d %s %d\n%s', r.attempts + 1, worker, now, outcome, #why, why)
end
