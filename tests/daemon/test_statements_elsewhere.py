"""Changes of data that a server logs as statements, in databases that no consumer reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Reader
from tests.servers import Server

NewDatabase = Callable[[Server], str]

pytestmark = pytest.mark.rotate(5, of="servers")

# The table and the statement of Amazon RDS.
HEARTBEAT_TABLE = (
    "CREATE TABLE mysql.rds_heartbeat2 (id INT PRIMARY KEY, value BIGINT) ENGINE=InnoDB"
)
HEARTBEAT = (
    "INSERT INTO mysql.rds_heartbeat2(id, value) values (1,1684940452000)"
    " ON DUPLICATE KEY UPDATE value = 1684940452000"
)
AS_STATEMENT = "SET SESSION binlog_format = STATEMENT"


@pytest.fixture
def started(
    any_server: Server, new_database: NewDatabase, make_daemon: MakeDaemon, source: Source
) -> Callable[..., tuple[Daemon, str, str]]:
    """`started()` returns a daemon with a consumer `c`, the database that the consumer reads, and a database
    that no consumer reads. Each database has a table t. `ignore`: the other database is in `ignore_statements_in`."""

    def start(*, ignore: bool = False) -> tuple[Daemon, str, str]:
        read, other = new_database(any_server), new_database(any_server)
        for database in (read, other):
            any_server.execute(
                "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=InnoDB", database=database
            )
        more = {"ignore_statements_in": [other]} if ignore else {}
        daemon = make_daemon({"c": source(any_server, read, **more)})
        daemon.start().until_state("c", "streaming")
        return daemon, read, other

    return start


def ids(daemon: Daemon, server: Server) -> list[int]:
    reader = Reader(daemon, "c").open().read_to(server)
    return [row["after"]["id"] for change in reader.changes() for row in change.batch.to_pylist()]  # type: ignore[union-attr]


@pytest.fixture
def heartbeat_table(any_server: Server) -> Iterator[None]:
    """Other tests list the tables of `mysql` on the same server."""
    any_server.execute(HEARTBEAT_TABLE)
    yield
    any_server.execute("DROP TABLE mysql.rds_heartbeat2")


@pytest.mark.usefixtures("heartbeat_table")
def test_a_heartbeat_of_amazon_rds_concerns_no_consumer(
    any_server: Server, started: Callable[..., tuple[Daemon, str, str]]
) -> None:
    daemon, read, _ = started()
    for n in range(3):
        any_server.execute(f"INSERT INTO {read}.t VALUES ({n})", AS_STATEMENT, HEARTBEAT)
    any_server.execute(
        "USE mysql",
        AS_STATEMENT,
        "DELETE FROM rds_heartbeat2 WHERE value < UNIX_TIMESTAMP() AND id = 7",
    )
    any_server.execute(f"INSERT INTO {read}.t VALUES (3)")
    assert ids(daemon, any_server) == [0, 1, 2, 3]


@pytest.mark.usefixtures("heartbeat_table")
def test_a_stored_function_in_such_a_statement_is_found(
    any_server: Server, started: Callable[..., tuple[Daemon, str, str]]
) -> None:
    """The function writes to the consumer's table; the log holds only the statement that calls it."""
    daemon, read, _ = started()
    any_server.execute(
        f"CREATE FUNCTION {read}.now() RETURNS INT DETERMINISTIC"
        f" BEGIN INSERT INTO {read}.t VALUES (9); RETURN 1; END",
        f"USE {read}",
        AS_STATEMENT,
        "REPLACE INTO mysql.rds_heartbeat2 VALUES (1, now ())",
    )
    error = daemon.api.until_state("c", "failed")["last_error"]
    assert "REPLACE as a statement, on table 'mysql.rds_heartbeat2'" in error


def test_a_view_in_mysql_is_found(
    any_server: Server,
    started: Callable[..., tuple[Daemon, str, str]],
    request: pytest.FixtureRequest,
) -> None:
    """Servers accept a view in `mysql`, and its statement writes the table behind it."""
    daemon, read, _ = started()
    view = f"mysql.v_{read}"
    request.addfinalizer(lambda: any_server.execute(f"DROP VIEW {view}"))
    any_server.execute(
        f"CREATE VIEW {view} AS SELECT * FROM {read}.t",
        AS_STATEMENT,
        f"INSERT INTO {view} VALUES (9)",
    )
    daemon.api.until_state("c", "failed")


def test_a_trigger_elsewhere_stops_the_consumer_unless_the_settings_exclude_it(
    any_server: Server, started: Callable[..., tuple[Daemon, str, str]]
) -> None:
    daemon, read, other = started()
    any_server.execute(
        f"CREATE TRIGGER {other}.g AFTER INSERT ON {other}.t FOR EACH ROW INSERT INTO {read}.t VALUES (NEW.id)",
        AS_STATEMENT,
        f"INSERT INTO {other}.t VALUES (1)",
    )
    error = daemon.api.until_state("c", "failed")["last_error"]
    assert f"INSERT as a statement, on table '{other}.t'" in error
    assert f"add '{other}' to ignore_statements_in" in error


def test_statements_in_a_database_of_the_setting_concern_no_consumer(
    any_server: Server, started: Callable[..., tuple[Daemon, str, str]]
) -> None:
    daemon, read, other = started(ignore=True)
    any_server.execute(
        f"INSERT INTO {read}.t VALUES (1)",
        AS_STATEMENT,
        f"INSERT INTO {other}.t SELECT id FROM {read}.t",
        f"REPLACE INTO {other}.t VALUES (1), (2)",
        f"UPDATE {other}.t SET id = 5 WHERE id = 1",
        f"DELETE FROM {other}.t",
        f"INSERT INTO {other}.t VALUES (1)",
    )
    any_server.execute(f"INSERT INTO {read}.t VALUES (2)")
    assert ids(daemon, any_server) == [1, 2]
    any_server.execute(AS_STATEMENT, f"INSERT INTO {read}.t VALUES (3)")
    error = daemon.api.until_state("c", "failed")["last_error"]
    assert f"INSERT as a statement, on table '{read}.t'" in error
