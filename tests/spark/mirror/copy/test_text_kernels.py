"""Kernels over text rows: numbers and times against Python's own, rows in packets of any size, other bytes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dispatcher.binlog.table_map.column_types import Column, InvalidDates, Type
from dispatcher.binlog.table_map.wire import length_prefixed
from dispatcher.model.errors import BinlogError
from spark_sink.source.table_rows import text_kernels
from spark_sink.source.table_rows.text_rows import TextDecoder, select_expression

Arrays = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]


def cells(texts: Sequence[bytes | None]) -> Arrays:
    data = b"".join(text or b"" for text in texts)
    sizes = [len(text or b"") for text in texts]
    at = np.cumsum([0, *sizes])[:-1].astype(np.int32)
    at[[text is None for text in texts]] = -1
    return np.frombuffer(data, np.uint8).copy(), at, np.array(sizes, dtype=np.int32)


def column(code: int, meta: int = 0, **more: object) -> Column:
    values = {
        "name": "a",
        "unsigned": False,
        "nullable": True,
        "charset": 45,
        "labels": (),
        "visible": True,
    }
    return Column(type=code, meta=meta, **(values | more))  # type: ignore[arg-type]


def decoded(
    of: Column, *texts: bytes | None, dates: InvalidDates = InvalidDates.NULL
) -> list[object]:
    buf, at, size = cells(texts)
    batch = TextDecoder([of], "shop.t", dates).decode(buf, at[None], size[None])
    batch.validate(full=True)
    values: list[object] = batch.column(0).to_pylist()
    return values


@given(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1)))
def test_signed_integers(values: list[int | None]) -> None:
    texts = [None if v is None else str(v).encode() for v in values]
    assert decoded(column(Type.LONGLONG), *texts) == values


@given(st.lists(st.none() | st.integers(0, (1 << 64) - 1)), st.integers(1, 30))
def test_unsigned_integers_with_leading_zeros(values: list[int | None], width: int) -> None:
    texts = [None if v is None else f"{v:0{width}}".encode() for v in values]
    found = decoded(column(Type.LONGLONG, unsigned=True), *texts)
    assert found == [None if v is None else Decimal(v) for v in values]


@pytest.mark.parametrize(
    ("code", "unsigned", "good", "bad"),
    [
        (Type.TINY, False, (-128, 127), (-129, 128)),
        (Type.TINY, True, (0, 255), (-1, 256)),
        (Type.INT24, False, (-8388608, 8388607), (-8388609, 8388608)),
        (Type.LONG, True, (0, 4294967295), (-1, 4294967296)),
        (Type.LONGLONG, False, (-(1 << 63), (1 << 63) - 1), (-(1 << 63) - 1, 1 << 63)),
        (Type.LONGLONG, True, (0, (1 << 64) - 1), (-1, 1 << 64)),
    ],
)
def test_a_number_that_its_type_cannot_hold(
    code: int, unsigned: bool, good: tuple[int, ...], bad: tuple[int, ...]
) -> None:
    of = column(code, unsigned=unsigned)
    assert [int(str(v)) for v in decoded(of, *(str(v).encode() for v in good))] == list(good)
    for text in (*(str(v).encode() for v in bad), b"", b"-", b"1x", b"1.0", b"9" * 30):
        with pytest.raises(BinlogError, match=r"table shop.t, column 'a': a number"):
            decoded(of, text)


@given(st.data(), st.integers(1, 38), st.integers(0, 30))
def test_decimals(data: st.DataObject, precision: int, scale: int) -> None:
    scale = min(scale, precision)
    numbers = data.draw(st.lists(st.integers(-(10**precision) + 1, 10**precision - 1)))
    with localcontext() as context:
        context.prec = 80
        values = [Decimal(n).scaleb(-scale) for n in numbers]
        texts = [f"{value:.{scale}f}".encode() for value in values]
        assert decoded(column(Type.NEWDECIMAL, precision << 8 | scale), *texts, None) == [
            *values,
            None,
        ]


@pytest.mark.parametrize(
    "text", [b"1", b"1.5", b"1.555", b".", b"", b"1.5.", b"a.55", b"12345.00", b"--1.00"]
)
def test_a_decimal_of_another_form(text: bytes) -> None:
    with pytest.raises(BinlogError, match="an invalid DECIMAL"):
        decoded(column(Type.NEWDECIMAL, 6 << 8 | 2), text)


@given(st.lists(st.datetimes()), st.integers(0, 6))
def test_datetimes(values: list[dt.datetime], digits: int) -> None:
    cut = [
        v.replace(microsecond=v.microsecond // 10 ** (6 - digits) * 10 ** (6 - digits))
        for v in values
    ]
    texts = [
        (
            v.isoformat(" ", "seconds") + (f".{v.microsecond:06}"[: 1 + digits] if digits else "")
        ).encode()
        for v in cut
    ]
    assert decoded(column(Type.DATETIME2, digits), *texts, None) == [*cut, None]
    assert decoded(column(Type.DATE), *(text[:10] for text in texts)) == [v.date() for v in values]
    found = decoded(column(Type.TIMESTAMP2, digits), *texts)
    assert found == [v.replace(tzinfo=dt.UTC) for v in cut]


@given(st.lists(st.integers(-3_020_399_000_000, 3_020_399_000_000)))
def test_times(values: list[int]) -> None:
    def text(micros: int) -> bytes:
        seconds, rest = divmod(abs(micros), 1_000_000)
        sign = "-" if micros < 0 else ""
        return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}".encode()

    assert decoded(column(Type.TIME2, 6), *map(text, values), None) == [*values, None]


def test_invalid_dates() -> None:
    dates = (b"0000-00-00", b"2023-02-29", b"2024-02-29", b"2024-00-10")
    assert decoded(column(Type.DATE), *dates) == [None, None, dt.date(2024, 2, 29), None]
    assert decoded(column(Type.DATE), *dates, dates=InvalidDates.TEXT) == [
        d.decode() for d in dates
    ]
    with pytest.raises(BinlogError, match="an invalid date"):
        decoded(column(Type.DATE), *dates, dates=InvalidDates.ERROR)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (Type.DATE, b"2024-02-29 "), (Type.DATE, b"2024/02/29"), (Type.DATE, b"2024-0x-29"), (Type.DATE, b""),
        (Type.DATETIME2, b"2024-02-29"), (Type.DATETIME2, b"2024-02-29T10:00:00"),
        (Type.DATETIME2, b"2024-02-29 24:00:00"), (Type.DATETIME2, b"2024-02-29 10:60:00"),
        (Type.DATETIME2, b"2024-02-29 10:00:00."), (Type.DATETIME2, b"2024-02-29 10:00:00.1234567"),
        (Type.TIME2, b"10:00"), (Type.TIME2, b"-"), (Type.TIME2, b"10:00:00.x"), (Type.TIME2, b"1:00:00"),
    ],
)  # fmt: skip
def test_a_time_of_another_form(code: int, text: bytes) -> None:
    with pytest.raises(BinlogError, match="an invalid date or time of day"):
        decoded(column(code), text)


def test_years_and_names_in_select() -> None:
    assert decoded(column(Type.YEAR), b"0000", b"1901", b"70", b"69", b"00", None) == [
        0, 1901, 1970, 2069, 2000, None
    ]  # fmt: skip
    assert select_expression(column(Type.LONG, name="a`b")) == "`a``b`"
    assert select_expression(column(Type.FLOAT, 4)) == "`a` * 1e0"


# -- rows in packets --------------------------------------------------------------------------------------------


Row = tuple[bytes | None, ...]


def packets(row: Row, largest: int = text_kernels.PACKET_MAX) -> bytes:
    body = b"".join(b"\xfb" if cell is None else length_prefixed((cell,)) for cell in row)
    out, more = bytearray(), True
    while more:
        part, body = body[:largest], body[largest:]
        more = len(part) == largest
        out += len(part).to_bytes(3, "little") + b"\x07" + part
    return bytes(out)


END = b"\x05\0\0\x09\xfe\0\0\x02\0"


def found_cells(data: bytes, columns: int, rows: int = 100) -> tuple[int, list[Row], int]:
    buf = np.frombuffer(data, np.uint8).copy()
    state = np.array([0, len(buf), 0], dtype=np.int64)
    at, size = np.empty((2, columns, rows), dtype=np.int32)
    result = int(text_kernels.find_cells(buf, state, at, size))
    raw = buf.tobytes()
    found = [
        tuple(None if a < 0 else raw[a : a + n] for a, n in zip(at[:, r], size[:, r], strict=True))
        for r in range(state[text_kernels.ROWS])
    ]
    return result, found, int(state[text_kernels.NEXT])


@given(st.lists(st.tuples(*[st.none() | st.binary(max_size=300)] * 3), max_size=8), st.data())
def test_rows_cut_at_any_byte(rows: list[Row], data: st.DataObject) -> None:
    whole = b"".join(map(packets, rows)) + END
    assert found_cells(whole, 3) == (text_kernels.DONE, rows, len(whole) - len(END))
    cut = data.draw(st.integers(0, len(whole) - 1))
    result, found, at = found_cells(whole[:cut], 3)
    assert result == text_kernels.MORE
    assert found == rows[: len(found)]
    assert at == len(b"".join(map(packets, found)))


def test_a_row_of_several_packets_is_joined() -> None:
    size = text_kernels.PACKET_MAX
    for length in (size - 5, size - 4, size, 2 * size - 9, 2 * size + 7):
        cell = np.arange(length, dtype=np.uint32).astype(np.uint8).tobytes()
        rows = [(cell, b"x"), (None, b"y")]
        data = packets(rows[0]) + packets(rows[1]) + END
        assert found_cells(data, 2) == (text_kernels.DONE, rows, len(data) - len(END))
        assert found_cells(packets(rows[0])[:-1], 2)[:2] == (text_kernels.MORE, [])


def test_no_more_rows_than_there_is_room_for() -> None:
    data = packets((b"a",)) * 5 + END
    assert found_cells(data, 1, rows=3) == (text_kernels.FULL, [(b"a",)] * 3, 3 * 6)


@pytest.mark.parametrize(
    "body", [b"\x01", b"\x05ab", b"\xfc\x01", b"\x01a\x01b\x01c", b"\xff\x01", b"\xfe" + b"\xff" * 8 + b"a"]
)  # fmt: skip
def test_bytes_that_are_no_row(body: bytes) -> None:
    result, found, _ = found_cells(len(body).to_bytes(3, "little") + b"\0" + body, 2)
    expected = text_kernels.FAILED if body[:1] == b"\xff" else text_kernels.MALFORMED
    assert (result, found) == (expected, [])


@given(st.binary(max_size=200), st.integers(1, 4))
def test_any_bytes_stay_inside_the_buffer(data: bytes, columns: int) -> None:
    _, found, at = found_cells(data, columns)
    assert at <= len(data)
    assert all(len(row) == columns for row in found)
