"""The store: the only floor that imports redis-py. One method a script; see `store.py`."""

from redisched.store.caller import Caller
from redisched.store.store import Store

__all__ = ["Caller", "Store"]
