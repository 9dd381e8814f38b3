"""The generated columns that a CREATE TABLE defines."""

from __future__ import annotations

import pytest

from dispatcher.binlog.sql.generated import GeneratedColumn, generated_in
from dispatcher.binlog.sql.lexer import ANSI_QUOTES
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.statement import parse_statement
from tests.support.statements import as_logged


def found_in(statement: LoggedStatement) -> tuple[GeneratedColumn, ...] | None:
    create = parse_statement(statement).create
    return None if create is None else generated_in(statement, create)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("(a INT, b VARCHAR(9) DEFAULT 'as (x)' COMMENT 'g INT AS (a)')", {}),
        ("(a INT, g INT AS (a + 1))", {"g": "a"}),
        ("(a INT, g INT GENERATED ALWAYS AS (A) VIRTUAL NOT NULL, b INT)", {"g": "a"}),
        ("(`a b` INT, `g``h` INT AS (length(concat(`a b`, t.`A B`, 'c'))) STORED)", {"g`h": "length concat a b t"}),
        ("(a INT, g INT AS (a), h INT AS (g) PERSISTENT UNIQUE, PRIMARY KEY (a))", {"g": "a", "h": "g"}),
        ("(a INT, b INT DEFAULT (CAST(a AS CHAR)), CHECK (CAST(a AS CHAR) > 1))", {}),
        ("(j JSON, KEY k ((CAST(j->'$.a' AS UNSIGNED ARRAY))), d DECIMAL(5,2))", {}),
        ("(a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, PERIOD FOR SYSTEM_TIME (s, e))", {}),
        ("(`as` INT, `generated` INT) COMMENT='x'", {}),
    ],
)  # fmt: skip
def test_the_columns_of_a_definition(body: str, expected: dict[str, str]) -> None:
    found = found_in(as_logged(f"CREATE TABLE IF NOT EXISTS db.t {body}"))
    assert found is not None
    assert {c.name: " ".join(c.sources or ()) for c in found} == expected


def test_the_settings_of_one_statement_precede_it() -> None:
    query = (
        "SET STATEMENT lock_wait_timeout = 1 FOR CREATE OR REPLACE TABLE t (a INT, g INT AS (a))"
    )
    found = found_in(as_logged(query))
    assert found is not None and [column.name for column in found] == ["g"]


def test_names_in_double_quotes() -> None:
    query = 'CREATE TABLE t ("a" INT, "g" INT AS ("a" + 1))'
    found = found_in(as_logged(query, sql_mode=ANSI_QUOTES))
    assert found is not None and [(c.name, c.sources) for c in found] == [("g", ("a",))]


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE t LIKE u",
        "CREATE TABLE t (LIKE u)",
        "CREATE TABLE t",
        "CREATE TABLE t (a INT, g INT AS a)",
        "CREATE TABLE t (a INT, g INT AS (a",
        "CREATE TABLE t (a INT, g INT AS ('a))",
        "ALTER TABLE t ADD g INT AS (a)",
        "DROP TABLE t",
    ],
)
def test_a_statement_that_does_not_tell_them(query: str) -> None:
    assert found_in(as_logged(query)) is None
