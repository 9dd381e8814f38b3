"""The store in a database: what it does about lost sessions, unknown commits, lost writes, and its own changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pymysql
import pytest

from dispatcher.binlog.event.transaction_payload import Compression, Payload
from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import LogPosition, Position
from dispatcher.settings.model import StateSettings
from dispatcher.state.database import FAR_BYTES, DatabaseStore
from dispatcher.state.server.parts import PART_BYTES, UNNAMED_MAX
from dispatcher.state.server.session import DatabaseSession
from dispatcher.state.statements import Statements
from dispatcher.stream.xa_store import LogPoint, XaChanges, XaEntry
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory
from tests.servers.server import Server
from tests.support.proxy import Conditions, Proxy
from tests.support.state_stores import (
    HOLDER,
    DatabaseOf,
    leading_store,
    state_databases,
    state_settings,
    take_lease,
)

SMALL = 60_000  # bytes of rows that are stored together with their transaction
INSERT = "INSERT INTO consumer (name, session) VALUES ('once', 7)"


def at(seq: int, *, file: str = "binlog.000001") -> Position:
    return Position("server", "", file, 4 + seq, seq, 1)


@pytest.fixture(scope="module")
def databases() -> Iterator[Callable[[Server], StateSettings]]:
    with state_databases() as settings_on:
        yield settings_on


def empty_database(
    server: Server, databases: Callable[[Server], StateSettings]
) -> Iterator[DatabaseOf]:
    database = DatabaseOf(server, databases(server))
    database.reset_lease()
    yield database


@pytest.fixture
def database(mysql97: Server, databases: Callable[[Server], StateSettings]) -> Iterator[DatabaseOf]:
    yield from empty_database(mysql97, databases)


@pytest.fixture(params=["mysql97", "mariadb118"])
def any_database(
    request: pytest.FixtureRequest, databases: Callable[[Server], StateSettings]
) -> Iterator[DatabaseOf]:
    yield from empty_database(request.getfixturevalue(request.param), databases)


@pytest.fixture
def store(database: DatabaseOf) -> Iterator[DatabaseStore]:
    with closing(leading_store(database.settings)) as store:
        yield store


def writes(database: DatabaseOf) -> int:
    return int(database.value("SELECT writes FROM lease"))


def number_of_session(db: Statements) -> int:
    return int(db.execute("SELECT CONNECTION_ID()").fetchone()[0])


# -- the beginning of a term ----------------------------------------------------------------------------------


def test_a_term_reads_the_rows_of_all_consumers_in_one_call(
    any_database: DatabaseOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"consumer{n} ä " for n in range(20)]
    with closing(leading_store(any_database.settings)) as store:
        store.save([(name, at(n), at(n + 1), n) for n, name in enumerate(names)])
        sessions = [store.next_session(name) for name in names]
        store.set_paused(names[3], True)
    with closing(leading_store(any_database.settings)) as store:
        with monkeypatch.context() as patch:
            patch.delattr(DatabaseSession, "run")
            loaded = [(store.load(name), store.session(name), store.paused(name)) for name in names]
        assert loaded == [
            (Progress(at(n), at(n + 1), n), session, n == 3) for n, session in enumerate(sessions)
        ]
        written, renewed, resumed, forgotten, *_ = names
        store.save([(written, at(50), at(51), 1)])
        session = store.next_session(renewed)
        store.set_paused(resumed, True)
        store.forget(forgotten)
        assert store.load(written) == Progress(at(50), at(51), 1)
        assert store.session(renewed) == session > sessions[1]
        assert store.paused(resumed)
        assert store.load(forgotten) is None and store.session(forgotten) == 0
        assert not store.paused(forgotten)


# -- lost sessions and unknown commits ------------------------------------------------------------------------


def test_a_write_whose_session_is_killed_before_its_commit_is_made_again(
    any_database: DatabaseOf,
) -> None:
    attempts: list[int] = []

    def change(db: Statements) -> str:
        db.execute(INSERT)
        attempts.append(number_of_session(db))
        if len(attempts) == 1:
            any_database.kill(attempts[0])
        return "made"

    with closing(leading_store(any_database.settings)) as store:
        assert store._fence.write(change) == "made"
        assert len(attempts) == 2
        assert writes(any_database) == 1
        assert store.session("once") == 7


def test_a_session_that_is_killed_between_two_calls_is_replaced(any_database: DatabaseOf) -> None:
    with closing(leading_store(any_database.settings)) as store:
        for n, call in enumerate((lambda: store.save([("shop", at(9), at(9), 0)]), store.check)):
            any_database.kill(store._session.run(number_of_session))
            call()
            assert writes(any_database) == 1, n


@pytest.fixture
def proxied(any_database: DatabaseOf) -> Iterator[tuple[DatabaseOf, Proxy]]:
    """The database behind a proxy."""
    with Proxy(any_database.server.port) as proxy:
        settings = state_settings(any_database.server, any_database.name, port=proxy.port)
        yield DatabaseOf(any_database.server, settings), proxy


def without_answer(proxy: Proxy) -> Callable[[Statements], None]:
    """Returns a function that makes a change. The commit reaches the server, but the answer is lost."""

    def change(db: Statements) -> None:
        db.execute(INSERT)
        (link,) = proxy.open_links
        proxy.set(Conditions(cut_at=link.bytes_down), link)

    return change


def test_a_commit_without_an_answer_is_made_once(proxied: tuple[DatabaseOf, Proxy]) -> None:
    database, proxy = proxied
    with closing(leading_store(database.settings)) as store:
        store._fence.write(without_answer(proxy))
        assert store.session("once") == 7
        assert writes(database) == 1
        store.save([("shop", at(9), at(9), 0)])
        assert writes(database) == 2


def test_a_commit_that_stays_unknown_is_not_reported_as_stored(
    proxied: tuple[DatabaseOf, Proxy],
) -> None:
    database, proxy = proxied
    unanswered = without_answer(proxy)

    def change(db: Statements) -> None:
        unanswered(db)
        proxy.refuse()

    with closing(leading_store(database.settings)) as store:
        with pytest.raises(BinlogError) as caught:
            store._fence.write(change)
        assert caught.value.kind is ErrorKind.STATE_STORE
        proxy.accept()
        assert writes(database) == 1
        store.check()
        store.save([("shop", at(9), at(9), 0)])
        assert writes(database) == 2


def test_a_deadlock_is_made_again(store: DatabaseStore) -> None:
    attempts: list[None] = []

    def change(db: Statements) -> None:
        attempts.append(None)
        if len(attempts) == 1:
            error = store._session.error("Deadlock found", "")
            raise error from pymysql.err.OperationalError(1213, "Deadlock found")
        db.execute(INSERT)

    store._fence.write(change)
    assert len(attempts) == 2 and store.session("once") == 7


@pytest.mark.parametrize("number", [1290, 1836, 1047])
def test_a_write_that_a_server_refuses_is_made_in_a_new_session(
    store: DatabaseStore, number: int
) -> None:
    """By then the address may lead to the server that is writable."""
    sessions: list[int] = []

    def change(db: Statements) -> None:
        sessions.append(number_of_session(db))
        if len(sessions) == 1:
            db.execute(f"SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {number}")
        db.execute(INSERT)

    store._fence.write(change)
    assert len(set(sessions)) == 2 and store.session("once") == 7


def test_a_lock_is_waited_for(database: DatabaseOf, store: DatabaseStore) -> None:
    store.save([("shop", at(1), at(1), 0)])
    with database.transaction() as person, ThreadPoolExecutor(1) as pool:
        person.execute("SELECT * FROM consumer FOR UPDATE")
        save = pool.submit(store.save, [("shop", at(2), at(2), 0)])
        database.await_lock_waits(1)
        person.execute("ROLLBACK")
        save.result()


def test_a_server_that_restarts_loses_nothing(server_factory: ServerFactory) -> None:
    server = server_factory("mysql97")
    with state_databases() as settings_on:
        settings = settings_on(server)
        with closing(leading_store(settings)) as store:
            store.save([("shop", at(1), at(1), 0)])
            server.kill()
            calls: list[Callable[[], object]] = [
                lambda: store.save([("shop", at(2), at(2), 0)]),
                lambda: store.load("shop"),
                store.check,
            ]
            for call in calls:
                with pytest.raises(BinlogError, match="cannot connect") as caught:
                    call()
                assert caught.value.kind is ErrorKind.STATE_STORE
            server.start()
            stored = store.load("shop")
            assert stored is not None and stored.acknowledged == at(1)
            store.save([("shop", at(2), at(2), 0)])


def test_a_server_that_has_lost_writes_is_noticed(
    database: DatabaseOf, store: DatabaseStore
) -> None:
    """For example, a failover to a lagging replica loses writes."""
    for seq in range(1, 4):
        store.save([("shop", at(seq), at(seq), 0)])
    database.execute("UPDATE lease SET writes = 2")
    for call in (store.check, lambda: store.next_session("shop")):
        with pytest.raises(BinlogError, match="holds 2 writes instead of 3") as caught:
            call()
        assert caught.value.kind is ErrorKind.NOT_LEADER
    with closing(leading_store(database.settings)) as again:
        again.next_session("shop")


# -- what is not written --------------------------------------------------------------------------------------


def test_covered_positions_wait_for_an_acknowledgement(
    database: DatabaseOf, store: DatabaseStore
) -> None:
    """Otherwise an idle daemon that reads the server of its own state would read its own writes and write again,
    without end."""
    for name in ("shop", "billing"):
        store.save([(name, at(1), at(1), 0)])
    for seq in range(2, 9):
        store.save([("shop", at(1), at(seq), 0), ("billing", at(1), at(seq), 0)])
    store.checkpoint()
    assert writes(database) == 2
    store.save([("shop", at(5), at(8), 0)])
    assert writes(database) == 3
    text = at(8).to_json()
    assert database.value(f"SELECT count(*) FROM consumer WHERE covered = '{text}'") == 2


@pytest.mark.parametrize(
    "covered", [at(1 + FAR_BYTES), at(2, file="binlog.000002")], ids=["far", "another file"]
)
def test_a_covered_position_that_is_far_ahead_is_stored_with_the_next_checkpoint(
    database: DatabaseOf, store: DatabaseStore, covered: Position
) -> None:
    store.save([("shop", at(1), at(1), 0)])
    store.save([("shop", at(1), covered, 0)])
    store.checkpoint()
    store.checkpoint()
    assert writes(database) == 2
    assert database.value("SELECT covered FROM consumer") == covered.to_json()


def test_what_waits_is_stored_at_the_end(database: DatabaseOf, store: DatabaseStore) -> None:
    store.save([("shop", at(1), at(1), 0)])
    store.save([("shop", at(1), at(7), 0)])
    store.close()
    assert database.value("SELECT covered FROM consumer") == at(7).to_json()


def test_what_waits_is_not_stored_after_a_takeover(
    database: DatabaseOf, store: DatabaseStore
) -> None:
    store.save([("shop", at(1), at(1), 0)])
    store.save([("shop", at(1), at(7), 0)])
    take_lease(database.settings, "another daemon")
    store.close()
    assert database.value("SELECT covered FROM consumer") == at(1).to_json()


def test_a_loaded_consumer_is_not_stored_again(database: DatabaseOf, store: DatabaseStore) -> None:
    store.save([("shop", at(1), at(1), 0)])
    with closing(leading_store(database.settings)) as again:
        assert again.load("shop") is not None
        again.save([("shop", at(1), at(2), 0)])
        assert writes(database) == 1
        loaded = again.load("shop")
        assert loaded is not None and loaded.covered == at(2)


def test_how_far_a_client_has_read_is_stored_with_progress(
    database: DatabaseOf, store: DatabaseStore
) -> None:
    """Table versions are valid up to that position, so it must not be before a covered position."""
    first = LogPosition("binlog.000001", 4, 100)
    store.save_versions("client", StoreVersions(first, StoredVersions("uuid", first, ())))
    store.save([("shop", at(1), at(1), 0)])
    for offset in range(5, 9):
        store.save_versions("client", StoreVersions(replace(first, offset=offset), None))
    store.checkpoint()
    assert writes(database) == 2
    store.save([("shop", at(2), at(2), 0)])
    assert writes(database) == 3
    assert database.value("SELECT `offset` FROM stream") == 8
    store.save_versions("client", StoreVersions(replace(first, offset=4 + 2 * FAR_BYTES), None))
    store.checkpoint()
    assert writes(database) == 4


# -- rows of prepared transactions ----------------------------------------------------------------------------

POINT = LogPoint(LogPosition("binlog.000001", 4), "", 0, "server")


def entry(number: int, size: int) -> XaEntry:
    return XaEntry(number, "x", POINT, Payload(Compression.NONE, size, bytes(size)))


def test_large_rows_are_written_in_parts_before_their_transaction(
    database: DatabaseOf, store: DatabaseStore
) -> None:
    entries = (entry(1, 3), entry(2, 2 * PART_BYTES + 1), entry(3, 0))
    store.save([], "client", XaChanges(entries, (), ()))
    assert writes(database) == 4  # three parts, then the last part
    assert [len(e.rows.data) for e in store.load_prepared("client") if e.rows] == [
        3, 2 * PART_BYTES + 1, 0,
    ]  # fmt: skip
    assert database.value("SELECT max(length(data)) FROM prepared_part") == PART_BYTES


def parts(database: DatabaseOf) -> int:
    return int(database.value("SELECT count(*) FROM prepared_part"))


def test_parts_that_no_transaction_names_are_swept(any_database: DatabaseOf) -> None:
    rows = "INSERT INTO prepared_part VALUES (0x00112233445566778899AABBCCDDEEFF, {}, '{}')"
    with closing(leading_store(any_database.settings)) as store:
        any_database.execute(rows.format(0, "left"), rows.format(1, "x" * PART_BYTES))
        store.save([], "client", XaChanges((entry(1, 3), entry(2, 2 * PART_BYTES)), (), ()))
        assert parts(any_database) == 3
        assert len(store.load_prepared("client")) == 2
        store.save([], "client", XaChanges((), (), (1, 2)))
        assert parts(any_database) == 0


def test_a_few_small_parts_cost_no_commit_of_their_own(
    database: DatabaseOf, store: DatabaseStore
) -> None:
    for number in range(1, UNNAMED_MAX + 1):
        rows = Payload(Compression.NONE, 3, b"%3d" % number)
        entry_ = XaEntry(number, "x", POINT, rows)
        store.save([], "client", XaChanges((entry_,), (), (number - 1,)))
    assert (writes(database), parts(database)) == (UNNAMED_MAX, UNNAMED_MAX)
    store.save([], "client", XaChanges((), (), (UNNAMED_MAX,)))
    assert (writes(database), parts(database)) == (UNNAMED_MAX + 2, 0)


def test_no_transaction_is_much_larger_than_a_part(server_factory: ServerFactory) -> None:
    """Servers refuse large transactions (max_binlog_cache_size), and Group Replication does too."""
    server = server_factory("mysql97", f"--max-binlog-cache-size={4 * PART_BYTES}")
    with state_databases() as settings_on:
        database = DatabaseOf(server, settings_on(server))
        with closing(leading_store(database.settings)) as store:
            small = [
                XaEntry(n, "x", POINT, Payload(Compression.NONE, 0, b"%3d" % n + bytes(SMALL)))
                for n in range(2, 202)
            ]
            entries = (entry(1, 8 * PART_BYTES), *small)
            store.save([], "client", XaChanges(entries, (), ()))
            stored = [e.rows for e in store.load_prepared("client")]
            assert stored == [e.rows for e in entries]
            store.save([], "client", XaChanges((), (), tuple(range(1, 202))))
            assert (
                database.value("SELECT coalesce(sum(length(data)), 0) FROM prepared_part")
                < PART_BYTES
            )


def test_a_write_that_fails_leaves_no_other_copy_when_it_is_made_again(
    database: DatabaseOf, store: DatabaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise store._session.error("the disk is full", "")

    changes = XaChanges((entry(1, 2 * PART_BYTES), entry(2, 3)), (), ())
    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr("dispatcher.state.database.save_xa", fail)
            with pytest.raises(BinlogError, match="disk is full"):
                store.save([], "client", changes)
        assert parts(database) == 2
    store.save([], "client", changes)
    assert parts(database) == 3
    assert [e.rows for e in store.load_prepared("client")] == [e.rows for e in changes.put]


def test_a_sweep_that_fails_does_not_make_the_write_fail(
    database: DatabaseOf, store: DatabaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save([], "client", XaChanges((entry(1, 2 * PART_BYTES),), (), ()))

    def fail(db: Statements, keys: object) -> None:
        raise store._session.error("the disk is full", "")

    with monkeypatch.context() as patched:
        patched.setattr("dispatcher.state.database.delete_parts", fail)
        store.save([], "client", XaChanges((), (), (1,)))
    assert parts(database) == 2 and store.load_prepared("client") == []
    store.save([], "client", XaChanges((entry(2, 3),), (), ()))
    assert parts(database) == 1


def test_rows_that_are_missing_are_an_error(database: DatabaseOf, store: DatabaseStore) -> None:
    store.save([], "client", XaChanges((entry(1, 3),), (), ()))
    database.execute("DELETE FROM prepared_part")
    with pytest.raises(BinlogError, match="invalid content: rows of a prepared") as caught:
        store.load_prepared("client")
    assert caught.value.kind is ErrorKind.STATE_STORE


# -- the account and the server -------------------------------------------------------------------------------


def test_a_missing_privilege_is_named_with_its_grant(
    database: DatabaseOf, store: DatabaseStore
) -> None:
    assert store.load("shop") is None
    reading = state_settings(database.server, database.name, privileges="SELECT")
    with pytest.raises(BinlogError, match="denied") as caught:
        take_lease(reading)
    assert reading.mysql is not None
    assert caught.value.remedy == (
        f"GRANT CREATE, ALTER, SELECT, INSERT, UPDATE, DELETE ON `{database.name}`.* TO '{reading.mysql.user}'@'...'"
    )


def test_a_database_that_does_not_exist_is_an_error(mysql97: Server) -> None:
    settings = state_settings(mysql97, "state_missing", privileges="ALL")
    with pytest.raises(BinlogError, match="state_missing") as caught:
        take_lease(settings)
    assert "GRANT CREATE" in caught.value.remedy or "CREATE DATABASE" in caught.value.remedy
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_a_server_with_other_defaults_makes_no_difference(
    server_factory: ServerFactory, kind: Kind
) -> None:
    options = (
        "--sql-mode=NO_BACKSLASH_ESCAPES", "--default-time-zone=-11:00",
        "--transaction-isolation=SERIALIZABLE", "--autocommit=0", "--max-allowed-packet=4M",
        "--default-storage-engine=MyISAM", "--character-set-server=latin1",
    )  # fmt: skip
    server = server_factory(kind, *options)
    read_only = f"{'transaction' if kind == 'mysql97' else 'tx'}_read_only"
    with state_databases() as settings_on:
        database = DatabaseOf(server, settings_on(server))
        server.execute(f"SET GLOBAL {read_only} = 1")
        with closing(leading_store(database.settings)) as store:
            name = "läden\\'\N{OIL DRUM} "
            store.save([(name, at(1), at(2), 3)], "c\\", XaChanges((entry(1, 3 << 20),), (), ()))
            progress = store.load(name)
            (prepared,) = store.load_prepared("c\\")
        assert progress is not None and progress.covered == at(2)
        assert prepared.rows is not None and len(prepared.rows.data) == 3 << 20
        server.execute(f"SET GLOBAL {read_only} = 0")
        engines = database.execute(
            "SELECT DISTINCT engine FROM information_schema.tables"
            f" WHERE table_schema = '{database.name}'"
        )
        assert engines == (("InnoDB",),)


def test_a_setting_that_may_lose_commits_is_a_warning(store: DatabaseStore) -> None:
    """The servers of the tests have both settings that may lose commits."""
    names = [warning.partition("=")[0] for warning in store.warnings]
    assert names == ["innodb_flush_log_at_trx_commit", "sync_binlog"]
    assert "SET GLOBAL sync_binlog = 1" in store.warnings[1]


def test_the_stores_holder_is_part_of_the_term(database: DatabaseOf) -> None:
    term = take_lease(database.settings, "another daemon")
    with pytest.raises(BinlogError, match="not the leader"):
        DatabaseStore(database.settings, HOLDER, term)
