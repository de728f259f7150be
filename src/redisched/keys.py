"""Every key name of redisched. Floor 4; pure.

Only this file spells keys. A script names what it needs in its header (`KEYS[1] leases`) and
`ShardKeys` turns that word into the whole key; all keys of a shard share the tag `{ns:n}`, so
they live in one cluster slot and one script may touch them all.

Permanent keys, bounded by what they count: meta, members, declared, fence, totals, looked, bell, alarm.
Everything else empties with the work, is trimmed, or has a TTL.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from urllib.parse import quote, unquote

from redisched.errors import ConfigError

LAYOUT_VERSION = 1
DEFAULT_TENANT = "default"
MAX_TENANT_CHARS = 128

# word in a script's header -> what is at that key. A trailing colon is a prefix, completed in Lua.
SHARD_KEYS: dict[str, str] = {
    "due": "zset: waiting jobs `<lane>/<id>`, scored by run time in ms",
    "jobs": "hash: id -> record",
    "ring": "list: tenants with ready work, in DRR order",
    "ringed": "hash: the ring's set; tenant -> which of its lanes hold work, and its deficit",
    "leases": "zset: running jobs `<id>#<fence>@<worker>`, scored by lease end in ms",
    "dead": "stream: dead letters",
    "tally": "hash: `w|r|d <tenant>` -> jobs waiting in due, running, dead",
    "totals": "hash: what this shard did since it was made",
    "fence": "string: the last fencing token",
    "looked": "string: when leases were last looked at, and until when nothing is taken back",
    "plan": "hash: `<tenant>/<schedule>` -> its rule, call and policies",
    "planned": "hash: the same -> where it stands: version, next nominal time, counts",
    "plans": "zset: schedules that are enabled, scored by when to look at them in ms",
    "roster": "zset: all schedules, in the order of their names",
    "pace": "hash: tenant -> how many occurrences its schedules make in an hour",
    "swept": "string: somebody has looked for broken schedules, with a TTL",
    "bell": "list: wake-ups for idle workers",
    "alarm": "list: wake-ups for schedulers",
    "lane:": "stream: ready jobs of a tenant (and priority)",
    "overflow:": "zset: due jobs of a full lane",
    "result:": "string: outcome and result of a finished job, with a TTL",
    "progress:": "string: what a running job last said of itself, with a TTL",
    "history:": "stream: what became of a schedule's occurrences, with a TTL",
    "rate:": "hash: tenant -> jobs finished in one minute, with a TTL",
    "call:": "string: number and answer of a caller's last call, with a TTL",
}

_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class ShardKeys:
    """The keys of one shard."""

    __slots__ = ("_names", "shard", "tag")

    def __init__(self, namespace: str, shard: int) -> None:
        self.shard = shard
        self.tag = f"{{{namespace}:{shard}}}:"
        self._names = {name: self.tag + name for name in SHARD_KEYS}

    def __getitem__(self, name: str) -> str:
        return self._names[name]

    def lane(self, lane: str) -> str:
        return self._names["lane:"] + lane

    def overflow(self, lane: str) -> str:
        return self._names["overflow:"] + lane

    def result(self, job_id: str) -> str:
        return self._names["result:"] + job_id

    def progress(self, job_id: str) -> str:
        return self._names["progress:"] + job_id

    def history(self, plan: str) -> str:
        return self._names["history:"] + plan

    def rate(self, minute: int) -> str:
        return f"{self._names['rate:']}{minute}"

    def call(self, caller: str) -> str:
        return self._names["call:"] + caller


class Keys:
    """All keys of a namespace."""

    def __init__(self, namespace: str, shards: int) -> None:
        check_namespace(namespace)
        self.namespace = namespace
        self.meta = meta_key(namespace)
        self.members = f"{namespace}:members"
        self.declared = f"{namespace}:declared"
        self.shards = [ShardKeys(namespace, n) for n in range(shards)]

    def pattern(self, prefix: str) -> str:
        """Matches every shard's keys under a prefix, for SCAN."""
        return f"{{{self.namespace}:*}}:{prefix}*"

    def shard_of(self, tenant: str, job_id: str) -> int:
        """The shard that a job lives in: its tenant's, except that the default tenant is spread over all."""
        # All occurrences of a schedule live with it: `<schedule>@<nominal ms>`.
        name = job_id.partition("@")[0] if tenant == DEFAULT_TENANT else tenant
        return zlib.crc32(name.encode("utf-8", "surrogatepass")) % len(self.shards)


def prefix_of(key: bytes) -> bytes:
    """A key's tag and its first word: what a `pattern` was made from."""
    tag, _, rest = key.partition(b"}:")
    return tag + b"}:" + rest.partition(b":")[0] + b":"


def meta_key(namespace: str) -> str:
    """Shard count and layout version: what must be known before there are shards."""
    return f"{namespace}:meta"


def check_namespace(namespace: str) -> None:
    if not _NAMESPACE.fullmatch(namespace):
        raise ConfigError(f"namespace {namespace!r} is not usable: 1 to 64 of A-Z a-z 0-9 _ . - (for example 'rs')")


@lru_cache(maxsize=65_536)
def encode_tenant(tenant: str) -> str:
    """A tenant's name as a part of keys and members. Nothing in the answer can end a part or open a tag."""
    if not isinstance(tenant, str) or not tenant or len(tenant) > MAX_TENANT_CHARS:
        raise ConfigError(f"a tenant's name is 1 to {MAX_TENANT_CHARS} characters, not {tenant!r:.80}")
    try:
        return quote(tenant, safe="")
    except UnicodeEncodeError as error:
        raise ConfigError(f"tenant {tenant!r:.80} holds half a surrogate pair, which is not a character") from error


@lru_cache(maxsize=65_536)
def decode_tenant(encoded: str) -> str:
    return unquote(encoded)


@lru_cache(maxsize=65_536)
def lane_of(tenant: str, priority: str) -> str:
    """The lane's name: the encoded tenant, and a letter for any priority but normal."""
    return encode_tenant(tenant) + _PRIORITY_SUFFIX[priority]


@lru_cache(maxsize=65_536)
def parse_lane(lane: str) -> tuple[str, str]:
    """Tenant and priority of a lane."""
    encoded, _, letter = lane.partition(":")
    return unquote(encoded), _PRIORITY_OF_LETTER[letter]


_PRIORITY_SUFFIX = {"high": ":h", "normal": "", "low": ":l"}
_PRIORITY_OF_LETTER = {"h": "high", "": "normal", "l": "low"}
PRIORITIES = tuple(_PRIORITY_SUFFIX)
