"""Which TABLE_MAPs lack the kind of their table, and how the daemon writes it."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.binlog.table_map.enrich import Lacks, enriched_body, lacks
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.binlog.table_map.table_kind import (
    SEQUENCE_COLUMNS,
    TableKind,
    sequence_definition,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.rows_encoder import Spec, table_map

TINY, INT, BIGINT, TIMESTAMP = 1, 3, 8, 17
SIX = b"\6"
ID = Spec("id", INT, nullable=False)
START, END = (Spec(name, TIMESTAMP, SIX, nullable=False) for name in ("row_start", "row_end"))
SEQUENCE = [
    Spec(
        name,
        TINY if name == "cycle_option" else BIGINT,
        nullable=False,
        unsigned=name.startswith("c") and "count" not in name,
    )
    for name in SEQUENCE_COLUMNS
]
TIME = {"mysql_type": "timestamp(6)", "nullable": False, "charset": None, "visible": False}
VERSIONED: dict[str, Any] = {
    "database": "shop", "table": "orders",
    "columns": [
        {"name": "id", "mysql_type": "int", "nullable": False, "charset": None},
        {"name": "row_start", **TIME}, {"name": "row_end", **TIME},
    ],
    "primary": [["id", 0], ["row_end", 0]], "kind": "versioned", "row_end": "row_end",
}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "key", "expected"),
    [
        (SEQUENCE, (), Lacks.KIND),
        (SEQUENCE, (0,), Lacks.NOTHING),
        (SEQUENCE[:-1], (), Lacks.NOTHING),
        ([*SEQUENCE[:-1], Spec("cycle_count", BIGINT)], (), Lacks.NOTHING),
        ([ID, START, END], (0, 2), Lacks.KIND),
        ([START, END, ID], (), Lacks.KIND),
        ([ID, START, END], (0,), Lacks.NOTHING),
        ([ID, START], (), Lacks.NOTHING),
        ([ID, START, Spec("row_end", TIMESTAMP, SIX)], (), Lacks.NOTHING),
        ([ID, START, Spec("row_end", TIMESTAMP, b"\3", nullable=False)], (), Lacks.NOTHING),
    ],
)
def test_only_a_table_that_could_be_special_lacks_its_kind(
    columns: list[Spec], key: tuple[int, ...], expected: Lacks
) -> None:
    body = table_map(columns, key=key)
    assert lacks(body, mariadb=True) is expected
    assert lacks(body, mariadb=False) is Lacks.NOTHING
    doubtful = TableMap.parse(body).kind is TableKind.DOUBT
    assert doubtful == (expected is Lacks.KIND)


def test_a_table_in_doubt_is_refused() -> None:
    parsed = TableMap.parse(table_map(SEQUENCE, key=()))
    with pytest.raises(
        BinlogError, match=r"does not show whether shop\.orders is a table"
    ) as refused:
        parsed.require_kind()
    assert refused.value.kind is ErrorKind.METADATA_MISSING
    parsed.with_all_versions().require_kind()


def test_the_definition_tells_the_kind() -> None:
    sequence = sequence_definition("shop", "orders")
    body = enriched_body(table_map(SEQUENCE, key=()), sequence, mariadb=True)
    assert TableMap.parse(body).kind is TableKind.SEQUENCE
    assert lacks(body, mariadb=True) is Lacks.NOTHING
    lookalike = enriched_body(
        table_map(SEQUENCE, key=()), sequence | {"kind": "table"}, mariadb=True
    )
    assert TableMap.parse(lookalike).kind is TableKind.TABLE
    TableMap.parse(lookalike).require_kind()
    versioned = TableMap.parse(
        enriched_body(table_map([ID, START, END], key=(0, 2)), VERSIONED, mariadb=True)
    )
    assert (versioned.kind, versioned.row_end) == (TableKind.VERSIONED, 2)


def test_a_log_without_names_gets_names_and_kind() -> None:
    bare = table_map(SEQUENCE, key=(), full=False)
    assert lacks(bare, mariadb=True) is Lacks.COLUMNS
    parsed = TableMap.parse(
        enriched_body(bare, sequence_definition("shop", "orders"), mariadb=True)
    )
    assert parsed.kind is TableKind.SEQUENCE
    assert parsed.columns == TableMap.parse(table_map(SEQUENCE, key=())).columns


def test_a_definition_without_a_kind_proves_nothing() -> None:
    body = table_map([ID, START, END], key=(0, 2))
    silent = {name: value for name, value in VERSIONED.items() if name != "kind"}
    assert enriched_body(body, silent, mariadb=True) == body


@pytest.mark.parametrize(
    ("value", "why"),
    [(b"\7", "kind 7"), (b"\2\3", "column 4 of 3"), (b"\2", "reads past|ends|cut|byte|TABLE_MAP")],
)
def test_a_damaged_kind_is_malformed(value: bytes, why: str) -> None:
    field = bytes((0xBE, len(value))) + value
    with pytest.raises(BinlogError, match=why) as refused:
        TableMap.parse(table_map([ID, START, END], key=(0, 2), extra=field))
    assert refused.value.kind is ErrorKind.MALFORMED_EVENT
