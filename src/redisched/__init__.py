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
    RedischedError,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnknownHandler,
    UnknownJob,
)
from redisched.handles import Job
from redisched.model import JobView, Outcome, Run
from redisched.registry import Call, Context
from redisched.state import State

__version__ = "0.1.0"

__all__ = [
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
    "MovableClock",
    "NotDurable",
    "Outcome",
    "PayloadTooLarge",
    "PayloadUndecodable",
    "RRule",
    "RedischedError",
    "Retry",
    "Run",
    "Scheduler",
    "State",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "UnknownHandler",
    "UnknownJob",
]
