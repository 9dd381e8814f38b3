"""Cells to Arrow: worked examples, every type with its extreme values, and invalid bytes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.arrow import arrow_types
from dispatcher.binlog.decode.arrow.arrow_types import arrow_type
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.table_map.column_rules import UNCHANGED, ColumnRules
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.rows_encoder import (
    ASCII,
    BINARY,
    LATIN1,
    UTF8MB3,
    UTF8MB4,
    Delivered,
    Row,
    Spec,
    date,
    datetime2_parts,
    encode_cell,
    integer,
    rows_body,
    string_meta,
    table_map,
    text,
    timestamp2,
)

DATETIME = dt.datetime
UTC = dt.UTC
_EXACT = Context(prec=100)


def decoded(
    columns: Sequence[Spec],
    images: Sequence[Row],
    kind: int = 30,
    rules: ColumnRules = UNCHANGED,
) -> TableChanges:
    log = Delivered()
    log.transaction((19, table_map(columns)), (kind, rows_body(kind, images)))
    (only,) = delivered.changes(log.bytes(), ruled=rules.table_map)
    assert isinstance(only, TableChanges)
    only.batch.validate(full=True)
    return only


def column(spec: Spec, cells: Sequence[bytes | None]) -> tuple[pa.Array, int]:
    found = decoded([spec], [[cell] for cell in cells])
    after = found.batch.column("after")
    assert after.null_count == 0
    return after.field(0), found.invalid_dates


def example(table: str, row: str) -> dict[str, Any]:
    """The one row of a worked example, in which columns have no names."""
    columns = TableMap.parse(bytes.fromhex(table)).columns
    log = Delivered()
    log.transaction((19, bytes.fromhex(table)), (30, bytes.fromhex(row)))
    kinds = {
        Type.DATE: "date", Type.DATETIME2: "datetime", Type.TIMESTAMP2: "timestamp", Type.TIME2: "time",
        Type.YEAR: "year(4)", Type.TINY: "tinyint(4)", Type.SHORT: "smallint(6)", Type.INT24: "mediumint(9)",
        Type.LONG: "int(11)", Type.LONGLONG: "bigint(20)", Type.NEWDECIMAL: "decimal(25,10)", Type.FLOAT: "float",
        Type.DOUBLE: "double", Type.BIT: "bit(5)", Type.VARCHAR: "varchar(20)",
    }  # fmt: skip
    fractional = (Type.DATETIME2, Type.TIMESTAMP2, Type.TIME2)
    types = [
        f"{kinds[Type(c.type)]}({c.meta})" if c.type in fractional else kinds[Type(c.type)]
        for c in columns
    ]
    definition = {
        "columns": [
            {
                "name": f"col{i + 1}",
                "mysql_type": kind,
                "charset": "utf8mb4" if "char" in kind else None,
            }
            for i, kind in enumerate(types)
        ]
    }
    label = TableMap.parse(bytes.fromhex(table)).label
    (only,) = delivered.changes(log.bytes(), {label: definition})
    assert isinstance(only, TableChanges)
    value: dict[str, Any] = only.batch.column("after")[0].as_py()
    return value


def test_worked_example_of_dates_and_times() -> None:
    row = example(
        "4e0000000000 0100 0867616e677368656e00 0a74696d655f7461626c6500 09 0a1212111113130d0d 06 000300040005 ff01",
        "4e0000000000 0100 0200 09 ffff 00fe 8ec30f 999e5c9d80 999e5c9d800460 5a31d9b8 5a31d9b80459 809d80 809d80000000"
        " 75 75",
    )
    assert row == {
        "col1": dt.date(2017, 12, 14),
        "col2": DATETIME(2017, 12, 14, 9, 54),
        "col3": DATETIME(2017, 12, 14, 9, 54, 0, 112_000),
        "col4": DATETIME(2017, 12, 14, 1, 54, tzinfo=UTC),
        "col5": DATETIME(2017, 12, 14, 1, 54, 0, 111_300, tzinfo=UTC),
        "col6": (9 * 3600 + 54 * 60) * 1_000_000,
        "col7": (9 * 3600 + 54 * 60) * 1_000_000,
        "col8": 2017,
        "col9": 2017,
    }


def test_worked_example_of_numbers() -> None:
    row = example(
        "5d0000000000 0100 0867616e677368656e00 0c6e756d6265725f7461626c6500 09 0102090308f6040510 06 190a 04 08 0500"
        " ff01",
        "5d0000000000 0100 0200 09 ffff 00fe 02 eaff de0000 52f7ffff ce56000000000000 80007b0756b5b306b08a2800"
        " 3333f642 cdcccccccccc5e40 06",
    )
    assert row.pop("col7") == pytest.approx(123.1, rel=1e-6)
    assert row == {
        "col1": 2,
        "col2": -22,
        "col3": 222,
        "col4": -2222,
        "col5": 22222,
        "col6": Decimal("123123123123.1122330000"),
        "col8": 123.2,
        "col9": b"\6",
    }


def test_worked_example_of_an_insert() -> None:
    row = example(
        "8c0000000000 0100 077a686a77706b7500 017400 03 030f0a 02 5000 04 010100 0203fcff00",
        "8c0000000000 0100 0200 03 ff 04 01000000 056170706c65",
    )
    assert row == {"col1": 1, "col2": "apple", "col3": None}


INTEGERS = [
    (Type.TINY, 1, False, pa.int8()), (Type.TINY, 1, True, pa.int16()),
    (Type.SHORT, 2, False, pa.int16()), (Type.SHORT, 2, True, pa.int32()),
    (Type.INT24, 3, False, pa.int32()), (Type.INT24, 3, True, pa.int32()),
    (Type.LONG, 4, False, pa.int32()), (Type.LONG, 4, True, pa.int64()),
    (Type.LONGLONG, 8, False, pa.int64()), (Type.LONGLONG, 8, True, pa.decimal128(20, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "width", "unsigned", "target"), INTEGERS)
def test_integers(code: Type, width: int, unsigned: bool, target: pa.DataType) -> None:
    top = 1 << 8 * width
    values = [0, 1, top - 1, top // 2] if unsigned else [0, 1, -1, top // 2 - 1, -top // 2]
    cells = [integer(value, width) for value in values]
    array, _ = column(Spec("n", code, unsigned=unsigned), [*cells, None])
    assert array.type == target
    assert array.to_pylist() == [*values, None]


@pytest.mark.parametrize(
    ("spec", "values", "target"),
    [
        (Spec("f", Type.FLOAT, b"\4"), [0.0, -0.5, 3.4028234663852886e38, None], pa.float32()),
        (Spec("d", Type.DOUBLE, b"\x08"), [1e-308, -1.7976931348623157e308, None, 0.1], pa.float64()),
        (
            Spec("s", Type.VARCHAR, (1000).to_bytes(2, "little"), charset=UTF8MB4),
            ["", "x" * 300, None, "ä€😀", "\0"],
            pa.string(),
        ),
        (Spec("s", Type.VARCHAR, b"\x10\0", charset=UTF8MB3), ["", "€", None], pa.string()),
        (Spec("s", Type.VARCHAR, b"\x10\0", charset=ASCII), ["", "~", None], pa.string()),
        (Spec("s", Type.VARCHAR, b"\x10\0", charset=LATIN1), ["é€", "plain", None, ""], pa.string()),
        (Spec("s", Type.VARCHAR, b"\x10\0", charset=LATIN1), ["plain", None], pa.string()),
        (Spec("c", Type.STRING, string_meta(1020), charset=UTF8MB4), ["ж" * 200, "", None], pa.string()),
        (Spec("c", Type.STRING, string_meta(8), charset=UTF8MB4), ["xy", None], pa.string()),
        (Spec("b", Type.STRING, string_meta(4), charset=BINARY), [b"\1\0\0\0", b"\0\0\0\0", None], pa.binary()),
        (Spec("v", Type.VARCHAR, b"\4\0", charset=BINARY), [b"\1\0", b"", None, b"\xff" * 4], pa.binary()),
        (Spec("t", Type.BLOB, b"\1", charset=UTF8MB4), ["tiny", None, ""], pa.string()),
        (Spec("t", Type.BLOB, b"\3", charset=UTF8MB4), ["m" * 70_000, None], pa.string()),
        (Spec("t", Type.BLOB, b"\4", charset=BINARY), [b"\xfe", None], pa.binary()),
        (Spec("d", Type.DATE), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(2024, 2, 29)], pa.date32()),
        (
            Spec("d", Type.DATETIME2, b"\6"),
            [DATETIME(1, 1, 1), DATETIME.max, None, DATETIME(1969, 12, 31, 23, 59, 59, 1)],
            pa.timestamp("us"),
        ),
        (Spec("d", Type.DATETIME2, b"\0"), [DATETIME(2000, 2, 29, 1, 2, 3), None], pa.timestamp("us")),
        (Spec("d", Type.DATETIME2, b"\1"), [DATETIME(2000, 2, 29, 1, 2, 3, 900_000)], pa.timestamp("us")),
        (
            Spec("t", Type.TIMESTAMP2, b"\3"),
            [DATETIME(1970, 1, 1, 0, 0, 1, tzinfo=UTC), DATETIME(2106, 2, 7, 6, 28, 15, 999_000, tzinfo=UTC), None],
            pa.timestamp("us", "UTC"),
        ),
        (Spec("t", Type.TIME2, b"\0"), [0, -3_020_399_000_000, 3_020_399_000_000, None], pa.int64()),
        (Spec("t", Type.TIME2, b"\6"), [1, -1, -1_000_000, -3_020_399_000_000, None], pa.int64()),
        (Spec("t", Type.TIME2, b"\2"), [10_000, -10_000, -1_010_000, None], pa.int64()),
        (Spec("b", Type.BIT, b"\5\1"), [b"\x1f\xff", b"\0\0", None], pa.binary()),
    ],
)  # fmt: skip
def test_values_are_decoded(spec: Spec, values: list[Any], target: pa.DataType) -> None:
    array, invalid = column(spec, [encode_cell(spec, value) for value in values])
    assert array.type == target
    assert array.to_pylist() == values
    assert invalid == 0


def test_an_enum_is_its_label() -> None:
    spec = Spec("e", Type.ENUM, b"\xf7\1", charset=UTF8MB4, labels=("a", "größer"))
    array, _ = column(spec, [b"\2", b"\1", None, b"\0"])
    assert array.to_pylist() == ["größer", "a", None, ""]


def test_an_enum_of_two_bytes() -> None:
    labels = tuple(f"label {i}" for i in range(1, 301))
    spec = Spec("e", Type.ENUM, b"\xf7\2", charset=UTF8MB4, labels=labels)
    array, _ = column(spec, [integer(300, 2), integer(1, 2)])
    assert array.to_pylist() == ["label 300", "label 1"]


def test_a_set_is_its_labels() -> None:
    labels = tuple(f"m{i}" for i in range(64))
    spec = Spec("s", Type.SET, b"\xf8\x08", charset=UTF8MB4, labels=labels)
    array, _ = column(spec, [integer(0, 8), integer(1 << 63 | 5, 8), None])
    assert array.to_pylist() == ["", "m0,m2,m63", None]


def test_years() -> None:
    array, _ = column(Spec("y", Type.YEAR), [b"\0", b"\1", b"\xff", None])
    assert array.to_pylist() == [0, 1901, 2155, None]


def test_old_temporal_formats() -> None:
    array, _ = column(Spec("d", Type.DATETIME_OLD), [integer(20_171_214_095_400, 8), integer(0, 8)])
    assert array.to_pylist() == [DATETIME(2017, 12, 14, 9, 54), None]
    array, _ = column(Spec("d", Type.TIMESTAMP_OLD), [integer(1_513_216_440, 4), integer(0, 4)])
    assert array.to_pylist() == [DATETIME(2017, 12, 14, 1, 54, tzinfo=UTC), None]
    array, _ = column(Spec("d", Type.TIME_OLD), [integer(-8_385_959, 3), integer(95_400, 3)])
    assert array.to_pylist() == [-3_020_399_000_000, 35_640_000_000]


def test_invalid_dates_become_null_and_are_counted() -> None:
    none = [
        date(0, 0, 0),
        date(2024, 0, 5),
        date(2024, 2, 0),
        date(2023, 2, 29),
        date(0, 5, 5),
        date(2024, 4, 31),
    ]
    array, invalid = column(Spec("d", Type.DATE), [*none, date(2024, 2, 29), None])
    assert array.to_pylist() == [None] * len(none) + [dt.date(2024, 2, 29), None]
    assert invalid == len(none)
    zero, partial = (datetime2_parts(*parts, 0, 0, 0, 0, 0) for parts in ((0, 0, 0), (2024, 1, 0)))
    array, invalid = column(Spec("d", Type.DATETIME2, b"\0"), [zero, partial, None])
    assert array.to_pylist() == [None, None, None] and invalid == 2
    array, invalid = column(
        Spec("d", Type.TIMESTAMP2, b"\6"), [timestamp2(0, 0, 6), timestamp2(0, 1, 6)]
    )
    assert (
        array.to_pylist() == [None, DATETIME(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)] and invalid == 1
    )


@given(st.data())
def test_decimals(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 65))
    scale = data.draw(st.integers(0, min(30, precision)))
    limit = 10**precision - 1
    numbers = data.draw(
        st.lists(st.one_of(st.just(0), st.integers(-limit, limit)), min_size=1, max_size=5)
    )
    values = [Decimal(n).scaleb(-scale, _EXACT) for n in (*numbers, limit, -limit)]
    spec = Spec("d", Type.NEWDECIMAL, bytes((precision, scale)))
    array, _ = column(spec, [*(encode_cell(spec, value) for value in values), None])
    if precision <= 38:
        assert array.type == pa.decimal128(precision, scale)
        assert array.to_pylist() == [*values, None]
    else:
        assert array.type == pa.string()
        assert array.to_pylist() == [*(f"{value:f}" for value in values), None]


@given(st.lists(st.datetimes(DATETIME(1, 1, 1), DATETIME(9999, 12, 31)), min_size=1))
def test_any_datetime(values: list[dt.datetime]) -> None:
    spec = Spec("d", Type.DATETIME2, b"\6")
    array, _ = column(spec, [encode_cell(spec, value) for value in values])
    assert array.to_pylist() == values
    days = Spec("d", Type.DATE)
    array, _ = column(days, [encode_cell(days, value) for value in values])
    assert array.to_pylist() == [value.date() for value in values]


@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), min_size=1))
def test_any_text(values: list[str | None]) -> None:
    spec = Spec("s", Type.BLOB, b"\2", charset=UTF8MB4)
    array, _ = column(spec, [encode_cell(spec, value) for value in values])
    assert array.to_pylist() == values


@given(st.binary(max_size=6))
def test_utf8_is_validated_as_by_python(raw: bytes) -> None:
    spec = Spec("s", Type.BLOB, b"\2", charset=UTF8MB4)
    try:
        wanted = raw.decode()
    except UnicodeDecodeError:
        with pytest.raises(BinlogError) as caught:
            column(spec, [text("fine", 2), text(raw, 2)])
        assert caught.value.kind is ErrorKind.INVALID_VALUE
        assert "shop.orders, column 's'" in caught.value.what
        assert "offset" in caught.value.where
    else:
        assert column(spec, [text(raw, 2)])[0].to_pylist() == [wanted]


@pytest.mark.parametrize(
    ("spec", "cell"),
    [
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=UTF8MB3), text("😀", 1)),
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=28), text(b"a\x81", 1)),
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=28), text(b"\x81\x30", 1)),
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=12), text(b"\x8f\xa1", 1)),
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=248), text(b"\x81\x30\x81", 1)),
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=35), text(b"\0a\0", 1)),
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=35), text(b"\xd8\0", 1)),
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=54), text(b"\xd8\0", 1)),
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=54), text(b"\xd8\0\0a", 1)),
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=54), text(b"\xdc\0\xd8\0", 1)),
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=60), text(b"\0\x11\0\0", 1)),
        (Spec("x", Type.GEOMETRY, b"\4"), text(b"\0\0\0", 4)),
        (Spec("x", Type.VECTOR, b"\4"), text(b"\0\0\0", 4)),
        (Spec("x", Type.JSON, b"\4"), text(b"\x0f", 4)),
        (Spec("x", Type.MARIADB_VARCHAR_COMPRESSED, b"\x10\0", charset=BINARY), text(b"\x10", 1)),
        (Spec("x", Type.MARIADB_VARCHAR_COMPRESSED, b"\x10\0", charset=BINARY), text(b"\x89\5", 1)),
        (
            Spec("x", Type.MARIADB_BLOB_COMPRESSED, b"\2", charset=BINARY),
            text(b"\x89\1\x4b\x4a\4\0", 2),
        ),
        (Spec("x", Type.NEWDECIMAL, b"\4\2"), b"\xe4\0"),
        (Spec("x", Type.NEWDECIMAL, b"\x41\0"), b"\xff" * 29),
        (Spec("x", Type.DATETIME2, b"\0"), datetime2_parts(2024, 1, 1, 24, 0, 0, 0, 0)),
        (Spec("x", Type.DATETIME2, b"\0"), datetime2_parts(2024, 1, 1, 0, 60, 0, 0, 0)),
        (Spec("x", Type.DATETIME2, b"\0"), b"\0\0\0\0\1"),
        (Spec("x", Type.DATETIME2, b"\6"), datetime2_parts(2024, 1, 1, 0, 0, 0, 1_000_000, 6)),
        (Spec("x", Type.TIMESTAMP2, b"\2"), timestamp2(5, 0, 0) + b"\xff"),
        (Spec("x", Type.TIME2, b"\0"), b"\x80\x0f\xff"),
        (Spec("x", Type.ENUM, b"\xf7\1", charset=UTF8MB4, labels=("a",)), b"\2"),
        (Spec("x", Type.SET, b"\xf8\1", charset=UTF8MB4, labels=("a",)), b"\2"),
    ],
)
def test_the_error_names_the_invalid_cell(spec: Spec, cell: bytes) -> None:
    with pytest.raises(BinlogError) as caught:
        column(spec, [None, cell])
    assert caught.value.kind is ErrorKind.INVALID_VALUE
    assert "table shop.orders, column 'x'" in caught.value.what
    assert caught.value.where.startswith("offset ")
    _becomes_null(spec, cell)


def _becomes_null(spec: Spec, cell: bytes) -> None:
    """Of five rows, the invalid cells are NULL if the reader wants that, and the others have their values."""
    invalid = (1, 3, 4)
    cells = [[cell if row in invalid else None, integer(row, 4)] for row in range(5)]
    columns = [spec, Spec("id", Type.LONG)]
    found = decoded(columns, cells, rules=ColumnRules(nulls_invalid=True))
    assert [(each.column, each.row) for each in found.invalid] == [("x", row) for row in invalid]
    assert all(each.why and each.data for each in found.invalid)
    rows = found.batch.column("after").to_pylist()
    assert rows == [{"x": None, "id": row} for row in range(5)]


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        (Spec("x", Type.VARCHAR, b"\x10\0", charset=999), "character set of collation 999"),
        (Spec("x", Type.VARCHAR, b"\x10\0"), "character set unknown"),
        (
            Spec("x", Type.ENUM, b"\xf7\1", charset=999, labels=("a",)),
            "ENUM without readable labels",
        ),
        (Spec("x", Type.NULL), "NULL"),
    ],
)
def test_unsupported_types_name_table_and_column(spec: Spec, what: str) -> None:
    with pytest.raises(BinlogError) as caught:
        decoded([Spec("id", Type.LONG), spec], [[integer(1, 4), None]])
    assert caught.value.kind is ErrorKind.UNSUPPORTED_TYPE
    assert "table shop.orders, column 'x'" in caught.value.what
    assert what in caught.value.what


def test_arrow_type_alone_names_the_column() -> None:
    (found,) = TableMap.parse(table_map([Spec("x", Type.NULL)])).columns
    with pytest.raises(BinlogError, match="column 'x': NULL"):
        arrow_type(found)


# -- whole rows -------------------------------------------------------------------------------------------------

MIXED = (
    Spec("id", Type.LONG),
    Spec("name", Type.VARCHAR, (400).to_bytes(2, "little"), charset=UTF8MB4),
    Spec("price", Type.NEWDECIMAL, bytes((12, 3))),
    Spec("at", Type.DATETIME2, b"\6"),
    Spec("blob", Type.BLOB, b"\2", charset=BINARY),
    *(Spec(f"c{i}", Type.TINY) for i in range(6)),
)
_VALUES = st.tuples(
    st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    st.one_of(st.none(), st.text(max_size=20)),
    st.one_of(
        st.none(),
        st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3, _EXACT)),
    ),
    st.one_of(st.none(), st.datetimes(DATETIME(1, 1, 1))),
    st.one_of(st.none(), st.binary(max_size=20)),
    *(st.one_of(st.none(), st.integers(-128, 127)) for _ in range(6)),
)


def cells_of(values: Sequence[Any]) -> Row:
    return [encode_cell(spec, value) for spec, value in zip(MIXED, values, strict=True)]


def as_dict(values: Sequence[Any]) -> dict[str, Any]:
    return {spec.name: value for spec, value in zip(MIXED, values, strict=True)}


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((23, 24, 25, 30, 31, 32)),
            st.lists(st.tuples(_VALUES, _VALUES), max_size=4),
        ),
        max_size=5,
    ),
    st.integers(1, 5),
)
def test_any_rows_are_decoded(
    operations: list[tuple[int, list[tuple[Sequence[Any], Sequence[Any]]]]], batch_rows: int
) -> None:
    log, wanted = Delivered(), []
    for kind, pairs in operations:
        images, op = [], {0: "insert", 1: "update", 2: "delete"}[(kind - 23) % 7]
        for row, (before, after) in enumerate(pairs):
            images += [cells_of(before)] if op != "insert" else []
            images += [cells_of(after)] if op != "delete" else []
            wanted.append(
                {
                    "seq": log.seq + 1,
                    "ordinal": 3 << 24 | row,
                    "op": op,
                    "before": None if op == "insert" else as_dict(before),
                    "after": None if op == "delete" else as_dict(after),
                }
            )
        body = rows_body(kind, images, width=len(MIXED))
        log.transaction((19, table_map(MIXED)), (kind, body))
    found = []
    for changes in delivered.changes(log.bytes(), batch_rows=batch_rows):
        assert isinstance(changes, TableChanges)
        assert changes.batch.num_rows <= batch_rows
        changes.batch.validate(full=True)
        assert changes.batch.schema == arrow_types.change_schema(changes.table_map.columns)
        found += changes.batch.select(["seq", "ordinal", "op", "before", "after"]).to_pylist()
    assert found == wanted
