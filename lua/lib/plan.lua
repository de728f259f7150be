-- plan: the state of a schedule, the part of it that changes as it fires.
--
--   <version> <cursor> <mode> <made> <missed> <skipped> <catch> <kept> <keep ms> <live>
--
-- cursor   nominal time in ms of the next occurrence; 0: there is none any more
-- mode     -: waits for its time      p: paused         e: ended
--          w: its next occurrence waits until one that lives ends (overlap)
--          g: has its turn in a catch-up that is paced
--          c: counts from the end of its run, which lasts; d: the run has ended, at the cursor
-- made, missed, skipped   occurrences: made, passed over after downtime, left out because of an overlap
-- catch    ms at which a catch-up began; 0: none
-- kept     runs of its history that are kept, and for how long
-- live     occurrences that may still live, the oldest first, parted by commas; or `-`.
--          Of a backfill: where it ends and how many it will make, `<ms>/<count>`
--
-- A plan's name is `<tenant>/<schedule>`; that of its backfill has a `!` at the end. An occurrence's id is
-- `<plan>@<nominal ms>`, without the tenant for the default one; no other job's id holds an `@`.
local WAIT_MS = 60000
local LIVE_KEPT = 64
local LIVE_KEPT_FREELY = 8 -- where any number may run: enough for a policy that changes

local function open_plan(raw)
  local version, cursor, mode, made, missed, skipped, catch, kept, keep_ms, live =
    raw:match('^(%d+) (%d+) ([%-pewgcd]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
  if not version then
    return nil
  end
  return {
    version = version,
    cursor = cursor,
    mode = mode,
    made = tonumber(made),
    missed = tonumber(missed),
    skipped = tonumber(skipped),
    catch = catch,
    kept = kept,
    keep_ms = keep_ms,
    live = live,
  }
end

local function seal_plan(s)
  return table.concat(
    { s.version, s.cursor, s.mode, string.format('%.0f', s.made), string.format('%.0f', s.missed),
      string.format('%.0f', s.skipped), s.catch, s.kept, s.keep_ms, s.live },
    ' '
  )
end

local function occurrence_id(plan, occurrence)
  if plan:sub(1, 8) == 'default/' then
    plan = plan:sub(9)
  end
  return plan .. '@' .. occurrence
end

-- The plan and the occurrence that a job's id names, or nil.
local function plan_of(id)
  local plan, occurrence = id:match('^(.*)@(.*)$')
  if plan and not plan:find('/', 1, true) then
    plan = 'default/' .. plan
  end
  return plan, occurrence
end
