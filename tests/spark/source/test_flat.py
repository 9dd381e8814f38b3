"""The option `flat`: a table's columns at the top level of a typed stream."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from dispatcher.binlog.decode.arrow.arrow_types import NAMES, NEWEST_ENVELOPE
from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.model.errors import BinlogError, UserError
from spark_sink.source import schemas
from spark_sink.source.selection.flat import OWN_COLUMNS
from tests.spark.source.test_projection import WIDE, definition, read, two_layouts
from tests.spark.source.test_rows import options_of
from tests.support.rows_encoder import Delivered, Spec, integer, rows_body, table_map

WRITE, UPDATE, DELETE = 30, 31, 32
FLAT = {"flat": "after", "schemaChanges": "project"}


def schema_of(table: dict[str, Any], **options: str) -> pa.Schema:
    parsed = options_of(table="shop.orders", flat="after", **options)
    return to_arrow_schema(schemas.stream_schema(parsed, table), timezone="UTC")


def three_changes() -> Delivered:
    """Returns a log in which a row is inserted, gets another key, and is deleted."""
    log = Delivered()
    mapped = (19, table_map([Spec("id", Type.LONG), Spec("Op", Type.LONG)]))
    one, two = [integer(1, 4), integer(5, 4)], [integer(2, 4), integer(6, 4)]
    log.transaction(mapped, (WRITE, rows_body(WRITE, [one])))
    log.transaction(mapped, (UPDATE, rows_body(UPDATE, [one, two])))
    log.transaction(mapped, (DELETE, rows_body(DELETE, [two])))
    return log


def test_a_table_s_columns_are_among_the_stream_s_own() -> None:
    table = definition(id="int", price="decimal(8,3)")
    names = [field.name for field in NEWEST_ENVELOPE]
    assert tuple(names) == OWN_COLUMNS
    columns = [pa.field("id", pa.int32()), pa.field("price", pa.decimal128(8, 3))]
    assert schema_of(table) == pa.schema([*NEWEST_ENVELOPE, *columns])
    made = schema_of(table, metadata="changed, key", flatPrefix="__", columns="id")
    assert made.names == [*(f"__{name}" for name in names), "id", "__key", "__changed"]
    assert made.field("__changed").type == NAMES
    assert made.field("__key").type == pa.struct([("id", pa.int32())])
    assert schema_of(table, select="PRICE, op").names == ["op", "price"]


def test_a_row_is_as_after_the_change_or_as_before_a_deletion() -> None:
    table = definition(id="int", Op="int")
    rows = read(three_changes(), table, metadata="key", flatPrefix="_", **FLAT)
    assert [(row["_op"], row["id"], row["Op"], row["_key"]) for row in rows] == [
        ("insert", 1, 5, {"id": 1}),
        ("update", 2, 6, {"id": 1}),
        ("delete", 2, 6, {"id": 2}),
    ]
    assert [row["_seq"] for row in rows] == [1, 2, 3] and {row["_absent"] for row in rows} == {None}
    nested = read(three_changes(), table, metadata=",".join(Metadata))
    flat = read(three_changes(), table, metadata=",".join(Metadata), flatPrefix="_", **FLAT)
    for one, two in zip(flat, nested, strict=True):
        image = two["before"] if two["op"] == "delete" else two["after"]
        own = {name: value for name, value in two.items() if f"_{name}" in one}
        assert one == {f"_{name}": value for name, value in own.items()} | image | {"_absent": None}


@pytest.mark.parametrize(
    ("columns", "options", "what"),
    [
        (
            {"id": "int", "Op": "int", "FILE": "int"},
            {},
            "option 'flat': columns of the table and columns of the stream itself have the same names: 'Op', 'FILE' of"
            " shop.orders",
        ),
        ({"id": "int", "key": "int"}, {"metadata": "key"}, "the same names: 'key' of"),
        ({"id": "int", "_op": "int"}, {"flatPrefix": "_"}, "the same names: '_op' of"),
    ],
)
def test_equal_names_are_refused_and_the_message_says_what_helps(
    columns: dict[str, str], options: dict[str, str], what: str
) -> None:
    table = definition(**columns)
    with pytest.raises(UserError) as caught:
        schema_of(table, **options)
    assert what in caught.value.what
    assert "flatPrefix" in str(caught.value.remedy) and "columns" in str(caught.value.remedy)
    for helps in ({"flatPrefix": "__"}, {"columns": "id"}):
        assert "id" in schema_of(table, **(options | helps)).names


def test_a_name_is_free_if_the_stream_has_no_such_column() -> None:
    made = schema_of(definition(id="int", key="int", before="int", row="int"))
    assert made.names[-4:] == ["id", "key", "before", "row"]


# -- rows of other layouts, as in the nested form -------------------------------------------------------------


def test_rows_of_all_layouts_have_the_columns_of_the_stream() -> None:
    first, second = read(two_layouts(), WIDE, metadata="key,changed", **FLAT)
    names = ("op", "id", "price", "name", "day", "key", "changed")
    assert [first[name] for name in names] == [
        "insert", 1, Decimal("1.250"), None, None, {"id": 1}, None,
    ]  # fmt: skip
    moment = datetime(2026, 11, 23)  # noqa: DTZ001
    assert [second[name] for name in names] == [
        "update", 2, Decimal("2.125"), "x", moment, {"id": 2}, ["name"],
    ]  # fmt: skip


def test_a_column_that_the_stream_lacks() -> None:
    narrow = definition(id="bigint", price="decimal(8,3)")
    with pytest.raises(BinlogError, match=r"'name' is not in the stream; column 'day' is not in"):
        read(two_layouts(), narrow, flat="after")
    assert [row["id"] for row in read(two_layouts(), narrow, **FLAT)] == [1, 2]
    # If `columns` or `select` does not choose a column, a layout without this column is no fault.
    for chosen in ({"columns": "id, price"}, {"select": "id, price, op"}, {"select": "op, seq"}):
        assert len(read(two_layouts(), narrow, flat="after", **chosen)) == 2
    with pytest.raises(BinlogError, match=r"'name' is not in the stream \("):
        read(two_layouts(), narrow, flat="after", select="id, *e")


def test_selected_columns() -> None:
    assert read(two_layouts(), WIDE, select="NAME, op", metadata="changed", **FLAT) == [
        {"op": "insert", "name": None, "changed": None},
        {"op": "update", "name": "x", "changed": ["name"]},
    ]
    assert read(two_layouts(), WIDE, select="op", **FLAT) == [{"op": "insert"}, {"op": "update"}]


# -- the option ops -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [{}, {"flat": "after", "flatPrefix": "_"}])
def test_rows_of_the_chosen_kinds(form: dict[str, str]) -> None:
    table = definition(id="int", Op="int")
    prefix = form.get("flatPrefix", "")
    for ops in ("insert", "delete, Update", "delete,ddl", "insert,update,delete"):
        rows = read(three_changes(), table, ops=ops, metadata="transaction_rows", **form)
        wanted = {op.strip().lower() for op in ops.split(",")} - {"ddl"}
        assert {row[f"{prefix}op"] for row in rows} == wanted and len(rows) == len(wanted)
        assert {row[f"{prefix}transaction_rows"] for row in rows} == {1}
