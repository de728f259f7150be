"""Ids: tries to mint one twice, out of order, after a fork, and to reach another tenant's job by a key."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisched import ids

FORK = """
import json, os
from redisched import ids
ids.mint()
ours, theirs = os.pipe()
if os.fork() == 0:
    os.write(theirs, json.dumps([ids.mint() for _ in range(50)]).encode())
    os._exit(0)
os.wait()
print(json.dumps([[ids.mint() for _ in range(50)], json.loads(os.read(ours, 65536))]))
"""


def test_minted_ids_are_unique_and_grow() -> None:
    # Ids of one millisecond sort as they were enqueued: their order is the order of the jobs.
    minted = [ids.mint() for _ in range(10_000)]
    assert len(set(minted)) == len(minted)
    assert minted == sorted(minted)
    assert all(re.fullmatch(r"[0-9A-Za-z]{14}", one) for one in minted)


def test_the_order_holds_past_every_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where a digit carries over, an order of characters that is not ASCII's shows.
    starts = [61, 62, 3_843, 3_844, 3_844 * 62 - 1, 3_844 * 3_844 - 1, 62**5 - 40]
    for start in starts:
        monkeypatch.setattr(ids, "_counter", itertools.count(start))
        minted = [ids.mint() for _ in range(30)]
        assert minted == sorted(minted)
        assert len({*minted}) == 30
        assert {len(one) for one in minted} == {14}


def test_a_used_up_counter_draws_another_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    # Going on with the same prefix would mint the first ids of this process again.
    monkeypatch.setattr(ids, "_counter", itertools.count(62**5 - 1))
    monkeypatch.setattr(ids, "_prefix", "000000000")
    last, fresh = ids.mint(), ids.mint()
    assert last == "000000000zzzzz"
    assert fresh[9:] == "00000"
    assert fresh[:9] != last[:9]


def test_threads_mint_no_id_twice() -> None:
    # Handlers that run in threads enqueue too.
    with ThreadPoolExecutor(8) as pool:
        minted = list(pool.map(lambda _: ids.mint(), range(5_000)))
    assert len(set(minted)) == 5_000


def test_a_forked_child_mints_other_ids() -> None:
    # A child with the parent's prefix and counter would mint the parent's ids, and lose its jobs to them.
    out = subprocess.run([sys.executable, "-c", FORK], capture_output=True, check=True, timeout=30).stdout
    parent, child = json.loads(out)
    assert not {*parent} & {*child}
    assert parent[0][:9] != child[0][:9]


@given(*[st.text("ab\ud800", min_size=1) | st.text(min_size=1)] * 2, *[st.text("ab\ud800") | st.text()] * 2)
def test_a_key_names_one_job_of_one_tenant(tenant: str, other: str, key: str, another: str) -> None:
    # The same key of two tenants must be two jobs, whatever is in the names: ("ab", "c") is not ("a", "bc").
    found = ids.from_key(tenant, key)
    assert found == ids.from_key(tenant, key)
    assert re.fullmatch(r"k-[0-9a-v]{24}", found)
    assert (found == ids.from_key(other, another)) == ((tenant, key) == (other, another))
    assert (found == ids.from_key(tenant + key, "")) == (key == "")


def test_keys_and_minted_ids_never_meet() -> None:
    # A minted id that looked like a key's could be handed back for it.
    assert "-" not in ids.mint()


@pytest.mark.parametrize("length", [1, 4, 8, 12, 33])
def test_random_names_have_their_length_and_differ(length: int) -> None:
    # A short name is easily drawn twice; one of 12 characters, 60 bits, must not be.
    names: list[Any] = [ids.random_name(length) for _ in range(200)]
    assert all(re.fullmatch(rf"[0-9a-v]{{{length}}}", name) for name in names)
    assert length < 8 or len(set(names)) == 200
