"""Job ids. Floor 4; pure but for the process' own random prefix.

Ids are minted by the client, so an enqueue whose reply was lost can be sent again and makes no
second job. A minted id is nine characters of randomness a process (53 bits) and five of a counter
(916 million before the prefix is drawn anew): jobs that one process enqueues for the same
millisecond sort, and therefore run, in the order in which they were enqueued.
"""

from __future__ import annotations

import base64
import itertools
import os
import secrets
from collections.abc import Iterator
from hashlib import blake2b

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # in ASCII's order
_PAIRS = [a + b for a in _DIGITS for b in _DIGITS]
_PREFIX = 9
_LIMIT = 62**5

_prefix = ""
_counter: Iterator[int] = iter(())


def _reseed() -> None:
    global _prefix, _counter
    _prefix = "".join(secrets.choice(_DIGITS) for _ in range(_PREFIX))
    _counter = itertools.count()


def random_name(length: int) -> str:
    """Random characters of 0-9 a-v, five bits each."""
    return base64.b32hexencode(os.urandom(length)).decode().lower()[:length]


def mint() -> str:
    """A new job id: 14 characters, unique, growing within this process."""
    n = next(_counter)
    if n >= _LIMIT:
        _reseed()
        n = next(_counter)
    high, low = divmod(n, 3844)
    first, middle = divmod(high, 3844)
    return _prefix + _DIGITS[first] + _PAIRS[middle] + _PAIRS[low]


def from_key(tenant: str, key: str) -> str:
    """The id of the one job that may live under a tenant's idempotency key."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=15, key=_tenant_salt(tenant)).digest()
    return "k-" + base64.b32hexencode(digest).decode().lower()


def _tenant_salt(tenant: str) -> bytes:
    return blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=32).digest()


_reseed()
# A forked child that went on with the parent's prefix and counter would mint the parent's ids.
os.register_at_fork(after_in_child=_reseed)
