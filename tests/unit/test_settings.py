"""Settings: tries to make a value that cannot work, and to change one after it was checked."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from redisched import Scheduler
from redisched.errors import ConfigError
from redisched.model import check_positive
from redisched.settings import MAX_SHARDS, ClientSettings, SchedulerSettings, StoreSettings, WorkerSettings

KINDS = [StoreSettings, ClientSettings, WorkerSettings, SchedulerSettings]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_settings_are_frozen_and_their_defaults_work(kind: Any) -> None:
    # A value that changes after its check was not checked.
    made = kind()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, dataclasses.fields(made)[0].name, 1)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (StoreSettings, {"shards": 0}),
        (StoreSettings, {"shards": -1}),
        (StoreSettings, {"shards": MAX_SHARDS + 1}),
        (StoreSettings, {"timeout_s": 0}),
        (StoreSettings, {"lane_bound": 0}),
        (ClientSettings, {"max_payload_bytes": 0}),
        (ClientSettings, {"replicas": 0}),
        (WorkerSettings, {"concurrency": 0}),
        (WorkerSettings, {"concurrency": 10_001}),
        (WorkerSettings, {"lease_s": 0.5}),
        (WorkerSettings, {"grace_s": -1}),
        (WorkerSettings, {"cancel_grace_s": -0.1}),
        (WorkerSettings, {"unknown_limit": 0}),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_an_example(kind: Any, wrong: dict[str, Any]) -> None:
    # Found when it is made, not when the first job hangs.
    with pytest.raises(ConfigError, match="for example"):
        kind(**wrong)


@pytest.mark.parametrize(
    ("kind", "edge"),
    [
        (StoreSettings, {"shards": 1}),
        (StoreSettings, {"shards": MAX_SHARDS}),
        (StoreSettings, {"lane_bound": 1}),
        (WorkerSettings, {"concurrency": 1}),
        (WorkerSettings, {"concurrency": 10_000}),
        (WorkerSettings, {"lease_s": 1}),
        (WorkerSettings, {"grace_s": 0}),
    ],
    ids=str,
)
def test_the_edges_are_allowed(kind: Any, edge: dict[str, Any]) -> None:
    # `< 1` and `<= 1` differ by one user.
    ((name, value),) = edge.items()
    assert getattr(kind(**edge), name) == value


@pytest.mark.parametrize("value", [0, -1, -0.5, float("nan"), float("-inf")])
def test_what_is_not_more_than_nothing_is_refused(value: float) -> None:
    # nan is not <= 0 either; a timeout of nan would never end.
    with pytest.raises(ConfigError, match="timeout must be more than 0"):
        check_positive("timeout", value, "10")


@pytest.mark.parametrize(
    ("url", "environment", "address"),
    [
        (None, None, None),
        (None, "", None),
        (None, "redis://e/0", "redis://e/0"),
        ("redis://a/0", "redis://e/0", "redis://a/0"),
        ("redis://a/0", None, "redis://a/0"),
        ("", "redis://e/0", "redis://e/0"),
    ],
)
def test_the_address_is_the_given_one_then_the_environments(
    url: str | None, environment: str | None, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An empty variable, as a compose file leaves it, is no address.
    monkeypatch.delenv("REDISCHED_URL", raising=False)
    if environment is not None:
        monkeypatch.setenv("REDISCHED_URL", environment)
    assert StoreSettings(url).address == address


def test_a_lease_in_ms_is_not_cut() -> None:
    # 1.1 * 1000 is 1100.0000000000002 and 2.3 * 1000 is 2299.9999999999995.
    assert [WorkerSettings(lease_s=s).lease_ms for s in (1.1, 2.3, 10)] == [1_100, 2_300, 10_000]


@pytest.mark.parametrize(
    "wrong", [{"namespace": "a:b"}, {"shards": 0}, {"timeout": 0}, {"max_payload_bytes": -1}, {"replicas": 0}], ids=str
)
def test_a_scheduler_checks_when_it_is_made(wrong: dict[str, Any]) -> None:
    # Not when it is opened: that happens in production.
    with pytest.raises(ConfigError):
        Scheduler("memory://", **wrong)
