"""redisched: a distributed job scheduler for Python that needs nothing but Redis."""

from redisched.backoff import Retry
from redisched.client import Scheduler
from redisched.clock import MovableClock
from redisched.cron import Cron, Every, RRule
from redisched.errors import (
    ConfigError,
    EmbeddedUnavailable,
    InvalidCall,
    InvalidSchedule,
    JobCancelled,
    JobFailed,
    LayoutMismatch,
    LeaseLost,
    NotDurable,
    PayloadTooLarge,
    PayloadUndecodable,
    QuotaExceeded,
    RedischedError,
    ScheduleChanged,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnknownHandler,
    UnknownJob,
    UnknownSchedule,
)
from redisched.handles import Job
from redisched.model import JobView, Outcome, PlanRun, PlanView, Run
from redisched.plans import Backfill, Plan
from redisched.policy import Misfire, Overlap
from redisched.registry import Call, Context
from redisched.state import State

__version__ = "0.1.0"

__all__ = [
    "Backfill",
    "Call",
    "ConfigError",
    "Context",
    "Cron",
    "EmbeddedUnavailable",
    "Every",
    "InvalidCall",
    "InvalidSchedule",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobView",
    "LayoutMismatch",
    "LeaseLost",
    "Misfire",
    "MovableClock",
    "NotDurable",
    "Outcome",
    "Overlap",
    "PayloadTooLarge",
    "PayloadUndecodable",
    "Plan",
    "PlanRun",
    "PlanView",
    "QuotaExceeded",
    "RRule",
    "RedischedError",
    "Retry",
    "Run",
    "ScheduleChanged",
    "Scheduler",
    "State",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "UnknownHandler",
    "UnknownJob",
    "UnknownSchedule",
]
