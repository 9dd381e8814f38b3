"""The daemon logs a repeated fault once, and then counts its repetitions."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from dispatcher.telemetry import logs
from dispatcher.telemetry.repeats import Repeats

Configured = Callable[..., tuple[io.StringIO, Repeats]]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def configured(clock: Clock) -> Iterator[Configured]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def call(level: str = "info") -> tuple[io.StringIO, Repeats]:
        out, repeats = io.StringIO(), Repeats(clock)
        logs.configure(level, "json", ("geheim",), stream=out, repeats=repeats)
        return out, repeats

    yield call
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    out.seek(0)
    out.truncate()
    return found


def fail(**fields: Any) -> None:
    log = structlog.get_logger("dispatcher")
    log.warning("not connected", **{"client": "r@db", "error": "refused with geheim", **fields})


def test_a_fault_is_written_once_and_then_counted_in_windows_that_grow(
    configured: Configured, clock: Clock
) -> None:
    out, repeats = configured()
    for n in range(58):
        fail(retry_s=0.5 * n)
    (first,) = lines(out)
    assert first["event"] == "not connected" and "repeated" not in first
    clock.now_s += 59
    repeats.say()
    assert lines(out) == []
    clock.now_s += 1
    repeats.say()
    (line,) = lines(out)
    assert (line["repeated"], line["in_s"], line["level"]) == (57, 60, "warning")
    assert (line["client"], line["error"]) == ("r@db", "refused with [secret]")
    fail()
    clock.now_s += 119
    repeats.say()
    assert lines(out) == []
    clock.now_s += 1
    repeats.say()
    assert [(line["repeated"], line["in_s"]) for line in lines(out)] == [(1, 120)]


def test_after_a_quiet_window_it_is_news_again(configured: Configured, clock: Clock) -> None:
    out, repeats = configured()
    fail()
    clock.now_s += 60
    repeats.say()
    fail()
    assert len(lines(out)) == 2


def test_other_fields_are_another_fault_and_information_is_never_counted(
    configured: Configured,
) -> None:
    out, _ = configured()
    fail()
    fail(client="r@other")
    fail(error="unknown host")
    for _ in range(2):
        structlog.get_logger("dispatcher").info("streaming", client="r@db")
        structlog.get_logger("dispatcher").error("consumer failed", consumer="shop", error="purged")
    assert len(lines(out)) == 7


def test_the_end_says_what_was_counted(configured: Configured, clock: Clock) -> None:
    out, repeats = configured()
    fail()
    fail()
    clock.now_s += 5
    repeats.say(final=True)
    assert [(line.get("repeated"), line.get("in_s")) for line in lines(out)] == [
        (None, None),
        (1, 5),
    ]


def test_a_count_is_written_before_the_line_that_says_that_the_fault_is_over(
    configured: Configured, clock: Clock
) -> None:
    out, repeats = configured()
    for _ in range(3):
        fail(dispatcher=1)
        fail(dispatcher=2)
    clock.now_s += 30
    log = structlog.get_logger("dispatcher")
    log.info("streaming", client="r@db", dispatcher=1)
    over = lines(out)[2:]
    assert [(line["event"], line["dispatcher"]) for line in over] == [
        ("not connected", 1),
        ("streaming", 1),
    ]
    assert over[0]["timestamp"] < over[1]["timestamp"]
    assert (over[0]["repeated"], over[0]["in_s"]) == (2, 30)
    assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}Z", over[0]["last_at"])
    clock.now_s += 59  # the other fault continues, and the first fault does not occur
    repeats.say()
    assert [line["dispatcher"] for line in lines(out)] == [2]
    clock.now_s += 1
    repeats.say()
    fail(dispatcher=1)
    assert "repeated" not in lines(out)[0]  # the fault is new again


def test_nothing_of_a_second_daemon_follows_its_end(configured: Configured, clock: Clock) -> None:
    """Otherwise a person who acts on the last line would try to end a connection that no longer exists."""
    out, repeats = configured()
    log = structlog.get_logger("dispatcher")
    for _ in range(3):
        log.warning("another daemon has this state", client="r@db", error="connection 7; KILL it")
    clock.now_s += 90
    log.info("no other daemon has this state any more", client="r@db")
    assert [(line["level"], line.get("repeated")) for line in lines(out)] == [
        ("warning", None),
        ("warning", 2),
        ("info", None),
    ]
    clock.now_s += 3600
    repeats.say()
    assert lines(out) == []


def test_a_fault_that_comes_and_goes_is_counted(configured: Configured, clock: Clock) -> None:
    out, _ = configured()
    for _ in range(3):
        fail(dispatcher=1)
        structlog.get_logger("dispatcher").info("streaming", client="r@db", dispatcher=1)
        clock.now_s += 1
    written = [line.get("repeated") for line in lines(out) if line["event"] == "not connected"]
    assert written == [None, 1, 1]


def test_a_library_and_a_traceback_are_counted_too(configured: Configured) -> None:
    out, repeats = configured()
    for _ in range(3):
        logging.getLogger("asyncio").warning("slow %s", "callback")
        try:
            raise ValueError("defect")
        except ValueError as error:
            structlog.get_logger("dispatcher").error("defect", task="dump", exc_info=error)
    assert [line["event"] for line in lines(out)] == ["slow callback", "defect"]
    repeats.say(final=True)
    assert [line["repeated"] for line in lines(out)] == [2, 2]


def test_at_debug_every_line_is_written(configured: Configured) -> None:
    out, _ = configured("debug")
    fail()
    fail()
    assert len(lines(out)) == 2
