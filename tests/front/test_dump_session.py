"""A dump as the session of a consumer: where it begins, what it acknowledges, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from dispatcher.binlog.event.gtid import parse_gtid_event
from dispatcher.binlog.event.header import HEADER_SIZE, EventHeader, parse_format_description
from dispatcher.binlog.event.types import EventType
from dispatcher.dispatch.queue.reader import Caller
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.specs import AtFile
from dispatcher.front.dump.options import AfterGtids, AfterPlace, Checksum, RelayOptions
from dispatcher.front.dump.relay import Relay
from dispatcher.front.dump_session import HEARTBEAT_MIN_S, DumpOptions, DumpSession
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from tests.support.event_encoder import SERVER, LogWriter
from tests.support.fake_clients import Daemon, declared, open_session, until
from tests.support.fake_server import Server
from tests.support.fake_source import FakeSource, write
from tests.support.fake_state import FakeState

QUERY, HEARTBEAT = EventType.QUERY, EventType.HEARTBEAT


@pytest.fixture
def log() -> LogWriter:
    log = LogWriter()
    write(log, "a", 3)
    return log


@pytest.fixture
def source(log: LogWriter) -> FakeSource:
    return FakeSource(Server(log, Mode.GTID))


@pytest.fixture
async def daemon(source: FakeSource) -> AsyncIterator[Daemon]:
    daemon = Daemon(source, FakeState())
    yield daemon
    source.release()
    await daemon.stop()


class Client:
    """A client that receives a dump. `now`: the time of the session, in seconds."""

    def __init__(self, readers: ConsumerSessions, log: LogWriter, options: DumpOptions) -> None:
        self.packets = bytearray()
        self.now = 0.0
        relay = Relay(RelayOptions(server_id=1, checksum=Checksum.CRC32), options.wanted)
        self.session = DumpSession(
            lambda: readers, "c", Caller(), options, relay, self, clock=lambda: self.now
        )
        self._log = log
        self.task: asyncio.Task[None] | None = None

    def write(self, packets: bytes | memoryview) -> None:
        self.packets += packets

    async def drain(self) -> None: ...

    def start(self) -> None:
        self.task = asyncio.ensure_future(self.session.run())  # noqa: TID251

    async def leave(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    @property
    def events(self) -> list[bytes]:
        out, at = [], 0
        while at < len(self.packets):
            size = int.from_bytes(self.packets[at : at + 3], "little")
            out.append(bytes(self.packets[at + 5 : at + 4 + size]))
            at += 4 + size
        return out

    def count(self, kind: int) -> int:
        return sum(EventHeader.read(event).type == kind for event in self.events)

    @property
    def gtids(self) -> list[int]:
        """The numbers of the transactions, in order."""
        bodies = [event[HEADER_SIZE:-4] for event in self.events if event[4] == EventType.GTID]
        return [parse_gtid_event(EventType.GTID, body).gno for body in bodies]


def options(wanted: AfterPlace | AfterGtids, **more: object) -> DumpOptions:
    return replace(DumpOptions(wanted, None, 0.0, 10.0), **more)  # type: ignore[arg-type]


def beginning(log: LogWriter) -> AfterPlace:
    return AfterPlace(log.files[0].name, 4)


async def test_a_dump_by_file_has_the_consumer_s_transactions(
    daemon: Daemon, log: LogWriter
) -> None:
    write(log, "b", 2)
    write(log, "a", 1)
    client = Client(await daemon.start(declared("c")), log, options(beginning(log)))
    client.start()
    await until(lambda: len(client.gtids) == 4, "four transactions")
    write(log, "a", 1)
    await until(lambda: client.gtids == [1, 2, 3, 6, 7], "a new transaction")
    assert client.count(EventType.ROTATE) == client.count(EventType.FORMAT_DESCRIPTION) == 1
    await client.leave()


async def test_a_dump_without_transactions_begins_as_soon_as_the_source_has_sent_its_format(
    daemon: Daemon, log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = await daemon.start(declared("c"))
    known, unknown = readers.format, iter([None] * 3)
    monkeypatch.setattr(readers, "format", lambda name: next(unknown, known(name)))
    file = log.files[-1]
    client = Client(readers, log, options(AfterPlace(file.name, file.size)))
    client.start()
    await until(lambda: client.count(EventType.FORMAT_DESCRIPTION) == 1, "the format")
    assert [event[4] for event in client.events] == [
        EventType.ROTATE,
        EventType.FORMAT_DESCRIPTION,
    ]
    assert next(unknown, "all asked") == "all asked"
    write(log, "a", 1)
    await until(lambda: client.gtids == [4], "the new transaction")
    assert client.count(EventType.FORMAT_DESCRIPTION) == 1
    await client.leave()


async def test_a_dump_by_gtid_has_empty_transactions_for_those_of_others(
    daemon: Daemon, log: LogWriter
) -> None:
    write(log, "b", 2)
    write(log, "a", 1)
    wanted = AfterGtids(GtidSet.parse(f"{SERVER}:1"))
    executed = GtidSet.parse(f"{SERVER}:1-6")
    client = Client(await daemon.start(declared("c")), log, options(wanted, executed=executed))
    client.start()
    await until(lambda: len(client.gtids) == 5, "all but the first")
    assert sorted(client.gtids) == [2, 3, 4, 5, 6]
    await client.leave()


async def test_a_dump_to_the_end_ends_there(daemon: Daemon, log: LogWriter) -> None:
    write(log, "b", 2)
    client = Client(await daemon.start(declared("c")), log, options(beginning(log), to_end=True))
    client.start()
    assert client.task is not None
    await asyncio.wait_for(client.task, 20)
    assert client.gtids == [1, 2, 3]


async def test_a_client_that_returns_soon_is_served_from_the_queue(
    daemon: Daemon, log: LogWriter, source: FakeSource
) -> None:
    readers = await daemon.start(declared("c"))
    client = Client(readers, log, options(beginning(log)))
    client.start()
    await until(lambda: len(client.gtids) == 3, "three transactions")
    await client.leave()
    dumps = len(source.streams)
    second = log.transactions[1]
    client = Client(readers, log, options(AfterPlace(second.file, second.end)))
    client.start()
    await until(lambda: client.gtids == [3], "only what it lacks")
    assert len(source.streams) == dumps
    await client.leave()


async def test_a_client_whose_set_has_gaps_gets_what_it_lacks(
    daemon: Daemon, log: LogWriter
) -> None:
    """The client was killed before it got the empty transactions of a range. Its set has as many GTIDs as a set that
    the consumer has passed, but other ones."""
    readers = await daemon.start(declared("c"))
    client = Client(readers, log, options(beginning(log)))
    client.start()
    await until(lambda: client.gtids == [1, 2, 3], "three transactions")
    client.now = 10.5
    write(log, "a", 3)
    await until(lambda: readers.get("c").acknowledged.seq == 3, "the acknowledgement")
    await until(lambda: readers.get("c").queue.queued.seq == 6, "the queue has the others")
    await client.leave()
    wanted = AfterGtids(GtidSet.parse(f"{SERVER}:1-2:4-5"))
    executed = GtidSet.parse(f"{SERVER}:1-6")
    client = Client(readers, log, options(wanted, executed=executed))
    client.start()
    await until(lambda: client.gtids == [3, 6], "what it lacks")
    await client.leave()


async def test_a_consumer_that_has_failed_continues_at_the_client_s_place(
    daemon: Daemon, log: LogWriter, source: FakeSource
) -> None:
    log.rotate()
    write(log, "a", 2)
    source.fake.purge(1)
    readers = await daemon.start(declared("c", start=AtFile(log.files[0].name, 4)))
    await until(lambda: readers.get("c").consumer.failed is not None, "its start is purged")
    client = Client(readers, log, options(AfterPlace(log.files[1].name, 4)))
    client.start()
    await until(lambda: client.gtids == [4, 5], "the transactions of the second file")
    await client.leave()


async def test_a_dump_by_file_does_not_go_on_at_another_server(
    daemon: Daemon, source: FakeSource, log: LogWriter
) -> None:
    client = Client(await daemon.start(declared("c")), log, options(beginning(log)))
    client.start()
    await until(lambda: len(client.gtids) == 3, "the transactions")
    source.fake = Server(log, Mode.GTID, name="4e11fa47-71ca-11e1-9e33-c80aa9429562")
    for stream in source.live():
        stream.lost = BinlogError(ErrorKind.CONNECTION_LOST, "the server has failed")
    write(log, "a", 1)
    assert client.task is not None
    with pytest.raises(BinlogError, match=r"reads the server 4e11fa47-.* by GTID"):
        await client.task


async def test_the_format_of_another_file_has_no_time(daemon: Daemon, log: LogWriter) -> None:
    readers = await daemon.start(declared("c"))
    first = Client(readers, log, options(beginning(log)))
    first.start()
    await until(lambda: len(first.gtids) == 3, "the daemon knows the format")
    await first.leave()
    client = Client(readers, log, options(beginning(log)))
    client.start()
    await until(lambda: client.count(EventType.FORMAT_DESCRIPTION) == 1, "the format")
    (format_,) = (e for e in client.events if e[4] == EventType.FORMAT_DESCRIPTION)
    assert EventHeader.read(format_).timestamp == 0
    assert parse_format_description(format_).raw == format_
    await client.leave()


async def test_what_was_sent_is_acknowledged_later(daemon: Daemon, log: LogWriter) -> None:
    readers = await daemon.start(declared("c"))
    client = Client(readers, log, options(beginning(log)))
    client.start()
    await until(lambda: len(client.gtids) == 3, "three transactions")
    assert readers.get("c").acknowledged.seq == 0
    client.now = 10.5
    write(log, "b", 1)  # wakes the dump
    await until(lambda: readers.get("c").acknowledged.seq == 3, "the acknowledgement")
    await client.leave()


async def test_a_queue_without_room_is_acknowledged_at_once(daemon: Daemon, log: LogWriter) -> None:
    readers = await daemon.start(declared("c", bytes_max=1 << 16))
    client = Client(readers, log, options(beginning(log)))
    client.start()
    for _ in range(50):
        write(log, "a", 1, size=8000)
        await asyncio.sleep(0)
    await until(lambda: len(client.gtids) == 53, "more than the queue holds")
    await client.leave()


async def test_a_newer_session_ends_a_dump(daemon: Daemon, log: LogWriter) -> None:
    readers = await daemon.start(declared("c"))
    client = Client(readers, log, options(beginning(log)))
    client.start()
    await until(lambda: len(client.gtids) == 3, "three transactions")
    await open_session(readers, "c")
    assert client.task is not None
    with pytest.raises(BinlogError) as caught:
        await asyncio.wait_for(client.task, 20)
    assert caught.value.kind is ErrorKind.SESSION_FENCED


async def test_a_dump_ends_with_the_daemon(daemon: Daemon, log: LogWriter) -> None:
    readers = await daemon.start(declared("c"))
    client = Client(readers, log, options(beginning(log)))
    client.start()
    await until(lambda: len(client.gtids) == 3, "three transactions")
    readers.close()
    assert client.task is not None
    with pytest.raises(BinlogError, match="connect again"):
        await asyncio.wait_for(client.task, 20)


async def test_heartbeats_tell_of_others_transactions(daemon: Daemon, log: LogWriter) -> None:
    readers = await daemon.start(declared("c"))
    client = Client(readers, log, options(beginning(log), heartbeat_s=5.0))
    client.start()
    await until(lambda: len(client.gtids) == 3, "three transactions")
    write(log, "b", 1)
    await until(lambda: client.count(HEARTBEAT) >= 1, "a heartbeat")
    last = [event for event in client.events if event[4] == HEARTBEAT][-1]
    assert EventHeader.read(last).log_pos == log.transactions[-1].end
    await client.leave()


async def test_heartbeats_of_nanoseconds_are_not_sent_so_often(
    daemon: Daemon, log: LogWriter
) -> None:
    client = Client(
        await daemon.start(declared("c")), log, options(beginning(log), heartbeat_s=1e-9)
    )
    client.start()
    await until(lambda: len(client.gtids) == 3, "three transactions")
    client.now = HEARTBEAT_MIN_S / 2
    for _ in range(1000):
        await asyncio.sleep(0)
    assert client.count(HEARTBEAT) == 0
    client.now = 2 * HEARTBEAT_MIN_S
    await until(lambda: client.count(HEARTBEAT) == 1, "a heartbeat")
    await client.leave()


async def test_of_many_clients_only_the_newest_goes_on(daemon: Daemon, log: LogWriter) -> None:
    readers = await daemon.start(declared("c"))
    clients = [Client(readers, log, options(beginning(log))) for _ in range(200)]
    for client in clients:
        client.start()
    tasks = [client.task for client in clients if client.task is not None]
    await until(lambda: sum(task.done() for task in tasks) == len(tasks) - 1, "all but one end")
    kinds = {task.exception().kind for task in tasks if task.done()}  # type: ignore[union-attr]
    assert kinds == {ErrorKind.SESSION_FENCED}
    (newest,) = [client for client in clients if client.task and not client.task.done()]
    await until(lambda: len(newest.gtids) == 3, "three transactions")
    await newest.leave()
