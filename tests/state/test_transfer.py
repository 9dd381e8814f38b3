"""The whole state is moved from a file to a database and back, but only while no daemon uses the state."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from dispatcher.binlog.event.transaction_payload import Compression, Payload
from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import Definition, Name, StoredVersions
from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import LogPosition, Position
from dispatcher.settings.model import StateSettings
from dispatcher.state.copies import dump_state
from dispatcher.state.database_dump import dump_database
from dispatcher.state.lease import LeaseTable
from dispatcher.state.server.parts import PART_BYTES
from dispatcher.state.store import StateStore
from dispatcher.state.transfer import back_up_database, move_state
from dispatcher.stream.xa_store import LogPoint, XaChanges, XaEntry, XaFault
from tests.servers.server import Server
from tests.support.state_stores import (
    DatabaseOf,
    Store,
    leading_store,
    state_databases,
    take_lease,
)

MIB = 1 << 20
MARK = LogPosition("binlog.000007", 1 << 33, 1_700_000_000)
POINT = LogPoint(MARK, "uuid:tag", 5, "server")
FLAW = XaFault(ErrorKind.PREPARED, "too much", None, (("shop", "orders"), ("crm", None)))
ENTRIES = (
    XaEntry(1, "X'00ff',X'',1", POINT, Payload(Compression.ZSTD, 7, bytes(2 * PART_BYTES + 7))),
    XaEntry(2, "x", POINT, None, (FLAW,), POINT),
    XaEntry(4, "y", POINT, Payload(Compression.NONE, 3, b"\0\xff\1")),
)
VERSIONS: tuple[tuple[Name, LogPosition, LogPosition, Definition, bool], ...] = (
    (("shop", "örders"), LogPosition("b.1", 4), MARK, {"columns": [{"name": "größe"}]}, False),
    (("shop", "örders"), MARK, MARK, {"columns": []}, True),
)
DECLARED = (
    Declaration("nb-1", "notebook", "db", ("läden", "shop_*"), declared_s=1, read_s=2),
    Declaration("nb-2", "", "db", ("shop",), ("shop.*",), ("shop.x",), '{"gtid":"0-1-2"}', 3, 4),
)


def at(seq: int) -> Position:
    return Position("server", "uuid:1-7", "binlog.000001", seq, seq, 7)


def fill(store: Store) -> None:
    """Store rows of each kind."""
    store.forget("nothing")  # so that the consumer's epoch is not the first epoch
    store.save(
        [("shop", at(1), at(5), -9), ("läden ", at(2), at(2), 0)], "a", XaChanges(ENTRIES, (), ())
    )
    store.save([], "b", XaChanges(ENTRIES[2:], (), ()))
    store.next_session("shop")
    store.set_paused("shop", True)
    store.next_session("no position")
    store.save_versions("a", StoreVersions(MARK, StoredVersions("uuid", MARK, VERSIONS)))
    store.save_versions("c", StoreVersions(MARK, StoredVersions("uuid", MARK, ())))
    for declaration in DECLARED:
        store.declare(declaration)


def held(store: Store) -> list[object]:
    """Returns the whole content of a store."""
    names = "shop", "läden ", "no position", "new"
    return [
        [store.installation_id, store.epoch],
        [(store.load(n), store.session(n), store.paused(n)) for n in names],
        store.declarations(),
        [store.load_versions(client) for client in "abc"],
        [
            (e.number, e.xid, e.at, e.rows, e.faults, e.end)
            for client in "abc"
            for e in store.load_prepared(client)
        ],
    ]


@pytest.fixture(scope="module")
def databases() -> Iterator[Callable[[Server], StateSettings]]:
    with state_databases() as settings_on:
        yield settings_on


@pytest.fixture(params=["mysql97", "mariadb1011"])
def database(
    request: pytest.FixtureRequest, databases: Callable[[Server], StateSettings]
) -> DatabaseOf:
    server: Server = request.getfixturevalue(request.param)
    database = DatabaseOf(server, databases(server))
    database.drop_tables()
    return database


@pytest.fixture
def file(tmp_path: Path) -> StateSettings:
    return StateSettings(path=tmp_path / "state.db")


@pytest.fixture
def full(file: StateSettings) -> list[object]:
    """Fills the file, and returns its content."""
    with closing(StateStore(file.path)) as store:
        fill(store)
        return held(store)


def refused(source: StateSettings, target: StateSettings) -> BinlogError:
    with pytest.raises(BinlogError) as caught:
        move_state(source, target)
    return caught.value


def test_a_state_moves_from_a_file_to_a_database_and_back(
    file: StateSettings, full: list[object], database: DatabaseOf, tmp_path: Path
) -> None:
    moved = move_state(file, database.settings)
    assert (moved.consumers, moved.positions, moved.sessions) == (3, 2, 2)
    assert (moved.connections, moved.table_versions, moved.prepared) == (2, 2, 4)
    assert moved.prepared_bytes == 2 * PART_BYTES + 7 + 3 + 3
    assert moved.losses == () and [UUID(moved.installation), moved.epoch] == full[0]
    with closing(leading_store(database.settings)) as store:
        assert held(store) == full
        store.save([("shop", at(6), at(6), 0)])
        full = held(store)
    database.reset_lease(keep=True)
    back = StateSettings(path=tmp_path / "back.db")
    assert move_state(database.settings, back).consumers == 3
    with closing(StateStore(back.path)) as store:
        assert held(store) == full
        assert store.losses == ()


def test_no_daemon_opens_a_store_that_was_moved(
    file: StateSettings, full: list[object], database: DatabaseOf, tmp_path: Path
) -> None:
    back = StateSettings(path=tmp_path / "back.db")
    move_state(file, database.settings)
    for open_ in (StateStore, dump_state):
        with pytest.raises(BinlogError, match=f"the state was moved to {database.settings.label}"):
            open_(file.path)
    move_state(database.settings, back)
    for call in (take_lease, dump_database):
        with pytest.raises(BinlogError, match=f"the state was moved to {back.path}"):
            call(database.settings)
    for settings in (file, database.settings):
        error = refused(settings, StateSettings(path=tmp_path / "again.db"))
        assert "the state was moved" in error.what
    with closing(sqlite3.connect(file.path)) as db:  # the file is unchanged, except for the mark
        assert db.execute("SELECT count(*) FROM prepared").fetchone() == (4,)


def test_a_store_that_a_daemon_uses_is_not_moved(
    file: StateSettings, full: list[object], database: DatabaseOf
) -> None:
    with closing(StateStore(file.path)):
        assert "in use by another process" in refused(file, database.settings).what
    take_lease(database.settings)
    error = refused(file, database.settings)
    assert "http://a:8085 has the lease, in term 1" in error.what
    assert "stop all daemons" in error.remedy
    error = refused(database.settings, StateSettings(path=file.path.with_name("other.db")))
    assert "http://a:8085 has the lease" in error.what
    assert not file.path.with_name("other.db").exists()
    with closing(StateStore(file.path)) as store:
        assert held(store) == full


def test_a_target_that_is_not_empty_is_refused(
    file: StateSettings, full: list[object], database: DatabaseOf
) -> None:
    with closing(leading_store(database.settings)) as store:
        store.next_session("theirs")
    database.reset_lease(keep=True)
    error = refused(file, database.settings)
    assert "holds a state already" in error.what and "drop its tables" in error.remedy
    error = refused(database.settings, file)
    assert f"{file.path} exists already" in error.what
    assert "both settings name the store" in refused(file, file).what
    missing = StateSettings(path=file.path.with_name("missing.db"))
    assert "no such file" in refused(missing, database.settings).what


def test_a_move_that_fails_changes_nothing(
    file: StateSettings, full: list[object], database: DatabaseOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise BinlogError(ErrorKind.STATE_STORE, "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("dispatcher.state.transfer.save_xa", fail)
        assert "disk is full" in refused(file, database.settings).what
    assert database.value("SELECT count(*) FROM consumer") == 0
    move_state(file, database.settings)
    other = StateSettings(path=file.path.with_name("other.db"))
    with monkeypatch.context() as patched:
        patched.setattr("dispatcher.state.transfer.save_xa", fail)
        assert "disk is full" in refused(database.settings, other).what
    assert [path.name for path in file.path.parent.glob("other*")] == []
    with closing(leading_store(database.settings)) as store:
        assert held(store) == full


def test_a_file_that_is_older_than_what_was_acknowledged_says_so(
    file: StateSettings, full: list[object], database: DatabaseOf
) -> None:
    with closing(sqlite3.connect(file.path)) as db:
        db.execute("UPDATE consumer SET acknowledged = NULL, covered = NULL WHERE name = 'shop'")
        db.commit()
    (loss,) = move_state(file, database.settings).losses
    assert loss.consumer == "shop" and loss.stored is None


def test_marks_of_an_earlier_file_are_no_loss(
    file: StateSettings, full: list[object], database: DatabaseOf
) -> None:
    """The state is moved back to the path of the earlier file, after its positions have become earlier."""
    move_state(file, database.settings)
    file.path.unlink()
    with closing(leading_store(database.settings)) as store:
        store.save([("shop", at(0), at(0), 0)])
    database.reset_lease(keep=True)
    move_state(database.settings, file)
    with closing(StateStore(file.path)) as store:
        assert store.losses == ()


def test_a_dump_and_a_backup_of_a_database_beside_a_daemon(
    file: StateSettings, full: list[object], database: DatabaseOf, tmp_path: Path
) -> None:
    in_file = dump_state(file.path)
    move_state(file, database.settings)
    assert dump_database(database.settings) == {**in_file, "leader": None}
    with closing(leading_store(database.settings)):
        leader = {"address": "http://a:8085", "term": 1}
        assert dump_database(database.settings) == {**in_file, "leader": leader}
        assert back_up_database(database.settings, tmp_path / "copy.db") > 0
    with closing(StateStore(tmp_path / "copy.db")) as store:
        assert held(store) == full
    with pytest.raises(BinlogError, match="exists already"):
        back_up_database(database.settings, tmp_path / "copy.db")


def test_a_state_may_be_larger_than_the_answer_to_one_statement(
    file: StateSettings, database: DatabaseOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.mysql.driver.ANSWER_BYTES_MAX", MIB)
    monkeypatch.setattr("dispatcher.state.pages.PAGE_BYTES", MIB // 4)
    text = "x" * (MIB // 10)
    place = Position("server", text, "binlog.000001", 1, 1, 7)
    flaw = XaFault(ErrorKind.PREPARED, text, None, None)
    version = (("shop", "orders"), MARK, MARK, {"comment": text}, False)
    rows = range(1, 13)
    with closing(StateStore(file.path)) as store:
        for n in rows:
            store.declare(Declaration(f"nb-{n:02}", "notebook", "db", (text,)))
        entries = tuple(XaEntry(n, str(n), POINT, None, (flaw,)) for n in rows)
        store.save([(f"c{n:02}", place, place, 0) for n in rows], "a", XaChanges(entries, (), ()))
        stored = StoredVersions("uuid", MARK, (version,) * len(rows))
        store.save_versions("a", StoreVersions(MARK, stored))
        dumped = dump_state(file.path)

        def content(store: Store) -> list[object]:
            return [[store.load(f"c{n:02}") for n in rows], *held(store)]

        full = content(store)
    move_state(file, database.settings)
    assert dump_database(database.settings) == {**dumped, "leader": None}
    with closing(leading_store(database.settings)) as moved:
        assert content(moved) == full
    back_up_database(database.settings, tmp_path / "copy.db")
    database.reset_lease(keep=True)
    move_state(database.settings, back := StateSettings(path=tmp_path / "back.db"))
    for path in (tmp_path / "copy.db", back.path):
        with closing(StateStore(path)) as copy:
            assert content(copy) == full


def test_a_database_without_a_state_is_an_error(database: DatabaseOf, tmp_path: Path) -> None:
    with pytest.raises(BinlogError, match="holds no state yet"):
        dump_database(database.settings)
    error = refused(database.settings, StateSettings(path=tmp_path / "copy.db"))
    assert "holds no state yet" in error.what
    with closing(LeaseTable(database.settings)) as table:
        table.read()
    assert dump_database(database.settings)["consumers"] == []
