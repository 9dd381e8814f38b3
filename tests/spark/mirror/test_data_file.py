"""Data files that the driver writes contain the rows, and their statistics exclude no row."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sink.mirror.lake.data_file import (
    StoredColumn,
    fits_into,
    may_hold,
    parquet_file,
    read_rows,
    statistics,
    stored_columns,
    without_keys,
)
from spark_sink.mirror.tables.keyed import key_range

_MOMENTS = st.datetimes(min_value=datetime.fromisoformat("1000-01-01"))
_VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "byte": (pa.int8(), st.integers(-128, 127)),
    "long": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "decimal(20,2)": (
        pa.decimal128(20, 2),
        st.decimals(-(10**17), 10**17, places=2, allow_nan=False),
    ),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=40)),
    "binary": (pa.binary(), st.binary(max_size=9)),
    "date": (pa.date32(), st.dates(date(1000, 1, 1))),
    "timestamp_ntz": (pa.timestamp("us"), _MOMENTS),
    "timestamp": (pa.timestamp("us", "UTC"), _MOMENTS.map(lambda t: t.replace(tzinfo=UTC))),
}


def field(name: str, kind: object, **metadata: object) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


COLUMNS = stored_columns(
    [
        field(
            f"column {kind}",
            kind,
            **{"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"p{number}"},
        )
        for number, kind in enumerate(_VALUES, 1)
    ]
)
assert COLUMNS is not None


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    assert COLUMNS is not None
    return pa.table(
        [pa.array([row[i] for row in rows], column.kind) for i, column in enumerate(COLUMNS)],
        names=[column.name for column in COLUMNS],
    )


ROWS = st.lists(
    st.tuples(*(st.none() | values for _, values in _VALUES.values())), min_size=1, max_size=6
).map(table_of)


@given(ROWS)
def test_rows_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: pa.Table
) -> None:
    assert COLUMNS is not None
    file = tmp_path_factory.getbasetemp() / "rows.parquet"
    file.write_bytes(parquet_file(rows, COLUMNS, "4.2.0"))
    stored = pq.read_schema(file)
    assert stored.names == [column.physical_name for column in COLUMNS]
    assert [int(f.metadata[b"PARQUET:field_id"]) for f in stored] == [c.field_id for c in COLUMNS]
    found = read_rows(str(file), COLUMNS, 1 << 30)
    assert found is not None
    assert found.equals(rows)


@given(ROWS)
def test_statistics_bound_all_values(rows: pa.Table) -> None:
    assert COLUMNS is not None
    known = json.loads(statistics(rows, COLUMNS), parse_float=Decimal)
    assert known["numRecords"] == rows.num_rows
    for column in COLUMNS:
        name, values = column.physical_name, rows.column(column.name)
        assert known["nullCount"][name] == values.null_count
        if name not in known["minValues"]:
            continue
        low, high = known["minValues"][name], known["maxValues"][name]
        for value in values.drop_null().to_pylist():
            match value:
                case datetime():
                    kept = value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=None)
                    text = kept.isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
                    assert low <= text <= high
                case date():
                    assert low <= value.isoformat() <= high
                case str():
                    assert low.encode() <= value.encode() <= high.encode()
                case _:
                    assert low <= value <= high


@given(
    st.lists(st.dates(date(1000, 1, 1)), min_size=1, max_size=4),
    st.lists(st.dates(date(1000, 1, 1)), min_size=1, max_size=4),
    st.booleans(),
)
def test_a_file_that_holds_a_key_is_never_left_out(
    stored: list[date], keys: list[date], share: bool
) -> None:
    if share:
        keys = [*keys, stored[0]]
    column = StoredColumn("d", pa.date32(), "p", 1)
    stats = json.loads(statistics(pa.table({"d": pa.array(stored)}), [column]))
    bounds = key_range(pa.chunked_array([keys]))
    assert bounds is not None
    if set(stored) & set(keys):
        assert may_hold(stats, "p", *bounds)
    apart = min(stored) > max(keys) or max(stored) < min(keys)
    assert may_hold(stats, "p", *bounds) is not apart


def test_a_file_without_statistics_may_hold_every_key() -> None:
    assert may_hold({}, "p", 1, 2)
    assert may_hold({"minValues": {"p": "text"}, "maxValues": {"p": "text"}}, "p", 1, 2)
    decimals = {"minValues": {"p": Decimal("1.5")}, "maxValues": {"p": Decimal("2.5")}}
    assert may_hold(decimals, "p", Decimal("2.5"), Decimal(9))
    assert not may_hold(decimals, "p", Decimal("2.51"), Decimal(9))


_KEYS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "A"])), max_size=8)


@given(_KEYS, _KEYS, st.booleans())
def test_rows_with_the_keys_are_left_out(
    rows: list[tuple[int, str]], keys: list[tuple[int, str]], both: bool
) -> None:
    names = ["i", "s"] if both else ["s"]

    def of(values: list[tuple[int, str]]) -> pa.Table:
        i, s = [v[0] for v in values], [v[1] for v in values]
        return pa.table({"i": pa.array(i, pa.int64()), "s": pa.array(s, pa.string())})

    numbered = of(rows).append_column("n", pa.array(range(len(rows)), pa.int64()))
    found = without_keys(numbered, of(keys).select(names))
    gone = {key if both else key[1] for key in keys}
    kept = [n for n, row in enumerate(rows) if (row if both else row[1]) not in gone]
    assert found.column("n").to_pylist() == kept


def test_columns_of_older_files_have_their_present_types(tmp_path: Path) -> None:
    old = [StoredColumn("i", pa.int32(), "p1", 1), StoredColumn("d", pa.date32(), "p2", 2)]
    file = tmp_path / "old.parquet"
    rows = pa.table({"i": pa.array([7], pa.int32()), "d": [date(2024, 2, 29)]})
    file.write_bytes(parquet_file(rows, old, "4.2.0"))
    now = (
        StoredColumn("day", pa.timestamp("us"), "p2", 2),
        StoredColumn("added", pa.string(), "p3", 3),
        StoredColumn("i", pa.int64(), "p1", 1),
    )
    found = read_rows(str(file), now, 1 << 30)
    assert found is not None
    assert found.to_pylist() == [
        {"day": datetime.fromisoformat("2024-02-29"), "added": None, "i": 7}
    ]
    assert [f.type for f in found.schema] == [column.kind for column in now]


def test_files_in_the_julian_calendar_are_left_to_spark(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("p1", pa.date32())])
    schema = schema.with_metadata({"org.apache.spark.legacyDateTime": ""})
    pq.write_table(pa.table([[date(1500, 1, 1)]], schema=schema), tmp_path / "f.parquet")
    columns = [StoredColumn("d", pa.date32(), "p1", 1)]
    assert read_rows(str(tmp_path / "f.parquet"), columns, 1 << 30) is None


def test_a_file_that_unpacks_to_too_much_is_not_read(tmp_path: Path) -> None:
    columns = [StoredColumn("t", pa.string(), "p1", 1)]
    file = tmp_path / "f.parquet"
    file.write_bytes(parquet_file(pa.table({"t": ["a" * 100_000]}), columns, "4.2.0"))
    assert file.stat().st_size < 10_000
    assert read_rows(str(file), columns, 10_000) is None
    found = read_rows(str(file), columns, 1 << 20)
    assert found is not None and found.num_rows == 1


@pytest.mark.parametrize(
    "other",
    [
        field("c", {"type": "struct", "fields": []}),
        field("c", {"type": "array", "elementType": "float", "containsNull": True}),
        field("c", "void"),
        field("c", "integer", **{"delta.generationExpression": "1"}),
        field("c", "integer", CURRENT_DEFAULT="1"),
    ],
)
def test_nested_columns_and_columns_with_rules_are_left_to_spark(other: dict[str, Any]) -> None:
    assert stored_columns([field("id", "long"), other]) is None


def test_columns_without_a_mapping_have_their_own_names() -> None:
    found = stored_columns([field("id", "long", comment="a note"), field("d", "decimal(5, 1)")])
    assert found == (
        StoredColumn("id", pa.int64(), "id", -1),
        StoredColumn("d", pa.decimal128(5, 1), "d", -1),
    )


@pytest.mark.parametrize(
    ("kind", "wider", "expected"),
    [
        (pa.int8(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(5, 2), pa.decimal128(7, 3), True),
        (pa.decimal128(5, 2), pa.decimal128(6, 4), False),
        (pa.date32(), pa.timestamp("us"), True),
        (pa.date32(), pa.timestamp("us", "UTC"), False),
        (pa.string(), pa.string(), True),
        (pa.int32(), pa.string(), False),
    ],
)
def test_a_type_widens_if_each_value_stays(
    kind: pa.DataType, wider: pa.DataType, expected: bool
) -> None:
    assert fits_into(kind, wider) is expected
