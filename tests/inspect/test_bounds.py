"""`--start` and `--stop` by position, GTID and time."""

from __future__ import annotations

import struct

import pytest

from dispatcher.binlog.event.types import EventType
from tests.inspect.conftest import Inspect
from tests.support.inspect_logs import small_log
from tests.support.log_file import SERVER, TIME, LogFile

K = EventType


@pytest.mark.parametrize(
    ("start", "stop", "first", "end"),
    [
        ("{at2}", None, 8, None),
        ("binlog.000001:{at2}", "{at3}", 8, 13),
        (None, "binlog.000001:{at2}", 0, 8),
        ("{uuid}:2", None, 8, None),
        ("{uuid}:2-3", "{uuid}:4", 8, 18),
        (None, "{uuid}:2", 0, 8),
        ("2023-11-14T22:14:20Z", "2023-11-14 22:15:20", 8, 13),
        ("2023-11-14T23:14:20+01:00", None, 8, None),
        ("2023-11-14T22:14:19.5", "2023-11-14T22:14:20.5Z", 8, 13),
    ],
)
def test_start_and_stop(
    inspect: Inspect, start: str | None, stop: str | None, first: int, end: int | None
) -> None:
    log = small_log()
    options = []
    for name, bound in (("--start", start), ("--stop", stop)):
        if bound is not None:
            options += [name, bound.format(at2=log.offsets[8], at3=log.offsets[13], uuid=SERVER)]
    shown = inspect(log.bytes(), "--json", *options)
    assert shown.code == 0
    assert [event["offset"] for event in shown.events] == log.offsets[first:end]


def test_a_start_far_into_the_file_skips_the_events_before(inspect: Inspect) -> None:
    log = LogFile()
    for number in range(1, 1200):
        log.gtid(number)
        log.query(f"CREATE TABLE t{number} (id INT)")
    at = log.offsets[2001]
    assert at > 1 << 16
    assert [
        event["offset"] for event in inspect(log.bytes(), "--json", "--start", str(at)).events
    ] == log.offsets[2001:]
    inside = inspect(log.bytes(), "--json", "--start", str(at + 1))
    assert (inside.code, inside.out.count("\n")) == (2, 0)
    assert f"--start: no event begins at binlog.000001:{at + 1}" in inside.err
    behind = inspect(log.bytes(), "--start", "9999999")
    assert behind.code == 2
    assert f"ends at {len(log.data)}" in behind.err


def test_mariadb_gtids_and_dates_are_told_apart(inspect: Inspect) -> None:
    log = LogFile(version="10.11.6-MariaDB")
    for number in (1, 2, 3):
        log.add(
            K.MARIADB_GTID, struct.pack("<QIB", number, 0, 1) + bytes(6), timestamp=TIME + number
        )
        log.query(f"CREATE TABLE t{number} (id INT)", timestamp=TIME + number)
    for start in ("0-1-2", "gtid:0-1-2", f"{log.offsets[3]}"):
        events = inspect(log.bytes(), "--json", "--start", start).events
        assert [event["offset"] for event in events] == log.offsets[3:]
    assert inspect(log.bytes(), "--json", "--start", "0-1-2").events[0]["gtid"] == "0-1-2"
    assert inspect(log.bytes(), "--start", "2023-11-15").out == ""
