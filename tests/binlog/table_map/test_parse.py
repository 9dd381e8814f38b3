"""TABLE_MAP events: worked examples, every optional field, and invalid bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.binlog.table_map.parse import TableMap, layout_id
from dispatcher.binlog.table_map.wire import Field
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.rows_encoder import (
    ASCII,
    BINARY,
    LATIN1,
    UTF8MB4,
    Spec,
    msb_bits,
    optional,
    packed,
    string_meta,
    table_map,
)

COLUMNS = (
    Spec("id", Type.LONGLONG, unsigned=True, nullable=False),
    Spec("name", Type.VARCHAR, (400).to_bytes(2, "little"), charset=UTF8MB4),
    Spec("code", Type.STRING, string_meta(1020), charset=ASCII),
    Spec("hash", Type.STRING, string_meta(16), charset=BINARY),
    Spec("price", Type.NEWDECIMAL, bytes((10, 2))),
    Spec("state", Type.ENUM, b"\xf7\1", charset=UTF8MB4, labels=("neu", "größer", "it's")),
    Spec("tags", Type.SET, b"\xf8\2", charset=LATIN1, labels=tuple("abcdefghi")),
    Spec("at", Type.TIMESTAMP2, b"\6"),
    Spec("bits", Type.BIT, b"\5\1"),
    Spec("year", Type.YEAR),
    Spec("tiny", Type.TINY, unsigned=True),
)


def malformed(body: bytes) -> BinlogError:
    with pytest.raises(BinlogError) as caught:
        TableMap.parse(body)
    assert caught.value.kind is ErrorKind.MALFORMED_EVENT
    return caught.value


def test_worked_example_with_minimal_metadata() -> None:
    body = bytes.fromhex(
        "8c0000000000 0100 077a686a77706b7500 017400 03 030f0a 02 5000 04 010100 0203fcff00"
    )
    parsed = TableMap.parse(body)
    assert (parsed.table_id, parsed.database, parsed.table) == (140, "zhjwpku", "t")
    types = [(column.type, column.meta, column.nullable) for column in parsed.columns]
    assert types == [(3, 0, False), (15, 80, False), (10, 0, True)]
    assert [column.charset for column in parsed.columns] == [0, 255, 0]
    assert parsed.key == ()
    assert not parsed.named


@pytest.mark.parametrize(
    ("body", "table", "types"),
    [
        (
            "4e0000000000 0100 0867616e677368656e00 0a74696d655f7461626c6500 09"
            " 0a1212111113130d0d 06 000300040005 ff01",
            "time_table",
            [(10, 0), (18, 0), (18, 3), (17, 0), (17, 4), (19, 0), (19, 5), (13, 0), (13, 0)],
        ),
        (
            "5d0000000000 0100 0867616e677368656e00 0c6e756d6265725f7461626c6500 09"
            " 0102090308f6040510 06 190a 04 08 0500 ff01",
            "number_table",
            [
                (1, 0), (2, 0), (9, 0), (3, 0), (8, 0), (246, 25 << 8 | 10), (4, 4), (5, 8), (16, 5),
            ],
        ),
    ],
)  # fmt: skip
def test_worked_examples_without_metadata(
    body: str, table: str, types: list[tuple[int, int]]
) -> None:
    parsed = TableMap.parse(bytes.fromhex(body))
    assert parsed.label == f"gangshen.{table}"
    assert [(column.type, column.meta) for column in parsed.columns] == types
    assert all(column.nullable for column in parsed.columns)


def test_full_metadata_is_parsed() -> None:
    parsed = TableMap.parse(table_map(COLUMNS, key=(0, 7)))
    assert [column.name for column in parsed.columns] == [column.name for column in COLUMNS]
    assert [column.unsigned for column in parsed.columns] == [spec.unsigned for spec in COLUMNS]
    assert [column.nullable for column in parsed.columns] == [spec.nullable for spec in COLUMNS]
    assert [column.labels for column in parsed.columns] == [spec.labels for spec in COLUMNS]
    assert [column.charset for column in parsed.columns] == [spec.charset for spec in COLUMNS]
    assert [column.meta for column in parsed.columns] == [
        0, 400, 1020, 16, 10 << 8 | 2, 1, 2, 6, 13, 0, 0,
    ]  # fmt: skip
    assert parsed.key == (0, 7)
    assert parsed.named
    parsed.require_names()


def test_the_layout_does_not_depend_on_the_table_id() -> None:
    one, other = (table_map(COLUMNS, table_id=table_id) for table_id in (7, 1 << 40))
    assert TableMap.parse(one).layout == TableMap.parse(other).layout == layout_id(one)
    assert layout_id(table_map(COLUMNS[:-1])) != layout_id(one)
    assert len(layout_id(one)) == 16


def test_charset_by_default_and_exceptions() -> None:
    columns = (
        Spec("a", Type.VARCHAR, b"\x10\0"),
        Spec("n", Type.LONG),
        Spec("b", Type.BLOB, b"\2"),
        Spec("c", Type.STRING, string_meta(20)),
        Spec("e", Type.ENUM, b"\xf7\1"),
    )
    extra = optional(2, packed(255) + packed(1) + packed(63)) + optional(10, packed(8))
    parsed = TableMap.parse(table_map(columns, full=False, extra=extra))
    assert [column.charset for column in parsed.columns] == [255, 0, 63, 255, 8]


def test_key_with_prefixes_and_visibility_and_unknown_fields() -> None:
    extra = (
        optional(9, packed(1) + packed(0) + packed(2) + packed(10))
        + optional(12, msb_bits([True] * 10 + [False]))
        + optional(99, b"whatever")
    )
    parsed = TableMap.parse(table_map(COLUMNS, key=(), extra=extra))
    assert parsed.key == (1, 2)
    assert [column.visible for column in parsed.columns] == [True] * 10 + [False]


def test_other_optional_fields() -> None:
    columns = [
        Spec("id", Type.LONG),
        Spec("p", Type.GEOMETRY, b"\4"),
        Spec("v", Type.VECTOR, b"\4", charset=63),
        Spec("g", Type.GEOMETRY, b"\4"),
        Spec("u", Type.STRING, string_meta(16), charset=63),
        Spec("n", Type.STRING, string_meta(4), charset=63),
        Spec("o", Type.STRING, string_meta(16), charset=63),
    ]
    declared = b"".join(
        bytes((len(name),)) + name for name in (b"", b"", b"", b"", b"uuid", b"INET4", b"")
    )
    extra = (
        optional(7, b"\1\0") + optional(13, packed(300)) + optional(Field.COLUMN_TYPES, declared)
    )
    parsed = TableMap.parse(table_map(columns, extra=extra))
    assert [column.geometry for column in parsed.columns] == [-1, 1, -1, 0, -1, -1, -1]
    assert [column.dimensions for column in parsed.columns] == [0, 0, 300, 0, 0, 0, 0]
    assert [column.declared for column in parsed.columns] == ["", "", "", "", "uuid", "inet4", ""]


def test_a_declared_type_that_contradicts_the_column_is_ignored() -> None:
    columns = [
        Spec("a", Type.STRING, string_meta(15), charset=63),
        Spec("b", Type.STRING, string_meta(16), charset=8),
        Spec("c", Type.LONG),
        Spec("d", Type.STRING, string_meta(16), charset=63),
    ]
    extra = optional(Field.COLUMN_TYPES, b"\4uuid" * 3 + b"\x0bvarbinary16")
    assert [c.declared for c in TableMap.parse(table_map(columns, extra=extra)).columns] == [""] * 4


def test_declared_fractions_in_mariadbs_old_format_are_refused() -> None:
    columns = [Spec("a", Type.LONG), Spec("b", Type.TIMESTAMP_OLD)]
    name = b"timestamp(3) /* mariadb-5.3 */"
    extra = optional(Field.COLUMN_TYPES, b"\0" + bytes((len(name),)) + name)
    with pytest.raises(BinlogError, match=r"column 2: timestamp\(3\)") as caught:
        TableMap.parse(table_map(columns, extra=extra))
    assert caught.value.kind is ErrorKind.UNSUPPORTED_TYPE
    plain = TableMap.parse(
        table_map(columns, extra=optional(Field.COLUMN_TYPES, b"\0\x09timestamp"))
    )
    assert [column.declared for column in plain.columns] == ["", ""]


def test_a_vector_may_have_a_character_set_or_none() -> None:
    columns = [Spec("v", Type.VECTOR, b"\4"), Spec("s", Type.VARCHAR, b"\x10\0")]
    for sets in (b"\x3f\x08", b"\x08"):
        parsed = TableMap.parse(table_map(columns, full=False, extra=optional(3, sets)))
        assert parsed.columns[1].charset == 8


@pytest.mark.parametrize(
    ("field", "charsets"),
    [
        (optional(3, bytes((BINARY, LATIN1, 55))), (0, LATIN1, 55)),  # MariaDB: one for each column
        (optional(3, bytes((LATIN1, 55))), (0, LATIN1, 55)),  # MySQL: one for each text column
        (optional(2, bytes((LATIN1, 0, BINARY, 2, 55))), (0, LATIN1, 55)),  # MariaDB: a default
        (optional(2, bytes((LATIN1, 0, BINARY, 1, 55))), (0, 55, LATIN1)),  # MariaDB: a default
        (optional(2, bytes((LATIN1, 0, 33))), (0, 33, LATIN1)),  # MySQL: a geometry is binary
        (optional(2, bytes((LATIN1, 0, BINARY))) + optional(12, b"\xe0"), (0, BINARY, LATIN1)),
    ],
)
def test_a_geometry_has_a_character_set_or_none(field: bytes, charsets: tuple[int, ...]) -> None:
    specs = [
        Spec("shape", Type.GEOMETRY, b"\4"),
        *(Spec(name, Type.VARCHAR, b"\x09\0") for name in "ab"),
    ]
    body = table_map(specs, full=False, extra=field)
    found = tuple(column.charset for column in TableMap.parse(body).columns)
    assert found == charsets


def test_labels_in_an_unknown_charset_are_omitted() -> None:
    spec = Spec("e", Type.ENUM, b"\xf7\1", charset=999, labels=("a",))
    assert TableMap.parse(table_map([spec])).columns[0].labels == ()


def test_every_truncation_is_an_error() -> None:
    body = table_map(COLUMNS, key=(0, 1))
    whole = TableMap.parse(body)
    for end in range(len(body)):
        try:
            parsed = TableMap.parse(body[:end])
        except BinlogError as error:
            assert error.kind is ErrorKind.MALFORMED_EVENT  # noqa: PT017 - a cut between two fields is no error
            assert "body offset" in error.where  # noqa: PT017
        else:  # after a cut between two optional fields, some fields are missing
            assert parsed != whole


@given(st.data())
def test_mutations_raise_only_typed_errors(data: st.DataObject) -> None:
    body = bytearray(table_map(COLUMNS, key=(0, 1)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        TableMap.parse(bytes(body))
    except BinlogError as error:
        assert error.kind in (ErrorKind.MALFORMED_EVENT, ErrorKind.UNSUPPORTED_TYPE)  # noqa: PT017


@given(st.binary(max_size=300))
def test_any_bytes_raise_only_typed_errors(body: bytes) -> None:
    try:
        TableMap.parse(body)
    except BinlogError as error:
        assert error.kind in (ErrorKind.MALFORMED_EVENT, ErrorKind.UNSUPPORTED_TYPE)  # noqa: PT017


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        (optional(3, b"\x08"), "character sets for"),
        (optional(2, packed(255) + packed(9) + packed(8)), "character set to column 9"),
        (optional(2, packed(255) + packed(0)), "without its character set"),
        (optional(4, b"\1a\1b"), "column names"),
        (optional(4, packed(1) + b"x" + (packed(1) + b"x") * 10), "twice"),
        (optional(8, packed(11)), "primary key"),
        (optional(8, packed(1) + packed(1)), "primary key"),
        (optional(9, packed(1)), "last prefix"),
        (optional(6, packed(1 << 40)), "labels"),
        (optional(6, packed(0) * 2), "more ENUM columns"),
        (optional(1, b""), "cut short"),
        (b"\x04\xfe" + b"\xff" * 8, "cut short"),
        (b"\x04\xff", "where a length begins"),
    ],
)
def test_optional_fields_that_contradict_the_columns(extra: bytes, why: str) -> None:
    assert why in malformed(table_map(COLUMNS, full=False, extra=extra)).what


def test_impossible_metadata() -> None:
    for spec in (
        Spec("d", Type.NEWDECIMAL, bytes((70, 2))),
        Spec("d", Type.NEWDECIMAL, bytes((5, 6))),
        Spec("t", Type.DATETIME2, b"\7"),
        Spec("b", Type.BLOB, b"\5"),
        Spec("b", Type.BIT, b"\x09\0"),
        Spec("f", Type.FLOAT, b"\5"),
        Spec("e", Type.ENUM, b"\xf7\3"),
    ):
        malformed(table_map([spec], full=False))
    malformed(table_map([], full=False))


def test_an_unknown_type_names_table_and_column() -> None:
    with pytest.raises(BinlogError) as caught:
        TableMap.parse(table_map([Spec("x", 200)], full=False))
    assert caught.value.kind is ErrorKind.UNSUPPORTED_TYPE
    assert "shop.orders, column 1" in caught.value.what
    with pytest.raises(BinlogError, match=r"column 1: type code 0 \(DECIMAL_OLD\)"):
        TableMap.parse(table_map([Spec("x", Type.DECIMAL_OLD)], full=False))


# -- what information_schema supplies ---------------------------------------------------------------------------


def definition(
    *columns: tuple[str, str, str | None], key: tuple[str, ...] = ()
) -> dict[str, object]:
    return {
        "database": "shop",
        "table": "orders",
        "columns": [
            {"name": name, "mysql_type": text, "nullable": True, "charset": charset}
            for name, text, charset in columns
        ],
        "key": list(key),
    }


SUPPLIED = definition(
    ("id", "bigint(20) unsigned", None),
    ("name", "varchar(100)", "utf8mb4"),
    ("code", "char(255)", "ascii"),
    ("hash", "binary(16)", None),
    ("price", "decimal(10,2)", None),
    ("state", "enum('neu','größer','it''s')", "utf8mb4"),
    ("tags", "set('a','b','c','d','e','f','g','h','i')", "latin1"),
    ("at", "timestamp(6)", None),
    ("bits", "bit(13)", None),
    ("year", "year(4)", None),
    ("tiny", "tinyint(3) unsigned", None),
    key=("id",),
)


def test_a_definition_completes_a_bare_table_map() -> None:
    bare = TableMap.parse(table_map(COLUMNS, full=False))
    with pytest.raises(BinlogError, match=r"shop\.orders") as caught:
        bare.require_names()
    assert caught.value.kind is ErrorKind.METADATA_MISSING
    assert "binlog_row_metadata=FULL" in caught.value.remedy
    full = bare.with_columns(SUPPLIED)
    full.require_names()
    assert full.key == (0,)
    for column, spec in zip(full.columns, COLUMNS, strict=True):
        assert (column.name, column.labels) == (spec.name, spec.labels)
        assert column.unsigned == (spec.unsigned and spec.type != Type.YEAR)


@pytest.mark.parametrize("at", range(len(COLUMNS)))
def test_a_definition_of_another_version_is_refused(at: int) -> None:
    bare = TableMap.parse(table_map(COLUMNS, full=False))
    columns = list(SUPPLIED["columns"])  # type: ignore[call-overload]
    head, tail = columns[:at], columns[at + 1 :]
    for wrong in (head + tail, [*head, {**columns[at], "mysql_type": "json"}, *tail]):
        with pytest.raises(BinlogError) as caught:
            bare.with_columns({**SUPPLIED, "columns": wrong})
        assert caught.value.kind is ErrorKind.METADATA_MISSING
        assert "shop.orders" in caught.value.what


def test_the_servers_metadata_win_over_the_definition() -> None:
    full = TableMap.parse(table_map(COLUMNS))
    renamed = {**SUPPLIED, "columns": [{**c, "name": c["name"] + "_"} for c in SUPPLIED["columns"]]}  # type: ignore[attr-defined]
    with pytest.raises(BinlogError):
        full.with_columns(renamed)
    assert full.with_columns(SUPPLIED) == full


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("int", (Type.LONG, 0, False)),
        ("int(10) unsigned zerofill", (Type.LONG, 0, True)),
        ("decimal(65,30)", (Type.NEWDECIMAL, 65 << 8 | 30, False)),
        ("double(10,2) unsigned", (Type.DOUBLE, 8, True)),
        ("float", (Type.FLOAT, 4, False)),
        ("datetime", (Type.DATETIME2, 0, False)),
        ("datetime(3)", (Type.DATETIME2, 3, False)),
        ("mediumtext", (Type.BLOB, 3, False)),
        ("varbinary(300)", (Type.VARCHAR, 300, False)),
        ("year", (Type.YEAR, 0, False)),
        ("bit(64)", (Type.BIT, 64, False)),
        ("json", (Type.JSON, 4, False)),
        ("multipoint", (Type.GEOMETRY, 4, False)),
        ("timestamp(6)", (Type.TIMESTAMP2, 6, False)),
        ("uuid", (Type.STRING, 16, False)),
        ("inet4", (Type.STRING, 4, False)),
        ("inet6", (Type.STRING, 16, False)),
        ("vector(3)", (Type.VECTOR, 4, False)),
        ("varchar(10) /*M!100301 COMPRESSED*/", (Type.MARIADB_VARCHAR_COMPRESSED, 11, False)),
        ("mediumblob /*M!100301 COMPRESSED*/", (Type.MARIADB_BLOB_COMPRESSED, 3, False)),
    ],
)
def test_column_types(text: str, wanted: tuple[int, int, bool]) -> None:
    (column,) = defined_columns(definition(("c", text, None)))
    assert (column.type, column.meta, column.unsigned) == wanted


def test_labels_are_unquoted() -> None:
    (column,) = defined_columns(definition(("c", r"enum('a,b','it''s','c\\d','',')')", "utf8mb4")))
    assert column.labels == ("a,b", "it's", r"c\d", "", ")")


@pytest.mark.parametrize("text", ["hyperloglog", "", "int int("])
def test_unknown_column_types_are_named(text: str) -> None:
    with pytest.raises(BinlogError) as caught:
        defined_columns(definition(("c", text, None)))
    assert caught.value.kind is ErrorKind.UNSUPPORTED_TYPE
    assert "shop.orders, column 'c'" in caught.value.what
