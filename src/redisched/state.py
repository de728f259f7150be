"""The states of a job and every edge between them, written down once. Floor 2.

A state is a place in Redis: a job is in exactly one of them, and one Lua script makes each
edge. The diagram and the table in `docs/states.md` are generated from here (a test compares
them), so a transition that is not in this file does not exist.

    waiting   a member of `due`, scored by its run time (or of its tenant's `overflow`, when the lane is full)
    ready     an entry of its tenant's lane
    running   a member of `leases`, scored by the end of the lease
    dead      an entry of `dead`; its record is kept
    gone      nowhere: finished, cancelled or purged; a kept result may remain for a while
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    DEAD = "dead"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Edge:
    """One script moving a job from a state to another, and when it does."""

    verb: str
    source: State | None  # None: the job did not exist
    target: State
    when: str


EDGES: tuple[Edge, ...] = (
    Edge("enqueue", None, State.WAITING, "its time is to come, or earlier work of the shard is still to be promoted"),
    Edge("enqueue", None, State.READY, "it is due and nothing of its shard is overdue"),
    Edge("enqueue", State.DEAD, State.WAITING, "the key of a dead letter is used again"),
    Edge("fire", None, State.WAITING, "an occurrence of a schedule is to run later, or behind earlier work"),
    Edge("fire", None, State.READY, "an occurrence of a schedule is due, or somebody triggered one"),
    Edge("fire", State.DEAD, State.WAITING, "a dead occurrence is made again by a backfill"),
    Edge("fire", State.WAITING, State.GONE, "the next occurrence replaces it (Overlap.CANCEL)"),
    Edge("fire", State.READY, State.GONE, "the next occurrence replaces it (Overlap.CANCEL)"),
    Edge(
        "fire", State.RUNNING, State.GONE, "the next occurrence replaces it; the worker learns it at its next renewal"
    ),
    Edge("promote", State.WAITING, State.READY, "its time has come and its lane has room"),
    Edge("promote", State.WAITING, State.WAITING, "its time has come and its lane is full: due -> overflow"),
    Edge("claim", State.READY, State.RUNNING, "a worker has room and it is the tenant's turn"),
    Edge("claim", State.WAITING, State.RUNNING, "the same, from the overflow once the lane is empty"),
    Edge("renew", State.RUNNING, State.RUNNING, "its process lives: the lease ends later"),
    Edge("complete", State.RUNNING, State.GONE, "the handler returned"),
    Edge("retry", State.RUNNING, State.WAITING, "the handler failed and attempts are left"),
    Edge("bury", State.RUNNING, State.DEAD, "the handler failed for good, or the payload cannot be decoded"),
    Edge("release", State.RUNNING, State.WAITING, "its worker drains, died, or does not know the handler"),
    Edge("release", State.RUNNING, State.DEAD, "the same, and the budget is used up"),
    Edge("recover", State.RUNNING, State.WAITING, "the lease ended without an answer: its host is lost"),
    Edge("recover", State.RUNNING, State.DEAD, "the same, and the budget is used up"),
    Edge("cancel", State.WAITING, State.GONE, "somebody cancelled it"),
    Edge("cancel", State.READY, State.GONE, "somebody cancelled it"),
    Edge("cancel", State.RUNNING, State.GONE, "somebody cancelled it; the worker learns it at its next renewal"),
    Edge("replay", State.DEAD, State.WAITING, "somebody gave it another set of attempts"),
    Edge("purge", State.DEAD, State.GONE, "somebody removed it, or it is past the kept count or age"),
    Edge("repair", None, State.WAITING, "`doctor --fix` found a record that is in no place"),
    Edge("repair", None, State.DEAD, "the same, and the record says that it was dead"),
)


def diagram() -> str:
    """The state machine as a Mermaid diagram, one arrow for each pair of states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for edge in EDGES:
        source = edge.source.value if edge.source else "[*]"
        target = "[*]" if edge.target is State.GONE else edge.target.value
        verbs = arrows.setdefault((source, target), [])
        if edge.verb not in verbs:
            verbs.append(edge.verb)
    lines = [f"    {source} --> {target}: {', '.join(verbs)}" for (source, target), verbs in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def table() -> str:
    """Which script makes which edge, as a Markdown table."""
    rows = ["| script | from | to | when |", "| --- | --- | --- | --- |"]
    for edge in EDGES:
        source = edge.source.value if edge.source else "-"
        rows.append(f"| [`{edge.verb}`](../lua/{edge.verb}.lua) | {source} | {edge.target.value} | {edge.when} |")
    return "\n".join(rows)
