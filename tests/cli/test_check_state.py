"""`check` examines the database of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.model.position import Position
from dispatcher.settings.model import StateSettings
from tests.cli.program import PASSWORD, call, consumer, write
from tests.servers.plugin import ServerFactory
from tests.servers.server import Instance
from tests.support.state_stores import DatabaseOf, leading_store, state_databases, state_settings


@pytest.fixture(scope="module")
def server(module_server_factory: ServerFactory) -> Instance:
    server = module_server_factory(
        "mysql97", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"
    )
    server.add_user("cli", PASSWORD)
    server.execute("CREATE DATABASE shop")
    return server


@pytest.fixture(scope="module")
def settings_on(server: Instance) -> Iterator[Callable[[Instance], StateSettings]]:
    with state_databases() as settings_on:
        yield settings_on


@pytest.fixture
def database(server: Instance, settings_on: Callable[[Instance], StateSettings]) -> DatabaseOf:
    database = DatabaseOf(server, settings_on(server))
    database.drop_tables()
    return database


def text_of(settings: StateSettings) -> str:
    return f"{{mysql: '{settings.label}', password: {settings.secret}, tls: {{mode: disabled}}}}"


def checked(
    tmp_path: Path, server: Instance, state: StateSettings, more: str = ""
) -> tuple[int, str, list[str]]:
    """The exit code, the output, and the errors and warnings of `check` about the state."""
    shop = ("shop", consumer(server, "cli", "shop", more))
    done = call("check", "--config", write(tmp_path, shop, state=text_of(state)))
    assert state.secret not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr.splitlines()


def test_a_database_that_is_fit_is_named_with_its_leader(
    server: Instance, database: DatabaseOf, tmp_path: Path
) -> None:
    place = database.settings.label
    code, said, lines = checked(tmp_path, server, database.settings)
    assert (code, lines) == (0, [])
    assert said.startswith(f"{place}: 9.7.") and ", no state yet\n" in said
    assert not database.execute("SHOW TABLES"), "check has changed the database"
    with closing(leading_store(database.settings)):
        code, said, lines = checked(tmp_path, server, database.settings)
    assert (code, lines) == (0, [])
    assert ", schema 5, http://a:8085 leads, in term 1\n" in said
    database.reset_lease()
    assert ", no daemon leads\n" in checked(tmp_path, server, database.settings)[1]


def test_the_start_of_a_consumer_with_a_stored_position_is_not_examined(
    server: Instance, database: DatabaseOf, tmp_path: Path
) -> None:
    start = ", start: {file: binlog.000999, offset: 4}"
    assert checked(tmp_path, server, database.settings, start)[0] == 2
    at = Position("server", "", "binlog.000001", 4, 5, 7)
    with closing(leading_store(database.settings)) as store:
        store.save([("shop", at, at, 0)])
    assert checked(tmp_path, server, database.settings, start)[0] == 0


def test_a_missing_privilege_is_an_error_with_its_grant(
    server: Instance, database: DatabaseOf, tmp_path: Path
) -> None:
    narrow = state_settings(server, database.name, privileges="SELECT, UPDATE")
    code, _, (line,) = checked(tmp_path, server, narrow)
    assert code == 2
    assert narrow.mysql is not None
    assert line == (
        f"grant missing: the account lacks CREATE, INSERT, DELETE on the database {database.name} ({narrow.label});"
        f" GRANT CREATE, INSERT, DELETE ON `{database.name}`.* TO '{narrow.mysql.user}'@'...'"
    )


def test_what_the_server_may_lose_is_a_warning(
    server: Instance, database: DatabaseOf, tmp_path: Path
) -> None:
    server.execute(
        "SET GLOBAL sync_binlog = 0",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 2",
        "SET GLOBAL max_allowed_packet = 1048576",
    )
    code, _, lines = checked(tmp_path, server, database.settings)
    server.execute(
        "SET GLOBAL sync_binlog = 1",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
        "SET GLOBAL max_allowed_packet = 67108864",
    )
    prefix = f"warning: {database.settings.label}: "
    names = [line.removeprefix(prefix).partition("=")[0] for line in lines]
    assert code == 0
    assert names == ["innodb_flush_log_at_trx_commit", "sync_binlog", "max_allowed_packet"]


def test_a_server_that_refuses_writes_is_an_error(
    server: Instance, database: DatabaseOf, tmp_path: Path
) -> None:
    server.execute("SET GLOBAL read_only = 1")
    code, _, (line,) = checked(tmp_path, server, database.settings)
    server.execute("SET GLOBAL read_only = 0")
    assert code == 2 and "read_only=ON: the server refuses writes" in line
    assert "let the address in state.mysql lead to the server that is writable" in line


def test_tables_without_transactions_are_an_error(
    server: Instance, database: DatabaseOf, tmp_path: Path
) -> None:
    leading_store(database.settings).close()
    database.execute("ALTER TABLE stream ENGINE = MyISAM")
    code, _, (line,) = checked(tmp_path, server, database.settings)
    assert code == 2 and "tables without transactions: stream" in line
    assert f"ALTER TABLE {database.name}.stream ENGINE=InnoDB" in line


def test_tables_of_another_program_are_an_error(
    server: Instance, database: DatabaseOf, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE theirs (a INT PRIMARY KEY)")
    code, _, (line,) = checked(tmp_path, server, database.settings)
    assert code == 2 and "tables of another program" in line


def test_a_server_that_does_not_answer_is_one_error(server: Instance, tmp_path: Path) -> None:
    state = StateSettings.model_validate({"mysql": "u@127.0.0.1:1/state", "password": PASSWORD})
    code, _, (line,) = checked(tmp_path, server, state)
    assert code == 2
    assert line.startswith("state store: cannot connect: ") and "check host, port" in line
