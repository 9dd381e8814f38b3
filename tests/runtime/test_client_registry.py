"""Reloaded settings change only the clients and consumers that differ."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dispatcher.dispatch.values.specs import Latest
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.event_encoder import LogWriter
from tests.support.fake_clients import Daemon, declared, open_session, poll, position, until
from tests.support.fake_source import FakeSource, write
from tests.support.fake_state import FakeState

# -- settings that change -------------------------------------------------------------------------------------


async def test_consumers_come_and_go_without_an_effect_on_others(
    daemon: Daemon, source: FakeSource, log: LogWriter
) -> None:
    readers = await daemon.start(declared("stays"), declared("goes"))
    session, start = await open_session(readers, "stays")
    gone, gone_start = await open_session(readers, "goes")
    await daemon.until_queued("stays", "goes")
    (stream,) = source.live()
    gone_end = position((await poll(readers, "goes", gone, gone_start))["end"])
    waiting = asyncio.ensure_future(poll(readers, "goes", gone, gone_end, wait_s=60))  # noqa: TID251
    await asyncio.sleep(0.02)
    changes = await daemon.declare(declared("stays"), declared("comes", "b", start=Latest()))
    assert (changes.added, changes.removed, changes.changed) == (("comes",), ("goes",), ())
    with pytest.raises(BinlogError) as caught:
        await asyncio.wait_for(waiting, 5)
    assert caught.value.kind is ErrorKind.UNKNOWN_CONSUMER
    await until(lambda: source.opened == [1, 2], "the new one connects")
    await until(
        lambda: source.live() == [stream],
        "it is attached to the other's dispatcher, whose connection stays",
    )
    write(log, "a", 2)
    await daemon.until_queued("stays", "comes")
    assert (await poll(readers, "stays", session, start))["transactions"] == 5
    assert [row["name"] for row, _ in readers.rows_with_consumers()] == ["stays", "comes"]


async def test_a_changed_consumer_goes_on_under_its_session(
    daemon: Daemon, source: FakeSource, log: LogWriter, state: FakeState
) -> None:
    readers = await daemon.start(declared("c"), declared("other"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    waiting = asyncio.ensure_future(poll(readers, "c", session, end, wait_s=60, markers=False))  # noqa: TID251
    await asyncio.sleep(0.02)
    changes = await daemon.declare(declared("c", "a", "b"), declared("other"))
    assert (changes.added, changes.removed, changes.changed) == ((), (), ("c",))
    write(log, "b", 1)
    answer = await asyncio.wait_for(waiting, 10)
    assert answer["transactions"] == 1
    assert (
        position(await readers.acknowledge("c", session, position(answer["end"]))).seq == daemon.tip
    )
    # An unchanged declaration changes nothing.
    before = list(state.saves)
    changes = await daemon.declare(declared("c", "a", "b"), declared("other"))
    assert (changes.added, changes.removed, changes.changed) == ((), (), ())
    assert state.saves == before


async def test_a_client_with_other_connection_settings_is_replaced(
    daemon: Daemon, source: FakeSource, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    (stream,) = source.live()
    daemon.settings = "another heartbeat"
    changes = await daemon.declare(declared("c"))
    assert changes.changed == ("c",)
    await until(lambda: len(source.live()) == 1 and source.live() != [stream], "a new connection")
    write(log, "a", 1)
    assert (await poll(readers, "c", session, end))["transactions"] == 1


async def test_the_connection_closes_with_its_last_consumer(
    daemon: Daemon, source: FakeSource
) -> None:
    readers = await daemon.start(declared("c"))
    await daemon.until_queued("c")
    changes = await daemon.declare()
    assert changes.removed == ("c",) and source.live() == [] and readers.names() == []
    await daemon.declare(declared("d"))
    await daemon.until_queued("d")


async def test_a_full_store_refuses_a_reload_and_changes_nothing(
    daemon: Daemon, state: FakeState, source: FakeSource, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c"), declared("other", "b"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    state.full = True
    runner = daemon.clients._running["key"].runner
    runner._execute([runner.client.consumers["c"].store_progress()])
    with pytest.raises(BinlogError):
        await daemon.declare(declared("other", "b"))
    state.full = False
    assert readers.names() == ["c", "other"]
    write(log, "a", 1)
    assert (await poll(readers, "c", session, end))["transactions"] == 1


async def test_another_marker_interval_does_not_change_a_consumer(daemon: Daemon) -> None:
    """The session gets the new interval, and the queue stays."""
    readers = await daemon.start(declared("c"))
    changes = await daemon.declare(replace(declared("c"), marker_s=7.0))
    assert changes.changed == () and readers.get("c").marker_s == 7.0
