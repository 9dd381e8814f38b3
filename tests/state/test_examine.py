"""`check` finds what is wrong with the database of the state, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.settings.model import StateSettings
from dispatcher.state.schema import SCHEMA_VERSION
from dispatcher.state.server.examine import examine_state
from tests.servers.plugin import ServerFactory
from tests.servers.server import DURABLE, Instance, Server
from tests.support.state_stores import DatabaseOf, leading_store, state_databases, state_settings


@pytest.fixture(scope="module")
def server(module_server_factory: ServerFactory) -> Instance:
    """A server whose commits are durable."""
    return module_server_factory("mysql97", *DURABLE)


@pytest.fixture(scope="module")
def databases() -> Iterator[Callable[[Server], StateSettings]]:
    with state_databases() as settings_on:
        yield settings_on


@pytest.fixture
def database(server: Instance, databases: Callable[[Server], StateSettings]) -> DatabaseOf:
    database = DatabaseOf(server, databases(server))
    database.drop_tables()
    return database


@contextmanager
def changed(server: Server, **variables: int) -> Iterator[None]:
    """Set global variables for the length of the block."""
    before = {name: server.execute(f"SELECT @@GLOBAL.{name}")[0][0] for name in variables}
    server.execute(*(f"SET GLOBAL {name} = {value}" for name, value in variables.items()))
    yield
    server.execute(*(f"SET GLOBAL {name} = {value}" for name, value in before.items()))


def only_error(settings: StateSettings) -> BinlogError:
    (error,) = examine_state(settings).errors
    assert error.where == settings.label
    return error


def test_a_database_that_is_fit(database: DatabaseOf) -> None:
    report = examine_state(database.settings)
    assert (report.errors, report.warnings, report.schema) == ((), (), 0)
    assert report.version.startswith("9.7.")
    assert not database.execute("SHOW TABLES")
    leading_store(database.settings).close()
    report = examine_state(database.settings)
    assert (report.errors, report.warnings, report.schema) == ((), (), SCHEMA_VERSION)


def test_a_missing_privilege_is_named_with_its_grant(database: DatabaseOf) -> None:
    narrow = state_settings(database.server, database.name, privileges="SELECT, UPDATE")
    error = only_error(narrow)
    assert error.kind is ErrorKind.GRANT_MISSING and narrow.mysql is not None
    assert (
        error.what
        == f"the account lacks CREATE, ALTER, INSERT, DELETE on the database {database.name}"
    )
    assert error.remedy == (
        f"GRANT CREATE, ALTER, INSERT, DELETE ON `{database.name}`.* TO '{narrow.mysql.user}'@'...'"
    )


def test_settings_with_which_the_server_may_lose_commits_are_warnings(
    database: DatabaseOf,
) -> None:
    with changed(
        database.server,
        sync_binlog=0,
        innodb_flush_log_at_trx_commit=2,
        max_allowed_packet=1 << 20,
    ):
        report = examine_state(database.settings)
    assert report.errors == ()
    assert [warning.partition(":")[0] for warning in report.warnings] == [
        "innodb_flush_log_at_trx_commit=2",
        "sync_binlog=0",
        "max_allowed_packet=1048576",
    ]


def test_a_server_that_refuses_writes_is_an_error(database: DatabaseOf) -> None:
    with changed(database.server, read_only=1):
        error = only_error(database.settings)
    assert error.what == "read_only=ON: the server refuses writes"
    assert "the server that is writable" in error.remedy


def test_tables_without_transactions_are_an_error(database: DatabaseOf) -> None:
    leading_store(database.settings).close()
    database.execute("ALTER TABLE prepared_part ENGINE = MyISAM")
    error = only_error(database.settings)
    assert error.what == "tables without transactions: prepared_part"
    assert error.remedy == f"ALTER TABLE {database.name}.prepared_part ENGINE=InnoDB"


def test_tables_of_another_program_are_an_error(database: DatabaseOf) -> None:
    database.execute("CREATE TABLE theirs (a INT PRIMARY KEY)")
    assert "tables of another program" in only_error(database.settings).what


def test_tables_of_a_newer_version_are_an_error(database: DatabaseOf) -> None:
    leading_store(database.settings).close()
    database.execute("UPDATE installation SET version = 99")
    assert "schema 99" in only_error(database.settings).what


def test_a_server_that_does_not_answer_is_an_error() -> None:
    settings = StateSettings.model_validate({"mysql": "u@127.0.0.1:1/state", "password": "p"})
    error = only_error(settings)
    assert error.kind is ErrorKind.STATE_STORE
    assert error.what.startswith("cannot connect: ") and "check host, port" in error.remedy


def test_an_old_server_is_an_error(mysql56: Server, new_database: Callable[[Server], str]) -> None:
    error = only_error(state_settings(mysql56, new_database(mysql56)))
    assert "too old" in error.what
