"""Kernels of columns against Python, at the borders of their fast paths: digits, repeated dates, the last bytes."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pytest

from dispatcher.binlog.decode.columns import cells, temporals
from dispatcher.binlog.decode.formats.number_format import decimal128, signed, unsigned
from dispatcher.binlog.kernel.bytes import I32, I64, U8

POWERS = sorted({value for k in range(20) for value in (10**k - 1, 10**k, 10**k + 1)})


@pytest.mark.parametrize("value", [*POWERS, 1 << 63, (1 << 64) - 1])
def test_unsigned_integers_have_the_digits_of_python(value: int) -> None:
    out: U8 = np.zeros(24, dtype=np.uint8)
    end = unsigned(np.uint64(value), out, 2)
    assert out[2:end].tobytes() == str(value).encode()
    assert not out[:2].any()
    assert not out[end:].any()


@pytest.mark.parametrize("value", [0, -1, -10, 1234567, (1 << 63) - 1, -(1 << 63)])
def test_signed_integers_have_the_digits_of_python(value: int) -> None:
    out: U8 = np.zeros(24, dtype=np.uint8)
    end = signed(np.int64(value), out, 0)
    assert out[:end].tobytes() == str(value).encode()


@pytest.mark.parametrize("scale", [0, 1, 2, 9, 18, 19, 30, 38])
def test_decimals_have_the_digits_of_python(scale: int) -> None:
    numbers = [n for p in (*POWERS, (1 << 64) - 1, 1 << 64, 10**38 - 1) for n in (p, -p)]
    words = np.array(
        [[n & 0xFFFFFFFFFFFFFFFF, n >> 64 & 0xFFFFFFFFFFFFFFFF] for n in numbers], dtype=np.uint64
    )
    out: U8 = np.zeros(42, dtype=np.uint8)
    found = [out[: decimal128(low, high, scale, out, 0)].tobytes().decode() for low, high in words]
    with decimal.localcontext(prec=60):
        expected = [f"{decimal.Decimal(n).scaleb(-scale):f}" for n in numbers]
    assert found == expected


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("is_signed", [True, False])
def test_integers_are_read_to_the_last_byte(width: int, is_signed: bool) -> None:
    buf: U8 = np.random.default_rng(width).integers(0, 256, 12 + width, dtype=np.uint8)
    at: I32 = np.array([-1, *range(13), -2], dtype=np.int32)
    out: I64 = np.empty(len(at), dtype=np.int64)
    cells.integers(buf, at, width, is_signed, out)
    raw = buf.tobytes()
    values = [int.from_bytes(raw[k : k + width], "little", signed=is_signed) for k in range(13)]
    wrapped = [value - (1 << 64) if value >= 1 << 63 else value for value in values]
    assert out.tolist() == [0, *wrapped, 0]


def packed_datetime(year: int, month: int, day: int, clock: int = 0) -> bytes:
    value = 0x8000000000 + (((year * 13 + month) << 5 | day) << 17 | clock)
    return value.to_bytes(5, "big")


def test_a_date_that_repeats_and_one_that_is_invalid_in_between() -> None:
    good, other = dt.datetime(2024, 2, 29, tzinfo=dt.UTC), dt.datetime(2023, 12, 31, tzinfo=dt.UTC)
    stored = [
        (packed_datetime(2024, 2, 29), good),
        (packed_datetime(2024, 2, 29, 1), good + dt.timedelta(seconds=1)),
        (packed_datetime(2023, 2, 29), None),
        (packed_datetime(2023, 2, 29), None),
        (packed_datetime(2024, 2, 29), good),
        (packed_datetime(0, 0, 0), None),
        (packed_datetime(2023, 12, 31, 23 << 12), other + dt.timedelta(hours=23)),
    ]
    buf: U8 = np.frombuffer(b"".join(raw for raw, _ in stored), dtype=np.uint8)
    at: I32 = np.arange(0, 5 * len(stored), 5, dtype=np.int32)
    out, valid = np.empty(len(at), dtype=np.int64), np.empty(len(at), dtype=np.bool_)
    assert temporals.temporals(buf, at, temporals.DATETIME2, 0, out, valid) == -1
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    shown = [
        epoch + dt.timedelta(microseconds=micros) if good else None
        for micros, good in zip(out.tolist(), valid.tolist(), strict=True)
    ]
    assert shown == [value for _, value in stored]


@pytest.mark.parametrize("raw", [b"\x7f\xff\xff\xff\xff", packed_datetime(2024, 1, 1, 24 << 12)])
def test_a_datetime_that_no_server_stores_is_found_behind_others(raw: bytes) -> None:
    buf: U8 = np.frombuffer(packed_datetime(2024, 1, 1) * 2 + raw, dtype=np.uint8)
    at: I32 = np.array([-1, 0, 5, 10], dtype=np.int32)
    out, valid = np.empty(4, dtype=np.int64), np.empty(4, dtype=np.bool_)
    assert temporals.temporals(buf, at, temporals.DATETIME2, 0, out, valid) == 3


def test_dates_repeat_too() -> None:
    days = [dt.date(2024, 2, 29), dt.date(2024, 2, 29), None, dt.date(2024, 3, 1)]
    packed = [0 if day is None else day.year << 9 | day.month << 5 | day.day for day in days]
    buf: U8 = np.frombuffer(b"".join(n.to_bytes(3, "little") for n in packed), dtype=np.uint8)
    at: I32 = np.arange(0, 12, 3, dtype=np.int32)
    out, valid = np.empty(4, dtype=np.int64), np.empty(4, dtype=np.bool_)
    assert temporals.temporals(buf, at, temporals.DATE, 0, out, valid) == -1
    first = dt.date(1970, 1, 1)
    assert [
        first + dt.timedelta(days=day) if good else None
        for day, good in zip(out.tolist(), valid.tolist(), strict=True)
    ] == days
