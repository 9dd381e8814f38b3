"""The answers of the front, compared with the answers of real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

import pytest

from dispatcher.front.questions.look_ups import quoted
from dispatcher.model.server_picture import SHOWN_VARIABLES
from dispatcher.mysql.login import connect
from dispatcher.source.mysql.front_answers import read_picture
from tests.front.questions.asking import Answered, Direct, Front
from tests.front.questions.hostile import HOSTILE, IMPOSSIBLE, STATEMENT, client_quoted
from tests.front.questions.recorded import RECORDINGS, REFUSED, Recording
from tests.servers.server import Server
from tests.support.accounts import account

ITEMS = (
    "CREATE TABLE items (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(50) NOT NULL DEFAULT 'x' COMMENT 'the name',"
    " price DECIMAL(10,2), kind ENUM('a','b'), doc TEXT, made TIMESTAMP NULL, UNIQUE (name, kind)) COMMENT='goods'"
)


class Pair(NamedTuple):
    front: Front
    server: Direct

    def ask(self, sql: str) -> tuple[Answered, Answered]:
        return self.front.ask(sql), self.server.ask(sql)


@contextmanager
def pair_of(server: Server) -> Iterator[Pair]:
    """The front of a consumer that reads `shop`, and a connection to the server, both in `shop`."""
    server.execute(
        "DROP DATABASE IF EXISTS shop", "DROP DATABASE IF EXISTS vault", "CREATE DATABASE shop",
        "CREATE DATABASE vault",
    )  # fmt: skip
    server.execute(ITEMS, "CREATE VIEW names AS SELECT name FROM items", database="shop")
    server.execute("CREATE TABLE secrets (id INT)", database="vault")
    with (
        account(server, "front") as endpoint,
        closing(connect(endpoint)) as connection,
        closing(Direct(server, "shop")) as direct,
    ):
        tls = direct.ask("SHOW STATUS LIKE 'Ssl_version'")
        assert isinstance(tls, tuple)
        front = Front(connection, ["shop"], database="shop", tls=tls[1][0][1] or "")
        for side in (front, direct):
            assert side.ask("SET NAMES utf8mb4") == ([], [])
        yield Pair(front, direct)
    server.execute("DROP DATABASE shop", "DROP DATABASE vault")


@pytest.fixture(scope="module")
def shared(any_server: Server) -> Iterator[Pair]:
    with pair_of(any_server) as pair:
        yield pair


@pytest.fixture
def pair(shared: Pair, any_server: Server) -> Iterator[Pair]:
    """The shared pair, with a new connection to the server, and a front whose variables are those after a login."""
    with closing(Direct(any_server, "shop")) as direct:
        old = shared.front
        front = Front(old.connection, ["shop"], database="shop", tls=old.who.tls_version)
        for side in (front, direct):
            side.ask("SET NAMES utf8mb4")
        yield Pair(front, direct)


def comparable(sql: str, answer: Answered) -> Answered:
    """Returns an answer without the values that may differ between the front and the server."""
    if isinstance(answer, int):
        return answer
    names, rows = answer
    statement = sql.upper()
    if "UNIX_TIMESTAMP" in statement:
        return names, []
    if statement == "SHOW VARIABLES":
        # A variable may exist only as a session variable, and the front shows only global variables.
        return names, [row for row in rows if row[0] in SHOWN_VARIABLES]
    if "DATABASES" in statement or "SCHEMATA" in statement:
        return names, [row for row in rows if row[0] in ("information_schema", "shop")]
    if "Privileges" in names:
        # The front shows the privileges of the daemon's account, which can only read.
        at = names.index("Privileges")
        return names, [(*row[:at], *row[at + 1 :]) for row in rows]
    return answer


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.client)
def test_a_client_gets_the_answers_of_its_server(
    pair: Pair, any_server: Server, recording: Recording
) -> None:
    if any_server.kind not in recording.servers:
        # The client sent these statements to another kind of server. The front may answer or refuse them, but must not
        # fail in another way.
        for sql in recording.statements:
            pair.front.ask(sql)
        return
    for sql in recording.statements:
        if "rpl_semi_sync" in sql:  # the front has no such variables, even if its server has them
            pair.front.ask(sql)
            continue
        front, server = pair.ask(sql)
        assert comparable(sql, front) == comparable(sql, server), sql


@pytest.mark.parametrize(
    ("client", "sql", "number"), REFUSED, ids=lambda value: str(value).partition(" ")[0]
)
def test_refused_statements(shared: Pair, client: str, sql: str, number: int) -> None:
    assert shared.front.ask(sql) == number, client


@pytest.mark.parametrize(
    "sql",
    [
        "select  @@GLOBAL . server_id /* the id */ , 1",
        "SELECT VERSION() LIMIT 1;",
        "SELECT VERSION() LIMIT 0",
        "SELECT NULL, ' a  b', \"q\", @a, @`b c`, DATABASE ( )",
        "SELECT @@session.autocommit 'a b', @@local.autocommit AS `x`, @@autocommit z",
        "/*!40101 SELECT @@character_set_client */",
        "SELECT /* a */ 1 -- b",
        "# a\nSELECT 1",
        "SELECT CONCAT('a', 1, @@server_id), CONCAT('a', NULL)",
        "SELECT @@warning_count, @@session.error_count",
        "SELECT @@nope",
        "SELECT @@global.nope",
        "SELECT NOPE()",
        "SET nope = 1",
        "SET autocommit = 2",
        "SET autocommit = NULL",
        "",
        "SELECT 1; SELECT 2",
        "SHOW VARIABLES LIKE 'log\\_bin'",
        "SHOW VARIABLES LIKE 'Server\\_I%'",
        "SHOW SESSION VARIABLES LIKE 'lower_case_table_name_'",
        "SHOW VARIABLES WHERE Variable_name = 'server_id' AND NOT_A_COLUMN = '2'",
        "SHOW VARIABLES WHERE Variable_name IN ('log_bin', 'Server_Id') AND `Value` = '1'",
        "SHOW BINARY LOGS",
        "SHOW WARNINGS",
        "SHOW WARNINGS LIMIT 5",
        "SHOW ERRORS",
        "SHOW TABLES",
        "SHOW FULL TABLES",
        "SHOW FULL TABLES FROM `shop` LIKE 'it%'",
        "SHOW TABLES IN shop LIKE 'nothing'",
        "SHOW TABLES WHERE Tables_in_shop = 'items'",
        "SHOW FULL TABLES WHERE Table_type = 'VIEW'",
        "SHOW TABLES FROM nodb",
        "SHOW DATABASES LIKE 'sho%'",
        "SHOW COLUMNS FROM items",
        "SHOW FULL COLUMNS FROM `items` FROM `shop`",
        "SHOW COLUMNS FROM nope",
        "DESCRIBE items",
        "DESC shop.items",
        "SHOW CREATE TABLE items",
        "SHOW CREATE TABLE nope",
        "USE nodb",
        "SELECT table_name, Table_Schema AS s FROM information_schema.tables WHERE table_schema='shop'"
        " ORDER BY table_name",
        "select column_name, data_type, numeric_precision, character_maximum_length, column_default"
        " from information_schema.columns where table_schema in ('shop', 'nodb') and table_name='items'"
        " and column_name in ('id', 'price') order by table_name, ordinal_position",
        "SELECT default_character_set_name FROM information_schema.schemata WHERE schema_name='shop'",
        "SELECT 1 FROM information_schema.nope",
    ],
)
def test_forms_of_questions(shared: Pair, sql: str) -> None:
    expected = {
        "SHOW VARIABLES WHERE Variable_name = 'server_id' AND NOT_A_COLUMN = '2'": None,
        "SELECT 1 FROM information_schema.nope": 1235,
        "SET autocommit = NULL": 1231,
    }
    front, server = shared.ask(sql)
    if sql in expected:
        assert expected[sql] is None or front == expected[sql]
        return
    assert comparable(sql, front) == comparable(sql, server)


def test_session_state(pair: Pair) -> None:
    for sql in (
        "SET @a = 'x', @b := @@global.server_id, @c = 5, @d = NULL, @f = @a",
        "SELECT @a, @b, @C, @d, @f",
        "SET SESSION net_write_timeout = 17, LOCAL sql_mode = 'ansi_quotes', @@session.wait_timeout = 99",
        "SELECT @@net_write_timeout, @@global.net_write_timeout, @@wait_timeout, @@session.wait_timeout",
        "SHOW VARIABLES LIKE 'net_write_timeout'",
        "SHOW GLOBAL VARIABLES LIKE 'net_write_timeout'",
        "SET sql_mode = DEFAULT, net_write_timeout = DEFAULT",
        "SELECT @@net_write_timeout, @@sql_mode",
        "SET autocommit = OFF, foreign_key_checks = false, unique_checks = 0",
        "SHOW VARIABLES WHERE Variable_name IN ('autocommit', 'foreign_key_checks', 'unique_checks')",
        "SELECT @@autocommit, @@foreign_key_checks",
        "SET NAMES latin1",
        "SELECT @@character_set_client, @@character_set_connection, @@character_set_results, @@collation_connection",
        "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin'",
        "SHOW VARIABLES LIKE 'c%\\_connection'",
        "SET character_set_results = NULL",
        "SELECT @@character_set_results",
        "SHOW VARIABLES LIKE 'character_set_results'",
        "SET CHARACTER SET latin1",
        "SELECT @@character_set_client, @@character_set_results",
        "SET NAMES DEFAULT",
        "SELECT @@character_set_client",
        "SET time_zone = '+02:00'",
        "SELECT @@time_zone, @@global.time_zone",
        "SET @a = 1, nope = 2",
        "SELECT @a",
        "BEGIN",
        "START TRANSACTION READ ONLY",
        "ROLLBACK WORK",
        "COMMIT AND NO CHAIN",
        "USE shop",
        "USE information_schema",
        "SELECT DATABASE()",
        "SHOW TABLES FROM shop",
    ):
        front, server = pair.ask(sql)
        assert front == server, sql


def test_a_view_needs_a_privilege_of_the_daemon(shared: Pair) -> None:
    assert shared.front.ask("SHOW CREATE TABLE shop.names") == 1142


def test_databases_and_tables_of_others_do_not_exist(shared: Pair) -> None:
    front = shared.front
    for answer in (
        front.ask(
            "SELECT table_name x FROM information_schema.tables WHERE table_schema = 'vault'"
        ),
        front.ask(
            "SELECT column_name x FROM information_schema.columns WHERE table_schema = 'vault'"
        ),
        front.ask(
            "SELECT schema_name x FROM information_schema.schemata WHERE schema_name = 'vault'"
        ),
    ):
        assert answer == (["x"], [])
    databases = front.ask("SHOW DATABASES")
    assert isinstance(databases, tuple)
    assert sorted(databases[1]) == [("information_schema",), ("shop",)]
    assert front.ask("SHOW CREATE TABLE vault.secrets") == 1146
    assert front.ask("SHOW COLUMNS FROM secrets FROM vault") == 1146
    assert front.ask("SHOW TABLES FROM vault") == 1049
    assert front.ask("USE vault") == 1049
    assert front.ask("SHOW CREATE TABLE mysql.user") == 1146
    assert front.ask("SHOW TABLES FROM mysql") == 1049


def test_tables_that_the_consumer_leaves_out(shared: Pair) -> None:
    front = Front(shared.front.connection, ["shop"], database="shop", tables=[("shop", "names")])
    assert front.ask("SHOW TABLES") == (["Tables_in_shop"], [("names",)])
    assert front.ask("DESCRIBE items") == 1146
    assert front.ask(
        "SELECT column_name x FROM information_schema.columns WHERE table_schema = 'shop'"
    ) == (["x"], [("name",)])


def test_a_picture_follows_its_server(shared: Pair, any_server: Server) -> None:
    connection = shared.front.connection
    first = read_picture(connection)
    assert (first.version, first.mariadb) == (any_server.version, any_server.mariadb)
    assert set(first.variables) <= SHOWN_VARIABLES
    assert list(first.log_files) == any_server.binlogs()
    any_server.execute(
        "INSERT INTO shop.items (name) VALUES ('one')", "SET GLOBAL net_read_timeout = 31"
    )
    try:
        second = read_picture(connection, first)
        assert second.variables["net_read_timeout"].shown == "31"
        assert second.executed != first.executed
        assert second.status.rows[0][:2] == tuple(map(str, any_server.binlog_position()))
        assert read_picture(connection, second) == second == read_picture(connection)
    finally:
        any_server.execute("SET GLOBAL net_read_timeout = DEFAULT")


# -- hostile names ---------------------------------------------------------------------------------------------

_TABLES = ("a`b", "a'b", 'a"b', "a\\", "\\'", "a/*b", "%s", "ü", "縗'", "a; --", "?", " a")


@pytest.fixture(params=["", "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES"])
def front(any_server: Server, request: pytest.FixtureRequest) -> Iterator[Front]:
    """The front of a server whose default sql_mode is `request.param`, and whose tables have names that are difficult
    to quote."""
    name = "h'o`s\\t"
    database = quoted(name)
    old = str(any_server.execute("SELECT @@global.sql_mode")[0][0])
    any_server.execute(f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database}")
    for table in _TABLES:
        any_server.execute(f"CREATE TABLE {database}.{quoted(table)} (`n\"'` INT PRIMARY KEY)")
    any_server.execute(f"SET GLOBAL sql_mode = '{request.param}'")
    with account(any_server, "hostile") as endpoint, closing(connect(endpoint)) as connection:
        yield Front(connection, [name], database=name)
    any_server.execute(f"SET GLOBAL sql_mode = '{old}'", f"DROP DATABASE {database}")


def test_hostile_names_at_a_server(front: Front) -> None:
    name = front.variables.database
    tables = front.ask("SHOW TABLES")
    assert isinstance(tables, tuple)
    assert sorted(row[0] or "" for row in tables[1]) == sorted(_TABLES)
    for table in _TABLES:
        created = front.ask(f"SHOW CREATE TABLE {quoted(table)}")
        assert isinstance(created, tuple)
        assert created[1][0][0] == table
        columns = (
            f"SELECT table_name t, column_name c FROM information_schema.columns WHERE table_schema ="
            f" {client_quoted(name)} AND table_name = {client_quoted(table)}"
        )
        assert front.ask(columns) == (["t", "c"], [(table, "n\"'")])
        described = front.ask(f"DESCRIBE {quoted(table)}")
        assert isinstance(described, tuple)
        assert described[1][0][0] == "n\"'"
    for table in ("nothing", *IMPOSSIBLE[1:], *HOSTILE):
        if table not in _TABLES:
            assert front.ask(f"SHOW CREATE TABLE {quoted(table)}") == 1146, table
    assert all(STATEMENT.fullmatch(statement) for statement in front.statements)
