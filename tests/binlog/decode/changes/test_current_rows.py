"""Changes of a system-versioned table, reduced to its current rows; sequences are left out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.selected import (
    LayoutEvents,
    LayoutPlan,
    SelectedRows,
    selected_changes,
)
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.binlog.table_map.table_kind import SEQUENCE_COLUMNS, TableKind
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.rows_encoder import Delivered, Spec, integer, rows_body, table_map, timestamp2

WRITE, UPDATE, DELETE = 23, 24, 25
NOW, LATER = 1_700_000_000, 1_700_000_100
GREATEST = {"10.11": 0x7FFFFFFF, "11.8": 0xFFFFFFFF}
COLUMNS = [
    Spec("id", Type.LONG, nullable=False),
    *(Spec(name, Type.TIMESTAMP2, b"\6", nullable=False) for name in ("a", "z")),
]


def kind_field(kind: TableKind, *more: int) -> bytes:
    return bytes((0xBE, 1 + len(more), kind, *more))


def row(number: int, begin: int, end: int) -> list[bytes | None]:
    """`end`: 0 for a current row of 11.8, 1 for one of 10.11."""
    ends = {
        0: timestamp2(GREATEST["11.8"], 999_999, 6),
        1: timestamp2(GREATEST["10.11"], 999_999, 6),
    }
    return [integer(number, 4), timestamp2(begin, 5, 6), ends.get(end) or timestamp2(end, 5, 6)]


def log(*, kind: bytes) -> bytes:
    """What a server logs for INSERT, UPDATE, DELETE and DELETE HISTORY."""
    made = Delivered()
    columns = (19, table_map(COLUMNS, key=(0, 2), extra=kind))
    made.transaction(
        columns, (WRITE, rows_body(WRITE, [row(1, NOW, 0), row(2, NOW, 1), row(3, NOW, 0)]))
    )
    made.transaction(
        columns,
        (
            UPDATE,
            rows_body(UPDATE, [row(1, NOW, 0), row(1, LATER, 0), row(2, NOW, 1), row(2, LATER, 1)]),
        ),
        (WRITE, rows_body(WRITE, [row(1, NOW, LATER), row(2, NOW, LATER)])),
    )
    made.transaction(columns, (UPDATE, rows_body(UPDATE, [row(3, NOW, 0), row(3, NOW, LATER)])))
    made.transaction(columns, (DELETE, rows_body(DELETE, [row(1, NOW, LATER), row(2, NOW, LATER)])))
    made.transaction(
        columns, (WRITE, rows_body(WRITE, [row(9, NOW, LATER)]))
    )  # system_versioning_insert_history
    return made.bytes()


CURRENT = log(kind=kind_field(TableKind.VERSIONED, 2))


def found(data: bytes, *, all_versions: bool = False) -> list[tuple[str, int | None, int | None]]:
    parts = delivered.changes(data, all_versions=all_versions)
    rows = [
        r for part in parts if not isinstance(part, delivered.Ddl) for r in part.batch.to_pylist()
    ]
    return [(r["op"], *((r[side] or {}).get("id") for side in ("before", "after"))) for r in rows]


def test_only_changes_of_current_rows_are_left() -> None:
    assert found(CURRENT) == [
        ("insert", None, 1),
        ("insert", None, 2),
        ("insert", None, 3),
        ("update", 1, 1),
        ("update", 2, 2),
        ("delete", 3, None),
    ]


def test_all_versions_are_what_the_log_holds() -> None:
    assert len(found(CURRENT, all_versions=True)) == 3 + 4 + 1 + 2 + 1
    assert found(log(kind=kind_field(TableKind.TABLE))) == found(CURRENT, all_versions=True)


def test_a_table_whose_kind_is_unknown_is_refused() -> None:
    with pytest.raises(BinlogError) as refused:
        found(log(kind=b""))
    assert refused.value.kind is ErrorKind.METADATA_MISSING
    assert len(found(log(kind=b""), all_versions=True)) == 11


def test_slices_hold_all_versions_and_decode_to_the_current_rows() -> None:
    decoded = []
    for part in delivered.split_by_table(CURRENT, max_payload_bytes=1):
        assert isinstance(part, delivered.TableSlice)
        for batch in delivered.decode_table(part.payload):
            decoded += [(r["seq"], r["ordinal"]) for r in batch.to_pylist()]
    parts = delivered.changes(CURRENT)
    assert decoded == [
        (r["seq"], r["ordinal"])
        for part in parts
        if not isinstance(part, delivered.Ddl)
        for r in part.batch.to_pylist()
    ]


class Everything:
    """Selects all rows with the newest image."""

    def chosen_events(self, events: LayoutEvents) -> NDArray[np.bool_]:
        return np.ones(len(events.lines), np.bool_)

    def layout_plan(self, table_map: TableMap) -> LayoutPlan | None:
        return LayoutPlan(tuple(range(len(table_map.columns))), table_map.key, newest=True)

    def selects_statement(self, ddl: delivered.Ddl) -> bool:  # noqa: ARG002 - the protocol
        return False


def test_counts_of_a_transaction_are_those_of_its_current_rows() -> None:
    wanted = (Metadata.TRANSACTION_ROWS, Metadata.TRANSACTION_END)
    rows = [
        (op, image["id"], count, end)
        for part in selected_changes(CURRENT, Everything(), wanted)
        if isinstance(part, SelectedRows)
        for op, image, count, end in zip(
            part.batch.column("op").to_pylist(),
            part.batch.columns[-1].to_pylist(),
            part.metadata[Metadata.TRANSACTION_ROWS].to_pylist(),
            part.metadata[Metadata.TRANSACTION_END].to_pylist(),
            strict=True,
        )
    ]
    assert rows == [
        ("insert", 1, 3, False),
        ("insert", 2, 3, False),
        ("insert", 3, 3, True),
        ("update", 1, 2, False),
        ("update", 2, 2, True),
        ("delete", 3, 1, True),
    ]


def test_an_image_without_row_end_is_refused() -> None:
    made = Delivered()
    columns = (19, table_map(COLUMNS, key=(0, 2), extra=kind_field(TableKind.VERSIONED, 2)))
    partial = rows_body(WRITE, [[integer(1, 4), timestamp2(NOW, 5, 6)]], width=3, present=b"\3")
    made.transaction(columns, (WRITE, partial))
    with pytest.raises(BinlogError, match="lacks its column 'z'") as refused:
        found(made.bytes())
    assert refused.value.kind is ErrorKind.ROW_IMAGE


@pytest.mark.parametrize("kind", [TableKind.SEQUENCE, TableKind.TABLE])
def test_rows_of_a_sequence_are_left_out(kind: TableKind) -> None:
    columns = [Spec(name, Type.LONGLONG, nullable=False) for name in SEQUENCE_COLUMNS]
    made = Delivered()
    body = table_map(columns, key=(), extra=kind_field(kind))
    made.transaction((19, body), (WRITE, rows_body(WRITE, [[integer(n, 8) for n in range(8)]])))
    rows = list(delivered.changes(made.bytes()))
    slices = list(delivered.split_by_table(made.bytes()))
    assert len(rows) == len(slices) == (kind is TableKind.TABLE)
