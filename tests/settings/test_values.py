"""Sizes, addresses and times are parsed, and invalid ones are refused with their line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.yaml_settings.values import parse_bytes, split_host_port
from tests.support.settings_texts import Load, Wrong, consumer


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("'4096'", 4096),
        ("64MiB", 64 * 2**20),
        ("64 MiB", 64 * 2**20),
        ("64mib", 64 * 2**20),
        ("1 MB", 10**6),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("1.5GiB", 3 * 2**29),
        ("2TB", 2 * 10**12),
        ("10B", 10),
    ],
)
def test_sizes(settings: Load, text: str, size: int) -> None:
    shop = settings(consumer(f"max_bytes_in_binlog_queue: {text}")).consumers["shop"]
    assert shop.max_bytes_in_binlog_queue == size


@given(st.integers(0, 2**60))
def test_whole_numbers_of_bytes_are_parsed_exactly(size: int) -> None:
    assert parse_bytes(size) == parse_bytes(str(size)) == parse_bytes(f"{size}B") == size


@pytest.mark.parametrize(
    "text", ["64M", "64 K", "-1", "1e6", "abc", "true", "1.5", "[1]", "''", "~"]
)
def test_an_invalid_size_is_refused(wrong: Wrong, text: str) -> None:
    (line,) = wrong(consumer(f"max_bytes_in_binlog_queue: {text}"))
    assert line.startswith("a.yaml:6: consumers.shop.max_bytes_in_binlog_queue: ")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("db1:3307", "db1", 3307),
        ("db1", "db1", 3306),
        ("DB1.Example", "db1.example", 3306),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[::1]:3307", "::1", 3307),
        ("[fe80::1]", "fe80::1", 3306),
    ],
)
def test_host_and_port(text: str, host: str, port: int) -> None:
    assert split_host_port(text, 3306) == (host, port)


@pytest.mark.parametrize("text", ["", ":3306", "::1", "a:1:2", "[::1", "a,b", "a b", "a/b"])
def test_an_invalid_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        split_host_port(text, 3306)


@pytest.mark.parametrize("text", ["db1:", "db1:x", "db1:70000", "db1:-1", "db1:+1"])
def test_an_invalid_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the port must be"):
        split_host_port(text, 3306)


NOON_US = 1_795_262_400_000_000


@pytest.mark.parametrize(
    ("text", "moment_us"),
    [
        ("2026-11-21T12:00:00Z", NOON_US),
        ("2026-11-21T12:00:00", NOON_US),
        ("2026-11-21 12:00:00", NOON_US),
        ("'2026-11-21 12:00'", NOON_US),
        ("'20261121T120000Z'", NOON_US),
        ("2026-11-21T13:00:00+01:00", NOON_US),
        ("'2026-11-21T13:00:00+01:00'", NOON_US),
        ("2026-11-21T06:30:00-05:30", NOON_US),
        ("2026-11-21", NOON_US - 12 * 3_600_000_000),
        ("2026-11-21T12:00:00.000001Z", NOON_US + 1),
        ("'2026-11-21T12:00:00.123456Z'", NOON_US + 123_456),
        ("1970-01-01", 0),
    ],
)
def test_start_at_a_timestamp(settings: Load, text: str, moment_us: int) -> None:
    start = settings(consumer(f"start: {{timestamp: {text}}}")).consumers["shop"].start
    assert (start.at, start.timestamp_us) == ("timestamp", moment_us)


@pytest.mark.parametrize(
    "text", ["noon", "1795262400", "true", "~", "[1]", "1969-12-31", "2026-13-01", "'12:00'"]
)
def test_an_invalid_timestamp_is_refused(wrong: Wrong, text: str) -> None:
    (line,) = wrong(consumer(f"start: {{timestamp: {text}}}"))
    assert line.startswith("a.yaml:6: consumers.shop.start")
