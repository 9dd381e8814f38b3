"""The daemon reads a folder of binlog files completely and in order, also while the folder grows, and refuses a damaged
or older copy."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from dispatcher.binlog.event.types import EventType
from dispatcher.dispatch.connection.dispatcher import Phase
from dispatcher.dispatch.messages.effects import Connect
from dispatcher.dispatch.messages.events import (
    Acknowledged,
    SeekRequested,
)
from dispatcher.dispatch.values.executed_position import Mode
from dispatcher.dispatch.values.specs import (
    AtFile,
    AtGtid,
    Latest,
    Progress,
)
from dispatcher.model.errors import ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, packed_seq
from dispatcher.source.protocols import ViewRequest
from tests.daemon.harness import transactions
from tests.support.event_encoder import (
    SERVER,
    LogWriter,
    Statement,
    event,
)
from tests.support.folder_reading import (
    GTIDS,
    IDENTITY,
    OTHER,
    WAIT_S,
    Dispatched,
    end_of,
    fails,
    fill,
    gtid_list,
    in_use,
    insert,
    put,
    refused,
    same,
    source_of,
    written,
)
from tests.support.random_log import Wanted, delivered_parts, random_log

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
    # With the format of 5.6, the test's writer writes no PREVIOUS_GTIDS, so reading cannot begin at a GTID set.
    mode = {"mysql": Mode.GTID, "mariadb": Mode.MARIADB}.get(gtid, Mode.FILE)
    view = source_of(tmp_path).open(1).view(ViewRequest())
    assert view.mode is mode and view.server == IDENTITY and view.purged == ""


@pytest.mark.parametrize("gtid", GTIDS)
async def test_a_latest_start_begins_at_the_end_of_the_log(tmp_path: Path, gtid: str) -> None:
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
    # The delivered FORMAT_DESCRIPTION has the position 0, like a FORMAT_DESCRIPTION that a server sends.
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


async def test_reading_goes_on_from_the_stored_position(tmp_path: Path) -> None:
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
        progress = Progress(position, position, first.queue.files.created_of(position.file))
        again = await Dispatched(folder, progress=progress).read()
        assert again.transactions == written(log, 12)


async def test_with_gtids_reading_goes_on_from_a_server_s_position(tmp_path: Path) -> None:
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
    early = reading.queue.readable(reading.queue.position(reading.queue.acknowledged), 1).end
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
async def test_a_file_that_ends_with_a_crash(tmp_path: Path, gtid: str) -> None:
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
async def test_an_early_copy_is_reported_and_a_complete_one_is_read(
    tmp_path: Path, gtid: str, cut: int
) -> None:
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


async def test_an_early_copy_without_gtids(tmp_path: Path) -> None:
    log = fill(LogWriter(gtid="anonymous"), files=2)
    put(tmp_path, log)
    first = tmp_path / log.files[0].name
    whole = first.read_bytes()
    first.write_bytes(in_use(whole)[: log.transactions[2].end])
    assert "made while the server wrote it" in await fails(Dispatched(tmp_path))
    first.write_bytes(whole[: log.transactions[2].end - 3])
    assert "made while the server wrote it" in await fails(Dispatched(tmp_path))
    # A file that was closed by the server's recovery after a crash: the file has no ROTATE and no STOP, but nothing is
    # missing.
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
        # The next run continues at this position, both before and after the file exists.
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


async def test_a_new_file_without_its_beginning(tmp_path: Path) -> None:
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
    # After a rotation, the next file appears later, and is empty at first.
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
            # The log no longer has the delivered data.
            reading.login()
            failed = reading.client.consumers["all"].failed
            assert failed is not None and failed.kind is ErrorKind.HISTORY_DIFFERS


async def test_a_crash_recovery_that_truncates_the_newest_file(tmp_path: Path) -> None:
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
            # The start `earliest` is the beginning of the first file.
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
    """The daemon follows the log or reads it to its end, with restarts. Each transaction is delivered once, complete,
    and in order."""
    rng = random.Random(seed)
    gtid = rng.choice(["mysql", "mysql", "anonymous", "none", "mariadb"])
    log = random_log(rng, transactions=40, gtid=gtid, size_max=rng.choice((200, 9000)))
    # The daemon refuses a folder without a transaction, so the first file exists from the beginning.
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
