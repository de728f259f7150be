"""The states of a job: tries to find a state that nothing reaches or leaves, and an edge that says nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from redisched.state import EDGES, Edge, State, diagram, table


@pytest.mark.parametrize("state", State, ids=str)
def test_every_state_is_reached_and_all_but_the_end_are_left(state: State) -> None:
    # A state without an edge out of it holds its jobs for ever.
    assert any(edge.target is state and edge.source is not state for edge in EDGES)
    leaves = any(edge.source is state and edge.target is not state for edge in EDGES)
    assert leaves == (state is not State.GONE)


def test_every_job_can_end() -> None:
    # Two states that only lead to each other would be a trap.
    ending = {State.GONE}
    for _ in State:
        ending |= {edge.source for edge in EDGES if edge.target in ending and edge.source is not None}
    assert ending == set(State)


def test_only_a_lease_is_claimed_and_only_a_lease_ends_a_run() -> None:
    # Fencing stands on it: whoever ends a run holds a lease, and only a claim gives one.
    assert {e.verb for e in EDGES if e.target is State.RUNNING and e.source is not State.RUNNING} == {"claim"}
    for verb in ("complete", "retry", "bury", "release", "recover", "renew"):
        assert {e.source for e in EDGES if e.verb == verb} == {State.RUNNING}


def test_no_edge_is_written_twice() -> None:
    # Two lines for one edge drift apart.
    assert max(Counter((e.verb, e.source, e.target) for e in EDGES).values()) == 1


@pytest.mark.parametrize("edge", EDGES, ids=lambda e: f"{e.verb}:{e.source}-{e.target}")
def test_every_edge_is_drawn_and_told(edge: Edge) -> None:
    # What is missing in the picture does not exist for its reader.
    source = edge.source.value if edge.source else "[*]"
    target = "[*]" if edge.target is State.GONE else edge.target.value
    (arrow,) = [line for line in diagram().splitlines() if line.strip().startswith(f"{source} --> {target}:")]
    assert edge.verb in arrow.rpartition(": ")[2].split(", ")
    assert edge.when
    assert any(f"lua/{edge.verb}.lua" in row and edge.when in row for row in table().splitlines())


def test_the_table_has_a_row_an_edge() -> None:
    # A bar inside of a cell would make a column too many.
    head, rule, *rows = table().splitlines()
    assert len(rows) == len(EDGES)
    assert {line.count("|") for line in (head, rule, *rows)} == {5}


def test_states_are_their_words() -> None:
    # They are written into JSON and shown; a user compares them with strings.
    assert [str(state) for state in State] == ["waiting", "ready", "running", "dead", "gone"]
