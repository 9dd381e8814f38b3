"""A daemon creates the tables of the state's database once, and no daemon uses tables of another program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.settings.model import StateSettings
from dispatcher.state.lease import LeaseTable
from dispatcher.state.server import schema
from dispatcher.state.server.session import DatabaseSession
from tests.servers.server import Server
from tests.support.state_stores import (
    DatabaseOf,
    leading_store,
    state_databases,
    state_settings,
    take_lease,
)


@pytest.fixture(scope="module")
def databases() -> Iterator[Callable[[Server], StateSettings]]:
    with state_databases() as settings_on:
        yield settings_on


@pytest.fixture(params=["mysql97", "mariadb118"])
def database(
    request: pytest.FixtureRequest, databases: Callable[[Server], StateSettings]
) -> DatabaseOf:
    server: Server = request.getfixturevalue(request.param)
    database = DatabaseOf(server, databases(server))
    database.drop_tables()
    return database


def refusal(settings: StateSettings) -> BinlogError:
    """Returns the error that a standby gets, and asserts that a leader gets the same error."""
    with closing(LeaseTable(settings)) as table, pytest.raises(BinlogError) as caught:
        table.read()
    with (
        closing(LeaseTable(settings)) as table,
        pytest.raises(BinlogError, match=caught.value.what),
    ):
        table.campaign("holder", "address", 60)
    assert caught.value.kind is ErrorKind.STATE_STORE
    assert caught.value.where == settings.label
    return caught.value


@pytest.mark.parametrize(
    "theirs",
    [
        "theirs (a INT)",
        "installation (id INT)",
        "installation (program TEXT, version INT, moved_to TEXT)",
    ],
)
def test_a_database_of_another_program_is_refused(database: DatabaseOf, theirs: str) -> None:
    database.execute(f"CREATE TABLE {theirs}")
    if "program" in theirs:
        database.execute("INSERT INTO installation VALUES ('theirs', 1, '')")
    error = refusal(database.settings)
    assert "tables of another program" in error.what and "another database" in error.remedy


def test_tables_of_another_version_are_refused(database: DatabaseOf) -> None:
    take_lease(database.settings)
    database.execute("UPDATE installation SET version = 99")
    error = refusal(database.settings)
    assert "schema 99" in error.what and "the binlog-dispatcher that wrote" in error.remedy


def test_a_state_that_was_moved_is_refused(database: DatabaseOf) -> None:
    take_lease(database.settings)
    database.execute("UPDATE installation SET moved_to = '/var/lib/x/state.db'")
    error = refusal(database.settings)
    assert "the state was moved to /var/lib/x/state.db" in error.what


def test_tables_whose_creation_was_interrupted_are_completed(database: DatabaseOf) -> None:
    take_lease(database.settings)
    installation = database.value("SELECT id FROM installation")
    database.execute("DROP TABLE prepared, prepared_part", "UPDATE installation SET version = 0")
    with closing(leading_store(database.settings)) as store:
        assert str(store.installation_id) == installation
        assert store.load_prepared("client") == []
    database.execute("DELETE FROM installation")
    with closing(leading_store(database.settings)) as store:
        assert str(store.installation_id) != installation


def test_tables_whose_creation_ends_after_any_statement_are_completed(
    database: DatabaseOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    run, sent = schema._run, 0

    def run_until_killed(session: DatabaseSession, statement: str, *values: object) -> None:
        nonlocal sent
        if sent == survived:
            raise KilledError
        run(session, statement, *values)
        sent += 1

    survived, completed = 0, False
    while not completed:
        database.drop_tables()
        sent = 0
        monkeypatch.setattr(schema, "_run", run_until_killed)
        try:
            completed = take_lease(database.settings) == 1
        except KilledError:
            monkeypatch.setattr(schema, "_run", run)
            assert take_lease(database.settings) == 1
            survived += 1
        with closing(leading_store(database.settings)) as store:
            assert store.next_session("shop") > 0
    assert survived == sent > len(schema.TABLES)


def test_a_creation_waits_for_another_one(
    database: DatabaseOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_LOCK_WAIT_S", 0)
    with closing(database.server.connect()) as other, other.cursor() as cursor:
        cursor.execute(f"SELECT GET_LOCK('binlog-dispatcher:{database.name}', 0)")
        with pytest.raises(BinlogError, match="another session is changing the tables"):
            take_lease(database.settings)
    take_lease(database.settings)


def test_a_server_that_is_too_old_is_refused(
    mysql56: Server, new_database: Callable[[Server], str]
) -> None:
    error = refusal(state_settings(mysql56, new_database(mysql56)))
    assert "5.6.24" in error.what and "MySQL 5.7 or newer" in error.remedy
