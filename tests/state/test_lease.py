"""By the database's clock, one daemon has the lease, and only this daemon can write the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from dispatcher.leadership.lease import LeaseRow
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.settings.model import StateSettings
from dispatcher.state.database import DatabaseStore
from dispatcher.state.lease import LeaseTable
from tests.servers.plugin import ServerFactory
from tests.servers.server import Server
from tests.support.state_stores import ADDRESS, HOLDER, DatabaseOf, state_databases

OTHER, OTHERS_ADDRESS = "another daemon", "http://b:8085"
LONG_S = 3600.0


def at(seq: int) -> Position:
    return Position("server", "", "binlog.000001", seq, seq, 1)


@pytest.fixture(scope="module")
def databases() -> Iterator[Callable[[Server], StateSettings]]:
    with state_databases() as settings_on:
        yield settings_on


@pytest.fixture(params=["mysql97", "mariadb118"])
def database(
    request: pytest.FixtureRequest, databases: Callable[[Server], StateSettings]
) -> Iterator[DatabaseOf]:
    server: Server = request.getfixturevalue(request.param)
    database = DatabaseOf(server, databases(server))
    yield database
    database.reset_lease()


@pytest.fixture
def settings(database: DatabaseOf) -> StateSettings:
    return database.settings


@pytest.fixture
def table(settings: StateSettings) -> Iterator[LeaseTable]:
    with closing(LeaseTable(settings)) as table:
        yield table


@pytest.fixture
def other(settings: StateSettings) -> Iterator[LeaseTable]:
    with closing(LeaseTable(settings)) as table:
        yield table


def test_a_new_lease_is_free(table: LeaseTable) -> None:
    row = table.read()
    assert row.free and (row.holder, row.address, row.term) == ("", "", 0)


def test_a_held_lease_is_not_taken(table: LeaseTable, other: LeaseTable) -> None:
    own = table.campaign(HOLDER, ADDRESS, LONG_S)
    assert own == LeaseRow(HOLDER, ADDRESS, 1, LONG_S)
    seen = other.campaign(OTHER, OTHERS_ADDRESS, LONG_S)
    assert seen.is_of(HOLDER, 1) and seen.address == ADDRESS
    assert 0 < seen.remaining_s <= LONG_S
    assert other.read().is_of(HOLDER, 1)


def test_a_daemon_that_asks_twice_has_one_term(table: LeaseTable) -> None:
    """A daemon asks for the lease a second time if its first request got no answer."""
    assert table.campaign(HOLDER, ADDRESS, LONG_S).term == 1
    assert table.campaign(HOLDER, ADDRESS, LONG_S).is_of(HOLDER, 1)


def test_an_expired_lease_is_taken_in_the_next_term(table: LeaseTable, other: LeaseTable) -> None:
    table.campaign(HOLDER, ADDRESS, 0)
    assert table.read().free
    assert other.campaign(OTHER, OTHERS_ADDRESS, LONG_S).term == 2
    lost = table.renew(HOLDER, 1, LONG_S)
    assert lost.is_of(OTHER, 2) and lost.address == OTHERS_ADDRESS
    assert other.renew(OTHER, 2, LONG_S).is_of(OTHER, 2)


def test_an_expired_lease_that_is_not_taken_is_renewed(
    table: LeaseTable, other: LeaseTable
) -> None:
    table.campaign(HOLDER, ADDRESS, 0)
    assert table.renew(HOLDER, 1, LONG_S).remaining_s == LONG_S
    assert other.campaign(OTHER, OTHERS_ADDRESS, LONG_S).is_of(HOLDER, 1)


def test_a_released_lease_is_free_at_once(table: LeaseTable, other: LeaseTable) -> None:
    table.campaign(HOLDER, ADDRESS, LONG_S)
    other.release(OTHER, 1)
    assert not other.read().free, "another's lease was released"
    table.release(HOLDER, 1)
    assert other.campaign(OTHER, OTHERS_ADDRESS, LONG_S).term == 2
    table.release(HOLDER, 1)
    assert not table.read().free


def test_two_daemons_that_start_together_make_one_state(database: DatabaseOf) -> None:
    database.drop_tables()
    began = threading.Barrier(4)

    def campaign(holder: str) -> LeaseRow:
        with closing(LeaseTable(database.settings)) as table:
            began.wait()
            return table.campaign(holder, ADDRESS, LONG_S)

    with ThreadPoolExecutor(4) as pool:
        rows = set(map(LeaseRow.is_of, pool.map(campaign, "abcd"), "abcd", [1] * 4))
    assert rows == {True, False}
    assert database.value("SELECT count(*) FROM installation") == 1


def test_a_store_opens_only_under_the_present_term(
    settings: StateSettings, table: LeaseTable
) -> None:
    table.campaign(HOLDER, ADDRESS, LONG_S)
    for holder, term in ((OTHER, 1), (HOLDER, 0), (HOLDER, 2)):
        with pytest.raises(BinlogError) as caught:
            DatabaseStore(settings, holder, term)
        assert caught.value.kind is ErrorKind.NOT_LEADER
    DatabaseStore(settings, HOLDER, 1).close()


@pytest.fixture
def store(settings: StateSettings, table: LeaseTable) -> Iterator[DatabaseStore]:
    """Yields the store of a daemon whose lease has expired."""
    term = table.campaign(HOLDER, ADDRESS, 0).term
    with closing(DatabaseStore(settings, HOLDER, term)) as store:
        store.save([("shop", at(1), at(1), 0)])
        yield store


def test_a_daemon_that_has_lost_its_lease_stores_nothing(
    store: DatabaseStore, other: LeaseTable
) -> None:
    store.save([("shop", at(2), at(2), 0)])  # the lease has expired, but no daemon has taken it
    other.campaign(OTHER, OTHERS_ADDRESS, LONG_S)
    calls: list[Callable[[], object]] = [
        lambda: store.save([("shop", at(3), at(3), 0)]),
        lambda: store.next_session("shop"),
        lambda: store.set_paused("shop", True),
        lambda: store.forget("shop"),
        store.check,
    ]
    for call in calls:
        with pytest.raises(BinlogError, match="http://b:8085 has the lease, in term 2") as caught:
            call()
        assert caught.value.kind is ErrorKind.NOT_LEADER
    stored = store.load("shop")
    assert stored is not None and stored.acknowledged == at(2)
    assert store.session("shop") == 0 and not store.paused("shop")


def test_a_write_that_waits_for_a_takeover_is_refused(
    database: DatabaseOf, store: DatabaseStore
) -> None:
    with database.transaction() as takeover, ThreadPoolExecutor(1) as pool:
        takeover.execute("UPDATE lease SET holder = 'x', term = term + 1, address = 'b'")
        write = pool.submit(store.save, [("shop", at(3), at(3), 0)])
        database.await_lock_waits(1)
        takeover.execute("COMMIT")
        error = write.exception()
    assert isinstance(error, BinlogError) and error.kind is ErrorKind.NOT_LEADER
    stored = store.load("shop")
    assert stored is not None and stored.acknowledged == at(1)


def test_a_takeover_waits_for_a_write_that_was_first(
    store: DatabaseStore, other: LeaseTable, database: DatabaseOf
) -> None:
    with ThreadPoolExecutor(1) as pool:
        rows = []

        def change(db: object) -> None:
            rows.append(pool.submit(other.campaign, OTHER, OTHERS_ADDRESS, LONG_S))
            database.await_lock_waits(1)

        store._fence.write(change)
        assert rows[0].result().is_of(OTHER, 2)
    with pytest.raises(BinlogError, match="not the leader"):
        store.check()


def test_the_server_ends_the_transaction_of_a_daemon_that_is_stopped(
    store: DatabaseStore, other: LeaseTable
) -> None:
    """A stopped daemon may hold the lock of the lease. The server must end this after a short time."""

    def stopped(db: object) -> None:
        while True:
            with suppress(BinlogError):  # the lock wait has timed out
                assert other.campaign(OTHER, OTHERS_ADDRESS, LONG_S).is_of(OTHER, 2)
                return

    with pytest.raises(BinlogError) as caught:
        store._fence.write(stopped)
    assert caught.value.kind is ErrorKind.NOT_LEADER


def test_a_call_that_waits_is_interrupted(table: LeaseTable, database: DatabaseOf) -> None:
    table.campaign(HOLDER, ADDRESS, LONG_S)
    with database.transaction() as blocking, ThreadPoolExecutor(1) as pool:
        blocking.execute("SELECT * FROM lease FOR UPDATE")
        renewal = pool.submit(table.renew, HOLDER, 1, LONG_S)
        database.await_lock_waits(1)
        table.interrupt()
        error = renewal.exception()
    assert isinstance(error, BinlogError) and error.kind is ErrorKind.STATE_STORE
    assert table.renew(HOLDER, 1, LONG_S).is_of(HOLDER, 1)


def test_the_lease_survives_a_restart_of_the_server(
    server_factory: ServerFactory,
) -> None:
    server = server_factory("mysql97")
    with state_databases() as settings_on, closing(LeaseTable(settings_on(server))) as table:
        table.campaign(HOLDER, ADDRESS, LONG_S)
        server.kill()
        with pytest.raises(BinlogError) as caught:
            table.renew(HOLDER, 1, LONG_S)
        assert caught.value.kind is ErrorKind.STATE_STORE
        server.start()
        assert table.renew(HOLDER, 1, LONG_S).is_of(HOLDER, 1)
