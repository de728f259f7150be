"""Bytes in Redis <-> values in Python. Floor 4; pure.

A record is a text header that Lua reads (see `lua/lib/record.lua`), the body, and the runs so far:

    q acme 1 5 0 118\n<msgpack body of 118 bytes><runs>

The body is msgpack, written and read by msgspec; nothing here can run code, and no pickle exists
anywhere. Only the handler's own annotations decide what the arguments become (see `registry.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from redisched.clock import from_ms
from redisched.errors import PayloadUndecodable
from redisched.keys import parse_lane
from redisched.model import Outcome, Run

RUN_ERROR_BYTES = 4_096
MAX_RESULT_BYTES = 1 << 20


class Body(msgspec.Struct, array_like=True, frozen=True):
    """What a worker needs to run a job. New fields go to the end, with a default: old records stay readable."""

    name: str
    at_ms: int  # the time it was asked for; 0: as soon as possible
    args: msgspec.Raw  # a map of parameters, or [positional, named] when the code was not at hand
    key: str | None = None
    timeout_ms: int | None = None
    keep_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A record, opened."""

    dead: bool
    lane: str
    tenant: str
    priority: str
    attempts: int
    max_attempts: int
    mark: str
    body: Body
    payload_bytes: int
    runs: bytes


class Result(msgspec.Struct, array_like=True, frozen=True):
    """What is kept of a finished job that keeps its result."""

    attempt: int
    worker: str
    started_ms: int
    ended_ms: int
    value: msgspec.Raw
    error: str = ""  # the value could not be encoded
    runs: bytes = b""  # the failed ones before it


CANCELLED = b"c"  # kept instead of a Result when a job was cancelled

_encoder = msgspec.msgpack.Encoder()
_body_decoder = msgspec.msgpack.Decoder(Body)
_result_decoder = msgspec.msgpack.Decoder(Result)
_any_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder()

encode = _encoder.encode
decode_any = _any_decoder.decode


def encode_record(lane: str, max_attempts: int, body: Body) -> bytes:
    """A new record. Every byte counts, ten million times: trailing fields that are None are left out of
    the body, and mark and size out of the header until they say something."""
    if body.keep_ms is None and body.timeout_ms is None and body.key is None:
        packed = _encoder.encode((body.name, body.at_ms, body.args))
    else:
        packed = _encoder.encode(body)
    return b"q %b 0 %d\n%b" % (lane.encode(), max_attempts, packed)


def split_record(record: bytes) -> tuple[list[bytes], bytes]:
    """The header's words and the body: the hot path's reading of a record."""
    end = record.index(b"\n")
    head = record[:end].split(b" ")
    if len(head) == 4:
        return head, record[end + 1 :]
    return head, record[end + 1 : end + 1 + int(head[5])]


def runs_of(record: bytes) -> bytes:
    """The runs at the end of a record."""
    head, packed = split_record(record)
    return record[record.index(b"\n") + 1 + len(packed) :] if len(head) > 4 else b""


def decode_body(packed: bytes) -> Body:
    try:
        return _body_decoder.decode(packed)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # ValueError: a name that is not UTF-8. RecursionError: arguments nested deeper than this stack allows;
        # the client that sent them had more of it left.
        raise PayloadUndecodable(f"the record's body cannot be read: {error}") from error


def open_record(record: bytes) -> Record:
    """All of a record. Raises PayloadUndecodable when it is not one."""
    try:
        head, packed = split_record(record)
        lane = head[1].decode()
        tenant, priority = parse_lane(lane)
        start = record.index(b"\n") + 1 + len(packed)
        return Record(
            dead=head[0] == b"d",
            lane=lane,
            tenant=tenant,
            priority=priority,
            attempts=int(head[2]),
            max_attempts=int(head[3]),
            mark=head[4].decode() if len(head) > 4 else "0",
            body=decode_body(packed),
            payload_bytes=len(packed),
            runs=record[start:],
        )
    except (ValueError, IndexError, KeyError) as error:
        raise PayloadUndecodable(f"this is no record of redisched: {record[:60]!r}") from error


def encode_run(attempt: int, worker: str, started_ms: int, ended_ms: int, outcome: Outcome, error: str) -> bytes:
    text = error.encode("utf-8", "backslashreplace")
    if len(text) > RUN_ERROR_BYTES:
        # keep both ends: the first line says where it began, the last what it was
        half = RUN_ERROR_BYTES // 2
        text = text[:half] + b"\n...\n" + text[-half:]
    return b"%d %b %d %d %b %d\n%b" % (
        attempt,
        worker.encode(),
        started_ms,
        ended_ms,
        outcome.value.encode(),
        len(text),
        text,
    )


def decode_runs(packed: bytes) -> tuple[Run, ...]:
    """The runs of a record. Raises PayloadUndecodable when these are none."""
    try:
        return tuple(_each_run(packed))
    except (ValueError, OverflowError, OSError) as error:
        raise PayloadUndecodable(f"these are no runs of redisched: {packed[:60]!r}") from error


def _each_run(packed: bytes) -> Iterator[Run]:
    while packed:
        line, _, rest = packed.partition(b"\n")
        attempt, worker, started, ended, outcome, size = line.split(b" ")
        error, packed = rest[: int(size)], rest[int(size) :]
        started_at = from_ms(int(started)) if int(started) else None
        text = error.decode("utf-8", "replace")
        yield Run(int(attempt), worker.decode(), started_at, from_ms(int(ended)), Outcome(outcome.decode()), text)


def encode_result(attempt: int, worker: str, started_ms: int, ended_ms: int, value: object, runs: bytes = b"") -> bytes:
    """A finished job's result. What cannot be encoded, or is too large, is kept as an error: the job itself is done."""
    try:
        packed, error = _encoder.encode(value), ""
        if len(packed) > MAX_RESULT_BYTES:
            packed, error = b"\xc0", f"its result of {len(packed):,} bytes is more than {MAX_RESULT_BYTES:,}"
    except Exception as problem:
        # Any: a circle is a RecursionError, and an outcome that is never sent would hold its job for ever.
        packed, error = b"\xc0", f"{type(value).__name__} cannot be stored as a result: {problem}"
    return _encoder.encode(Result(attempt, worker, started_ms, ended_ms, msgspec.Raw(packed), error, runs))


def result_size(value: object) -> int:
    """Bytes that a result takes; 0 for None and for what cannot be stored."""
    if value is None:
        return 0
    try:
        return len(_encoder.encode(value))
    except Exception:  # see encode_result
        return 0


def decode_result(packed: bytes) -> Result:
    try:
        return _result_decoder.decode(packed)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise PayloadUndecodable(f"the kept result cannot be read: {error}") from error


def raw(packed: bytes) -> msgspec.Raw:
    """Packed arguments, to be put into a body as they are."""
    return msgspec.Raw(packed)
