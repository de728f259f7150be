"""The roles that need no application code: promotion, schedules, recovery, pruning. Any number of them may run.

Each is a small loop, `run()` around a `run_once()` that answers a count, so that tests can step it.
"""

from redisched.scheduler.promoter import Promoter
from redisched.scheduler.pruner import Pruner
from redisched.scheduler.recoverer import Recoverer
from redisched.scheduler.roles import Roles
from redisched.scheduler.sweeper import Sweeper
from redisched.scheduler.ticker import Ticker

__all__ = ["Promoter", "Pruner", "Recoverer", "Roles", "Sweeper", "Ticker"]
