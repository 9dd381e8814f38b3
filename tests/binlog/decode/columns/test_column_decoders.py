"""Types, character sets and row images that no single server has all of: an encoder writes them, intact and damaged."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.arrow import arrow_types
from dispatcher.binlog.decode.changes.json_render import json_text
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.table_map.column_types import InvalidDates, Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support import jsonb_encoder
from tests.support.rows_encoder import (
    BINARY,
    LATIN1,
    UTF8MB4,
    Delivered,
    Row,
    Spec,
    compressed,
    encode_cell,
    image,
    integer,
    lsb_bits,
    optional,
    packed,
    partial_image,
    rows_body,
    string_meta,
    table_map,
    text,
)

UTC = dt.UTC
WKB = b"\1\1\0\0\0" + struct.pack("<dd", 1.5, -2)
UUID = bytes.fromhex("123e4567e89b12d3a456426655440000")
SHOWN_UUID = "123e4567-e89b-12d3-a456-426655440000"
POINT = {"srid": 4326, "wkb": WKB}
LAST = dt.datetime(2038, 1, 19, 3, 14, 7, 999999, UTC)
LEAP = dt.datetime(2024, 2, 29, 1, 2, 3, 0, UTC)
# A column of every type that a log can hold, and values of it: (as stored, as decoded).
EVERY: tuple[tuple[Spec, Any, Any], ...] = (
    (Spec("ti", Type.TINY), -128, -128),
    (Spec("si", Type.SHORT, unsigned=True), 65535, 65535),
    (Spec("mi", Type.INT24), -8_388_608, -8_388_608),
    (Spec("ii", Type.LONG, unsigned=True), 4_294_967_295, 4_294_967_295),
    (Spec("bu", Type.LONGLONG, unsigned=True), 2**64 - 1, Decimal(2**64 - 1)),
    (Spec("d", Type.NEWDECIMAL, b"\x0a\2"), Decimal("-123.45"), Decimal("-123.45")),
    (Spec("d65", Type.NEWDECIMAL, b"\x41\x1e"), Decimal("-1.5"), "-1.5" + "0" * 29),
    (Spec("f", Type.FLOAT, b"\4"), 1.5, 1.5),
    (Spec("g", Type.DOUBLE, b"\x08"), -0.1, -0.1),
    (Spec("y", Type.YEAR), 124, 2024),
    (Spec("b", Type.BIT, b"\5\1"), b"\x1f\xff", b"\x1f\xff"),
    (Spec("da", Type.DATE), dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
    (Spec("nd", Type.NEWDATE), dt.date(1, 1, 1), dt.date(1, 1, 1)),
    (Spec("dt", Type.DATETIME2, b"\3"), dt.datetime(2024, 2, 29, 1, 2, 3, 4000, UTC), "2024-02-29T01:02:03.004000"),
    (Spec("do", Type.DATETIME_OLD), dt.datetime(9999, 12, 31, 23, 59, 59, 0, UTC), "9999-12-31T23:59:59"),
    (Spec("ts", Type.TIMESTAMP2, b"\6"), LAST, LAST),
    (Spec("to", Type.TIMESTAMP_OLD), LEAP, LEAP),
    (Spec("tm", Type.TIME2, b"\6"), -3_020_399_000_000, -3_020_399_000_000),
    (Spec("tt", Type.TIME_OLD), -3_020_399_000_000, -3_020_399_000_000),
    (Spec("e", Type.ENUM, b"\xf7\1", charset=28, labels=("a", "中文")), 2, "中文"),
    (Spec("s", Type.SET, b"\xf8\2", charset=35, labels=tuple("aжcdefghi")), 0b11, "a,ж"),
    (Spec("vb", Type.VARCHAR, b"\x2c\1", charset=BINARY), b"\0\xff", b"\0\xff"),
    (Spec("bi", Type.STRING, string_meta(8), charset=BINARY), b"\1\0", b"\1" + bytes(7)),
    (Spec("c", Type.STRING, string_meta(400), charset=UTF8MB4), "😀ж", "😀ж"),
    (Spec("vs", Type.VAR_STRING, b"\x10\0", charset=LATIN1), "é€", "é€"),
    (Spec("bl", Type.BLOB, b"\3", charset=BINARY), b"\0" * 20, b"\0" * 20),
    (Spec("j", Type.JSON, b"\4"), {"a": [1, "x"]}, '{"a": [1, "x"]}'),
    (Spec("p", Type.GEOMETRY, b"\4", geometry=1), POINT, POINT),
    (Spec("v", Type.VECTOR, b"\4", charset=BINARY, dimensions=9), [1.0, -2.5], [1.0, -2.5]),
    (Spec("cb", Type.MARIADB_BLOB_COMPRESSED, b"\2", charset=BINARY), b"ab" * 40, b"ab" * 40),
    (Spec("cs", Type.MARIADB_BLOB_COMPRESSED, b"\4", charset=28), "中文", "中文"),
    (Spec("cv", Type.MARIADB_VARCHAR_COMPRESSED, b"\x90\1", charset=UTF8MB4), "ж" * 40, "ж" * 40),
    (Spec("cw", Type.MARIADB_VARCHAR_COMPRESSED, b"\x90\0", charset=BINARY), b"q" * 41, b"q" * 41),
    (Spec("u", Type.STRING, string_meta(16), charset=BINARY, declared="uuid"), UUID, SHOWN_UUID),
    (Spec("n6", Type.STRING, string_meta(16), charset=BINARY, declared="inet6"), b"\x20\1\x0d\xb8", "2001:db8::"),
    (Spec("n4", Type.STRING, string_meta(4), charset=BINARY, declared="inet4"), b"\x0a\1", "10.1.0.0"),
    *((Spec(f"x{charset}", Type.VARCHAR, b"\x60\0", charset=charset), value, value)
      for charset, value in ((1, "中x"), (12, "日本ｱ"), (13, "日ｱ"), (19, "한국"), (28, "中"), (35, "ж†"), (51, "Ж"),
                             (54, "😀x"), (56, "😀"), (60, "😀"), (95, "日"), (248, "中😀ŉ"))),
)  # fmt: skip


DAMAGE = (ErrorKind.MALFORMED_EVENT, ErrorKind.INVALID_VALUE, ErrorKind.ROW_IMAGE)


def rows_or_damage(data: bytes, kinds: Sequence[ErrorKind] = DAMAGE, **options: Any) -> list[Any]:
    """Returns the rows, or no rows if an error of one of these kinds is raised."""
    try:
        return rows_in(data, **options)
    except BinlogError as error:
        if error.kind not in kinds:
            raise
        return []


def log_of(columns: Sequence[Spec], kind: int, body: bytes, **options: Any) -> bytes:
    log = Delivered(checksum=False)
    log.transaction((19, table_map(columns, **options)), (kind, body))
    return log.bytes()


def rows_in(data: bytes, **options: Any) -> list[dict[str, Any]]:
    found = []
    for part in delivered.changes(data, **options):
        assert isinstance(part, TableChanges)
        part.batch.validate(full=True)
        json_text(part.batch)
        found += part.batch.to_pylist()
    return found


COLUMNS = [spec for spec, _, _ in EVERY]


CELLS: Row = [encode_cell(spec, stored) for spec, stored, _ in EVERY]
NULLS: Row = [None] * len(EVERY)


@pytest.mark.parametrize("kind", [30, 31, 32, 23, 24, 25])
def test_every_type_is_decoded_to_its_value(kind: int) -> None:
    rows = rows_in(log_of(COLUMNS, kind, rows_body(kind, [CELLS, NULLS])))
    found = [row[name] for row in rows for name in ("before", "after") if row[name]]
    shown, nulls = found
    assert nulls == dict.fromkeys(spec.name for spec in COLUMNS)
    for spec, _, wanted in EVERY:
        value = shown[spec.name]
        if isinstance(wanted, str) and isinstance(value, dt.datetime):
            value = value.isoformat()
        assert value == wanted, spec


def test_truncated_rows_are_an_error_except_between_rows() -> None:
    body = rows_body(30, [CELLS, NULLS])
    kinds = (ErrorKind.MALFORMED_EVENT, ErrorKind.ROW_IMAGE)
    found = [
        len(rows_or_damage(log_of(COLUMNS, 30, body[:end]), kinds)) for end in range(len(body))
    ]
    assert sum(found) == 1  # only the cut after the first row yields a row


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from(InvalidDates))
def test_changed_bytes_of_any_type_raise_only_typed_errors(
    seed: int, changes: int, policy: InvalidDates
) -> None:
    body = bytearray(rows_body(30, [CELLS, NULLS]))
    for _ in range(changes):
        seed, at = divmod(seed * 2_654_435_761 + 97, len(body) - 8)
        body[8 + at] ^= 1 << seed % 8
    rows_or_damage(log_of(COLUMNS, 30, bytes(body)), invalid_dates=policy)


@pytest.mark.parametrize(
    ("spec", "cell"), list(zip(COLUMNS, CELLS, strict=True)), ids=[spec.name for spec in COLUMNS]
)
def test_any_bytes_of_a_cell_raise_only_typed_errors(spec: Spec, cell: bytes) -> None:
    for at in range(min(len(cell), 20)):
        for byte in (0, 1, 0x80, 0xFF):
            changed = cell[:at] + bytes((byte,)) + cell[at + 1 :]
            rows_or_damage(log_of([spec], 30, rows_body(30, [[changed]]), key=()))


# -- images that do not hold all ----------------------------------------------------------------------------------

SOME = [
    Spec("id", Type.LONG), Spec("a", Type.VARCHAR, b"\x10\0", charset=UTF8MB4), Spec("j", Type.JSON, b"\4"),
    Spec("k", Type.JSON, b"\4"), Spec("z", Type.TINY), *(Spec(f"m{i}", Type.TINY) for i in range(6)),
]  # fmt: skip


def document(value: Any) -> bytes:
    return text(jsonb_encoder.encode(value), 4)


def test_a_missing_column_is_not_null() -> None:
    before = lsb_bits([True] + [False] * 10)
    after = lsb_bits([False, True, False, False, True] + [False] * 6)
    rows: list[Row] = [[integer(1, 4)], [text("x", 1), None], [integer(2, 4)], [None, b"\5"]]
    body = rows_body(31, rows, width=11, present=before, present_after=after)
    one, two = rows_in(log_of(SOME, 31, body))
    none = dict.fromkeys(spec.name for spec in SOME)
    assert (one["before"], one["after"]) == (none | {"id": 1}, none | {"a": "x"})
    assert (two["before"], two["after"]) == (none | {"id": 2}, none | {"z": 5})
    names = [spec.name for spec in SOME]
    assert one["before_absent"] == two["before_absent"] == names[1:]
    assert one["after_absent"] == two["after_absent"] == [n for n in names if n not in ("a", "z")]
    (part,) = delivered.split_by_table(log_of(SOME, 31, body))
    assert isinstance(part, delivered.TableSlice)
    assert part.rows == 2
    (batch,) = delivered.decode_table(part.payload)
    assert batch.column("after_absent").to_pylist() == [one["after_absent"]] * 2


def test_full_and_partial_row_images_of_one_table() -> None:
    log = Delivered()
    full: Row = [integer(7, 4), text("f", 1), None, None, b"\1", *[None] * 6]
    sparse = lsb_bits([True, True] + [False] * 9)
    log.transaction(
        (19, table_map(SOME)),
        (30, rows_body(30, [full])),
        (30, rows_body(30, [[integer(8, 4), None]], width=11, present=sparse)),
        (32, rows_body(32, [full])),
        (31, rows_body(31, [full, [integer(9, 4), None]], present_after=sparse)),
    )
    rows = rows_in(log.bytes())
    lacking = [spec.name for spec in SOME][2:]
    assert [(row["before_absent"], row["after_absent"]) for row in rows] == [
        (None, None), (None, lacking), (None, None), (None, lacking)
    ]  # fmt: skip


def partial(diffs: Sequence[bool] | None, before: Row, after: Row, **options: Any) -> bytes:
    data = image(before) + partial_image(after, diffs)
    return log_of(SOME, 39, rows_body(39, [], width=11, data=data, **options))


FULL: Row = [integer(1, 4), None, document({"a": 1, "b": [1, 2]}), document([1]), *[b"\1"] * 7]


def test_changes_of_json_apply_to_the_before_image() -> None:
    diffs = jsonb_encoder.diff(0, "$.a", "new") + jsonb_encoder.diff(2, "$.b[0]")
    after: Row = [integer(1, 4), None, text(diffs, 4), document({"q": 1}), *[b"\2"] * 7]
    (row,) = rows_in(partial([True, False], FULL, after))
    assert (row["op"], row["after"]["k"]) == ("update", '{"q": 1}')
    assert row["after"]["j"] == '{"a": "new", "b": [2]}'
    assert row["before"]["j"] == '{"a": 1, "b": [1, 2]}'
    assert row["after_absent"] is None
    # Images whose partial JSON holds no change, and an event without partial bits.
    (row,) = rows_in(partial([True, True], FULL, [*FULL[:2], text(b"", 4), text(b"", 4), *FULL[4:]]))  # fmt: skip
    assert row["after"] == row["before"]
    (row,) = rows_in(partial(None, FULL, FULL))
    assert row["after"] == row["before"]


def test_changes_of_json_keep_their_bit_if_columns_are_missing() -> None:
    """The partial bits have one bit for each JSON column of the table, even if the image does not contain the
    column."""
    there = lsb_bits([False, False, False, True] + [False] * 7)
    after: Row = [text(jsonb_encoder.diff(1, "$[1]", 2), 4)]
    (row,) = rows_in(partial([False, True], FULL, after, present_after=there))
    assert row["after"]["k"] == "[1, 2]"


@pytest.mark.parametrize(
    ("before", "diffs", "kind", "why"),
    [
        (
            None,
            jsonb_encoder.diff(0, "$.a", 1),
            ErrorKind.INVALID_VALUE,
            "a change of JSON to a value that is NULL",
        ),
        (document({}), jsonb_encoder.diff(0, "$.a", 1), ErrorKind.INVALID_VALUE, "column 'j': "),
        (document({}), b"\7", ErrorKind.INVALID_VALUE, "column 'j': "),
        (
            text(b"\x0f", 4),
            jsonb_encoder.diff(0, "$.a", 1),
            ErrorKind.INVALID_VALUE,
            "column 'j': ",
        ),
    ],
)
def test_changes_of_json_that_do_not_apply_are_refused(
    before: bytes | None, diffs: bytes, kind: ErrorKind, why: str
) -> None:
    row: Row = [*FULL[:2], before, *FULL[3:]]
    with pytest.raises(BinlogError) as caught:
        rows_in(partial([True, False], row, [*FULL[:2], text(diffs, 4), *FULL[3:]]))
    assert (caught.value.kind, why in caught.value.what) == (kind, True), caught.value


def test_a_change_of_json_without_its_before_image_is_refused() -> None:
    there = lsb_bits([True] + [False] * 10)
    after: Row = [text(jsonb_encoder.diff(0, "$.a", 1), 4)]
    changed = lsb_bits([False, False, True] + [False] * 8)
    with pytest.raises(BinlogError, match="without the value that it changes") as caught:
        rows_in(partial([True, False], [integer(1, 4)], after, present=there, present_after=changed))  # fmt: skip
    assert caught.value.kind is ErrorKind.ROW_IMAGE


def test_an_unchanged_json_value_outside_the_log_stays_missing() -> None:
    there = lsb_bits([True] + [False] * 10)
    changed = lsb_bits([False, False, True] + [False] * 8)
    unchanged: Row = [text(b"", 4)]
    (row,) = rows_in(
        partial([True, False], [integer(1, 4)], unchanged, present=there, present_after=changed)
    )
    assert row["after"]["j"] is None
    assert row["after_absent"] == [spec.name for spec in SOME]


def test_a_truncated_partial_update_is_an_error() -> None:
    after: Row = [*FULL[:2], text(jsonb_encoder.diff(0, "$.a", 1), 4), *FULL[3:]]
    whole = rows_body(39, [], width=11, data=image(FULL) + partial_image(after, [True, False]))
    assert rows_in(log_of(SOME, 39, whole))
    cuts = (log_of(SOME, 39, whole[:end]) for end in range(len(whole)))
    assert not any(rows_or_damage(cut, [ErrorKind.MALFORMED_EVENT]) for cut in cuts)
    unknown = whole.replace(image(FULL) + b"\1", image(FULL) + b"\2")
    with pytest.raises(BinlogError, match="unknown options"):
        rows_in(log_of(SOME, 39, unknown))


# -- single values ------------------------------------------------------------------------------------------------


def one(spec: Spec, cell: bytes | None, **options: Any) -> Any:
    (row,) = rows_in(log_of([spec], 30, rows_body(30, [[cell]]), key=()), **options)
    return row["after"][spec.name]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("00000000000000000000000000000000", "::"),
        ("00000000000000000000000000000001", "::1"),
        ("00000000000000000000ffff01020304", "::ffff:1.2.3.4"),
        ("00000000000000000000000001020304", "::1.2.3.4"),
        ("00010000000200030004000500060007", "1::2:3:4:5:6:7"),
        ("00010000000000020000000000000003", "1:0:0:2::3"),
        ("20010db8000000000000ff0000428329", "2001:db8::ff00:42:8329"),
        ("ffffffffffffffffffffffffffffffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("00010002000300040005000600070000", "1:2:3:4:5:6:7::"),
    ],
)
def test_inet6(value: str, shown: str) -> None:
    spec = Spec("n", Type.STRING, string_meta(16), charset=BINARY, declared="inet6")
    assert one(spec, text(bytes.fromhex(value).rstrip(b"\0"), 1)) == shown


def test_a_compressed_value_as_a_server_wrote_it() -> None:
    spec = Spec("a", Type.MARIADB_VARCHAR_COMPRESSED, b"\xb1\4", charset=UTF8MB4)
    assert one(spec, bytes.fromhex("0a008a012c4b4a1a05c40200")) == "b" * 300
    assert one(spec, compressed("ж".encode() * 9, 2, store=True)) == "ж" * 9
    assert one(spec, compressed(b"", 2)) == ""


@pytest.mark.parametrize(
    ("spec", "cell", "shown"),
    [
        (Spec("x", Type.DATE), b"\0\0\0", "0000-00-00"),
        (Spec("x", Type.DATETIME_OLD), integer(20240200010203, 8), "2024-02-00 01:02:03"),
        (Spec("x", Type.TIMESTAMP_OLD), bytes(4), "0000-00-00 00:00:00"),
        (Spec("x", Type.TIMESTAMP2, b"\2"), bytes(5), "0000-00-00 00:00:00.00"),
        (Spec("x", Type.DATETIME2, b"\4"), b"\x80\0\0\0\0\0\x05", "0000-00-00 00:00:00.0005"),
    ],
)
def test_invalid_dates_follow_the_policy(spec: Spec, cell: bytes, shown: str) -> None:
    assert one(spec, cell) is None
    assert one(spec, cell, invalid_dates=InvalidDates.TEXT) == shown
    with pytest.raises(BinlogError, match="an invalid date") as caught:
        one(spec, cell, invalid_dates=InvalidDates.ERROR)
    assert caught.value.kind is ErrorKind.INVALID_VALUE


@given(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59)))  # noqa: DTZ001
def test_dates_as_text(value: dt.datetime) -> None:
    spec = Spec("x", Type.DATETIME2, b"\6")
    wanted = value.isoformat(" ", "microseconds")
    assert one(spec, encode_cell(spec, value), invalid_dates=InvalidDates.TEXT) == wanted
    if 1971 <= value.year <= 2037:
        spec = Spec("x", Type.TIMESTAMP2, b"\6")
        cell = encode_cell(spec, value.replace(tzinfo=UTC))
        assert one(spec, cell, invalid_dates=InvalidDates.TEXT) == wanted


def test_a_default_charset_applies_to_all_labels() -> None:
    spec = Spec("e", Type.ENUM, b"\xf7\1")
    labels = optional(6, packed(1) + packed(2) + "中".encode("gbk"))
    extra = optional(4, packed(1) + b"e") + labels + optional(10, packed(28))
    log = Delivered()
    log.transaction(
        (19, table_map([spec], full=False, extra=extra)), (30, rows_body(30, [[b"\1"]]))
    )
    (row,) = rows_in(log.bytes())
    assert row["after"] == {"e": "中"}


def test_arrow_types() -> None:
    schema = rows_schema()
    assert schema.field("p").type == pa.struct([("srid", pa.int64()), ("wkb", pa.binary())])
    assert schema.field("v").type == pa.list_(pa.field("element", pa.float32()))
    assert {schema.field(name).type for name in ("u", "n4", "n6", "j", "cs", "d65")} == {pa.string()}  # fmt: skip
    as_text = rows_schema(InvalidDates.TEXT)
    assert {as_text.field(n).type for n in ("da", "nd", "dt", "do", "ts", "to")} == {pa.string()}
    assert as_text.field("tm").type == pa.int64()


def rows_schema(policy: InvalidDates = InvalidDates.NULL) -> pa.Schema:
    columns = TableMap.parse(table_map(COLUMNS)).columns
    return pa.schema(list(arrow_types.change_schema(columns, "t", policy).field("after").type))
