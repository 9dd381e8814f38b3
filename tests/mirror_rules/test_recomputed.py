"""What the mirror knows about generated columns, and which statements it does not follow because of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dispatcher.binlog.sql.generated import GeneratedColumn
from dispatcher.binlog.table_map.column_types import InvalidDates
from spark_sink.mirror.rules.states import Creating, Live, State, Stopped
from spark_sink.mirror.rules.table_record import TableRecord, detail_json, with_detail
from spark_sink.mirror.rules.transitions import (
    DeltaWork,
    Situation,
    Transition,
    after_effect,
    after_gap,
    needs_copy,
    unknown_rows,
)
from spark_sink.mirror.schema.recomputed import Generated
from spark_sink.mirror.schema.statements import effects_of
from spark_sink.mirror.values.policies import TablePolicy, UnfollowedChange
from tests.mirror_rules.test_plan import entry, statement
from tests.mirror_rules.test_signature import signature
from tests.support.statements import UTF8, as_logged

NAME = ("db", "t")
COLUMNS = signature(
    id="int",
    a="int",
    e="enum('a','b')",
    s="varchar(9)",
    u="int unsigned",
    n="int",
    l="int",
    d="int",
)
G = GeneratedColumn
N_AND_L: Generated = (G("n", ("e", "0")), G("l", ("length", "s")))
OF_DEFAULT = G("d", ("default", "id"))


def situation(**policy: Any) -> Situation:
    return Situation("shop", "server", TablePolicy(**policy), True, InvalidDates.NULL)


def record(generated: Generated | None, state: State | None = None) -> TableRecord:
    columns = COLUMNS.to_json()
    return TableRecord(
        "id", "shop", *NAME, "db/t", state or Live(), signature=columns, generated=generated
    )


def after(
    before: TableRecord | None, query: str, now: Situation | None = None
) -> tuple[TableRecord, Transition]:
    (effect,) = effects_of(as_logged(query, "db", **UTF8))
    moved = after_effect(NAME, before, effect, statement(9), now or situation())
    assert moved.record is not None
    return moved.record, moved


@pytest.mark.parametrize(
    ("clauses", "column"),
    [
        ("MODIFY a BIGINT", ""),
        ("MODIFY e ENUM('b','a')", "n"),
        ("CHANGE e f ENUM('b','a')", "n"),
        ("MODIFY s VARCHAR(20)", "l"),
        ("MODIFY s VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "l"),
        ("CONVERT TO CHARACTER SET utf8mb4", "n"),
        ("RENAME COLUMN e TO f", ""),
        ("DROP n, MODIFY e ENUM('b','a','c')", ""),
        ("ADD x INT, DROP a", ""),
        ("MODIFY u INT UNSIGNED COMMENT 'x'", ""),
        ("MODIFY id INT DEFAULT 5", "d"),
        ("MODIFY a INT DEFAULT 5", ""),
    ],
)
def test_a_table_is_copied_if_a_generated_column_is_computed_again(
    clauses: str, column: str
) -> None:
    now = situation(unfollowed=UnfollowedChange.NEW_COLUMN)
    for policy in (situation(), now):
        _, moved = after(record((*N_AND_L, OF_DEFAULT)), f"ALTER TABLE t {clauses}", policy)
        if column:
            assert f"the generated column {column} is computed again" in moved.recopy
        else:
            assert (moved.recopy, moved.work) == ("", DeltaWork.SCHEMA)


@pytest.mark.parametrize(
    ("clauses", "copied"),
    [
        ("MODIFY a INT COMMENT 'x'", False),
        ("ADD x INT, DROP a, RENAME COLUMN s TO t", False),
        ("MODIFY a BIGINT", True),
        ("MODIFY u INT UNSIGNED", True),  # it may have had ZEROFILL
        ("MODIFY s VARCHAR(9)", True),
    ],
)
def test_where_generated_columns_are_not_known_types_stay(clauses: str, copied: bool) -> None:
    _, moved = after(record(None), f"ALTER TABLE t {clauses}")
    assert bool(moved.recopy) == copied
    for known in (record(()), record(None, Live(complete=False))):
        _, moved = after(known, f"ALTER TABLE t {clauses}")
        assert moved.recopy == ""


def test_columns_that_the_mirror_leaves_out_do_not_matter() -> None:
    omitted = (G("elsewhere", ("a",)), G("unknown", None))
    _, moved = after(record(omitted), "ALTER TABLE t MODIFY a BIGINT")
    assert moved.recopy == ""
    _, moved = after(record((G("l", ("é",)),)), "ALTER TABLE t MODIFY a BIGINT")
    assert "the generated column l" in moved.recopy
    _, moved = after(record((G("l", None),)), "ALTER TABLE t MODIFY a BIGINT")
    assert "the generated column l" in moved.recopy


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("CREATE TABLE t (a INT, g INT AS (a))", (G("g", ("a",)),)),
        ("CREATE TABLE t (a INT)", ()),
        ("CREATE TABLE t LIKE u", None),
        ("TRUNCATE TABLE t", N_AND_L),
        ("DROP TABLE t", None),
        ("ALTER TABLE t RENAME COLUMN e TO f", (G("n", ("f", "0")), N_AND_L[1])),
        ("ALTER TABLE t CHANGE s T VARCHAR(9), DROP n", (G("l", ("length", "t")),)),
        ("ALTER TABLE t RENAME COLUMN l TO m, RENAME COLUMN n TO l", (G("l", ("e", "0")), G("m", ("length", "s")))),
        ("ALTER TABLE t MODIFY n INT", (N_AND_L[1],)),
        ("ALTER TABLE t MODIFY n INT AS (e + 1)", (G("n", None), N_AND_L[1])),
        ("ALTER TABLE t ADD g INT AS (a)", (*N_AND_L, G("g", None))),
        ("ALTER TABLE t TRUNCATE PARTITION p", None),
    ],
)  # fmt: skip
def test_the_generated_columns_after_a_statement(query: str, expected: Generated | None) -> None:
    found, _ = after(record(N_AND_L), query)
    assert found.generated == expected


def test_after_doubt_the_generated_columns_are_not_known() -> None:
    known = record(N_AND_L)
    assert after_gap(known, entry(9), situation()).generated is None
    assert unknown_rows(NAME, None, entry(9), situation()).generated is None
    for now in (situation(), situation(unfollowed=UnfollowedChange.STOP)):
        standing = needs_copy(replace(known, generated=None), "x", 9, now)
        assert isinstance(standing.state, Creating | Stopped) and standing.generated is None


@pytest.mark.parametrize("generated", [None, (), N_AND_L, (G("g", None),)])
def test_the_control_table_keeps_them(generated: Generated | None) -> None:
    kept = record(generated)
    detail = detail_json(kept)
    plain = replace(kept, generated=None)
    assert with_detail(plain, detail).generated == generated
