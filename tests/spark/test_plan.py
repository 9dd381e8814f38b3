"""The steps of a batch, and the last event of each key of its changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.decode.missing_columns import NAMES
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.batch_keyed import key_events, require_columns
from spark_sink.mirror.batch_plan import RawEntry, RowRun, Statement, steps
from spark_sink.mirror.names import folder_name, name_of_folder
from spark_sink.mirror.statements import MirrorAction, MirrorChange, changes_of


def entry(
    number: int,
    table: str,
    first: int,
    last: int,
    *,
    layout: str = "a",
    ddl: str = "",
    epoch: int = 1,
) -> RawEntry:
    return RawEntry(
        number, "db", table, layout, epoch, first, last, last - first + 1, b"", 10, ddl, 0, "f:1"
    )


def no_tables(_: str) -> Iterable[str]:
    return ()


def described(its: Sequence[RowRun | Statement]) -> list[Any]:
    return [
        (step.seq, step.entries) if isinstance(step, RowRun) else (step.seq, step.change.action)
        for step in its
    ]


def test_runs_end_at_statements_that_concern_the_table_at_layouts_and_at_epochs() -> None:
    plan = steps(
        [
            entry(5, "t", 12, 14, layout="b"),
            entry(0, "t", 1, 3),
            entry(1, "u", 1, 2),
            entry(2, "t", 3, 7),
            entry(3, "", 8, 8, ddl="TRUNCATE u"),
            entry(4, "t", 9, 11),
            entry(6, "u", 12, 12),
            entry(7, "", 15, 15, ddl="GRANT SELECT ON *.* TO x"),
            entry(8, "", 16, 16, ddl="DROP TABLE t"),
            entry(9, "t", 1, 1, epoch=2),
        ],
        changes_of,
        no_tables,
    )
    assert list(plan) == [("db", "t"), ("db", "u")]
    assert described(plan["db", "t"]) == [
        (11, [0, 2, 4]),
        (14, [5]),
        (16, MirrorAction.EMPTY),
        (1, [9]),
    ]
    assert described(plan["db", "u"]) == [(2, [1]), (8, MirrorAction.EMPTY), (12, [6])]


def test_a_dropped_database_concerns_mirrored_and_planned_tables() -> None:
    plan = steps(
        [entry(0, "new", 1, 1), entry(1, "", 2, 2, ddl="DROP DATABASE db")],
        changes_of,
        lambda database: ["old", "new"] if database == "db" else [],
    )
    assert described(plan["db", "new"]) == [(1, [0]), (2, MirrorAction.EMPTY)]
    assert described(plan["db", "old"]) == [(2, MirrorAction.EMPTY)]


def test_two_layouts_in_one_transaction_are_refused() -> None:
    with pytest.raises(BinlogError) as caught:
        steps([entry(0, "t", 1, 2), entry(1, "t", 2, 2, layout="b")], changes_of, no_tables)
    assert caught.value.kind is ErrorKind.UNSUPPORTED_CHANGE
    assert "db.t" in str(caught.value)


def test_a_table_named_twice_in_one_statement() -> None:
    plan = steps([entry(0, "", 2, 2, ddl="DROP TABLE t, t")], changes_of, no_tables)
    assert [step.seq for step in plan["db", "t"]] == [2, 2]


def test_change_of_all_tables_names_none() -> None:
    assert changes_of("DROP DATABASE x", "") == [MirrorChange(MirrorAction.EMPTY, "x")]


# -- keys -------------------------------------------------------------------------------------------------------

ROW = pa.struct([pa.field("id", pa.int64()), pa.field("name", pa.string())])
CHANGES = pa.schema(
    [
        pa.field("seq", pa.int64()),
        pa.field("ordinal", pa.int64()),
        pa.field("database", pa.string()),
        pa.field("table", pa.string()),
        pa.field("op", pa.string()),
        pa.field("before_absent", NAMES),
        pa.field("after_absent", NAMES),
        pa.field("before", ROW),
        pa.field("after", ROW),
    ]
)
Image = dict[str, Any] | None


def changes(*rows: tuple[str, Image, Image]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"seq": i, "ordinal": 0, "op": op, "before": before, "after": after}
            for i, (op, before, after) in enumerate(rows)
        ],
        schema=CHANGES,
    )


def apply(batch: pa.RecordBatch) -> dict[int, Any]:
    """The target after the last event of each key."""
    last: dict[int, Any] = {}
    for event in sorted(batch.to_pylist(), key=lambda e: (e["seq"], e["ordinal"], e["part"])):
        last[event["key"]["id"]] = None if event["deleted"] else event["row"]
    return {key: row for key, row in last.items() if row is not None}


def test_an_update_that_moves_a_row_takes_the_old_key_away() -> None:
    a, b = {"id": 1, "name": "a"}, {"id": 2, "name": "a"}
    batch = key_events(changes(("update", a, b)), ["id"])
    assert sorted(
        (event["key"]["id"], event["part"], event["deleted"]) for event in batch.to_pylist()
    ) == [(1, 0, True), (2, 1, False)]


def test_no_changes_are_no_events() -> None:
    assert key_events(changes(), ["id"]).num_rows == 0


def test_a_key_that_is_null_cannot_be_mirrored() -> None:
    with pytest.raises(BinlogError) as caught:
        key_events(changes(("insert", None, {"id": None, "name": "a"})), ["id"])
    assert caught.value.kind is ErrorKind.INVALID_VALUE


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        (None, None, True),
        (["name"], None, True),
        (["id"], None, False),
        (["name"], ["id"], False),
        (None, ["name"], False),
    ],
)
def test_rows_must_hold_their_key_and_all_written_columns(
    before: list[str] | None, after: list[str] | None, whole: bool
) -> None:
    row = {"id": 1, "name": "a"}
    first, second = changes(("update", row, row), ("update", row, row)).to_pylist()
    second |= {"database": "shop", "table": "t", "before_absent": before, "after_absent": after}
    batch = pa.RecordBatch.from_pylist([first, second], schema=CHANGES)
    if whole:
        require_columns(batch, ["id"])
        return
    with pytest.raises(BinlogError, match=r"rows of table shop\.t") as caught:
        require_columns(batch, ["id"])
    assert (caught.value.kind, caught.value.where) == (ErrorKind.ROW_IMAGE, "seq 1")
    assert "binlog_row_image=FULL" in caught.value.remedy


operation = st.tuples(
    st.sampled_from(["insert", "update", "delete"]), st.integers(0, 4), st.integers(0, 4)
)


@given(st.lists(operation, max_size=30))
def test_the_last_event_of_each_key_is_the_table(operations: list[tuple[str, int, int]]) -> None:
    table: dict[int, Any] = {}
    history: list[tuple[str, Image, Image]] = []
    for number, (op, key, other) in enumerate(operations):
        row = {"id": key, "name": str(number)}
        if op == "insert" and key not in table:
            history.append((op, None, row))
            table[key] = row
        elif op == "delete" and key in table:
            history.append((op, table.pop(key), None))
        elif op == "update" and key in table and (other == key or other not in table):
            moved = {"id": other, "name": str(number)}
            history.append((op, table.pop(key), moved))
            table[other] = moved
    assert apply(key_events(changes(*history), ["id"])) == table


@given(st.text(min_size=1))
def test_folder_names_are_safe_and_invertible(name: str) -> None:
    there = folder_name(name)
    assert name_of_folder(there) == name
    assert not set(there) & set("/\\.:*?[]{}`~\0\n")


def test_plain_names_are_their_own_folder_names() -> None:
    assert [folder_name(name) for name in ("orders", "Größe 2", "a$b-c_d", "..")] == [
        "orders",
        "Größe 2",
        "a$b-c_d",
        "%2E%2E",
    ]
