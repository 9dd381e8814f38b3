"""A runner shares surveys, and a defect in reading a source fails its own client only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from dispatcher.dispatch.history import retry
from dispatcher.model.errors import BinlogError
from tests.support.fake_clients import Daemon, declared, open_session, poll, position, until
from tests.support.fake_source import FakeSource
from tests.support.fake_state import FakeState


async def test_calls_during_a_survey_share_the_next_one(daemon: Daemon, source: FakeSource) -> None:
    await daemon.start(declared("c"))
    await daemon.until_queued("c")
    runner = daemon.clients._running["key"].runner
    before = source.surveys
    source.hold()
    coming = [asyncio.ensure_future(runner.survey()) for _ in range(5)]  # noqa: TID251
    await asyncio.sleep(0.02)
    source.release()
    await asyncio.gather(*coming)
    # The first survey had begun before the other calls. These calls share a second survey, which begins after them.
    assert source.surveys - before == 2


def events(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    return [line["event"] for line in lines]


async def test_the_log_says_that_the_state_is_stored_again(
    daemon: Daemon, state: FakeState
) -> None:
    with capture_logs() as lines:
        sessions = await daemon.start(declared("c"))
        number, start = await open_session(sessions, "c")
        read = await poll(sessions, "c", number, start)
        state.full = True
        with pytest.raises(BinlogError, match="disk is full"):
            await sessions.acknowledge("c", number, position(read["end"]))
        await until(lambda: "state not stored" in events(lines), "it cannot be stored")
        state.full = False
        await until(lambda: "state stored again" in events(lines), "it is stored")
    (again,) = (line for line in lines if line["event"] == "state stored again")
    assert again["log_level"] == "info" and again["after_s"] >= 0
    assert events(lines).index("state stored again") > events(lines).index("state not stored")


# -- defects --------------------------------------------------------------------------------------------------


async def test_a_defect_in_reading_a_source_fails_that_client_only(
    daemon: Daemon, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "BACKOFF_MIN_S", 0.01)
    source.error = ZeroDivisionError("a defect")
    await daemon.start(declared("one"))
    await until(lambda: daemon.row("one")["state"] == "failed", "it has failed")
    assert daemon.row("one")["last_error"].startswith("internal error: log in 1: ZeroDivisionError")
    assert len(source.opened) == retry.DAMAGE_MAX


@pytest.mark.parametrize("shortage", [MemoryError(), RuntimeError("can't start new thread")])
async def test_a_host_without_memory_or_threads_fails_no_client(
    daemon: Daemon, source: FakeSource, monkeypatch: pytest.MonkeyPatch, shortage: Exception
) -> None:
    monkeypatch.setattr(retry, "BACKOFF_MIN_S", 0.01)
    source.error = shortage
    await daemon.start(declared("one"))
    await until(lambda: len(source.opened) > retry.DAMAGE_MAX, "it has tried often")
    assert "no memory or no thread left" in daemon.row("one")["last_error"]
    source.error = None
    await daemon.until_queued("one")


async def test_a_defect_in_a_survey_ends_nothing(
    daemon: Daemon, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    await daemon.start(declared("one"))
    await daemon.until_queued("one")

    def broken(_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(source, "survey", broken)
    session = await daemon.sessions.open_session("one", None, False)
    assert session["session"] == 1
    assert daemon.row("one")["state"] == "streaming"
