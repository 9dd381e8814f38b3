"""A folder of binlog files as a source: which files, where to begin, where it ends, and what is wrong with it.

Folders are written by `LogWriter`, which remembers the transactions. A `Dispatched` drives the rules with the source as
a runner does, without a daemon, and compares what a consumer has in its queue with what was written.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.stream.batch import Batch
from dispatcher.cli import app
from dispatcher.dispatch.client import Client
from dispatcher.dispatch.dispatcher import Phase
from dispatcher.dispatch.effects import Connect, Effect, StartDump, Store
from dispatcher.dispatch.events import (
    Acknowledged,
    BatchReceived,
    Ended,
    LoggedIn,
    Lost,
    SeekRequested,
)
from dispatcher.dispatch.executed_position import ExecutedPosition, Mode, make_executed
from dispatcher.dispatch.specs import (
    AtFile,
    AtGtid,
    ConsumerSpec,
    Earliest,
    Latest,
    Progress,
    Start,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, packed_seq
from dispatcher.source.files.dump_stream import FilesStream
from dispatcher.source.files.folder import Folder, next_name
from dispatcher.source.files.source import FilesSource
from dispatcher.source.protocols import ViewRequest
from tests.daemon.harness import transactions
from tests.support import event_encoder
from tests.support.event_encoder import (
    SERVER,
    LogWriter,
    Statement,
    event,
    format_description,
)
from tests.support.random_log import Wanted, delivered_parts, random_log
from tests.support.rows_encoder import Spec, table_map

OTHER = UUID("00000000-0000-0000-0000-00000000000b")
IDENTITY = "the-folder"
WAIT_S = 10.0
GTIDS = ["mysql", "5.6", "anonymous", "none", "mariadb"]


def insert(log: LogWriter, *, size: int = 30, source: UUID = SERVER) -> None:
    log.begin(source)
    log.statement(Statement((("shop", "orders"),), ((0, size),)))
    log.commit()


def fill(log: LogWriter, files: int = 3, each: int = 4) -> LogWriter:
    for n in range(files):
        if n:
            log.rotate()
        for _ in range(each):
            insert(log)
    return log


def put(folder: Path, log: LogWriter) -> None:
    folder.mkdir(exist_ok=True)
    for file in log.files:
        (folder / file.name).write_bytes(file.raw)


def source_of(folder: Path, *, follow: bool = False, prefix: str | None = None) -> FilesSource:
    return FilesSource(folder, prefix, follow=follow, server=IDENTITY)


def end_of(source: FilesSource) -> ExecutedPosition:
    view, expire_s = source.survey(ViewRequest())
    assert expire_s is None
    return make_executed(view.mode, view.executed, view.file, view.offset)


class Dispatched:
    """A client of one consumer, without a daemon around it."""

    def __init__(
        self,
        folder: Path,
        *,
        start: Start | None = None,
        progress: Progress | None = None,
        follow: bool = False,
        buffer_bytes: int = 1 << 14,
    ) -> None:
        self.source = source_of(folder, follow=follow)
        spec = ConsumerSpec("all", ("shop",), None, 1 << 30, start or Earliest())
        self.client = Client(self.source.label, [spec], {"all": progress} if progress else {})
        self.queue = self.client.consumers["all"].queue
        self.stored: Progress | None = progress
        self.batches = 0
        self._buffer_bytes = buffer_bytes
        self.number = 0  # of the dispatcher
        self.stream: FilesStream | None = None

    def login(self) -> FilesStream | None:
        opened = self.source.open(1)
        if not self.number:
            self._execute(self.client.start())
        files, starts = (
            self.client.files_to_probe(self.number),
            self.client.starts_to_find(self.number),
        )
        view = opened.view(ViewRequest(files, starts))
        effects = self._execute(self.client.step(LoggedIn(self.number, view), 0))
        dumps = [effect for effect in effects if isinstance(effect, StartDump)]
        if dumps:
            self.stream = opened.dump(
                dumps[0].mode, dumps[0].place, self.client.routes, self._buffer_bytes
            )
        return self.stream

    async def read(self, until: Callable[[], bool] = lambda: False) -> Dispatched:
        """Until the end, an error, or the condition; an error goes to the rules and is raised."""
        stream = self.stream or self.login()
        assert stream is not None, str(self.client.consumers["all"].failed)
        try:
            async with asyncio.timeout(WAIT_S):
                while self.phase and not until() and not stream.over:
                    for batch in await stream.batches():
                        assert isinstance(batch, Batch)
                        if not self.phase:
                            break
                        self.batches += 1
                        created = stream.splitter.created.get(batch.file, 0)
                        self._execute(
                            self.client.step(BatchReceived(self.number, batch, created), 0)
                        )
        except BinlogError as error:
            self._execute(self.client.step(Lost(self.number, error), 0))
            raise
        finally:
            if stream.over:
                stream.close()
        if stream.over and self.phase:
            self.client.step(Ended(self.number), 0)
            assert self.phase is Phase.ENDED
        return self

    def close(self) -> None:
        if self.stream:
            self.stream.close()
            self.stream = None

    def everything(self, chunks: list[bytes]) -> Progress | None:
        """Take what is queued, and what would be stored when it is acknowledged."""
        self.close()
        if not self.client.consumers["all"].started:
            return self.stored
        start = self.queue.position(self.queue.acknowledged)
        if self.position.seq > start.seq:
            data = b"".join(self.queue.read(start, self.position))
            chunks.append(data)
        return Progress(self.position, self.position, self.queue.created_of(self.position.file))

    def _execute(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Store):
                self.stored = effect.progress
            if isinstance(effect, Connect):
                self.number = effect.dispatcher
        return effects

    @property
    def phase(self) -> Phase | None:
        """None: nobody needs a dispatcher."""
        dispatcher = self.client.dispatchers.get(self.number)
        return dispatcher.phase if dispatcher else None

    @property
    def position(self) -> Position:
        return self.queue.position(self.queue.queued)

    @property
    def transactions(self) -> list[tuple[str, int]]:
        """(file, offset after it) of each transaction in the queue."""
        runs = self.queue._runs
        places = [runs.place(n) for n in range(runs.dropped, runs.count)]
        return [(place.file, place.offset) for place in places]


def written(log: LogWriter, first: int = 0) -> list[tuple[str, int]]:
    return [(t.file, t.end) for t in log.transactions[first:] if not t.aborted]


async def fails(reading: Dispatched, kind: ErrorKind = ErrorKind.FILES) -> str:
    with pytest.raises(BinlogError) as caught:
        await reading.read()
    reading.close()
    assert caught.value.kind is kind, caught.value
    assert "files:" in str(caught.value)
    return caught.value.what


def refused(folder: Path, prefix: str | None = None) -> str:
    with pytest.raises(BinlogError) as caught:
        source_of(folder, prefix=prefix).open(1)
    assert caught.value.kind is ErrorKind.FILES and "files:" in caught.value.where
    return caught.value.what


# -- reading ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gtid", GTIDS)
@pytest.mark.parametrize("checksum", [True, False])
async def test_everything_from_the_beginning(tmp_path: Path, gtid: str, checksum: bool) -> None:
    log = fill(LogWriter(gtid=gtid, checksum=checksum))
    put(tmp_path, log)
    reading = await Dispatched(tmp_path).read()
    assert reading.transactions == written(log)
    position = reading.position
    assert position.server == IDENTITY
    assert (position.file, position.offset) == (log.file.name, log.file.size)
    tip = end_of(reading.source)
    assert same(tip, reading)
    expected = {"mysql": f"{SERVER}:1-12", "5.6": f"{SERVER}:1-12", "mariadb": "0-1-12"}
    assert position.gtid == expected.get(gtid, "")
    if gtid == "mysql":
        assert position.seq == 12


@pytest.mark.parametrize("gtid", GTIDS)
async def test_the_mode(tmp_path: Path, gtid: str) -> None:
    put(tmp_path, fill(LogWriter(gtid=gtid), files=1))
    # The writer's 5.6 says in no file what the ones before it hold, so nobody could begin at a set.
    mode = {"mysql": Mode.GTID, "mariadb": Mode.MARIADB}.get(gtid, Mode.FILE)
    view = source_of(tmp_path).open(1).view(ViewRequest())
    assert view.mode is mode and view.server == IDENTITY and view.purged == ""


@pytest.mark.parametrize("gtid", GTIDS)
async def test_the_newest_place_is_where_a_latest_start_begins(tmp_path: Path, gtid: str) -> None:
    log = fill(LogWriter(gtid=gtid))
    put(tmp_path, log)
    reading = Dispatched(tmp_path, start=Latest(), follow=True)
    reading.login()
    assert reading.position == reading.queue.position(end_of(reading.source))
    before = len(log.transactions)
    insert(log)
    put(tmp_path, log)
    await reading.read(lambda: len(reading.transactions) == 1)
    assert reading.transactions == written(log, before)
    reading.close()


@pytest.mark.parametrize("gtid", ["anonymous", "none", "mariadb"])
async def test_a_start_in_the_middle_of_a_file(tmp_path: Path, gtid: str) -> None:
    log = fill(LogWriter(gtid=gtid))
    put(tmp_path, log)
    start = log.transactions[5]
    reading = await Dispatched(tmp_path, start=AtFile(start.file, start.end)).read()
    assert reading.transactions == written(log, 6)
    # What a consumer gets as FORMAT_DESCRIPTION says no position, as a server's would.
    assert reading.queue._formats[0][1].raw[13:17] == bytes(4)


async def test_a_start_at_a_gtid_set_with_gaps_and_two_sources(tmp_path: Path) -> None:
    log = LogWriter()
    for n in range(30):
        insert(log, source=SERVER if n % 3 else OTHER, size=20_000 if n == 9 else 30)
        if n % 8 == 7:
            log.rotate()
    put(tmp_path, log)
    held = GtidSet.parse(f"{SERVER}:1-4:7:9-10,{OTHER}:1-2:4:9")
    reading = await Dispatched(tmp_path, start=AtGtid(str(held))).read()
    wanted = [t for t in log.transactions if not held.has(t.source, t.gno)]
    assert reading.transactions == [(t.file, t.end) for t in wanted]
    assert reading.position.gtid == f"{OTHER}:1-10,{SERVER}:1-20"
    assert reading.position.seq == 30


async def test_a_gtid_start_opens_the_file_it_lies_in_and_none_before(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=4)
    put(tmp_path, log)
    opened = source_of(tmp_path).open(1)
    reading = Dispatched(tmp_path, start=AtGtid(f"{SERVER}:1-9"))
    stream = reading.login()
    assert stream is not None and stream._name == log.files[2].name
    await reading.read()
    assert reading.transactions == written(log, 9)
    assert (
        opened.view(ViewRequest([log.files[0].name])).created[log.files[0].name]
        == log.files[0].created
    )


async def test_a_transaction_over_many_buffers(tmp_path: Path) -> None:
    log = LogWriter()
    insert(log)
    log.begin()
    for _ in range(25):
        log.statement(Statement((("shop", "orders"),), ((0, 9000), (0, 9000))))
    log.commit()
    insert(log)
    put(tmp_path, log)
    reading = await Dispatched(tmp_path).read()
    assert reading.transactions == written(log) and reading.batches > 20
    held = Dispatched(tmp_path, start=AtGtid(f"{SERVER}:1-2"))
    assert (await held.read()).transactions == written(log, 2)
    assert held.position.seq == 3


async def test_it_goes_on_from_what_is_stored(tmp_path: Path) -> None:
    for gtid in GTIDS:
        folder = tmp_path / gtid
        log = fill(LogWriter(gtid=gtid))
        put(folder, log)
        first = await Dispatched(folder).read()
        position = first.position
        insert(log)
        log.rotate()
        insert(log)
        put(folder, log)
        progress = Progress(position, position, first.queue.created_of(position.file))
        again = await Dispatched(folder, progress=progress).read()
        assert again.transactions == written(log, 12)


async def test_with_gtids_it_goes_on_where_a_server_was_left(tmp_path: Path) -> None:
    for gtid in ("mysql", "mariadb", "anonymous"):
        log = fill(LogWriter(gtid=gtid))
        put(tmp_path / gtid, log)
        stop = log.transactions[6]
        position = (await Dispatched(tmp_path / gtid).read()).position
        held = f"{SERVER}:1-7" if gtid == "mysql" else "0-1-7" if gtid == "mariadb" else ""
        seq = 7 if gtid == "mysql" else packed_seq(stop.file, stop.end)
        of_server = Position(str(OTHER), held, stop.file, stop.end, seq, 0)
        reading = Dispatched(tmp_path / gtid, progress=Progress(of_server, of_server, 0))
        if gtid == "mysql":
            assert (await reading.read()).transactions == written(log, 7)
            assert reading.position == position
        else:
            assert reading.login() is None
            failed = reading.client.consumers["all"].failed
            assert failed is not None and failed.kind is ErrorKind.HISTORY_DIFFERS


async def test_a_reader_that_seeks_back_after_the_end(tmp_path: Path) -> None:
    log = fill(LogWriter())
    put(tmp_path, log)
    reading = await Dispatched(tmp_path).read()
    early = reading.queue.next(reading.queue.position(reading.queue.acknowledged), 1).end
    reading.client.step(Acknowledged("all", reading.position, reading.position), 0)
    reading.close()
    effects = reading._execute(
        reading.client.step(SeekRequested("all", early, reading.source.survey(ViewRequest())[0]), 0)
    )
    assert any(isinstance(effect, Connect) for effect in effects)
    await reading.read()
    assert reading.transactions == written(log, early.seq)
    assert reading.phase is Phase.ENDED


# -- the ends of files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gtid", GTIDS)
async def test_a_file_that_a_crash_ended(tmp_path: Path, gtid: str) -> None:
    log = LogWriter(gtid=gtid)
    insert(log)
    log.begin()
    log.statement(Statement((("shop", "orders"),), ((0, 30),)))
    log.crash()
    insert(log)
    put(tmp_path, log)
    assert (await Dispatched(tmp_path).read()).transactions == written(log)


@pytest.mark.parametrize("gtid", ["mysql", "mariadb"])
async def test_half_an_event_at_the_end_of_a_crashed_file(tmp_path: Path, gtid: str) -> None:
    log = LogWriter(gtid=gtid)
    insert(log)
    log.begin()
    log.statement(Statement((("shop", "orders"),), ((0, 300),)))
    log.crash()
    if gtid == "mariadb":
        log.add(EventType.MARIADB_GTID_LIST, gtid_list(1))
    insert(log)
    put(tmp_path, log)
    first = tmp_path / log.files[0].name
    first.write_bytes(in_use(log.files[0].raw)[:-100])
    assert (await Dispatched(tmp_path).read()).transactions == written(log)


@pytest.mark.parametrize("gtid", ["mysql", "mariadb"])
@pytest.mark.parametrize("cut", [0, 5])
async def test_a_copy_made_too_early_is_told_and_mends(tmp_path: Path, gtid: str, cut: int) -> None:
    log = fill(LogWriter(gtid=gtid), files=2)
    if gtid == "mariadb":
        log.files[1].events.insert(1, (event(163, gtid_list(4), log_pos=0), None))
    put(tmp_path, log)
    first = tmp_path / log.files[0].name
    whole = first.read_bytes()
    first.write_bytes(in_use(whole)[: log.transactions[2].end - cut])
    reading = Dispatched(tmp_path)
    what = await fails(reading)
    assert "binlog.000001 is a copy that was made while the server wrote it" in what
    missing = 4 if not cut else 3
    assert ("0-1-4" if gtid == "mariadb" else f"{SERVER}:{missing}") in what
    assert reading.transactions == written(log)[: missing - 1]
    first.write_bytes(whole)
    await reading.read()
    assert len(reading.transactions) == 8


async def test_a_copy_made_too_early_without_gtids(tmp_path: Path) -> None:
    log = fill(LogWriter(gtid="anonymous"), files=2)
    put(tmp_path, log)
    first = tmp_path / log.files[0].name
    whole = first.read_bytes()
    first.write_bytes(in_use(whole)[: log.transactions[2].end])
    assert "made while the server wrote it" in await fails(Dispatched(tmp_path))
    first.write_bytes(whole[: log.transactions[2].end - 3])
    assert "made while the server wrote it" in await fails(Dispatched(tmp_path))
    # Closed by the server's recovery after a crash: no ROTATE, no STOP, and nothing missing.
    first.write_bytes(whole[: log.transactions[2].end])
    assert len((await Dispatched(tmp_path).read()).transactions) == 7


async def test_the_newest_file_ends_inside_an_event(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=1)
    put(tmp_path, log)
    path = tmp_path / log.file.name
    path.write_bytes(log.file.raw[:-10])
    what = await fails(Dispatched(tmp_path))
    assert what == f"{path.name} ends inside the event at {log.file.size - 31}"
    path.write_bytes(in_use(log.file.raw)[:-10])
    reading = await Dispatched(tmp_path).read()
    assert reading.transactions == written(log)[:-1]
    assert reading.position.gtid == f"{SERVER}:1-3"


async def test_a_log_that_was_rotated_at_its_end(tmp_path: Path) -> None:
    for gtid in GTIDS:
        log = fill(LogWriter(gtid=gtid), files=2)
        log.rotate()
        folder = tmp_path / gtid
        put(folder, log)
        (folder / log.files.pop().name).unlink()
        reading = await Dispatched(folder).read()
        position = reading.position
        assert (position.file, position.offset) == ("binlog.000003", 4)
        assert same(end_of(reading.source), reading)
        # And there the next run goes on, before the file is there and after it.
        progress = Progress(position, position, 0)
        again = await Dispatched(folder, progress=progress).read()
        assert again.transactions == [] and again.position == position
        log.begin_file()
        log.files[-1].name = "binlog.000003"
        insert(log)
        log.transactions[-1].file = "binlog.000003"
        put(folder, log)
        again = await Dispatched(folder, progress=progress).read()
        assert again.transactions == [("binlog.000003", log.file.size)]


async def test_a_new_file_that_is_not_begun_yet(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=2)
    put(tmp_path, log)
    for start in (b"", b"\xfe", log.files[1].raw[:50]):
        (tmp_path / "binlog.000003").write_bytes(start)
        reading = await Dispatched(tmp_path).read()
        assert reading.transactions == written(log)
    (tmp_path / "binlog.000001").write_bytes(b"")
    assert refused(tmp_path) == "binlog.000001 is empty"


# -- following -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gtid", GTIDS)
async def test_following_a_file_that_grows_by_pieces(tmp_path: Path, gtid: str) -> None:
    log = fill(LogWriter(gtid=gtid), files=1)
    put(tmp_path, log)
    path = tmp_path / log.file.name
    path.write_bytes(in_use(log.file.raw))
    reading = Dispatched(tmp_path, follow=True)
    await reading.read(lambda: len(reading.transactions) == 4)
    insert(log)
    grown = in_use(log.file.raw)
    size = path.stat().st_size
    assert reading.stream is not None
    pieces = [size + n * (len(grown) - size) // 7 for n in range(1, 8)]
    for end in pieces:
        assert len(reading.transactions) == 4
        path.write_bytes(grown[:end])
        stream = reading.stream
        await reading.read(lambda stream=stream, end=end: stream._offset == end)  # type: ignore[misc]
    assert reading.transactions == written(log)
    # Rotated: the next file appears a while later, empty at first.
    log.rotate()
    insert(log)
    path.write_bytes(log.files[0].raw)
    await reading.read(lambda: reading.position.file == "binlog.000002")
    (tmp_path / "binlog.000002").write_bytes(b"")
    assert reading.stream._more() is False
    put(tmp_path, log)
    await reading.read(lambda: len(reading.transactions) == 6)
    assert reading.transactions == written(log)
    reading.close()


async def test_following_a_copy_that_is_replaced_by_a_newer_one(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=1)
    put(tmp_path, log)
    reading = Dispatched(tmp_path, follow=True)
    await reading.read(lambda: len(reading.transactions) == 4)
    insert(log)
    newer = tmp_path / ".binlog.000001.x7Gh2k"
    newer.write_bytes(log.file.raw)
    newer.rename(tmp_path / "binlog.000001")
    await reading.read(lambda: len(reading.transactions) == 5)
    assert reading.transactions == written(log)
    other = fill(LogWriter(first_file=1), files=1)
    other._now += 100
    other.begin_file()
    newer.write_bytes(other.file.raw + bytes(10_000))
    newer.rename(tmp_path / "binlog.000001")
    assert "was replaced" in await fails(reading, ErrorKind.CONNECTION_LOST)


async def test_a_file_that_shrinks_or_vanishes_while_it_is_followed(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=2)
    put(tmp_path, log)
    newest = tmp_path / log.file.name
    spoils: list[tuple[Callable[[], None], str]] = [
        (lambda: os.truncate(newest, 500), "has become shorter"),
        (newest.unlink, "binlog.000002 is gone"),
    ]
    for spoil, what in spoils:
        put(tmp_path, log)
        reading = Dispatched(tmp_path, follow=True)
        await reading.read(lambda reading=reading: len(reading.transactions) == 8)  # type: ignore[misc]
        spoil()
        assert what in await fails(reading, ErrorKind.CONNECTION_LOST)
        if newest.exists():
            # What was delivered is no part of the log any more.
            reading.login()
            failed = reading.client.consumers["all"].failed
            assert failed is not None and failed.kind is ErrorKind.HISTORY_DIFFERS


async def test_a_crash_recovery_that_cuts_the_newest_file(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=1)
    insert(log)
    end = log.file.size
    log.begin()
    log.statement(Statement((("shop", "orders"),), ((0, 30),)))
    put(tmp_path, log)
    reading = Dispatched(tmp_path, follow=True)
    await reading.read(
        lambda: reading.stream is not None and reading.stream._offset == log.file.size
    )
    os.truncate(tmp_path / log.file.name, end)
    assert "has become shorter" in await fails(reading, ErrorKind.CONNECTION_LOST)
    log.file.events = [(raw, t) for raw, t in log.file.events if t is None or t.end]
    log.file.size = end
    log.crash()
    insert(log)
    put(tmp_path, log)
    await reading.read(lambda: len(reading.transactions) == 6)
    assert reading.transactions == written(log)
    reading.close()


async def test_files_that_are_purged(tmp_path: Path) -> None:
    for gtid in ("mysql", "anonymous", "mariadb"):
        folder = tmp_path / gtid
        log = fill(LogWriter(gtid=gtid), files=1)
        put(folder, log)
        reading = await Dispatched(folder).read()
        position = reading.position
        fill(log, files=3)
        log.rotate()
        insert(log)
        put(folder, log)
        for file in log.files[:2]:
            (folder / file.name).unlink()
        late = Dispatched(folder, progress=Progress(position, position, 0))
        assert late.login() is None
        failed = late.client.consumers["all"].failed
        assert failed is not None and failed.kind is ErrorKind.POSITION_PURGED
        if gtid == "mysql":
            assert source_of(folder).open(1).view(ViewRequest()).purged == f"{SERVER}:1-12"
            # The earliest start is the first file's.
            assert len((await Dispatched(folder).read()).transactions) == 5


async def test_a_file_that_is_purged_while_it_is_read(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=5)
    put(tmp_path, log)
    reading = Dispatched(tmp_path)
    await reading.read(lambda: len(reading.transactions) >= 4)
    for file in log.files[:4]:
        (tmp_path / file.name).unlink()
    what = await fails(reading, ErrorKind.CONNECTION_LOST)
    assert "is gone" in what
    reading.login()
    failed = reading.client.consumers["all"].failed
    assert failed is not None and failed.kind is ErrorKind.POSITION_PURGED


async def test_an_interrupt_ends_the_waiting(tmp_path: Path) -> None:
    put(tmp_path, fill(LogWriter(), files=1))
    reading = Dispatched(tmp_path, follow=True)
    await reading.read(lambda: len(reading.transactions) == 4)
    assert reading.stream is not None
    waiting = asyncio.ensure_future(reading.stream.batches())  # noqa: TID251
    await asyncio.sleep(0)
    reading.stream.interrupt()
    assert await asyncio.wait_for(waiting, WAIT_S) == []
    reading.close()
    assert reading.stream is None


@pytest.mark.parametrize("seed", range(25))
async def test_any_log_that_grows_by_any_pieces(tmp_path: Path, seed: int) -> None:
    """Followed or read to its end, over restarts: each transaction comes once, whole, and in order."""
    rng = random.Random(seed)
    gtid = rng.choice(["mysql", "mysql", "anonymous", "none", "mariadb"])
    log = random_log(rng, transactions=40, gtid=gtid, size_max=rng.choice((200, 9000)))
    # A folder without a transaction is refused, so the first ones are there from the beginning.
    first = next(n for n, file in enumerate(log.files) if file.name == log.transactions[1].file)
    heads = [4 + len(file.events[0][0]) for file in log.files]
    ends = [(n, rng.randint(heads[n], f.size)) for n, f in enumerate(log.files) for _ in range(3)]
    ends = [end for end in sorted(ends) if end >= (first, log.transactions[1].end)]
    ends += [(n, file.size) for n, file in enumerate(log.files) if n >= first]
    reading: Dispatched | None = None
    chunks: list[bytes] = []
    for newest, size in sorted(ends):
        for n, file in enumerate(log.files[: newest + 1]):
            raw = in_use(file.raw)[:size] if n == newest else file.raw
            (tmp_path / file.name).write_bytes(raw)
        if reading is None or rng.random() < 0.3:
            stored = reading.everything(chunks) if reading else None
            follow, room = rng.random() < 0.5, rng.choice((1 << 14, 1 << 17))
            reading = Dispatched(tmp_path, progress=stored, follow=follow, buffer_bytes=room)
        if not reading.source._follow:
            await reading.read()
            stored = reading.everything(chunks)
            reading = Dispatched(tmp_path, progress=stored, follow=True)
        else:
            stream, name = reading.stream or reading.login(), log.files[newest].name
            assert stream is not None, str(reading.client.consumers["all"].failed)
            await reading.read(
                lambda stream=stream, name=name, size=size: (  # type: ignore[misc]
                    (stream._name, stream._offset) == (name, size) and not stream.splitter.full
                )
            )
    assert reading is not None
    reading.everything(chunks)
    wanted = Wanted(("shop",))
    expected = [(t.file, t.end, delivered_parts(t, wanted)) for t in log.transactions]
    found = [(t.file, t.offset, t.data) for chunk in chunks for t in transactions(chunk)]
    assert found == [(file, end, b"".join(parts)) for file, end, parts in expected if parts]


# -- what is no log --------------------------------------------------------------------------------------------


def test_no_such_folder(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == "the folder cannot be read: No such file or directory"
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file") == "the folder cannot be read: Not a directory"
    assert refused(tmp_path) == "it holds no binlog files, named like binlog.000001"


async def test_a_folder_that_is_filled_later(tmp_path: Path) -> None:
    source = source_of(tmp_path / "later")
    with pytest.raises(BinlogError):
        source.open(1)
    put(tmp_path / "later", fill(LogWriter()))
    assert end_of(source).seq == 12


def test_a_gap_between_the_files(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=4)
    put(tmp_path, log)
    (tmp_path / "binlog.000003").unlink()
    assert refused(tmp_path) == "binlog.000003 is missing between binlog.000001 and binlog.000004"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (
            b"hello, world, this is a text",
            "is not a binlog: its first bytes are of another kind of file",
        ),
        (b"\xfdbin" + bytes(600), "is encrypted"),
        (b"\xfebin" + bytes(600), "does not begin with a FORMAT_DESCRIPTION_EVENT"),
        (b"\xfebin" + b"\xff" * 6000, "does not begin with a FORMAT_DESCRIPTION_EVENT"),
        (b"\xfebin" + event(2, bytes(80)), "does not begin with a FORMAT_DESCRIPTION_EVENT"),
    ],
)
def test_files_that_are_no_binlog(tmp_path: Path, data: bytes, what: str) -> None:
    put(tmp_path, fill(LogWriter(), files=2))
    (tmp_path / "binlog.000003").write_bytes(data)
    assert refused(tmp_path) == f"binlog.000003 {what}"


def test_a_message_about_another_kind_of_file_shows_none_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "binlog.000001").write_bytes(b"root:x:0:0")
    assert "root" not in refused(tmp_path)


def test_a_symbolic_link_is_refused_wherever_it_leads(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    put(folder, fill(LogWriter(), files=2))
    said = "binlog.000003 is a symbolic link, and links are not followed"
    for target in (tmp_path / "outside", folder / "binlog.000001", tmp_path / "missing"):
        (folder / "binlog.000003").symlink_to(target)
        assert refused(folder) == said
        (folder / "binlog.000003").unlink()


def test_a_link_among_other_numbered_files_does_not_hide_the_log(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=2)
    put(tmp_path, log)
    (tmp_path / "other.000001").symlink_to("/etc/hostname")
    assert end_of(source_of(tmp_path)).seq == len(written(log))


def test_a_file_that_is_replaced_by_a_link_after_it_was_listed_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, fill(LogWriter(), files=2))
    found = Folder(tmp_path, None)
    listed = found.files()
    path = tmp_path / listed[-1].name
    path.rename(tmp_path / "kept")
    path.symlink_to(tmp_path / "kept")
    with pytest.raises(BinlogError, match="is a symbolic link"):
        found.head(listed[-1].name)


def test_the_folder_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    put(tmp_path / "logs", fill(LogWriter(), files=2))
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    assert end_of(source_of(tmp_path / "link")).seq > 0


def test_a_damaged_format_description(tmp_path: Path) -> None:
    put(tmp_path, fill(LogWriter(), files=1))
    path = tmp_path / "binlog.000001"
    raw = bytearray(path.read_bytes())
    raw[40] ^= 1
    path.write_bytes(raw)
    what = "binlog.000001 is damaged at 4: checksum mismatch: FORMAT_DESCRIPTION_EVENT"
    assert refused(tmp_path) == what
    put(tmp_path, fill(LogWriter(), files=2))
    path = tmp_path / "binlog.000002"
    raw = bytearray(path.read_bytes())
    start = raw.index(SERVER.bytes)
    raw[start + 16] = 77
    path.write_bytes(raw)
    assert refused(tmp_path).startswith(
        f"binlog.000002 is damaged at {start - 27}: malformed event: PREVIOUS_GTIDS_EVENT is damaged"
    )


def test_mariadb_s_encryption(tmp_path: Path) -> None:
    log = LogWriter(gtid="mariadb")
    log.add(EventType.MARIADB_START_ENCRYPTION, bytes(17))
    put(tmp_path, log)
    assert refused(tmp_path) == "binlog.000001 is encrypted"


async def test_damage_in_the_middle_is_told_when_it_is_reached(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=2)
    put(tmp_path, log)
    path = tmp_path / log.files[1].name
    raw = bytearray(path.read_bytes())
    raw[log.transactions[6].end + 30] ^= 1
    path.write_bytes(raw)
    reading = Dispatched(tmp_path)
    with pytest.raises(BinlogError) as caught:
        await reading.read()
    reading.close()
    assert caught.value.kind is ErrorKind.CHECKSUM_MISMATCH
    assert f"binlog.000002:{log.transactions[6].end}" in caught.value.where
    assert reading.transactions == written(log)[:7]
    assert end_of(source_of(tmp_path)).seq == 7


def test_several_logs_in_one_folder(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=2)
    put(tmp_path, log)
    for name in (
        "aria_log.00000001",
        ".binlog.000003",
        "binlog.index",
        "binlog.000001.idx",
        "events.123456",
    ):
        (tmp_path / name).write_bytes(b"something else")
    relay = format_description()
    relay = relay[:17] + b"\x40\0" + relay[19:]
    (tmp_path / "db1-relay-bin.000007").write_bytes(b"\xfebin" + relay)
    (tmp_path / "binlog.000009").mkdir()
    assert end_of(source_of(tmp_path)).file == "binlog.000002"
    assert refused(tmp_path, prefix="db1-relay-bin") == "db1-relay-bin.000007 is a relay log"
    assert (
        refused(tmp_path, prefix="mysql-bin")
        == "it holds no binlog files, named like mysql-bin.000001"
    )
    shutil.copy(tmp_path / "binlog.000001", tmp_path / "mysql-bin.000001")
    assert refused(tmp_path) == "it holds several logs: binlog, mysql-bin"
    source = source_of(tmp_path, prefix="mysql-bin")
    assert source.label == f"files:{tmp_path}/mysql-bin"
    assert end_of(source).file == "binlog.000002"  # where the file says that the log goes on


def test_a_log_without_transactions(tmp_path: Path) -> None:
    put(tmp_path, LogWriter())
    assert "no transaction in the files yet" in refused(tmp_path)
    put(tmp_path, LogWriter(gtid="mariadb"))
    assert source_of(tmp_path).open(1).mode is Mode.MARIADB


async def test_gtids_that_were_turned_on(tmp_path: Path) -> None:
    """Files of both kinds are read by their offsets, all of them."""
    log = fill(LogWriter(gtid="anonymous"), files=2)
    log.rotate()
    log.gtid = "mysql"
    log.begin_file()
    del log.files[2]
    log.file.name = "binlog.000003"
    insert(log)
    log.transactions[-1].file = "binlog.000003"
    put(tmp_path, log)
    assert source_of(tmp_path).open(1).mode is Mode.FILE
    reading = await Dispatched(tmp_path).read()
    assert reading.transactions == written(log)
    assert reading.position.gtid == f"{SERVER}:1"
    for name in ("binlog.000001", "binlog.000002"):
        (tmp_path / name).unlink()
    assert source_of(tmp_path).open(1).mode is Mode.GTID


def test_the_tip_is_found_again_without_reading_all_of_the_file(tmp_path: Path) -> None:
    log = fill(LogWriter(), files=1)
    put(tmp_path, log)
    source = source_of(tmp_path)
    assert end_of(source).seq == 4
    scanned: list[int] = []
    scan = source.folder.scan

    def count(name: str, head: object, offset: int, gtids: object) -> object:
        scanned.append(offset)
        return scan(name, head, offset, gtids)  # type: ignore[arg-type]

    source.folder.scan = count  # type: ignore[assignment, method-assign]
    end = log.file.size
    insert(log)
    put(tmp_path, log)
    tip = end_of(source)
    assert (tip.seq, tip.offset, scanned) == (5, log.file.size, [end])


def test_what_only_a_server_can_tell(tmp_path: Path) -> None:
    put(tmp_path, fill(LogWriter()))
    with pytest.raises(BinlogError) as caught:
        source_of(tmp_path).server()
    assert caught.value.kind is ErrorKind.METADATA_MISSING
    assert "binlog_row_metadata=FULL" in caught.value.remedy


async def test_tables_that_the_log_does_not_describe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bare(database: str, table: str, table_id: int) -> bytes:
        columns = [Spec("id", 3)]
        return table_map(columns, database=database, table=table, table_id=table_id, full=False)

    monkeypatch.setattr(event_encoder, "table_map_body", bare)
    put(tmp_path, fill(LogWriter()))
    reading = Dispatched(tmp_path)
    await reading.read(lambda: reading.client.consumers["all"].failed is not None)
    reading.close()
    failed = reading.client.consumers["all"].failed
    assert failed is not None and failed.kind is ErrorKind.METADATA_MISSING
    assert "table shop.orders at binlog.000001:" in failed.what
    assert "mysql: instead of files:" in failed.remedy


def test_check_says_what_is_wrong_with_a_folder(tmp_path: Path) -> None:
    put(tmp_path / "good", fill(LogWriter()))
    put(tmp_path / "gap", fill(LogWriter()))
    (tmp_path / "gap" / "binlog.000002").unlink()
    text = """\
consumers:
  a: {files: {path: good}, databases: [shop]}
  b: {files: {path: gap, follow: false}, databases: [shop]}
  c: {files: {path: gap, follow: false}, databases: [depot]}
"""
    config = tmp_path / "dispatcher.yaml"
    config.write_text(text)
    done = CliRunner().invoke(app, ["check", "--config", str(config)])
    assert done.exit_code == 2
    assert done.stderr == (
        f"files:{tmp_path}/gap: binlog files: binlog.000002 is missing between binlog.000001 and binlog.000003;"
        " copy the missing files too, or take away those before the gap (for consumers.b, consumers.c)\n"
    )
    config.write_text(text.replace("path: gap", "path: good"))
    done = CliRunner().invoke(app, ["check", "--config", str(config)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "consumers.b.files.follow: differs from consumers.a (False and True)" in done.stderr
    config.write_text(text.replace("path: gap, follow: false", "path: good"))
    done = CliRunner().invoke(app, ["check", "--config", str(config)])
    assert (done.exit_code, done.stdout) == (0, "OK: 3 consumers checked, no errors\n")


def test_names() -> None:
    assert next_name("binlog.000009") == "binlog.000010"
    assert next_name("a.b.999999") == "a.b.1000000"
    assert Folder(Path("/x"), None).label == "files:/x"


def same(tip: ExecutedPosition, reading: Dispatched) -> bool:
    """Is the tip where the reading is? Without GTIDs in the heads it cannot know those of older files."""
    queued = reading.queue.queued
    if reading.queue.mode is Mode.FILE:
        return (tip.file, tip.offset, tip.seq) == (queued.file, queued.offset, queued.seq)
    return tip == queued


def in_use(raw: bytes) -> bytes:
    return raw[:21] + b"\1\0" + raw[23:]


def gtid_list(sequence: int) -> bytes:
    domain, server = (0).to_bytes(4, "little"), (1).to_bytes(4, "little")
    return (1).to_bytes(4, "little") + domain + server + sequence.to_bytes(8, "little")
