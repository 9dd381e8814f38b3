"""Iceberg's schema, data files and bounds of a Delta table, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType, NestedField, PrimitiveType

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.iceberg.catalog import _live_files, _replaced_before
from spark_sink.mirror.iceberg.data_files import data_file, iceberg_location
from spark_sink.mirror.iceberg.replace_files import ReplaceFiles
from spark_sink.mirror.iceberg.schema import iceberg_name, iceberg_schema, same_fields
from spark_sink.mirror.values.iceberg_types import promotes

KINDS = (
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(5,2)",
    "decimal(9,2)",
    "decimal(9,4)",
    "decimal(20,0)",
)


def a_field(name: str, kind: Any, number: int, **metadata: Any) -> dict[str, Any]:
    ids = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{name}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": ids | metadata}


# Iceberg's specification, "Schema Evolution": int to long, float to double, more digits of a decimal. Byte and short
# are int in Iceberg.
CHANGES = {
    ("byte", "short"),
    ("byte", "integer"),
    ("byte", "long"),
    ("short", "integer"),
    ("short", "long"),
    ("integer", "long"),
    ("float", "double"),
    ("decimal(5,2)", "decimal(9,2)"),
}


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", KINDS)
def test_types_change_without_a_rewrite_only_as_iceberg_can_read_them(
    before: str, after: str
) -> None:
    allowed = promotes(json.dumps(before), json.dumps(after))
    assert allowed == (before == after or (before, after) in CHANGES)
    if allowed and before != after:
        schema = iceberg_schema([a_field("old", before, 1), a_field("new", after, 2)])
        narrow, wide = (schema.find_field(number).field_type for number in (1, 2))
        assert narrow == wide or promote(narrow, wide) == wide


def test_fields_have_the_ids_that_delta_has_written() -> None:
    array = {"type": "array", "elementType": "float", "containsNull": True}
    struct = {
        "type": "struct",
        "fields": [a_field("srid", "long", 11), a_field("wkb", "binary", 12)],
    }
    nested = {"delta.columnMapping.nested.ids": {"col-v.element": 7}}
    schema = iceberg_schema(
        [a_field("id", "short", 3), a_field("v", array, 6, **nested), a_field("g", struct, 10)]
    )
    assert str(schema.as_struct()) == (
        "struct<3: id: optional int, 6: v: optional list<float>,"
        " 10: g: optional struct<11: srid: optional long, 12: wkb: optional binary>>"
    )
    assert schema.find_field(7).name == "element"


def test_a_name_that_readers_of_iceberg_have_themselves_gets_an_underscore() -> None:
    names = ("_deleted", "_deleted_", "_FILE", "deleted", "_seq")
    fields = [a_field(name, "boolean", number) for number, name in enumerate(names, 1)]
    published = [field.name for field in iceberg_schema(fields).fields]
    assert published == ["_deleted_", "_deleted__", "_FILE_", "deleted", "_seq"]
    assert published == list(map(iceberg_name, names))


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ({"name": "c", "type": "integer", "metadata": {}}, "no field ids"),
        (
            {
                "name": "c",
                "type": "long",
                "metadata": {
                    "delta.columnMapping.id": 1,
                    "delta.columnMapping.physicalName": "c",
                },
            },
            "no field ids",
        ),
        (
            a_field("c", {"type": "array", "elementType": "float"}, 1),
            "no field ids for the elements",
        ),
        (
            a_field(
                "c",
                "timestamp_ntz",
                1,
                **{"delta.typeChanges": [{"fromType": "date", "toType": "timestamp_ntz"}]},
            ),
            "changed from date to timestamp_ntz",
        ),
    ],
)
def test_a_column_that_iceberg_cannot_read_is_named(field: dict[str, Any], why: str) -> None:
    with pytest.raises(BinlogError, match="Iceberg cannot read column c") as raised:
        iceberg_schema([field])
    assert why in str(raised.value)


def test_schemas_are_equal_by_their_fields_and_ids() -> None:
    one, other = a_field("a", "long", 1), a_field("b", "long", 2)
    first = iceberg_schema([one, other], 1)
    assert same_fields(first, iceberg_schema([one, other], 9))
    assert not same_fields(first, iceberg_schema([other, one], 1))
    assert not same_fields(first, iceberg_schema([one, a_field("b", "long", 3)], 1))


def the_bounds(kind: str, low: Any, high: Any) -> tuple[Any, Any] | None:
    """Returns the bounds of a column whose statistics Delta has written; None if there are none."""
    schema = iceberg_schema([a_field("c", kind, 1)])
    stats = {
        "numRecords": 3,
        "minValues": {"col-c": low},
        "maxValues": {"col-c": high},
        "nullCount": {"col-c": 1},
    }
    add = {"path": "a%20b.parquet", "size": 9, "stats": json.dumps(stats)}
    file = data_file("s3://lake/shop/t", add, schema, {"col-c": 1})
    assert (file.file_path, file.record_count) == ("s3://lake/shop/t/a b.parquet", 3)
    assert (file.null_value_counts, file.value_counts) == ({1: 1}, {1: 3})
    if not file.lower_bounds:
        assert not file.upper_bounds
        return None
    primitive = schema.find_field(1).field_type
    assert isinstance(primitive, PrimitiveType)
    return from_bytes(primitive, file.lower_bounds[1]), from_bytes(primitive, file.upper_bounds[1])


@given(st.integers(-(2**63), 2**63 - 1))
def test_bounds_of_integers_are_exact(value: int) -> None:
    assert the_bounds("long", value, value) == (value, value)


@given(st.dates())
def test_bounds_of_dates_are_exact(value: date) -> None:
    days = (value - date(1970, 1, 1)).days
    assert the_bounds("date", value.isoformat(), value.isoformat()) == (days, days)


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001 - as MySQL's DATETIME
    st.integers(-12, 14),
)
def test_a_time_is_within_the_bounds_of_its_truncated_text(moment: datetime, hours: int) -> None:
    microseconds = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
    text = moment.isoformat(timespec="milliseconds")
    for kind, written in (
        ("timestamp_ntz", text),
        (
            "timestamp",
            moment.replace(tzinfo=UTC)
            .astimezone(timezone(timedelta(hours=hours)))
            .isoformat(timespec="milliseconds"),
        ),
    ):
        bounds = the_bounds(kind, written, written)
        assert bounds is not None
        assert bounds[0] <= microseconds <= bounds[1]


def test_types_whose_statistics_are_cut_or_rounded_have_no_bounds() -> None:
    for kind, low, high in (("string", "a", "b"), ("double", 0.1, 0.2), ("decimal(5,2)", 1, 2)):
        assert the_bounds(kind, low, high) is None
    assert the_bounds("timestamp_ntz", "+10000-01-01T00:00:00.000", "x") is None


@pytest.mark.parametrize(
    ("add", "why"),
    [
        ({"path": "f", "size": 1, "stats": None}, "no count of its rows"),
        (
            {"path": "f", "size": 1, "stats": '{"numRecords": 1}', "deletionVector": {"x": 1}},
            "deletion vectors",
        ),
    ],
)
def test_a_file_whose_rows_are_not_known_is_not_published(add: dict[str, Any], why: str) -> None:
    schema = iceberg_schema([a_field("c", "long", 1)])
    with pytest.raises(BinlogError, match=why):
        data_file("/lake", add, schema, {"col-c": 1})


@pytest.mark.parametrize(
    ("hadoop", "wanted"),
    [
        ("s3a://lake/a b", "s3://lake/a b"),
        ("file:/lake", "file:///lake"),
        ("file:///lake", "file:///lake"),
        ("hdfs://nn:8020/lake", "hdfs://nn:8020/lake"),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
        ("/lake", "/lake"),
    ],
)
def test_locations_have_the_schemes_of_iceberg(hadoop: str, wanted: str) -> None:
    assert iceberg_location(hadoop) == wanted


@pytest.fixture
def make_table(tmp_path: Path) -> Callable[[], Table]:
    """Makes a table of pyiceberg without a Delta table. Its data files do not exist."""

    def make() -> Table:
        catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/files.db")
        catalog.create_namespace("shop")
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        return catalog.create_table("shop.t", schema, location=f"file://{tmp_path}/t")

    return make


def a_file(table: Table, number: int) -> DataFile:
    add = {"path": f"{number}.parquet", "size": 9, "stats": '{"numRecords": 1}'}
    return data_file("/lake/t", add, table.schema(), {"col-id": 1})


def replace_file(table: Table, removed: DataFile | None, added: DataFile) -> None:
    transaction = table.transaction()
    snapshot = ReplaceFiles(transaction, {}, removes=removed is not None)
    snapshot.append_data_file(added)
    if removed is not None:
        snapshot.delete_data_file(removed)
    snapshot.commit()
    transaction.commit_transaction()


def current(table: Table) -> Snapshot:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot


def test_many_snapshots_have_few_manifests(make_table: Callable[[], Table]) -> None:
    table, live = make_table(), list[DataFile]()
    for number in range(90):
        live.append(a_file(table, number))
        replace_file(table, live.pop(0) if len(live) > 3 else None, live[-1])
        assert len(current(table).manifests(table.io)) <= 21
    assert {f.file_path for f in _live_files(table)} == {f.file_path for f in live}
    assert len(_live_files(table)) == len(live)
    summary = current(table).summary
    assert summary is not None
    assert summary.additional_properties["total-records"] == str(len(live))


def test_a_snapshot_stays_for_its_time_after_it_was_replaced(
    make_table: Callable[[], Table],
) -> None:
    table = make_table()
    replace_file(table, None, a_file(table, 1))
    first = table.metadata.current_snapshot_id
    (begin,) = table.metadata.snapshot_log
    replace_file(table, None, a_file(table, 2))
    replaced = table.metadata.snapshot_log[-1].timestamp_ms
    before, behind = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (replaced, replaced + 1))
    assert begin.timestamp_ms <= replaced
    assert _replaced_before(table, before) == []
    assert _replaced_before(table, behind) == [first]
