"""Facts of the session on which fills and conversions depend, and what follows if the log does not hold them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatcher.binlog.sql.lexer import STRICT_TRANS_TABLES
from dispatcher.binlog.table_map.column_types import InvalidDates
from spark_sink.mirror.schema.fills import FillValue
from spark_sink.mirror.schema.session_facts import EMPTY_STRING_IS_NULL
from spark_sink.mirror.schema.signature import Recopy, Signature, change_of
from spark_sink.mirror.schema.statements import AlterTable, effects_of
from tests.mirror_rules.test_signature import signature
from tests.support.statements import UTF8, as_logged


@pytest.mark.parametrize(
    ("facts", "clauses", "why"),
    [
        ({"unknown_variable": 200}, "ADD c INT", "status variable 200"),
        ({"unknown_variable": 200}, "MODIFY a BIGINT", "status variable 200"),
        ({"unknown_variable": 200}, "CONVERT TO CHARACTER SET utf8mb4", "status variable 200"),
        ({"unknown_variable": 200}, "DROP a", ""),
        ({"client": 0}, "ADD c CHAR(3) DEFAULT 'a'", "does not hold the character sets"),
        ({"connection": 0}, "ADD c CHAR(3) DEFAULT 'a'", "does not hold the character sets"),
        ({"client": 0, "connection": 0}, "ADD c INT DEFAULT 5", ""),
        ({"connection": 8}, "ADD c CHAR(3) DEFAULT 'é'", "latin1, the character set of collation_"),
        ({"connection": 8}, "ADD c CHAR(3) DEFAULT 'e'", ""),
        ({"connection": 8}, "MODIFY e ENUM('a','é')", "latin1, the character set of collation_"),
        ({"connection": 8}, "MODIFY e ENUM('a','b','c')", ""),
        ({"connection": 54}, "ADD c BINARY(3) DEFAULT 'e'", "bytes of a text"),
        ({"connection": 54}, "ADD c CHAR(3) DEFAULT 'é'", ""),
        ({"connection": 33}, "ADD c CHAR(3) DEFAULT '日'", ""),
        ({"connection": 33}, "ADD c CHAR(3) DEFAULT '😀'", "utf8mb3, the character set"),
        ({"connection": 10}, "ADD c CHAR(3) DEFAULT '{'", "swe7, the character set"),
        ({"connection": 63}, "ADD c CHAR(3) DEFAULT 'e'", "whose character set is not known"),
        ({}, "ADD c CHAR(3) DEFAULT '\ufffd'", "whose character set is not known"),
        ({"connection": 9999}, "ADD c CHAR(3) DEFAULT 'é'", "of collation 9999"),
        ({"time_zone": "SYSTEM"}, "ADD c TIMESTAMP NULL DEFAULT '2024-01-01'", "time zone"),
        ({"time_zone": None}, "ADD c TIMESTAMP NULL DEFAULT '2024-01-01'", "time zone"),
        ({"explicit_defaults_for_timestamp": None}, "ADD c TIMESTAMP", "a TIMESTAMP without"),
        ({"explicit_defaults_for_timestamp": False}, "MODIFY ts TIMESTAMP", "a TIMESTAMP without"),
        ({"explicit_defaults_for_timestamp": True}, "MODIFY ts TIMESTAMP", ""),
    ],
)
def test_a_fact_that_the_log_does_not_hold(facts: dict[str, Any], clauses: str, why: str) -> None:
    old = signature(id="int", a="int", e="enum('a','b')", ts="timestamp")
    query = as_logged(f"ALTER TABLE t {clauses}", "db", STRICT_TRANS_TABLES, **UTF8)
    query = replace(query, facts=replace(query.facts, **facts))
    (effect,) = effects_of(query)
    assert isinstance(effect, AlterTable)
    change = change_of(old, effect, InvalidDates.NULL, ())
    if why:
        assert isinstance(change, Recopy) and why in change.reason
    else:
        assert not isinstance(change, Recopy), change


def filled(definition: str, sql_mode: int = 0, **facts: Any) -> FillValue:
    session = UTF8 | facts
    (effect,) = effects_of(
        as_logged(f"ALTER TABLE t ADD c {definition}", "db", sql_mode, **session)
    )
    assert isinstance(effect, AlterTable)
    change = change_of(Signature(()), effect, InvalidDates.NULL, ())
    assert not isinstance(change, Recopy), change.reason
    return change.columns[0].fill


def test_a_time_is_converted_from_the_sessions_offset() -> None:
    moment = datetime(2024, 1, 1, 1, 0, 0, 500000, tzinfo=UTC) - timedelta(hours=5, minutes=45)
    definition = "TIMESTAMP(2) NULL DEFAULT '2024-01-01 01:00:00.5'"
    assert filled(definition, time_zone="+05:45") == moment


@pytest.mark.parametrize(
    ("definition", "facts", "expected"),
    [
        ("CHAR(3) DEFAULT ''", {"sql_mode": EMPTY_STRING_IS_NULL, "mariadb": True}, None),
        ("CHAR(3) DEFAULT ''", {"sql_mode": EMPTY_STRING_IS_NULL}, ""),
        ("CHAR(3) DEFAULT ''", {"mariadb": True}, ""),
        ("BLOB DEFAULT 'a'", {"connection": 8, "mariadb": True}, b"a"),
        ("CHAR(3) DEFAULT 'é'", {"connection": 8, "client": 8}, "é"),
    ],
)
def test_what_a_literal_means(definition: str, facts: dict[str, Any], expected: FillValue) -> None:
    assert filled(definition, **facts) == expected
