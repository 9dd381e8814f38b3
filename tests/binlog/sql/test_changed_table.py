"""The table that a change of data in statement format changes, and whether no other table can change. The second half
asks the servers."""

from __future__ import annotations

from collections.abc import Callable

import pymysql
import pytest

from dispatcher.binlog.sql.changed_table import (
    NATIVE_FUNCTIONS,
    SYSTEM_TABLES,
    ChangedTable,
    changed_table,
)
from dispatcher.binlog.sql.lexer import ANSI_QUOTES, ORACLE
from dispatcher.binlog.sql.logged import LoggedStatement, SessionFacts
from tests.servers import Server

NewDatabase = Callable[[Server], str]


def changed(
    text: str, database: str = "mysql", sql_mode: int = 0, lower_case_table_names: int = 0
) -> ChangedTable | None:
    facts = SessionFacts(sql_mode, lower_case_table_names=lower_case_table_names)
    return changed_table(LoggedStatement(text, database, facts))


EXACT = [
    "INSERT INTO mysql.rds_heartbeat2(id, value) values (1,16849404520) ON DUPLICATE KEY UPDATE value = 16849404520",
    "insert /* c */ low_priority ignore `rds_heartbeat2` set id = 1, value = -(2 + 3) * 4;",
    "INSERT rds_heartbeat2 VALUES (now(6), 'SELECT f()', x'00'), (NULL, DEFAULT, @a)",
    "INSERT INTO rds_heartbeat2 VALUES (1, 2) ON DUPLICATE KEY UPDATE value = VALUES(value) + IF(id IN (1, 2), 3, 4)",
    "REPLACE INTO mysql . rds_heartbeat2 VALUES (UNIX_TIMESTAMP() * 1000)",
    "UPDATE LOW_PRIORITY rds_heartbeat2 AS h SET value = 1 WHERE (id = 1) AND h.value < 2 ORDER BY id LIMIT 1",
    "DELETE QUICK FROM rds_heartbeat2",
    "DELETE FROM rds_heartbeat2 WHERE value < UNIX_TIMESTAMP(NOW() - INTERVAL 1 DAY)",
    "LOAD DATA LOCAL INFILE 'x' REPLACE INTO TABLE rds_heartbeat2 FIELDS TERMINATED BY ','",
]


@pytest.mark.parametrize("text", EXACT)
def test_a_system_table_and_an_expression_without_functions_are_exact(text: str) -> None:
    assert changed(text) == ChangedTable(("mysql", "rds_heartbeat2"), exact=True)


@pytest.mark.parametrize(
    "value",
    [
        *("f()", "shop.f()", "shop . now()", "now ()", "`now`()", "now/**/()", "SHA3(1)", ".now()"),
        *("(SELECT 1 FROM v)", "(TABLE v)", "(WITH a AS (SELECT 1) SELECT 1)", "NEXT VALUE FOR s"),
        *("nextval(s)", "EXISTS (SELECT 1)", "/*!99999 f() */ 1", "'open", "1) RETURNING (f()"),
    ],
)
def test_what_may_call_a_stored_function_is_not_exact(value: str) -> None:
    found = changed(f"INSERT INTO rds_heartbeat2 VALUES ({value})")
    assert found in (None, ChangedTable(("mysql", "rds_heartbeat2"), exact=False))


def test_quotes_and_modes_are_those_of_the_session() -> None:
    text = 'INSERT INTO "rds_heartbeat2" VALUES ("now"())'
    assert changed(text, sql_mode=ANSI_QUOTES) == ChangedTable(("mysql", "rds_heartbeat2"), exact=False)  # fmt: skip
    found = changed("INSERT INTO rds_heartbeat2 VALUES (s.NEXTVAL)", sql_mode=ORACLE)
    assert found == ChangedTable(("mysql", "rds_heartbeat2"), exact=False)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("INSERT INTO t SELECT * FROM other.v", ("shop", "t")),
        ("INSERT INTO mysql.own VALUES (1)", ("mysql", "own")),
        ("REPLACE percona.heartbeat (ts) VALUES (1)", ("percona", "heartbeat")),
        ("CREATE TABLE x.t AS SELECT 1 AS a", ("x", "t")),
        ("LOAD DATA INFILE 'x' INTO TABLE x.t (@a) SET a = f()", ("x", "t")),
        ("INSERT INTO sys.sys_config VALUES (1)", ("sys", "sys_config")),
        ("INSERT INTO rds_heartbeat2 VALUES (1)", ("shop", "rds_heartbeat2")),
    ],
)
def test_the_table_alone_is_known(text: str, table: tuple[str, str]) -> None:
    assert changed(text, "shop") == ChangedTable(table, exact=False)


@pytest.mark.parametrize(
    "text",
    [
        *("UPDATE rds_a, shop.t SET a = 1", "UPDATE rds_a JOIN shop.t USING (a) SET a = 1"),
        *("DELETE FROM rds_a, shop.t USING rds_a JOIN shop.t", "DELETE rds_a FROM rds_a JOIN shop.t"),
        *("DELETE FROM rds_a USING rds_a JOIN shop.t", "DELETE shop.t FROM rds_a, shop.t"),
        *("WITH a AS (SELECT 1) DELETE FROM rds_a", "CALL rds_a()", "SELECT f()", "DO f()"),
        "SET STATEMENT max_statement_time = f() FOR INSERT INTO rds_a VALUES (1)",
    ],
)  # fmt: skip
def test_several_tables_are_not_understood(text: str) -> None:
    assert changed(text) is None


def test_names_are_compared_as_the_server_compares_them() -> None:
    text = "INSERT INTO MySQL.RDS_Heartbeat2 VALUES (1)"
    folded = changed(text, lower_case_table_names=1)
    assert folded == ChangedTable(("mysql", "rds_heartbeat2"), exact=True)
    assert changed(text) == ChangedTable(("MySQL", "RDS_Heartbeat2"), exact=False)


# -- the servers -----------------------------------------------------------------------------------------------


def test_every_system_table_of_the_servers_is_listed(any_server: Server) -> None:
    rows = any_server.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'mysql'"
        " AND table_type = 'BASE TABLE'"
    )
    assert {row[0] for row in rows} <= SYSTEM_TABLES
    assert len(rows) > 20


def test_servers_refuse_triggers_in_mysql(any_server: Server) -> None:
    with pytest.raises(pymysql.MySQLError, match="Triggers can not be created on system tables"):
        any_server.execute("CREATE TRIGGER mysql.x BEFORE INSERT ON mysql.func FOR EACH ROW SET @a = 1")  # fmt: skip


_ARGUMENTS = {
    **dict.fromkeys(("ADDDATE", "DATE_ADD", "DATE_SUB", "SUBDATE"), "NOW(), INTERVAL 1 DAY"),
    **dict.fromkeys(("CAST",), "1 AS CHAR"),
    **dict.fromkeys(("CONCAT_WS", "IF", "LPAD", "REPLACE", "RPAD"), "1, 2, 3"),
    **dict.fromkeys(
        (
            *("COALESCE", "CONCAT", "DATE_FORMAT", "DATEDIFF", "GREATEST", "IFNULL", "LEAST", "LEFT", "MOD", "NULLIF"),
            *("RIGHT", "ROUND", "SHA2", "SUBSTR", "SUBSTRING", "TRUNCATE"),
        ),
        "1, 2",
    ),
    **dict.fromkeys(
        (
            *("CONNECTION_ID", "CURDATE", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "USER"),
            *("CURTIME", "DATABASE", "LAST_INSERT_ID", "LOCALTIME", "LOCALTIMESTAMP", "NOW", "RAND", "SYSDATE"),
            *("UNIX_TIMESTAMP", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "UUID", "VERSION"),
        ),
        "",
    ),
    "CONVERT": "1 USING utf8",
    "EXTRACT": "DAY FROM NOW()",
}  # fmt: skip


def test_the_names_of_native_functions_call_no_stored_function(
    any_server: Server, new_database: NewDatabase
) -> None:
    """Each listed function is called where the database has a stored function of this name, which writes a row."""
    database = new_database(any_server)
    any_server.execute("CREATE TABLE called (name TEXT)", database=database)
    for name in sorted(NATIVE_FUNCTIONS):
        arguments = _ARGUMENTS.get(name, "1")
        parameters = ", ".join(
            f"p{n} INT" for n in range(len(arguments.split(",")) * bool(arguments))
        )
        any_server.execute(
            f"CREATE FUNCTION {database}.`{name}`({parameters}) RETURNS INT DETERMINISTIC"
            f" BEGIN INSERT INTO called VALUES ('{name}'); RETURN 1; END",
            f"DO {name}({arguments})",
            database=database,
        )
    assert not any_server.execute(f"SELECT name FROM {database}.called")
    any_server.execute("DO now ()", database=database)
    assert any_server.execute(f"SELECT name FROM {database}.called") == (("NOW",),)
