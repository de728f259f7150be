"""Schedules as values: what is stored of one, and what it does when its time comes. Floor 4.2, pure.

    body        what is stored of a schedule, and the timetable that is made from it
    standing    where a schedule stands: the text that `lua/lib/plan.lua` keeps
    steps       what to do now: the occurrence to make, those to pass over, the next time
    templates   idempotency keys from nominal times

Names: a *plan* is a schedule as the store knows it, `<tenant>/<schedule>`.
"""

from redisched.plan.body import PlanBody, Timetable, decode_plan, encode_plan, job_prefix, open_plan, plan_name
from redisched.plan.standing import Mode, Standing
from redisched.plan.steps import TOLERANCE_MS, Step, backfill_step, count_between, next_step
from redisched.plan.templates import check_template, render

__all__ = [
    "TOLERANCE_MS",
    "Mode",
    "PlanBody",
    "Standing",
    "Step",
    "Timetable",
    "backfill_step",
    "check_template",
    "count_between",
    "decode_plan",
    "encode_plan",
    "job_prefix",
    "next_step",
    "open_plan",
    "plan_name",
    "render",
]
