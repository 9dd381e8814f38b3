"""Encoders of MySQL's binary JSON, of its diffs, and of the text that the server prints for it. They are plain Python,
written from the format's description.

Documents are Python values: None, bool, int, float, str, list, dict with str keys, and for types that JSON lacks
Decimal, date, datetime, timedelta (TIME), bytes (as VARBINARY) and `Opaque`. `Unsigned` is an integer of an unsigned
type.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.support import rows_encoder

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY = range(4)
LITERAL, INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE, STRING = range(4, 13)
OPAQUE = 15

TIMESTAMP, DATE, TIME, DATETIME, VARCHAR, BIT, NEWDECIMAL = 7, 10, 11, 12, 15, 16, 246

REPLACE, INSERT, REMOVE = 0, 1, 2


@dataclass(frozen=True)
class Opaque:
    type: int
    data: bytes


class Unsigned(int):
    pass


@dataclass(frozen=True)
class _Form:
    hole: int
    large: bool


def encode(document: Any, *, hole: int = 0, large: bool = False) -> bytes:
    """Encodes a document. `hole`: unused bytes before each value that is not inlined, such as updates in place leave;
    `large`: always use the large form of containers."""
    kind, data = _value(document, _Form(hole, large))
    return bytes((kind,)) + data


def diff(operation: int, path: str, document: Any = None) -> bytes:
    """Encodes one change of PARTIAL_UPDATE_ROWS."""
    raw = path.encode()
    out = bytes((operation,)) + rows_encoder.packed(len(raw)) + raw
    if operation == REMOVE:
        return out
    value = encode(document)
    return out + rows_encoder.packed(len(value)) + value


def length(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def ordered(document: dict[str, Any]) -> list[tuple[str, Any]]:
    """Returns the members in the server's order: by the length of the key in bytes, then by its bytes."""
    return sorted(
        document.items(), key=lambda member: (len(member[0].encode()), member[0].encode())
    )


def _value(value: Any, form: _Form) -> tuple[int, bytes]:  # noqa: PLR0911 - one return per type
    match value:
        case None | bool():
            return LITERAL, bytes((0 if value is None else 1 if value else 2,))
        case int():
            return _integer(value)
        case float():
            return DOUBLE, struct.pack("<d", value)
        case str():
            return STRING, length(len(value.encode())) + value.encode()
        case list() | dict():
            return _container(value, form)
        case Decimal():
            return _opaque(NEWDECIMAL, _decimal(value))
        case dt.datetime():
            return _opaque(DATETIME, _packed_datetime(value))
        case dt.date():
            return _opaque(DATE, _packed_datetime(dt.datetime.combine(value, dt.time())))
        case dt.timedelta():
            return _opaque(TIME, _packed_time(value))
        case bytes():
            return _opaque(VARCHAR, value)
        case Opaque():
            return _opaque(value.type, value.data)
    raise TypeError(value)


def _integer(value: int) -> tuple[int, bytes]:
    signed = not isinstance(value, Unsigned) and value < 1 << 63
    sizes = (
        ((INT16, 2), (INT32, 4), (INT64, 8)) if signed else ((UINT16, 2), (UINT32, 4), (UINT64, 8))
    )
    for kind, size in sizes:
        try:
            return kind, value.to_bytes(size, "little", signed=signed)
        except OverflowError:
            continue
    raise OverflowError(value)


def _opaque(kind: int, data: bytes) -> tuple[int, bytes]:
    return OPAQUE, bytes((kind,)) + length(len(data)) + data


def _decimal(value: Decimal) -> bytes:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    return bytes((precision, scale)) + rows_encoder.decimal(value, precision, scale)


def _packed_datetime(at: dt.datetime) -> bytes:
    date = (at.year * 13 + at.month) << 5 | at.day
    clock = at.hour << 12 | at.minute << 6 | at.second
    return ((date << 17 | clock) << 24 | at.microsecond).to_bytes(8, "little", signed=True)


def _packed_time(value: dt.timedelta) -> bytes:
    micros = value // dt.timedelta(microseconds=1)
    seconds, fraction = divmod(abs(micros), 1_000_000)
    clock = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    number = clock << 24 | fraction
    return (-number if micros < 0 else number).to_bytes(8, "little", signed=True)


def _container(value: list[Any] | dict[str, Any], form: _Form) -> tuple[int, bytes]:
    small, large = (
        (SMALL_OBJECT, LARGE_OBJECT) if isinstance(value, dict) else (SMALL_ARRAY, LARGE_ARRAY)
    )
    if form.large:
        return large, _filled(value, form, 4)
    try:
        return small, _filled(value, form, 2)
    except OverflowError:
        return large, _filled(value, form, 4)


def _filled(value: list[Any] | dict[str, Any], form: _Form, width: int) -> bytes:
    """Raises OverflowError if a number does not fit into `width` bytes."""
    members = ordered(value) if isinstance(value, dict) else [("", item) for item in value]
    keys = [key.encode() for key, _ in members] if isinstance(value, dict) else []
    key_entry = 2 + width if isinstance(value, dict) else 0
    at = 2 * width + len(members) * (key_entry + 1 + width)
    key_entries, value_entries, values = bytearray(), bytearray(), bytearray()
    for key in keys:
        key_entries += at.to_bytes(width, "little") + len(key).to_bytes(2, "little")
        at += len(key)
    for _, item in members:
        kind, data = _value(item, form)
        value_entries.append(kind)
        if kind in (LITERAL, INT16, UINT16) or (kind in (INT32, UINT32) and width == 4):
            sign = b"\xff" if kind in (INT16, INT32) and data[-1] > 127 else b"\0"
            value_entries += data.ljust(width, sign)
            continue
        values += b"\xee" * form.hole
        value_entries += (at + len(values)).to_bytes(width, "little")
        values += data
    size = at + len(values)
    head = len(members).to_bytes(width, "little") + size.to_bytes(width, "little")
    return bytes(head + key_entries + value_entries + b"".join(keys) + values)


def text(value: Any) -> str:  # noqa: PLR0911 - one return per type
    """Returns the text that SELECT shows for a document."""
    match value:
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return str(int(value))
        case float():
            return double_text(value)
        case list():
            return f"[{', '.join(map(text, value))}]"
        case dict():
            return f"{{{', '.join(f'{text(key)}: {text(item)}' for key, item in ordered(value))}}}"
        case Decimal():
            return f"{value:f}"
        case dt.datetime():
            return f'"{value.isoformat(" ", "microseconds")}"'
        case dt.date():
            return f'"{value.isoformat()}"'
        case dt.timedelta():
            micros = value // dt.timedelta(microseconds=1)
            seconds, fraction = divmod(abs(micros), 1_000_000)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
            return f'"{"-" if micros < 0 else ""}{clock}"'
        case bytes():
            return _base64_text(VARCHAR, value)
        case Opaque():
            return _base64_text(value.type, value.data)
    raise TypeError(value)


def _base64_text(kind: int, data: bytes) -> str:
    plain = base64.b64encode(data).decode()
    lines = "\\n".join(plain[at : at + 76] for at in range(0, len(plain), 76))
    return f'"base64:type{kind}:{lines}"'


def double_text(value: float) -> str:
    """Returns Python's shortest digits in the server's form: without an exponent for up to 15 places before the point
    or 14 zeros after it."""
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    plain = "".join(map(str, digits)).lstrip("0")
    exponent += len(plain) - len(plain.rstrip("0"))
    plain = plain.rstrip("0")
    minus = "-" if sign else ""
    if not plain:
        return f"{minus}0.0"
    point = len(plain) + exponent
    if not (point >= -14 and (point <= 15 or len(plain) > point)):
        rest = f".{plain[1:]}" if len(plain) > 1 else ""
        return f"{minus}{plain[0]}{rest}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{plain}"
    return f"{minus}{plain[:point].ljust(point, '0')}.{plain[point:] or '0'}"


def column(documents: Sequence[bytes | None]) -> tuple[bytes, list[int], list[bool]]:
    """Encodes documents as a column: (data, offsets, valid). None is NULL."""
    offsets = [0]
    for document in documents:
        offsets.append(offsets[-1] + len(document or b""))
    return (
        b"".join(document or b"" for document in documents),
        offsets,
        [document is not None for document in documents],
    )
