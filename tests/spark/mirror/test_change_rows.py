"""Changes in several layouts as rows of one schema, and the ends of transactions, for any division into batches."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.schema.change_rows import (
    LayoutRows,
    change_rows,
    changelog_schema,
    joint_row,
)
from tests.spark.mirror.test_keyed import CHANGES, ROW

ENVELOPE = [
    pa.field("epoch", pa.int64()),
    pa.field("ordinal", pa.int64()),
    pa.field("file", pa.string()),
    pa.field("pos", pa.int64()),
]


def layout(first: int, last: int, **types: pa.DataType) -> LayoutRows:
    return LayoutRows(pa.struct([pa.field(n, kind) for n, kind in types.items()]), first, last)


def changes(*seqs: int, row: pa.StructType = ROW, value: Any = None) -> pa.RecordBatch:
    fields = [f for f in CHANGES if f.name not in ("before", "after")]
    schema = pa.schema([*ENVELOPE, *fields, pa.field("before", row), pa.field("after", row)])
    rows = [{"seq": seq, "op": "insert", "after": value} for seq in seqs]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def test_a_column_gets_a_type_that_holds_all_its_values() -> None:
    older = layout(
        1, 9, ID=pa.int32(), gone=pa.string(), f=pa.float32(), d=pa.decimal128(5, 2), n=pa.int16()
    )
    newer = layout(
        10, 20, d=pa.decimal128(9, 4), id=pa.int64(), f=pa.float64(), n=pa.decimal128(20, 0)
    )
    row = joint_row([older, newer], "shop.t")
    assert [field.name for field in row] == ["d", "id", "f", "n", "gone"]
    assert {field.name: str(field.type) for field in row} == {
        "d": "decimal128(9, 4)",
        "id": "int64",
        "f": "double",
        "n": "decimal128(20, 0)",
        "gone": "string",
    }
    assert joint_row([newer, older], "shop.t").equals(row)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (pa.int64(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.decimal128(38, 0), pa.decimal128(38, 10)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    ],
)
def test_types_that_no_type_holds_are_refused_with_the_entry_between_them(
    older: pa.DataType, newer: pa.DataType
) -> None:
    with pytest.raises(BinlogError) as error:
        joint_row([layout(1, 9, v=older), layout(10, 20, v=newer)], "shop.t")
    assert error.value.kind is ErrorKind.UNSUPPORTED_CHANGE
    for part in ("column 'v' of table shop.t", str(older), str(newer), "--to 10", "--from 10"):
        assert part in str(error.value)


def test_rows_of_an_older_layout_have_null_in_the_columns_that_they_lack() -> None:
    old = pa.struct([pa.field("V", pa.int32()), pa.field("id", pa.int32())])
    new = pa.struct([pa.field("id", pa.int64()), pa.field("v", pa.int64()), pa.field("w", ROW)])
    schema = changelog_schema(new)
    batch = changes(1, 2, 3, row=old, value={"id": 1, "V": 2})
    (made,) = change_rows([batch.slice(1)], 7, schema, goes_on=False)
    assert made.schema.equals(schema)
    assert made.column("before").to_pylist() == [None, None]
    assert made.column("after").to_pylist() == [{"id": 1, "v": 2, "w": None}] * 2
    assert made.column("lsn").to_pylist() == [7, 7]


@given(st.lists(st.integers(0, 3), max_size=12), st.data())
def test_positions_and_ends_of_transactions_in_any_cut(
    steps: list[int], data: st.DataObject
) -> None:
    seqs = [sum(steps[: i + 1]) for i in range(len(steps))]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(seqs)), max_size=3)))
    goes_on = data.draw(st.booleans())
    bounds = [0, *cuts, len(seqs)]
    batches = [changes(*seqs[a:z]) for a, z in itertools.pairwise(bounds)]
    made = list(change_rows(batches, 1, changelog_schema(ROW), goes_on=goes_on))
    rows = [row for batch in made for row in batch.to_pylist()]
    assert [row["seq"] for row in rows] == seqs
    assert [row["position"] for row in rows] == list(range(len(seqs)))
    following = [*seqs[1:], seqs[-1] if goes_on else None] if seqs else []
    assert [row["transaction_end"] for row in rows] == [
        seq != after for seq, after in zip(seqs, following, strict=True)
    ]
