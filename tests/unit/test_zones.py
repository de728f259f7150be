"""Zones: our reading of zone files against `zoneinfo`'s, and where the files come from."""

from __future__ import annotations

import importlib.resources
import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from redisched.cron import tzif, zones
from redisched.errors import InvalidSchedule

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seconds(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)


def test_all_zones_read_as_zoneinfo_reads_them() -> None:
    rng = random.Random(7)
    names = zones.zone_names()
    assert len(names) > 400
    low, high = seconds("1905-01-01"), seconds("2130-01-01")
    for name in names:
        path = importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
        with path.open("rb") as file:
            place = ZoneInfo.from_file(file)
        zone = zones.zone(name)
        starts = [at for at in zone.table[0] if low < at < high]
        moments = [rng.randrange(low, high) for _ in range(40)]
        moments += [at + step for at in rng.sample(starts, min(20, len(starts))) for step in (-1, 0, 1)]
        for at in moments:
            expected = (EPOCH + timedelta(seconds=at)).astimezone(place).utcoffset()
            assert timedelta(seconds=zone.offset_at(at)) == expected, (name, at)


def test_a_zone_goes_on_for_ever() -> None:
    new_york = zones.zone("America/New_York")
    for year in (2040, 2500, 9999, 12_000):
        july = seconds("2000-07-01") + (year - 2000) // 400 * 146_097 * 86_400
        july += (datetime(2000 + (year - 2000) % 400, 7, 1, tzinfo=UTC) - datetime(2000, 7, 1, tzinfo=UTC)) // (
            timedelta(seconds=1)
        )
        assert new_york.offset_at(july) == -4 * 3_600
        assert new_york.offset_at(july + 180 * 86_400) == -5 * 3_600


def test_threads_may_extend_a_zone_together() -> None:
    with importlib.resources.files("tzdata").joinpath("zoneinfo", "Europe", "Berlin").open("rb") as file:
        zone = zones.Zone("Europe/Berlin", tzif.parse(file.read()))
    threads = [threading.Thread(target=zone.offset_at, args=(seconds(f"{2100 + n}-07-01"),)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    starts = zone.table[0]
    assert starts == sorted(set(starts))


def test_names_are_looked_up_once() -> None:
    assert zones.zone("Europe/Berlin") is zones.zone("Europe/Berlin")


def test_the_edition_is_that_of_the_package() -> None:
    version = zones.tzdata_version()
    assert version.startswith("20")


@pytest.mark.parametrize(
    ("footer", "year", "expected"),
    [
        ("EST5EDT,M3.2.0,M11.1.0", 2026, [("2026-03-08T07:00", -4), ("2026-11-01T06:00", -5)]),
        ("IST-1GMT0,M10.5.0,M3.5.0/1", 2026, [("2026-03-29T01:00", 1), ("2026-10-25T01:00", 0)]),
        ("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", 2026, [("2026-03-29T01:00", -1), ("2026-10-25T01:00", -2)]),
        ("IST-2IDT,M3.4.4/26,M10.5.0", 2026, [("2026-03-27T00:00", 3), ("2026-10-24T23:00", 2)]),
        ("A0B,J60/0,J300", 2024, [("2024-03-01T00:00", 1), ("2024-10-27T01:00", 0)]),
        ("A0B,59/0,299", 2024, [("2024-02-29T00:00", 1), ("2024-10-26T01:00", 0)]),
    ],
)
def test_the_rule_at_the_end_of_a_file(footer: str, year: int, expected: list[tuple[str, int]]) -> None:
    rule = tzif._year_rule(footer)
    assert rule is not None
    assert rule.changes(year) == [(seconds(at), hours * 3_600) for at, hours in expected]


@pytest.mark.parametrize("data", [b"", b"TZif", b"nonsense" * 20, b"TZif2" + b"\0" * 200])
def test_what_is_no_zone_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not time zone data"):
        tzif.parse(data)


def test_without_the_package_the_system_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "Europe"
    folder.mkdir()
    source = importlib.resources.files("tzdata").joinpath("zoneinfo", "Europe", "Berlin").read_bytes()
    (folder / "Berlin").write_bytes(source)
    (tmp_path / "broken").write_bytes(b"no")
    (tmp_path / "tzdata.zi").write_text("# version 2031z\nmore\n", encoding="ascii")
    monkeypatch.setattr(zones, "_package", lambda: None)
    monkeypatch.setattr("zoneinfo.TZPATH", (str(tmp_path),))
    zones.zone.cache_clear()
    zones.zone_names.cache_clear()
    zones.tzdata_version.cache_clear()
    try:
        assert zones.zone("Europe/Berlin").offset_at(seconds("2026-07-01")) == 7_200
        assert zones.zone("UTC").offset_at(0) == 0
        assert zones.tzdata_version() == "2031z"
        for name in ("Europe/Paris", "broken"):
            with pytest.raises(InvalidSchedule, match="time zone"):
                zones.zone(name)
    finally:
        zones.zone.cache_clear()
        zones.zone_names.cache_clear()
        zones.tzdata_version.cache_clear()
