"""Records, runs and results: tries to break them with any bytes and any text, whole and cut."""

from __future__ import annotations

import string
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisched import codec
from redisched.errors import PayloadUndecodable, RedischedError
from redisched.keys import lane_of
from redisched.model import Outcome

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ANY_TEXT = TEXT | st.text("a\ud800\udfff\n 7")  # with halves of surrogate pairs
TENANTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
WORKERS = st.text(string.ascii_letters + string.digits + ":.-_", min_size=1, max_size=40)
MILLIS = st.integers(1, 4_000_000_000_000)
SOME_MS = st.none() | st.integers(0, 2**40)
BODIES = st.builds(
    codec.Body,
    name=TEXT,
    at_ms=st.integers(0, 2**52),
    args=st.dictionaries(TEXT, st.binary() | st.integers(-(2**63), 2**64 - 1) | TEXT | st.none()).map(
        lambda value: codec.raw(codec.encode(value))
    ),
    key=st.none() | TEXT,
    timeout_ms=SOME_MS,
    keep_ms=SOME_MS,
)
RUNS = st.lists(
    st.tuples(st.integers(1, 1_000), WORKERS, MILLIS, MILLIS, st.sampled_from(list(Outcome)), ANY_TEXT), max_size=5
)


def same(a: codec.Body, b: codec.Body) -> bool:
    """Bodies compare their arguments by their bytes."""
    plain = [{**msgspec.structs.asdict(body), "args": bytes(body.args)} for body in (a, b)]
    return plain[0] == plain[1]


def sealed(record: bytes, runs: bytes, *, mark: str = "0", state: str = "q", attempts: int = 1) -> bytes:
    """A record as the scripts write it back: with mark, size and runs (lua/lib/record.lua)."""
    head, body = codec.split_record(record)
    words = [state.encode(), head[1], b"%d" % attempts, head[3], mark.encode(), b"%d" % len(body)]
    return b" ".join(words) + b"\n" + body + runs


@given(tenant=TENANTS, priority=st.sampled_from(["high", "normal", "low"]), attempts=st.integers(1, 1_000), body=BODIES)
def test_a_new_record_comes_back_whole(tenant: str, priority: Any, attempts: int, body: codec.Body) -> None:
    # Bytes of the body that look like a header, a line's end or a size must stay the body's.
    lane = lane_of(tenant, priority)
    record = codec.open_record(codec.encode_record(lane, attempts, body))
    assert (record.tenant, record.priority, record.lane) == (tenant, priority, lane)
    assert (record.dead, record.attempts, record.max_attempts) == (False, 0, attempts)
    assert (record.mark, record.runs) == ("0", b"")
    assert same(record.body, body)


@given(body=BODIES, runs=RUNS, state=st.sampled_from(["q", "d"]), mark=st.sampled_from(["0", "7", "1795000000000-3"]))
def test_a_record_with_runs_comes_back_whole(body: codec.Body, runs: list[Any], state: str, mark: str) -> None:
    # The end of the body is the begin of the runs: a size that is off by one mixes them up.
    packed = b"".join(codec.encode_run(*run) for run in runs)
    raw = sealed(codec.encode_record("acme", 5, body), packed, mark=mark, state=state, attempts=3)
    record = codec.open_record(raw)
    assert same(record.body, body)
    assert (record.runs, record.mark, record.dead, record.attempts) == (packed, mark, state == "d", 3)
    assert record.payload_bytes == len(codec.split_record(raw)[1])
    assert len(codec.decode_runs(record.runs)) == len(runs)


@given(body=BODIES)
def test_fields_that_say_nothing_are_left_out(body: codec.Body) -> None:
    # Six bytes a record, ten million times; and an old reader's body of three fields stays readable.
    plain = msgspec.structs.replace(body, key=None, timeout_ms=None, keep_ms=None)
    record = codec.encode_record("acme", 5, plain)
    assert record.startswith(b"q acme 0 5\n")
    assert len(codec.decode_any(codec.split_record(record)[1])) == 3
    assert same(codec.open_record(record).body, plain)


@given(RUNS)
def test_runs_come_back_in_order_whatever_their_errors_hold(runs: list[Any]) -> None:
    # An error's text may hold line ends, spaces, digits: none of them may begin another run.
    found = codec.decode_runs(b"".join(codec.encode_run(*run) for run in runs))
    for run, (attempt, worker, started_ms, ended_ms, outcome, error) in zip(found, runs, strict=True):
        assert (run.attempt, run.worker, run.outcome) == (attempt, worker, outcome)
        assert run.error == error.encode("utf-8", "backslashreplace").decode()
        assert run.duration is not None
        assert abs(run.duration - timedelta(milliseconds=ended_ms - started_ms)) < timedelta(microseconds=2)


def test_a_run_that_nobody_saw_start_has_no_start() -> None:
    # A lost run is written with 0: 1970 would be a lie, and its duration 50 years.
    (run,) = codec.decode_runs(codec.encode_run(2, "w", 0, 1_795_000_000_000, Outcome.LOST, "its host is lost"))
    assert (run.started_at, run.duration) == (None, None)


@given(st.text("aé漢😀\n", min_size=1, max_size=40), st.integers(1_500, 12_000))
def test_a_long_error_keeps_both_ends_and_cannot_grow(piece: str, length: int) -> None:
    # Tracebacks of a megabyte would fill the server; a cut in the middle of a character must not break the rest.
    error = (piece * length)[:length]
    packed = codec.encode_run(1, "w", 1, 2, Outcome.FAILED, error)
    assert len(packed) < codec.RUN_ERROR_BYTES + 100
    (run,) = codec.decode_runs(packed)
    assert run.error[:500] == error[:500]
    if len(error.encode()) > codec.RUN_ERROR_BYTES:
        assert "\n...\n" in run.error
    assert run.error[-500:] == error[-500:]


@given(value=st.recursive(st.none() | st.booleans() | TEXT | st.binary(), st.lists), runs=st.binary())
def test_a_result_comes_back(value: Any, runs: bytes) -> None:
    # The value travels as bytes inside bytes: neither may be read as the other.
    kept = codec.decode_result(codec.encode_result(2, "w", 10, 20, value, runs))
    assert (kept.attempt, kept.worker, kept.started_ms, kept.ended_ms) == (2, "w", 10, 20)
    assert (codec.decode_any(kept.value), kept.runs, kept.error) == (value, runs, "")


def circle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize("value", [object(), 2**70, "\ud800", {1: object()}, circle()], ids=repr)
def test_a_result_that_cannot_be_stored_is_kept_as_an_error(value: Any) -> None:
    # An outcome that raises here is never sent, and its lease would be renewed for ever.
    kept = codec.decode_result(codec.encode_result(1, "w", 1, 2, value))
    assert kept.error.startswith(f"{type(value).__name__} cannot be stored as a result")
    assert codec.decode_any(kept.value) is None


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\x90"


@given(st.binary() | st.binary().map(lambda tail: b"q acme 0 5\n" + tail) | TEXT.map(str.encode))
@pytest.mark.parametrize("read", [codec.open_record, codec.decode_body, codec.decode_runs, codec.decode_result])
def test_foreign_bytes_are_refused_in_our_own_words(read: Any, raw: bytes) -> None:
    # A foreign hand in Redis must not end a worker with an error that nobody expects.
    try:
        read(raw)
    except RedischedError as error:
        assert isinstance(error, PayloadUndecodable)  # noqa: PT017 - any bytes may also be fine


@pytest.mark.parametrize(
    ("read", "raw"),
    [
        (codec.open_record, b""),
        (codec.open_record, b"hello"),
        (codec.open_record, b"q acme 0\n\x90"),
        (codec.open_record, b"q acme 0 5 0\n\x90"),
        (codec.open_record, b"q acme zero 5\n\x93\xa1a\x00\x80"),
        (codec.open_record, b"q acme:z 0 5\n\x93\xa1a\x00\x80"),
        (codec.open_record, b"q \xff 0 5\n\x93\xa1a\x00\x80"),
        (codec.open_record, b"q acme 0 5\n\x93\xa1a\x00" + nested(10_000)),
        (codec.decode_body, b"\x93\xa2\xff\xfe\x00\x80"),
        (codec.decode_body, b"\x93\xa1a\x00" + nested(10_000)),
        (codec.decode_runs, b"hello"),
        (codec.decode_runs, b"1 w 1 2 marvellous 0\n"),
        (codec.decode_result, b"hello"),
        (codec.decode_result, nested(10_000)),
    ],
    ids=lambda part: part.__name__ if callable(part) else repr(part[:30]),
)
def test_broken_bytes_are_undecodable(read: Any, raw: bytes) -> None:
    # Each of these once raised something else, or could: a worker only expects PayloadUndecodable.
    with pytest.raises(PayloadUndecodable):
        read(raw)


@given(body=BODIES, cut=st.integers(1, 10_000))
def test_a_record_that_was_cut_is_refused(body: codec.Body, cut: int) -> None:
    # Half a record must not become another job with fewer arguments.
    whole = codec.encode_record("acme", 5, body)
    part = whole[: -min(cut, len(whole))]
    with pytest.raises(PayloadUndecodable):
        codec.open_record(part)
