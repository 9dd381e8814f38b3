"""A runner shares surveys, and a defect in reading a source fails its own client only."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.dispatch import retry
from tests.support.fake_clients import Daemon, declared, until
from tests.support.fake_source import FakeSource


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
    # The first survey had begun when the other calls came: they share one that began after them.
    assert source.surveys - before == 2


# -- defects --------------------------------------------------------------------------------------------------


async def test_a_defect_in_reading_a_source_fails_that_client_only(
    daemon: Daemon, source: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "BACKOFF_MIN_S", 0.01)
    source.error = ZeroDivisionError("a defect")  # type: ignore[assignment]
    await daemon.start(declared("one"))
    await until(lambda: daemon.row("one")["state"] == "failed", "it has failed")
    assert daemon.row("one")["last_error"].startswith("internal error: log in 1: ZeroDivisionError")
    assert len(source.opened) == retry.DAMAGE_MAX


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
