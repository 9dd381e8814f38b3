"""The expression with which a SELECT reads a column's value, and the conversion of the result to the Arrow value that
docs/types.md defines.

Connections for reading have no conversions (`conv={}`, `use_unicode=False`), `time_zone = '+00:00'` and utf8mb4 as
the character set of results, so the result for a column is exactly the text that the server prints. FLOAT and
DOUBLE(m,d) need more than the column's name, because the server rounds them when it prints them. It prints an
expression of type DOUBLE with all significant digits. Multiplying by one changes no bit; adding zero would change the
sign of -0.0.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from uuid import UUID

Value = object


@dataclass(frozen=True, slots=True)
class Reading:
    """`select`: the expression, with {} for the column's quoted name; `value`: converts the bytes of the result to the
    Arrow value."""

    select: str
    value: Callable[[bytes], Value]


_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")
_TIME = re.compile(r"(-?)(\d{2,3}):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


def _moment(raw: bytes) -> dt.datetime | None:
    """Parses a DATE or DATETIME. Returns None for an invalid date, as the default of `invalid_dates` does."""
    match = _DATE.fullmatch(raw.decode())
    if match is None:
        raise AssertionError(f"SELECT shows a date as {raw!r}")
    year, month, day, hour, minute, second = (int(match[i] or 0) for i in range(1, 7))
    try:
        return dt.datetime(  # noqa: DTZ001 - a wall clock's time
            year, month, day, hour, minute, second, int((match[7] or "").ljust(6, "0"))
        )
    except ValueError:
        return None


def _date(raw: bytes) -> dt.date | None:
    moment = _moment(raw)
    return None if moment is None else moment.date()


def _instant(raw: bytes) -> dt.datetime | None:
    moment = _moment(raw)
    return None if moment is None else moment.replace(tzinfo=dt.UTC)


def _time(raw: bytes) -> int:
    match = _TIME.fullmatch(raw.decode())
    if match is None:
        raise AssertionError(f"SELECT shows a time as {raw!r}")
    seconds = int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4])
    micros = seconds * 1_000_000 + int((match[5] or "").ljust(6, "0"))
    return -micros if match[1] else micros


class Unholdable(Exception):
    """SELECT returned text that is not Unicode (half of a surrogate pair in a ucs2 column), which Arrow cannot
    represent."""


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Unholdable from None


def _geometry(raw: bytes) -> dict[str, Value]:
    return {"srid": int.from_bytes(raw[:4], "little"), "wkb": raw[4:]}


def _floats(raw: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def _uuid(raw: bytes) -> bytes:
    return UUID(raw.decode()).bytes


READINGS: dict[str, Reading] = {
    "integer": Reading("{}", int),
    "bigint unsigned": Reading("{}", lambda raw: Decimal(int(raw))),
    "decimal": Reading("{}", lambda raw: Decimal(raw.decode())),
    "decimal text": Reading("{}", lambda raw: f"{Decimal(raw.decode()):f}"),
    "float": Reading("{} * 1e0", float),
    "bytes": Reading("{}", lambda raw: raw),
    "text": Reading("{}", _text),
    "date": Reading("{}", _date),
    "datetime": Reading("{}", _moment),
    "timestamp": Reading("{}", _instant),
    "time": Reading("{}", _time),
    "geometry": Reading("{}", _geometry),
    "vector": Reading("{}", _floats),
    **dict.fromkeys(("uuid", "inet6", "inet4"), Reading("{}", _text)),
}

# If the log does not contain these types, the decoder returns the stored bytes.
STORED = {
    "uuid": Reading("{}", _uuid),
    "inet6": Reading("{}", lambda raw: IPv6Address(raw.decode()).packed),
    "inet4": Reading("{}", lambda raw: IPv4Address(raw.decode()).packed),
}


def same(actual: Value, expected: Value) -> bool:
    """True if the values have the same type and the same bits: -0.0 differs from 0.0, and 1.50 from 1.5."""
    if type(actual) is not type(expected):
        return False
    if isinstance(actual, float) and isinstance(expected, float):
        return struct.pack("<d", actual) == struct.pack("<d", expected)
    if isinstance(actual, Decimal):
        return str(actual) == str(expected)
    if isinstance(actual, list) and isinstance(expected, list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    return actual == expected
