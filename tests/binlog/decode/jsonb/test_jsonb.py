"""Binary JSON to text: any document that the encoder writes is decoded to the text that the server prints, and any
other bytes are refused."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.binlog.decode.arrow.invalid import Invalid
from dispatcher.binlog.decode.jsonb import jsonb
from tests.support import jsonb_encoder as encoder
from tests.support.json_documents import document_text
from tests.support.jsonb_encoder import Opaque, Unsigned, encode

# Documents: the bytes that MySQL 9.7 stored, and the text that it printed.
SERVERS_OWN: dict[str, str] = {
    "0003004b00190001001a0001001b000200050100021d000037006162616204001a000501000502000b10000c18000000"
    "000000000c4001780200140012000100130001000400000401006e74": (
        '{"a": 1, "b": [1, 2, 3.5, "x"], "ab": {"n": null, "t": true}}'
    ),
    "0200000400": "[]",
    "0000000400": "{}",
    "050100": "1",
    "0c00": '""',
    "0b408cb5781daf1544": "1e20",
    "0b0000000000000080": "-0.0",
    "0b000000000000f03f": "1.0",
    "0affffffffffffffff": "18446744073709551615",
    "090000000000000080": "-9223372036854775808",
    "0b000000000000f043": "1.8446744073709552e19",
    "0f0a08000000000042b219": '"2024-01-01"',
    "0f0b0800000000a0000000": '"10:00:00.000000"',
    "0ff60402018105": "1.5",
    "0f0f0101": '"base64:type15:AQ=="',
    "": "null",
}

_DATETIMES = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59))  # noqa: DTZ001
_TIMES = st.integers(-3_020_399_999_999, 3_020_399_999_999).map(
    lambda micros: dt.timedelta(microseconds=micros)
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.integers(-70_000, 70_000),
    st.integers(0, (1 << 64) - 1).map(Unsigned),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.decimals(-(10**30), 10**30, places=10).filter(
        lambda value: value != 0 or not value.is_signed()
    ),
    st.dates(),
    _DATETIMES,
    _TIMES,
    st.binary(max_size=100),
    st.builds(
        Opaque, st.sampled_from((13, 16, 242, 249, 250, 251, 252, 254, 255)), st.binary(max_size=9)
    ),
)
_DOCUMENTS = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=30,
)
# A document with a value of each kind, for tests that change or cut each byte.
ALL_KINDS: dict[str, Any] = {
    "": [],
    "o": {},
    "literals": [None, True, False],
    "int": [0, -1, 32767, -32768, 32768, -2147483648, 1 << 40, -(1 << 63), (1 << 64) - 1],
    "unsigned": [Unsigned(7), Unsigned(1 << 31)],
    "double": [1.5, -0.0, 1e300],
    "text": ['"\\/\n\x01', "é😀"],
    "opaque": [Decimal("-12.340"), dt.date(2024, 2, 29), dt.datetime(2024, 1, 2, 3, 4, 5, 6), dt.timedelta(hours=-1)],  # noqa: DTZ001
    "bytes": [b"\0\xff", Opaque(16, b"\5")],
    "deep": {"er": [{"a": [1]}]},
}  # fmt: skip


def texts(documents: list[bytes | None]) -> list[str | None]:
    data, offsets, valid = encoder.column(documents)
    array = jsonb.json_strings(
        np.frombuffer(data, dtype=np.uint8),
        np.array(offsets, dtype=np.int64),
        np.array(valid, dtype=np.bool_),
    )
    array.validate(full=True)
    found: list[str | None] = array.to_pylist()
    return found


def refused(document: bytes) -> str:
    with pytest.raises(Invalid) as caught:
        document_text(document)
    assert caught.value.row == 0
    return caught.value.why


def text_or_nothing(document: bytes) -> str | None:
    try:
        return document_text(document)
    except Invalid:
        return None


@pytest.mark.parametrize(("raw", "wanted"), SERVERS_OWN.items())
def test_bytes_that_a_server_wrote(raw: str, wanted: str) -> None:
    assert document_text(bytes.fromhex(raw)) == wanted


@given(
    st.lists(st.one_of(st.none(), _DOCUMENTS.map(lambda value: [value])), max_size=6),
    st.integers(0, 3),
    st.booleans(),
)
def test_a_column_is_printed_as_by_the_server(
    values: list[list[Any] | None], hole: int, large: bool
) -> None:
    # None stands for NULL. A document is in a list, so that the document `null` differs from NULL.
    documents = [
        None if value is None else encode(value[0], hole=hole, large=large) for value in values
    ]
    wanted = [None if value is None else encoder.text(value[0]) for value in values]
    assert texts(documents) == wanted


@given(_DOCUMENTS)
def test_the_text_is_json(value: Any) -> None:
    json.loads(document_text(encode(value)))


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(5e-324)
@example(1.7976931348623157e308)
@example(2.2250738585072014e-308)
@example(9007199254740993.0)
def test_doubles_have_the_fewest_digits(value: float) -> None:
    found = document_text(encode(value))
    assert found == encoder.double_text(value)
    assert struct.pack("<d", float(found)) == struct.pack("<d", value)
    assert set(found) & set(".e")


def test_doubles_next_to_powers() -> None:
    values = [
        sign * base**exponent
        for base in (2.0, 10.0)
        for exponent in range(-300, 300)
        for sign in (1, -1)
    ]
    values += [math.nextafter(value, to) for value in values for to in (math.inf, -math.inf)]
    values += [value * 5e-324 for value in range(1, 500)]
    assert texts([encode(value) for value in values]) == [
        encoder.double_text(value) for value in values
    ]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0.0, "0.0"),
        (100.0, "100.0"),
        (1e14, "100000000000000.0"),
        (123456789012345.0, "123456789012345.0"),
        (1e15, "1e15"),
        (1234567890123456.0, "1.234567890123456e15"),
        (1234567890123456.5, "1234567890123456.5"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (1.25e-15, "0.00000000000000125"),
        (-1.5e-7, "-0.00000015"),
        (1e100, "1e100"),
    ],
)  # fmt: skip
def test_form_of_doubles(value: float, wanted: str) -> None:
    assert document_text(encode(value)) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Decimal("0.00"), "0.00"),
        (Decimal("-0.5"), "-0.5"),
        (Decimal("12.340"), "12.340"),
        (Decimal(10) ** 64, "1" + "0" * 64),
        (Decimal("-" + "9" * 35 + "." + "9" * 30), "-" + "9" * 35 + "." + "9" * 30),
        (Decimal("0." + "0" * 29 + "1"), "0." + "0" * 29 + "1"),
        (dt.timedelta(0), '"00:00:00.000000"'),
        (-dt.timedelta(hours=838, minutes=59, seconds=59), '"-838:59:59.000000"'),
        (dt.date(1, 1, 1), '"0001-01-01"'),
        (Opaque(encoder.DATE, bytes(8)), '"0000-00-00"'),
        (Opaque(encoder.TIMESTAMP, bytes(8)), '"0000-00-00 00:00:00.000000"'),
        (Opaque(253, 'as "téxt"'.encode()), r'"as \"téxt\""'),
        (Opaque(253, b"a\xff"), '"base64:type253:Yf8="'),
        (Opaque(16, b""), '"base64:type16:"'),
    ],
)  # fmt: skip
def test_form_of_opaque_values(value: Any, wanted: str) -> None:
    assert document_text(encode(value)) == wanted


def test_base64_has_the_servers_line_breaks() -> None:
    value = bytes(range(256)) * 4
    for size in (56, 57, 58, 114, 115, 1000):
        assert document_text(encode(value[:size])) == encoder.text(value[:size])
    assert document_text(encode(value)).count("\\n") == 17


def test_escapes() -> None:
    plain = "".join(map(chr, range(128)))
    assert document_text(encode(plain)) == json.dumps(plain, ensure_ascii=False)
    assert (
        document_text(encode({plain: "/é\u2028😀"}))
        == f'{{{json.dumps(plain, ensure_ascii=False)}: "/é\u2028😀"}}'
    )


def test_large_containers() -> None:
    numbers = list(range(-40_000, 40_000)) + [None, True, "x", 1.5, Unsigned(40_000)]
    members: dict[str, Any] = {
        f"key {number}": {"n": number, "s": [number]} for number in range(20_000)
    }
    members["k" * 65_535] = "v" * 70_000
    for value in (numbers, members, ["x" * 65_536], {"inner": numbers, "small": [70_000]}):
        raw = encode(value)
        assert raw[0] in (encoder.LARGE_ARRAY, encoder.LARGE_OBJECT)
        assert document_text(raw) == encoder.text(value)


def test_the_buffer_grows_for_much_longer_texts() -> None:
    values = ["\0" * 5_000, 1, "\x1f" * 70_000, [True] * 5_000, {}]
    assert texts([encode(value) for value in values]) == [encoder.text(value) for value in values]


def test_columns_may_be_empty_or_part_of_more() -> None:
    assert texts([]) == []
    assert texts([None, None]) == [None, None]
    data = np.frombuffer(b"??" + encode([1]) + b"??", dtype=np.uint8)
    found = jsonb.json_strings(data, np.array([2, len(data) - 2], dtype=np.int64))
    assert found.to_pylist() == ["[1]"]


def test_more_than_2_gib_of_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonb, "_GREATEST_TEXT", 10)
    assert texts([encode("12345678")]) == ['"12345678"']
    with pytest.raises(Invalid, match="more than 2 GiB"):
        texts([encode("12345678"), encode(None)])


def nested(depth: int, kind: type[list[Any] | dict[str, Any]] = list) -> Any:
    value: Any = kind()
    for _ in range(depth - 1):
        value = [value] if kind is list else {"k": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
def test_depth(kind: Any) -> None:
    deepest = nested(100, kind)
    assert document_text(encode(deepest)) == encoder.text(deepest)
    assert "nested more than 100 deep" in refused(encode(nested(101, kind)))


def test_the_error_names_the_first_invalid_row() -> None:
    good, bad = encode({"a": 1}), encode(["x"])[:-1]
    with pytest.raises(Invalid) as caught:
        texts([good, None, good, bad, good])
    assert caught.value.row == 3
    assert str(caught.value) == "not JSON: a value reaches past its end, at byte 1"


@pytest.mark.parametrize("hole", [0, 2])
def test_truncated_documents_are_refused(hole: int) -> None:
    whole = encode(ALL_KINDS, hole=hole)
    for size in range(1, len(whole)):
        refused(whole[:size])
    assert document_text(whole + b"more") == encoder.text(ALL_KINDS)


def test_flipped_bytes_raise_only_typed_errors() -> None:
    whole = encode(ALL_KINDS)
    for at in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF, 0x0F):
            text_or_nothing(whole[:at] + bytes((whole[at] ^ flip,)) + whole[at + 1 :])


@given(st.binary(max_size=60), st.integers(0, 16))
def test_any_bytes(data: bytes, kind: int) -> None:
    found = text_or_nothing(bytes((kind,)) + data)
    assert found is None or len(found) <= 6 * len(data) + 64


def small_array(*entries: tuple[int, int], size: int, more: bytes = b"") -> bytes:
    head = struct.pack("<HH", len(entries), size)
    return head + b"".join(struct.pack("<BH", kind, offset) for kind, offset in entries) + more


def test_values_that_overlap() -> None:
    # Two entries share one string.
    shared = small_array((12, 10), (12, 10), size=16, more=b"\5hello")
    assert "overlap" in refused(b"\2" + shared)
    # Each array holds the next one twice, so a decoder that follows all entries would read 2^40 values.
    level = struct.pack("<HH", 0, 4)
    for _ in range(40):
        level = small_array((2, 10), (2, 10), size=10 + len(level), more=level)
    assert "overlap" in refused(b"\2" + level)
    # The same key for two members.
    keys = struct.pack("<HHHHHHBHBH", 2, 38, 18, 20, 18, 20, 4, 0, 4, 0) + b"k" * 20
    assert "overlap" in refused(b"\0" + keys)


def test_offsets_that_point_backwards() -> None:
    for offset in (0, 1, 6):
        assert "outside its container" in refused(b"\2" + small_array((2, offset), size=7))
    assert "outside its container" in refused(b"\2" + small_array((12, 8), size=7))
    key = struct.pack("<HHHHBH", 1, 12, 4, 1, 4, 0) + b"k"
    assert "outside its container" in refused(b"\0" + key)


def test_wrong_counts_are_refused() -> None:
    for count, size in ((1, 4), (0xFFFF, 0xFFFF), (0, 3), (0, 5), (2, 8)):
        refused(b"\2" + struct.pack("<HH", count, size))
    for count, size in ((1, 8), (0xFFFFFFFF, 0xFFFFFFFF), (0x33333333, 12)):
        for kind in (1, 3):
            refused(bytes((kind,)) + struct.pack("<II", count, size) + b"\0" * 10)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("0d00", "unknown type"),
        ("ff", "unknown type"),
        ("0403", "neither null, true nor false"),
        ("04", "past its end"),
        ("0c", "an invalid length"),
        ("0cffffffffff01", "an invalid length"),
        ("0c8080808010", "an invalid length"),
        ("0cffffffff0f", "past its end"),
        ("0f", "past its end"),
        ("0f10", "an invalid length"),
        ("0f1002ff", "past its end"),
        ("0b000000000000f07f", "not finite"),
        ("0b010000000000f8ff", "not finite"),
        ("0ff600", "an invalid DECIMAL"),
        ("0ff60402ff8105", "an invalid DECIMAL"),
        ("0ff603020181", "an invalid DECIMAL"),
        ("0ff6030102e3", "an invalid DECIMAL"),
        ("0ff603520181", "an invalid DECIMAL"),
        ("0f0a0700000000000000", "an invalid date or time"),
        ("0f0b08ffffff0000000000", "an invalid date or time"),
        ("0f0b080000000000000080", "an invalid date or time"),
        ("0f0c08ffffffffffffffff", "an invalid date or time"),
        ("0f0c08000000fc00000000", "an invalid date or time"),
        ("0c01ff", "not UTF-8"),
        ("0c03eda080", "not UTF-8"),
    ],
)  # fmt: skip
def test_the_error_says_what_is_wrong(raw: str, why: str) -> None:
    assert why in refused(bytes.fromhex(raw))
