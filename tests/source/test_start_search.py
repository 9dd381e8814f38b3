"""The positions of starts at a time, a file and offset, and a GTID set, in a folder of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dispatcher.binlog.event.types import EventType
from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode, make_executed
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import AtGtid, Start
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.source.files.source import FilesSource, OpenedFiles
from dispatcher.source.protocols import ViewRequest
from dispatcher.source.start_search import find_starts
from tests.support.event_encoder import SERVER, LogWriter, Statement, Transaction
from tests.support.fake_server import executed_by
from tests.support.random_log import OTHER_SERVER
from tests.support.starts import at_gtids, at_moment, at_offset

GTIDS = ["mysql", "5.6", "anonymous", "none", "mariadb"]


def view_of(folder: Path, *starts: Start) -> ServerView:
    source = FilesSource(folder, None, follow=False, server="the-folder")
    return source.open(1).view(ViewRequest(starts=starts))


def insert(log: LogWriter, *, rows: int = 1) -> None:
    log.begin()
    log.statement(Statement((("shop", "orders"),), ((0, 30),) * rows))
    log.commit()


def log_of(gtid: str) -> LogWriter:
    """Returns a log: one file has no transaction, others have one or several, and one has a transaction that its server
    never committed."""
    log = LogWriter(gtid=gtid)
    for each in (3, 0, 1, 2):
        for _ in range(each):
            insert(log, rows=2)
        log.rotate()
        list_gtids(log)
    log.begin()
    log.statement(Statement((("shop", "orders"),), ((0, 30),)))
    log.crash()
    list_gtids(log)
    insert(log)
    return log


def list_gtids(log: LogWriter) -> None:
    """Write MariaDB's list of the GTIDs before this file. The writer itself writes only the list of MySQL."""
    if log.gtid == "mariadb":
        done = len(log.transactions).to_bytes(8, "little")
        log.add(EventType.MARIADB_GTID_LIST, bytes((1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0)) + done)


def put(folder: Path, log: LogWriter) -> None:
    for file in log.files:
        (folder / file.name).write_bytes(file.raw)


def gtids_of(transactions: Sequence[Transaction], mode: Mode) -> GtidSet | MariadbGtids:
    gtids: GtidSet | MariadbGtids = MariadbGtids() if mode is Mode.MARIADB else GtidSet()
    for transaction in transactions if mode is not Mode.FILE else ():
        gtids = gtids.add(transaction.source, transaction.gno)
    return gtids


def expected(log: LogWriter, index: int, mode: Mode) -> ExecutedPosition:
    """Return the position before the transaction of this index."""
    before = log.transactions[:index]
    file = log.transactions[index].file
    offset = before[-1].end if before and before[-1].file == file else 4
    return make_executed(mode, str(gtids_of(before, mode)), file, offset)


@pytest.mark.parametrize("gtid", GTIDS)
def test_every_moment_of_a_log(tmp_path: Path, gtid: str) -> None:
    log = log_of(gtid)
    put(tmp_path, log)
    times = [transaction.commit_us for transaction in log.transactions]
    assert times == sorted(times) and len(times) == 7
    moments = [0, *(at + by for at in times for by in (-1, 0, 1))]
    view = view_of(tmp_path, *map(at_moment, moments))
    end = make_executed(view.mode, view.executed, view.file, view.offset)
    for moment in moments:
        index = next((n for n, at in enumerate(times) if at >= moment), None)
        place = view.starts[at_moment(moment)]
        if index is None:
            assert place == end
            continue
        wanted = expected(log, index, view.mode)
        if index == 6 and moment < times[6] - 1_000_000:
            # The uncommitted transaction at the end of the previous file is not older than `moment`.
            wanted = make_executed(view.mode, str(wanted.gtids), log.files[4].name, 4)
        assert place == wanted, (moment, index)
        assert view.created[wanted.file] > 0


def test_a_moment_in_a_log_without_transactions_is_its_end(tmp_path: Path) -> None:
    log = LogWriter(gtid="mariadb")
    log.rotate()
    put(tmp_path, log)
    view = view_of(tmp_path, at_moment(0))
    assert view.starts[at_moment(0)] == make_executed(view.mode, "", log.file.name, log.file.size)


def test_a_moment_where_the_beginning_is_purged(tmp_path: Path) -> None:
    log = log_of("mysql")
    put(tmp_path, log)
    (tmp_path / log.files[0].name).unlink()
    (tmp_path / log.files[1].name).unlink()
    third = next(t for t in log.transactions if t.file == log.files[2].name)
    late, behind = at_moment(third.commit_us + 1), at_offset(third.file, third.end)
    view = view_of(tmp_path, at_moment(0), late, behind)
    assert view.starts[at_moment(0)] == make_executed(view.mode, view.purged, log.files[2].name, 4)
    assert view.purged == f"{SERVER}:1-3"
    after = view.starts[late]
    assert isinstance(after, ExecutedPosition) and str(after.gtids) == f"{SERVER}:1-4"
    place = view.starts[behind]
    assert isinstance(place, ExecutedPosition) and str(place.gtids) == f"{SERVER}:1-4"


def test_damage_fails_only_the_starts_behind_it(tmp_path: Path) -> None:
    log = log_of("mysql")
    put(tmp_path, log)
    first, second, third, *_ = log.transactions
    path = tmp_path / first.file
    raw = bytearray(path.read_bytes())
    raw[second.end - 6] ^= 1
    path.write_bytes(raw)
    starts = [at_moment(t.commit_us) for t in (first, third, log.transactions[-1])]
    behind = at_offset(third.file, third.end)
    view = view_of(tmp_path, *starts, behind)
    assert [isinstance(view.starts[start], ExecutedPosition) for start in starts] == [
        True,
        False,
        True,
    ]
    for found in (view.starts[starts[1]], view.starts[behind]):
        assert isinstance(found, BinlogError) and found.kind is ErrorKind.CHECKSUM_MISMATCH


def boundaries(log: LogWriter, name: str) -> tuple[list[int], set[int]]:
    """Return the offsets of a file's events, and the offsets between two transactions."""
    (file,) = (file for file in log.files if file.name == name)
    at, offsets, between = 4, [], set()
    for raw, transaction in file.events:
        offsets.append(at)
        if transaction is None or transaction.start == at:
            between.add(at)
        at += len(raw)
    return [*offsets, at], between | {at}


@pytest.mark.parametrize("gtid", GTIDS)
def test_every_offset_of_a_log(tmp_path: Path, gtid: str) -> None:
    log = log_of(gtid)
    put(tmp_path, log)
    for name in dict.fromkeys(transaction.file for transaction in log.transactions):
        events, between = boundaries(log, name)
        wanted = [(name, at + by) for at in events for by in (-1, 0, 1) if at + by >= 4]
        view = view_of(tmp_path, *(at_offset(*one) for one in wanted))
        size = dict(view.files)[name]
        for _, offset in wanted:
            found = view.starts[at_offset(name, offset)]
            if offset in between:
                before = [t for t in log.transactions if (t.file, t.end) <= (name, offset)]
                gtids = str(gtids_of(before, view.mode))
                assert found == make_executed(view.mode, gtids, name, offset)
            else:
                kind = ErrorKind.SETTINGS if offset <= size else ErrorKind.HISTORY_DIFFERS
                assert isinstance(found, BinlogError) and found.kind is kind, offset
                assert f"{name}:{offset}" in found.what


@pytest.mark.parametrize("gtid", GTIDS)
def test_an_offset_inside_of_a_transaction_means_its_beginning(tmp_path: Path, gtid: str) -> None:
    log = log_of(gtid)
    put(tmp_path, log)
    for name in dict.fromkeys(transaction.file for transaction in log.transactions):
        events, between = boundaries(log, name)
        view = view_of(tmp_path, *(at_offset(name, at, inside=True) for at in events))
        for offset in events:
            before = [t for t in log.transactions if (t.file, t.end) <= (name, offset)]
            ends = [transaction.end for transaction in before if transaction.file == name]
            begin = offset if offset in between else max(ends, default=4)
            gtids = str(gtids_of(before, view.mode))
            found = view.starts[at_offset(name, offset, inside=True)]
            assert found == make_executed(view.mode, gtids, name, begin), offset


@pytest.mark.parametrize("gtid", GTIDS)
def test_an_offset_inside_of_an_event_is_no_place(tmp_path: Path, gtid: str) -> None:
    log = log_of(gtid)
    put(tmp_path, log)
    name = log.transactions[0].file
    events, between = boundaries(log, name)
    first, last = min(between), max(between)
    others = [at for at in range(first, last, 7) if at not in {*events, *between}]
    assert others
    view = view_of(tmp_path, *(at_offset(name, at, inside=True) for at in others))
    for offset in others:
        found = view.starts[at_offset(name, offset, inside=True)]
        assert isinstance(found, BinlogError), offset
        assert f"no event begins at {name}:{offset}" in found.what


def test_the_remedy_names_the_nearest_places(tmp_path: Path) -> None:
    log = log_of("mysql")
    put(tmp_path, log)
    first, second, *_ = log.transactions
    start = at_offset(first.file, first.end + 1)
    found = view_of(tmp_path, start).starts[start]
    assert isinstance(found, BinlogError)
    assert f"{first.end} or {second.end} is between two transactions" in found.remedy


def test_every_gtid_of_a_mariadb_log(tmp_path: Path) -> None:
    log = log_of("mariadb")
    put(tmp_path, log)
    count = len(log.transactions)
    wanted = ["", *(f"0-1-{n}" for n in range(1, count + 2)), "7-1-1", f"0-9-{count - 1}"]
    view = view_of(tmp_path, *map(at_gtids, wanted))
    end = make_executed(view.mode, view.executed, view.file, view.offset)
    for n, gtid in enumerate(wanted[: count + 1]):
        place = view.starts[at_gtids(gtid)]
        assert place == (expected(log, n, view.mode) if n < count else end)
    assert view.starts[at_gtids(f"0-9-{count - 1}")] == view.starts[at_gtids(f"0-1-{count - 1}")]
    for ahead in (f"0-1-{count + 1}", "7-1-1"):
        found = view.starts[at_gtids(ahead)]
        assert isinstance(found, BinlogError) and found.kind is ErrorKind.HISTORY_DIFFERS
    for file in log.files[:3]:
        (tmp_path / file.name).unlink()
    purged = view_of(tmp_path, *map(at_gtids, wanted[:6])).starts
    kinds = [found.kind for found in purged.values() if isinstance(found, BinlogError)]
    assert kinds == [ErrorKind.POSITION_PURGED] * 4
    assert all(isinstance(purged[at_gtids(gtid)], ExecutedPosition) for gtid in ("0-1-4", "0-1-5"))


def several_hosts(folder: Path, log: LogWriter) -> OpenedFiles:
    """Returns the log as one of several hosts of MariaDB."""
    put(folder, log)
    files = FilesSource(folder, None, follow=False, server="the-folder").open(1)
    files.mode = Mode.DOMAINS
    there = [transaction for transaction in log.transactions if not transaction.aborted]
    gtids = str(executed_by(Mode.DOMAINS, there))
    files.end = make_executed(Mode.DOMAINS, gtids, log.file.name, log.file.size)
    return files


def test_of_several_hosts_each_gtid_must_be_in_the_log(tmp_path: Path) -> None:
    """Some sequence numbers are not used, and a file begins before and after each transaction of a domain."""
    log = LogWriter(gtid="domains")
    for n in range(14):
        log.begin(SERVER if n % 3 else OTHER_SERVER)
        log.commit()
        if n % 4 == 2:
            log.rotate()
    files = several_hosts(tmp_path, log)
    names = {f"{transaction.source}-{transaction.gno}" for transaction in log.transactions}
    for domain, last in ((0, 12), (5, 9)):
        for number in range(1, last + 1):
            held = executed_by(Mode.DOMAINS, log.transactions[:9])
            gtid = f"{domain}-1-{number}"
            other = ",".join(str(held).split(",")[:: -1 if domain == 0 else 1][:1])
            text = ",".join(sorted((gtid, other)))
            found = find_starts(files, [AtGtid(text)])[AtGtid(text)]
            if gtid in names:
                assert found == make_executed(Mode.DOMAINS, text, "", 0)
                other_server = text.replace(gtid, f"{domain}-2-{number}")
                found = find_starts(files, [AtGtid(other_server)])[AtGtid(other_server)]
                what = f"does not have {domain}-2-{number}"
            else:
                what = f"does not have {gtid}"
            assert isinstance(found, BinlogError) and found.kind is ErrorKind.HISTORY_DIFFERS
            assert what in found.what, found.what


def test_of_several_hosts_a_domain_may_begin_anywhere_but_before_the_log(tmp_path: Path) -> None:
    log = LogWriter(gtid="domains")
    for source in (SERVER, SERVER, OTHER_SERVER, SERVER):
        log.begin(source)
        log.commit()
        log.rotate()
    files = several_hosts(tmp_path, log)
    starts = [AtGtid(text) for text in ("", "0-1-1", "0-1-2", "5-1-1", "0-1-2,5-1-1", "7-1-1")]
    found = find_starts(files, starts)
    kinds = [each.kind if isinstance(each, BinlogError) else None for each in found.values()]
    assert kinds == [*[None] * 5, ErrorKind.HISTORY_DIFFERS]
    (tmp_path / log.files[0].name).unlink()
    files = FilesSource(tmp_path, None, follow=False, server="the-folder").open(1)
    files.mode, files.end = Mode.DOMAINS, make_executed(Mode.DOMAINS, "0-1-5,5-1-1", "", 0)
    found = find_starts(files, starts)
    kinds = [each.kind if isinstance(each, BinlogError) else None for each in found.values()]
    purged, missing = ErrorKind.POSITION_PURGED, ErrorKind.HISTORY_DIFFERS
    assert kinds == [purged, None, None, purged, None, missing]


def test_mysql_s_gtids_need_no_search(tmp_path: Path) -> None:
    put(tmp_path, log_of("mysql"))
    assert view_of(tmp_path, at_gtids(f"{SERVER}:1-2")).starts == {}


@pytest.mark.parametrize(
    ("file", "kind", "said"),
    [
        ("binlog.000001", ErrorKind.POSITION_PURGED, "binlog.000002 to binlog.000006"),
        ("binlog.000009", ErrorKind.HISTORY_DIFFERS, "binlog.000002 to binlog.000006"),
        ("other.000003", ErrorKind.HISTORY_DIFFERS, "binlog.000002 to binlog.000006"),
        ("binlog", ErrorKind.HISTORY_DIFFERS, "binlog.000002 to binlog.000006"),
    ],
)
def test_files_that_are_not_in_the_log(
    tmp_path: Path, file: str, kind: ErrorKind, said: str
) -> None:
    put(tmp_path, log_of("mysql"))
    (tmp_path / "binlog.000001").unlink()
    found = view_of(tmp_path, at_offset(file, 4)).starts[at_offset(file, 4)]
    assert isinstance(found, BinlogError) and found.kind is kind and said in found.what
