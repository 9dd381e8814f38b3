"""Rows of several layouts in one typed stream, and which columns a stream has."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dispatcher.binlog.table_map.column_types import Type
from dispatcher.model.errors import BinlogError, UserError
from spark_sink.source import rows, schemas
from spark_sink.source.selection.column_choice import ColumnChoice, unknown_column
from spark_sink.source.selection.projection import is_lossless
from tests.spark.source.test_rows import SLICE, options_of
from tests.support.rows_encoder import (
    Delivered,
    Spec,
    decimal,
    integer,
    rows_body,
    table_map,
    text,
)
from tests.support.rows_encoder import date as date_cell

WRITE, UPDATE = 30, 31
ID, BIG_ID = Spec("id", Type.LONG), Spec("ID", Type.LONGLONG)
NAME = Spec("name", Type.VARCHAR, b"\x50\0", charset=45)
PRICE, WIDE_PRICE = (
    Spec("price", Type.NEWDECIMAL, b"\x04\x02"),
    Spec("price", Type.NEWDECIMAL, b"\x06\x03"),
)
DAY = Spec("day", Type.DATE)


def definition(**columns: str) -> dict[str, Any]:
    listed = [
        {"name": name, "mysql_type": kind, "nullable": True, "charset": "utf8mb4"}
        for name, kind in columns.items()
    ]
    return {"database": "shop", "table": "orders", "columns": listed, "key": ["id"]}


def read(log: Delivered, table: dict[str, Any], **options: str) -> list[dict[str, Any]]:
    parsed = options_of(table="shop.orders", **options)
    schema = schemas.stream_schema(parsed, table)
    batches = list(rows.read_slice(parsed, schema, SLICE, log.bytes()))
    assert len({batch.schema for batch in batches}) == 1
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def two_layouts() -> Delivered:
    """A row with (id, price), then a row with (name, ID, price, day), whose types are wider."""
    log = Delivered()
    log.transaction(
        (19, table_map([ID, PRICE])),
        (WRITE, rows_body(WRITE, [[integer(1, 4), decimal(Decimal("1.25"), 4, 2)]])),
    )
    after = [text("x", 1), integer(2, 8), decimal(Decimal("2.125"), 6, 3), date_cell(2026, 11, 23)]
    log.transaction(
        (19, table_map([NAME, BIG_ID, WIDE_PRICE, DAY], key=(1,))),
        (UPDATE, rows_body(UPDATE, [[None, *after[1:]], after])),
    )
    return log


WIDE = definition(id="bigint", price="decimal(8,3)", name="varchar(20)", day="datetime(6)")


def test_rows_of_all_layouts_have_the_columns_of_the_stream() -> None:
    first, second = read(two_layouts(), WIDE, schemaChanges="project", metadata="key,changed")
    assert (first["before"], first["after"]) == (
        None,
        {"id": 1, "price": Decimal("1.250"), "name": None, "day": None},
    )
    moment = datetime(2026, 11, 23)  # noqa: DTZ001
    image = {"id": 2, "price": Decimal("2.125"), "name": None, "day": moment}
    assert (second["before"], second["after"]) == (image, image | {"name": "x"})
    assert (first["key"], second["key"], second["changed"]) == ({"id": 1}, {"id": 2}, ["name"])


def test_a_column_that_the_stream_lacks_is_left_out() -> None:
    narrow = definition(id="bigint", price="decimal(8,3)")
    rows_of_narrow = read(two_layouts(), narrow, schemaChanges="project")
    assert [row["after"]["id"] for row in rows_of_narrow] == [1, 2]
    none = definition(id="bigint", gone="int")
    (gone, _) = read(two_layouts(), none, schemaChanges="project", columns="gone", metadata="key")
    assert (gone["after"], gone["key"]) == ({"gone": None}, {"id": 1})


def test_older_narrower_rows_fit_a_stream_that_fails_on_loss() -> None:
    first, _ = read(two_layouts(), WIDE, schemaChanges="fail")
    assert first["after"] == {"id": 1, "price": Decimal("1.250"), "name": None, "day": None}


@pytest.mark.parametrize(
    ("table", "options", "finding"),
    [
        (
            definition(id="bigint", price="decimal(8,3)"),
            {},
            "rows of another layout: rows of shop.orders do not fit the stream: column 'name' is not in the stream;"
            " column 'day' is not in the stream (epoch 1, seq 2, before binlog.000007:2000); if the table has",
        ),
        (
            definition(id="int", price="decimal(6,3)"),
            {"schemaChanges": "project"},
            "column 'id' is bigint, which does not fit int in all cases (epoch 1, seq 2, before"
            " binlog.000007:2000); if the table has",
        ),
        (
            definition(id="int", price="decimal(4,2)"),
            {"columns": "price"},
            "do not fit the stream: column 'price' is decimal(6,3), which does not fit decimal(4,2) in all cases",
        ),
    ],
)
def test_rows_that_do_not_fit_stop_the_stream(
    table: dict[str, Any], options: dict[str, str], finding: str
) -> None:
    with pytest.raises(BinlogError) as caught:
        read(two_layouts(), table, **options)
    assert finding in str(caught.value)
    assert "mirror" not in str(caught.value)


def test_a_layout_that_differs_in_columns_that_are_not_chosen_is_the_same() -> None:
    log = two_layouts()
    table = definition(id="int", price="decimal(4,2)")
    log.transaction(
        (19, table_map([ID, NAME, PRICE])),
        (WRITE, rows_body(WRITE, [[integer(3, 4), None, decimal(Decimal(3), 4, 2)]])),
    )
    data = Delivered()
    data.transaction(
        (19, table_map([ID, NAME, PRICE])),
        (WRITE, rows_body(WRITE, [[integer(3, 4), None, decimal(Decimal(3), 4, 2)]])),
    )
    (row,) = read(data, table, columns="id, PRI*")
    assert row["after"] == {"id": 3, "price": Decimal("3.00")}


@pytest.mark.parametrize(
    ("options", "what", "remedy"),
    [
        (
            {"columns": "id, pirce, x*"},
            "option 'columns': 'pirce' is no column, did you mean 'price'?; option 'columns': 'x*' fits no",
            "the columns of shop.orders are id, price",
        ),
        (
            {"metadata": "key"},
            "option 'metadata': shop.orders has no key, so leave out 'key'",
            "id",
        ),
    ],
)
def test_options_that_do_not_fit_the_table(options: dict[str, str], what: str, remedy: str) -> None:
    table = definition(id="int", price="decimal(4,2)") | {"key": []}
    with pytest.raises(UserError) as caught:
        schemas.stream_schema(options_of(table="shop.orders", **options), table)
    assert what in caught.value.what and remedy in str(caught.value.remedy)


def test_columns_of_json_rows() -> None:
    log = two_layouts()
    parsed = options_of(columns="shop.ord*.id, shop.orders.n*, other.t.x", metadata="key")
    schema = schemas.stream_schema(parsed, None)
    batches = rows.read_slice(parsed, schema, SLICE, log.bytes())
    found = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["before"], row["after"], row["key"]) for row in found] == [
        (None, '{"id":1}', '{"id":1}'),
        ('{"name":null,"ID":2}', '{"name":"x","ID":2}', '{"ID":2}'),
    ]
    none = options_of(columns="shop.orders.x")
    schema = schemas.stream_schema(none, None)
    batches = rows.read_slice(none, schema, SLICE, log.bytes())
    assert [b.to_pylist()[0]["after"] for b in batches] == ["{}", "{}"]


def test_selected_columns_of_a_typed_stream() -> None:
    log = two_layouts()
    given = {"schemaChanges": "project", "columns": "id"}
    found = read(log, WIDE, select="AFTER, op, seq", metadata="changed", **given)
    assert [list(row) for row in found] == [["seq", "op", "after", "changed"]] * 2
    assert [(row["op"], row["after"]) for row in found] == [
        ("insert", {"id": 1}),
        ("update", {"id": 2}),
    ]
    assert [row["before"] for row in read(log, WIDE, select="before", **given)] == [None, {"id": 2}]
    # If the stream has no images, rows of another layout are no fault.
    assert read(log, WIDE, select="op", metadata="key", schemaChanges="project") == [
        {"op": "insert", "key": {"id": 1}},
        {"op": "update", "key": {"id": 2}},
    ]
    assert read(log, WIDE, select="op") == [{"op": "insert"}, {"op": "update"}]


def test_selected_columns_of_json_rows_and_statements() -> None:
    log = two_layouts()
    log.ddl("ALTER TABLE orders ADD x INT", "shop")

    def read_json(select: str) -> list[dict[str, Any]]:
        parsed = options_of(select=select)
        schema = schemas.stream_schema(parsed, None)
        batches = rows.read_slice(parsed, schema, SLICE, log.bytes())
        return [row for batch in batches for row in batch.to_pylist()]

    assert read_json("before, op")[:2] == [
        {"op": "insert", "before": None},
        {"op": "update", "before": '{"name":null,"ID":2,"price":"2.125","day":"2026-11-23"}'},
    ]
    assert read_json("op, t*e") == [
        {"table": "orders", "op": "insert"},
        {"table": "orders", "op": "update"},
        {"table": "orders", "op": "ddl"},
    ]


def test_a_selected_column_that_no_stream_has() -> None:
    with pytest.raises(UserError) as caught:
        schemas.stream_schema(options_of(select="seq, opp"), None)
    assert "option 'select': 'opp' is no column, did you mean 'op'?" in caught.value.what
    assert "the columns of the stream are epoch, seq," in str(caught.value.remedy)


def test_a_table_that_no_pattern_is_about_has_all_its_columns() -> None:
    choice = ColumnChoice([("shop", "orders", "id"), ("shop", "o*", "[!i]*")])
    assert choice.choose("shop", "orders", ["ID", "name", "in"], 0) == ["ID", "name"]
    assert choice.choose("shop", "users", ["id", "name"], 0) == ["id", "name"]
    assert unknown_column("NAME", ["id", "name"]) is None


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]


@pytest.mark.parametrize(
    ("source", "target", "lossless"),
    [
        *((a, b, i <= j) for i, a in enumerate(INTEGERS) for j, b in enumerate(INTEGERS)),
        (pa.int64(), pa.decimal128(20, 0), True),
        (pa.int64(), pa.decimal128(20, 2), False),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.decimal128(4, 2), pa.decimal128(5, 3), True),
        (pa.decimal128(4, 2), pa.decimal128(4, 3), False),
        (pa.decimal128(4, 0), pa.int64(), False),
        (pa.date32(), pa.timestamp("us"), True),
        (pa.date32(), pa.timestamp("us", "UTC"), False),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), False),
        (pa.int32(), pa.string(), False),
        (pa.string(), pa.binary(), False),
    ],
)
def test_what_is_converted_without_loss(
    source: pa.DataType, target: pa.DataType, lossless: bool
) -> None:
    assert is_lossless(source, target) is lossless
    if lossless and pa.types.is_integer(source):
        extreme = pa.array(
            [2 ** (source.bit_width - 1) - 1, -(2 ** (source.bit_width - 1))], source
        )
        assert extreme.cast(target).cast(source) == extreme
    if lossless and pa.types.is_date(source):
        assert pa.array([date(2026, 1, 2)]).cast(target)[0].as_py() == datetime(2026, 1, 2)  # noqa: DTZ001
