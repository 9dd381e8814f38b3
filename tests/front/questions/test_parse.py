"""Statements that are refused, comments, placeholders, and what a hostile text costs."""

from __future__ import annotations

from contextlib import suppress

import pytest

from dispatcher.front.questions.parse import parse_question
from dispatcher.front.questions.question import (
    Constant,
    Item,
    Kill,
    Nothing,
    Select,
    ShowCreateTable,
    ShowTables,
    SystemVariable,
    Use,
)
from dispatcher.front.questions.variables import Variables
from dispatcher.front.wire.errors import WireError
from tests.front.questions.made_picture import picture


def refused(sql: str) -> WireError:
    with pytest.raises(WireError) as caught:
        parse_question(sql)
    return caught.value


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        ("INSERT INTO shop.items VALUES (1)", 1290),
        ("drop table items", 1290),
        ("/* a */ Truncate items", 1290),
        ("/*!50000 DELETE FROM items */", 1290),
        ("FLUSH TABLES WITH READ LOCK", 1290),
        ("LOCK TABLES items READ", 1290),
        ("CHANGE REPLICATION SOURCE TO SOURCE_HOST='a'", 1290),
        ("PURGE BINARY LOGS TO 'binlog.000002'", 1290),
        ("RESET BINARY LOGS AND GTIDS", 1290),
        ("XA RECOVER", 1290),
        ("CALL mysql.rds_kill(1)", 1290),
        ("KILL QUERY 5", 1235),
        ("SELECT * FROM items", 1235),
        ("SELECT id FROM shop.items", 1235),
        ("SELECT SLEEP(100) FROM mysql.user", 1235),
        ("SELECT user FROM mysql.user", 1235),
        ("SELECT * FROM information_schema.columns", 1235),
        ("SELECT privilege_type FROM information_schema.user_privileges", 1235),
        ("SELECT host FROM information_schema.processlist", 1235),
        ("SELECT column_name FROM information_schema.columns, mysql.user", 1235),
        ("SELECT column_name FROM information_schema.columns WHERE 1 = 1", 1235),
        ("SELECT column_name FROM information_schema.columns WHERE table_schema = (SELECT 1)", 1235),
        ("SELECT 1 UNION SELECT 2", 1235),
        ("SELECT 1 INTO OUTFILE '/tmp/x'", 1235),
        ("SELECT 1 INTO @a", 1235),
        ("SELECT nothing", 1235),
        ("SELECT 1 + 1", 1235),
        ("SELECT (1)", 1235),
        ("SELECT CONCAT(VERSION(), 'a')", 1235),
        ("SELECT VERSION() LIMIT 1, 1", 1235),
        ("SELECT " + "@a, " * 400 + "@a", 1235),
        ("SHOW VARIABLES WHERE Variable_name = 'a' OR Variable_name = 'b'", 1235),
        ("SHOW VARIABLES WHERE (Variable_name = 'a')", 1235),
        ("SHOW VARIABLES WHERE Variable_name <> 'a'", 1235),
        ("SHOW VARIABLES WHERE Variable_name NOT IN ('a')", 1235),
        ("SHOW VARIABLES WHERE Variable_name LIKE 'a%'", 1235),
        ("SHOW VARIABLES LIKE '" + "%a" * 65 + "'", 1235),
        ("SHOW COLLATION", 1235),
        ("SHOW INDEX FROM items", 1235),
        ("SHOW PROCESSLIST", 1235),
        ("SHOW BINLOG EVENTS", 1235),
        ("SHOW SLAVE STATUS", 1235),
        ("SHOW GRANTS FOR root@localhost", 1235),
        ("SHOW CREATE TABLE a.b.c", 1235),
        ("SHOW VARIABLES WHERE SLEEP(1)", 1235),
        ("SET @a = (SELECT 1)", 1235),
        ("SET @a = b", 1235),
        ("SET PERSIST server_id = 1", 1235),
        ("ROLLBACK TO SAVEPOINT a", 1235),
        ("EXPLAIN SELECT 1", 1064),
        ("WITH a AS (SELECT 1) SELECT * FROM a", 1064),
        ("(SELECT 1)", 1064),
        ("hello", 1064),
        ("SELECT 'a", 1064),
        ("SELECT `a", 1064),
        ("SELECT 1; DROP TABLE items", 1064),
        ("SELECT 1;;", 1064),
        ("", 1065),
        (" \n", 1065),
        ("SELECT '\udce9'", 1300),
    ],
)  # fmt: skip
def test_refused(sql: str, number: int) -> None:
    error = refused(sql)
    assert error.number == number
    assert len(error.message) < 400
    if number in (1235, 1290, 1064):
        assert "docs/front.md" in error.message


def test_comments() -> None:
    one = Select((Item("1", Constant(1)),))
    for sql in (
        "SELECT 1",
        "/* a */ SELECT /* b; DROP */ 1 /* c */ ;",
        "-- a\nSELECT 1 -- b",
        "# a\nselect 1 # b",
        "/*!40101 SELECT 1 */",
        "/*!80000 SELECT*/ 1 /*M! + 1 */",
        "Select\t1\n;\n",
    ):
        assert parse_question(sql) == one, sql
    assert parse_question("/* ping */") == Nothing()
    assert parse_question("/*M!100100 SELECT 1 */", Variables(mariadb=True)) == one
    assert parse_question("/*M!100100 SELECT 1 */") == Nothing()


def test_names_of_tables() -> None:
    in_shop = Variables(database="shop")
    for sql, table in (
        ("SHOW CREATE TABLE items", ("shop", "items")),
        ("SHOW CREATE TABLE vault . items", ("vault", "items")),
        ("SHOW CREATE TABLE `a``b`.`c.d`", ("a`b", "c.d")),
        ("SHOW CREATE TABLE `a';--`.`ü😀`", ("a';--", "ü😀")),
    ):
        assert parse_question(sql, in_shop) == ShowCreateTable(table)
    assert parse_question("USE `a``b`") == Use("a`b")
    tables = parse_question("SHOW TABLES")
    assert isinstance(tables, ShowTables)
    assert tables.database == ""


def test_double_quotes_follow_the_sql_mode_of_the_connection() -> None:
    variables = Variables()
    assert parse_question('SELECT "a"', variables) == Select((Item("a", Constant("a")),))
    variables.set_session("sql_mode", "ANSI_QUOTES", picture())
    with pytest.raises(WireError):
        parse_question('SELECT "a"', variables)
    assert parse_question('SHOW CREATE TABLE "a""b"."c"', variables) == ShowCreateTable(
        ('a"b', "c")
    )
    variables.set_session("sql_mode", "no_backslash_escapes", picture())
    assert parse_question(r"SELECT 'a\' x", variables) == Select(
        (Item("x", Constant("a\\"), alias=True),)
    )


def test_kill() -> None:
    assert parse_question("KILL 5") == parse_question("kill connection 5;") == Kill(5)


def test_scopes() -> None:
    assert parse_question("SELECT @@GLOBAL.Server_Id, @@LOCAL.`a`, @@b") == Select(
        (
            Item("@@GLOBAL.Server_Id", SystemVariable("global", "server_id")),
            Item("@@LOCAL.`a`", SystemVariable("session", "a")),
            Item("@@b", SystemVariable("", "b")),
        )
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 500_000,
        "SELECT " + "VERSION(" * 100_000,
        "SELECT " + "1," * 500_000 + "1",
        "SELECT " + "@a," * 300_000 + "@a",
        "SELECT " + "-" * 500_001 + "1",
        "SELECT '" + "''" * 500_000 + "'",
        "SELECT '" + "\\" * 500_001,
        "SELECT " + "'a' " * 250_000,
        "SELECT " + "`" * 999_999,
        "/*" * 500_000,
        "/*!" * 300_000,
        "/*!40000 " * 100_000,
        "/*!99999999 /*" * 70_000 + "*/" * 70_000,
        "SELECT 1" + " " * 1_000_000 + ";",
        "SHOW VARIABLES LIKE '" + "%a" * 500_000 + "'",
        "SHOW VARIABLES WHERE " + "a='b' OR " * 100_000 + "a='b'",
        "SHOW VARIABLES WHERE " + "(" * 500_000,
        "SHOW VARIABLES WHERE Variable_name IN (" + "'a'," * 200_000 + "'a')",
        "SET " + "@a=1," * 200_000 + "@a=1",
        "SET NAMES" + " a" * 500_000,
        "SHOW CREATE TABLE `" + "a" * 1_000_000 + "`",
        "SELECT @" + "a." * 500_000 + "a",
        ";" * 1_000_000,
        "\0" * 1_000_000,
        "SELECT " + "9" * 1_000_000,
    ],
    ids=lambda sql: sql[:24],
)
def test_a_mebibyte_is_read_in_linear_time(sql: str) -> None:
    """Otherwise the time limit of tests ends it."""
    with suppress(WireError):
        parse_question(sql)
