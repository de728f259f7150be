"""The record's header: Lua and Python must read the same records, and refuse the same."""

from __future__ import annotations

import pytest

from redisched.codec import Body, encode, open_record, raw
from redisched.errors import PayloadUndecodable
from redisched.model import Outcome
from tests.support.floor import Floor, run_of

pytestmark = pytest.mark.anyio
BODY = encode(Body("greet", 0, raw(encode({"to": "you\n\0"}))))
RUN = run_of(1)
LATE = run_of(2, Outcome.STALE)


@pytest.mark.parametrize(
    "head",
    [
        "q acme 0 5",
        "q acme:h 0 5",
        "q acme 1 5 0 {size}",
        "q acme 12 99 7 {size}",
        "d acme 1 5 1700000000000-0 {size}",
    ],
)
async def test_what_lua_writes_python_reads(floor: Floor, head: str) -> None:
    # Tries to shift the body, the runs or a count when a record is opened and sealed in Lua.
    head = head.format(size=len(BODY))
    before = head.encode() + b"\n" + BODY + (RUN if head.count(" ") == 5 else b"")
    await floor.set_record("a", before)
    assert await floor.call("stale", floor.now, "a", LATE) == [1]
    old, new = open_record(before), open_record(await floor.record("a"))
    assert new.runs == old.runs + LATE
    for name in (
        "dead",
        "lane",
        "tenant",
        "priority",
        "attempts",
        "max_attempts",
        "mark",
        "body",
        "payload_bytes",
    ):
        assert getattr(new, name) == getattr(old, name)
    floor.expect("job a")


@pytest.mark.parametrize(
    "head",
    [
        "",
        "q",
        "q acme",
        "q acme 0",
        "q acme x 5",
        "q acme 0 5x",
        "q acme 0 5 0",
        "q acme 0 5 0 x",
        "qq acme 0 5 0 x",
        "acme 0 5",
        " q acme 0 5",
    ],
)
async def test_what_python_refuses_lua_refuses(floor: Floor, head: str) -> None:
    # Tries to let Lua move a record that no worker could open.
    record = head.encode() + b"\n" + BODY
    with pytest.raises(PayloadUndecodable):
        open_record(record)
    await floor.set_record("a", record)
    assert await floor.call("stale", floor.now, "a", LATE) == [0]
    assert await floor.record("a") == record
    floor.expect("job a: no record", "job a is in no place")
