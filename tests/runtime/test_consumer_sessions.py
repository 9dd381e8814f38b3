"""A reader's sessions: acknowledgements, answers to waiting calls, gaps."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from dispatcher.dispatch.messages.events import Tick
from dispatcher.dispatch.queue.reader import PollBounds
from dispatcher.dispatch.values.specs import OnPurged
from dispatcher.model.errors import BinlogError, ErrorKind, NotLeaderError
from dispatcher.runtime import consumer_sessions
from dispatcher.runtime.client.consumer_session import READ_ONLY
from tests.support.event_encoder import SERVER, LogWriter
from tests.support.fake_clients import Daemon, declared, open_session, poll, position, until
from tests.support.fake_source import DEADLINE_S, FakeSource, write
from tests.support.fake_state import FakeState

# -- the first position ---------------------------------------------------------------------------------------


async def test_nothing_is_read_before_the_first_position_is_stored(
    daemon: Daemon, state: FakeState, source: FakeSource
) -> None:
    state.full = True
    await daemon.start(declared("c"))
    await until(lambda: daemon.store.fault, "the position could not be stored")
    await until(lambda: source.closed, "the connection is closed without a dump")
    assert source.streams == []
    state.full = False
    await until(lambda: source.streams, "a dump begins")
    assert state.rows["c"].acknowledged.seq == 0
    await daemon.until_queued("c")


async def test_a_consumer_is_streaming_only_when_its_first_position_is_stored(
    daemon: Daemon, state: FakeState, source: FakeSource
) -> None:
    state.hold()
    readers = await daemon.start(declared("c"))
    await until(lambda: readers.get("c").consumer.started, "the server has told the position")
    assert readers.states() == [("c", "connecting")]
    assert "c" not in state.rows and source.streams == []
    state.release()
    await until(lambda: readers.states() == [("c", "streaming")], "the consumer streams")
    assert state.rows["c"].acknowledged.seq == 0


# -- acknowledgements -----------------------------------------------------------------------------------------


async def test_acknowledgements_that_come_together_are_one_write(
    daemon: Daemon, state: FakeState
) -> None:
    names = [f"c{n}" for n in range(8)]
    readers = await daemon.start(*(declared(name) for name in names))
    sessions = {name: await open_session(readers, name) for name in names}
    ends = {name: position((await poll(readers, name, *sessions[name]))["end"]) for name in names}
    state.saves.clear()
    state.hold()
    coming = [
        asyncio.ensure_future(readers.acknowledge(name, sessions[name][0], ends[name]))  # noqa: TID251
        for name in names
    ]
    await asyncio.sleep(0.02)
    state.release()
    answers = await asyncio.gather(*coming)
    assert [position(answer) for answer in answers] == list(ends.values())
    assert len(state.saves) <= 3 and {n for save in state.saves for n in save} == set(names)
    assert {name: row.acknowledged for name, row in state.rows.items()} == ends


async def test_progress_is_not_stored_over_an_acknowledgement_that_is_being_stored(
    daemon: Daemon, state: FakeState, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c"), declared("other", "b"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    state.hold()
    coming = asyncio.ensure_future(readers.acknowledge("c", session, end))  # noqa: TID251
    await asyncio.sleep(0.02)
    # The rules have not got this acknowledgement yet, and order the runtime to store progress.
    write(log, "b", 3)
    runner = daemon.clients._running["key"].runner
    consumer = runner.client.consumers["c"]
    runner._execute([consumer.store_progress()])
    runner.step(Tick())
    state.release()
    await coming
    await runner.flush()
    assert state.rows["c"].acknowledged == end


async def test_an_acknowledgement_that_cannot_be_stored_is_refused_and_nothing_is_forgotten(
    daemon: Daemon, state: FakeState
) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    state.full = True
    with pytest.raises(BinlogError) as caught:
        await readers.acknowledge("c", session, end)
    assert caught.value.kind is ErrorKind.STATE_STORE
    assert "disk is full" in str(daemon.store.fault)
    assert (await readers.binlog("c", session, start, end))[0], "it is still there"
    state.full = False
    assert position(await readers.acknowledge("c", session, end)) == end
    assert state.rows["c"].acknowledged == end


async def test_a_session_begins_behind_an_older_session_s_acknowledgement(
    daemon: Daemon, state: FakeState
) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    state.hold()
    coming = asyncio.ensure_future(readers.acknowledge("c", session, end))  # noqa: TID251
    opening = asyncio.ensure_future(readers.open_session("c", None, False))  # noqa: TID251
    await asyncio.sleep(0.02)
    state.release()
    await coming
    assert position((await opening)["position"]) == end


async def test_a_reader_may_acknowledge_data_that_was_not_read_again_yet(
    daemon: Daemon, state: FakeState, source: FakeSource
) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    readers = await daemon.restart()
    assert (await readers.binlog("c", session, start, end))[0], "it is read again"
    readers = await daemon.restart()
    answer = await poll(readers, "c", session, end, wait_s=0)
    assert position(answer["end"]) == end
    assert state.rows["c"].acknowledged == end


async def test_a_reader_goes_on_after_a_restart_if_its_range_does_not_fit_the_queue(
    daemon: Daemon, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c", bytes_max=1))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start, bytes_max=1 << 20))["end"])
    readers = await daemon.restart()
    write(log, "a", 2)
    before, _ = await readers.binlog("c", session, start, end)
    assert sum(map(len, before)) > 300
    after = end
    async with asyncio.timeout(DEADLINE_S):
        while after.seq < daemon.tip:
            after = position((await poll(readers, "c", session, after, bytes_max=1))["end"])


async def test_a_range_behind_the_end_of_the_log_does_not_widen_the_queue(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = await daemon.start(declared("c"))
    _, start = await open_session(readers, "c")
    await daemon.until_queued("c")
    monkeypatch.setattr(consumer_sessions, "RANGE_WAIT_S", 0.0)
    far = replace(start, gtid=f"{SERVER}:1-1000000000", seq=1_000_000_000)
    with pytest.raises(BinlogError):
        await readers.binlog("c", READ_ONLY, start, far)
    assert not readers.get("c").queue.refetching


async def test_a_reader_may_poll_without_acknowledging(daemon: Daemon, state: FakeState) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    bounds = PollBounds()
    await readers.poll("c", session, end, bounds, 0, markers=False, acknowledges=False)
    assert readers.get("c").acknowledged == start == state.rows["c"].acknowledged
    held = await readers.held("c")
    assert held is not None
    assert held.acknowledged.position(start.server, start.epoch) == start
    await open_session(readers, "c")
    with pytest.raises(BinlogError, match="not the newest session"):
        await readers.poll("c", session, end, bounds, 0, markers=False, acknowledges=False)


# -- readers that wait ----------------------------------------------------------------------------------------


async def test_waiting_calls_are_answered_when_the_daemon_ends(daemon: Daemon) -> None:
    readers = await daemon.start(declared("c", "b"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    coming = asyncio.ensure_future(poll(readers, "c", session, end, wait_s=60))  # noqa: TID251
    await asyncio.sleep(0.02)
    readers.close()
    assert position((await asyncio.wait_for(coming, 5))["end"]) == end


async def test_a_poll_waits_for_so_many_bytes(daemon: Daemon, log: LogWriter) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    await daemon.until_queued("c")
    held = (await poll(readers, "c", session, start, bytes_min=1))["bytes"]
    nothing = await poll(readers, "c", session, start, bytes_min=held + 1, wait_s=0.05)
    assert (position(nothing["end"]), nothing["transactions"]) == (start, 0)
    coming = asyncio.ensure_future(  # noqa: TID251
        poll(readers, "c", session, start, bytes_min=held + 1, wait_s=60)
    )
    await asyncio.sleep(0.02)
    assert not coming.done()
    write(log, "a", 1)
    answer = await asyncio.wait_for(coming, DEADLINE_S)
    assert answer["bytes"] > held and answer["transactions"] == 4


@pytest.mark.parametrize("bounds", [{"bytes_max": 1}, {"transactions_max": 1}])
async def test_a_poll_does_not_wait_for_a_range_that_cannot_grow(
    daemon: Daemon, bounds: dict[str, int]
) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    await daemon.until_queued("c")
    answer = await poll(readers, "c", session, start, bytes_min=1 << 40, wait_s=60, **bounds)
    assert answer["transactions"] == 1


async def test_a_poll_does_not_wait_for_more_than_the_queue_holds(
    daemon: Daemon, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c", bytes_max=64 << 10))
    session, start = await open_session(readers, "c")
    coming = asyncio.ensure_future(  # noqa: TID251
        poll(readers, "c", session, start, bytes_min=1 << 40, wait_s=60)
    )
    write(log, "a", 2000)
    answer = await asyncio.wait_for(coming, DEADLINE_S)
    assert 0 < answer["transactions"] < 2003


async def test_a_purged_consumer_skips_the_gap_and_tells_its_reader(
    daemon: Daemon, source: FakeSource, log: LogWriter
) -> None:
    readers = await daemon.start(declared("c", on_purged=OnPurged.LATEST), declared("strict"))
    session, start = await open_session(readers, "c")
    strict, strict_start = await open_session(readers, "strict")
    first = position((await poll(readers, "c", session, start))["end"])
    await daemon.stop()
    log.rotate()
    write(log, "a", 2)
    log.rotate()
    source.fake.purge(2)
    daemon._make()
    readers = await daemon.start(*daemon.wanted["key"])
    answer = await poll(readers, "c", session, first)
    assert answer["gap"] and answer["transactions"] == 0
    end = position(answer["end"])
    assert (end.epoch, end.seq) == (first.epoch + 1, daemon.tip)
    # The reader fetches the range before the gap again, and the range is empty.
    parts, gap = await readers.binlog("c", session, start, first)
    assert b"".join(parts) == b"\xfebin"
    assert gap
    assert (await readers.open_session("c", first, True))["gap"]
    write(log, "a", 1)
    answer = await poll(readers, "c", session, end)
    assert answer["transactions"] == 1 and not answer["gap"]
    assert daemon.row("c")["gaps"] == 1
    with pytest.raises(BinlogError) as caught:
        await poll(readers, "strict", strict, strict_start)
    assert caught.value.kind is ErrorKind.POSITION_PURGED


# -- a daemon that leads no more --------------------------------------------------------------------------------


async def test_a_daemon_that_leads_no_more_refuses_waiting_and_later_calls(daemon: Daemon) -> None:
    readers = await daemon.start(declared("c"))
    session, start = await open_session(readers, "c")
    end = position((await poll(readers, "c", session, start))["end"])
    waiting = asyncio.ensure_future(poll(readers, "c", session, end, wait_s=60))  # noqa: TID251
    await until(lambda: daemon.row("c")["reader"] == "waiting", "it waits")
    readers.refuse(partial(NotLeaderError.of, "http://b"))
    for call in (waiting, readers.acknowledge("c", session, end), open_session(readers, "c")):
        with pytest.raises(NotLeaderError) as refused:
            await call
        assert refused.value.leader == "http://b"
