"""Every error redisched raises on purpose, in one tree. Floor 1: imports nothing of ours.

    RedischedError
    ├── ConfigError                 a setting, an address or an application path is wrong
    │   ├── EmbeddedUnavailable     no address was given and the embedded server cannot run here
    │   └── LayoutMismatch          the namespace was created with other shards or by another version
    ├── InvalidCall                 the arguments do not fit the handler's signature
    │   ├── PayloadTooLarge         they fit, but are larger than the limit
    │   └── PayloadUndecodable      stored bytes do not decode to what the handler asks for
    ├── InvalidSchedule             a cron expression, interval or RRULE means nothing
    ├── UnknownSchedule             no such schedule
    ├── ScheduleChanged             somebody else changed the schedule meanwhile
    ├── QuotaExceeded               the tenant has as many as it may have
    ├── UnknownHandler              no handler of that name is registered here
    ├── UnknownJob                  no such job (any more)
    ├── JobFailed                   the job is among the dead letters
    ├── JobCancelled                the job was cancelled before it finished
    ├── LeaseLost                   the job was given to somebody else meanwhile
    ├── NotDurable                  stored, but not on as many replicas as asked for
    ├── StoreError                  the server answered, but with a refusal
    │   └── StoreFull               ... because its memory limit is reached
    └── StoreUnavailable            the server could not be reached in time

An error carries what its caller needs to act on; its text says what to do.
A broken invariant is not in this tree: it is an `AssertionError`, because it is our bug.
"""

from __future__ import annotations

from collections.abc import Sequence


class RedischedError(Exception):
    """The root: `except RedischedError` catches all that is expected to go wrong."""

    stored: Sequence[object] = ()  # of a failed enqueue_many: the jobs that are stored all the same

    def __reduce__(self) -> tuple[object, ...]:
        # An error crosses processes (multiprocessing, test runners) whatever its constructor takes.
        return _remake, (type(self), self.args, self.__dict__)


class ConfigError(RedischedError):
    """A setting, an address or an application path is wrong."""


class EmbeddedUnavailable(ConfigError):
    """No address was given and the embedded server cannot run here."""


class LayoutMismatch(ConfigError):
    """The namespace holds data written with another shard count or layout version."""


class InvalidCall(RedischedError, TypeError):
    """The arguments do not fit the handler's signature."""


class PayloadTooLarge(InvalidCall):
    """The encoded arguments are larger than `max_payload_bytes`."""

    def __init__(self, name: str, size: int, limit: int) -> None:
        super().__init__(
            f"the arguments of {name!r} take {size:,} bytes, the limit is {limit:,}: "
            f"store the data elsewhere and pass a reference, or raise Scheduler(max_payload_bytes=...)"
        )
        self.name = name
        self.size = size
        self.limit = limit


class PayloadUndecodable(InvalidCall):
    """Stored bytes do not decode to what the handler's annotations ask for."""


class InvalidSchedule(RedischedError, ValueError):
    """A cron expression, interval or RRULE means nothing; the text names the field and the reason."""


class UnknownSchedule(RedischedError):
    """No such schedule: it never existed, or it was deleted."""


class ScheduleChanged(RedischedError):
    """Somebody else changed the schedule meanwhile; nothing was stored."""

    def __init__(self, name: str, wanted: int, version: int) -> None:
        found = f"is at version {version}" if version else "does not exist"
        expected = f"not at {wanted}" if wanted else "but it was to be new"
        super().__init__(f"schedule {name!r} {found}, {expected}: look at it again, then decide")
        self.name = name
        self.wanted = wanted
        self.version = version


class QuotaExceeded(RedischedError):
    """The tenant has as many as it may have; nothing was stored."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after  # seconds; None: waiting does not help


class UnknownHandler(RedischedError):
    """No handler of that name is registered in this process."""

    def __init__(self, name: str, known: list[str]) -> None:
        listed = ", ".join(sorted(known)[:10]) or "none"
        super().__init__(f"no handler named {name!r} is registered here; known: {listed}")
        self.name = name


class UnknownJob(RedischedError):
    """No such job: it never existed, or it ended and its result was not kept."""


class JobFailed(RedischedError):
    """The job used up its attempts and is among the dead letters."""

    def __init__(self, job_id: str, error: str) -> None:
        super().__init__(f"job {job_id} failed for good: {error} (see `redisched dead show {job_id}`)")
        self.job_id = job_id
        self.error = error


class JobCancelled(RedischedError):
    """The job was cancelled before it finished."""


class LeaseLost(RedischedError):
    """The lease ended or was taken: whatever this run does now changes nothing in redisched."""


class NotDurable(RedischedError):
    """The job is stored on the primary, but fewer replicas than asked for confirmed it in time.

    The job is not lost and will run; it would be lost only if the primary died before replicating.
    """

    def __init__(self, wanted: int, got: int) -> None:
        super().__init__(f"{got} of {wanted} replicas confirmed the write in time; the job is stored on the primary")
        self.wanted = wanted
        self.got = got


class StoreError(RedischedError):
    """The server answered with a refusal."""


class StoreFull(StoreError):
    """The server reached its memory limit and refused new work; nothing was stored."""


class StoreUnavailable(RedischedError):
    """The server could not be reached in time."""


def _remake(kind: type[RedischedError], args: tuple[object, ...], state: dict[str, object]) -> RedischedError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error
