"""Decides whether a key of the log lies after the end of a chunk, by the order of the table's index. Pure.

The server determines that order. This module knows the order of integers, decimal numbers and bytes. It does not know
the order of text, which depends on the collation. So if a key contains text, the module always decides that the key
does not lie after the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from dispatcher.binlog.charset.collations import BINARY
from dispatcher.binlog.table_map.column_types import Column, Type
from spark_sink.source.snapshot.rules import Bound, KeyPart

_WHOLE = frozenset((Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG, Type.YEAR))
_BYTES = frozenset((Type.STRING, Type.VARCHAR))
_DIGITS_MAX = 38  # the most digits of a DECIMAL that Arrow represents as a number
_NUMBER, _FIXED, _VARYING, _UNKNOWN = "number", "bytes", "varbytes", "other"
# Column types whose values are decoded to the same type. An old type stands beside its successor, because the log may
# have the old type of a column for which the server describes the new type.
_EQUAL_TYPES: tuple[frozenset[int], ...] = (
    frozenset(
        (
            *(Type.STRING, Type.VARCHAR, Type.VAR_STRING, Type.BLOB),
            *(Type.MARIADB_VARCHAR_COMPRESSED, Type.MARIADB_BLOB_COMPRESSED),
        )
    ),
    frozenset((Type.DATE, Type.NEWDATE)),
    frozenset((Type.DATETIME2, Type.DATETIME_OLD)),
    frozenset((Type.TIMESTAMP2, Type.TIMESTAMP_OLD)),
    frozenset((Type.TIME2, Type.TIME_OLD)),
)


def key_parts(columns: Sequence[Column]) -> tuple[KeyPart, ...]:
    """Returns the columns of a key in the form in which an offset contains them. If an ALTER TABLE changes the type of
    a column, `KeyPart.type` changes, too."""
    return tuple(KeyPart(column.name, _type_text(column)) for column in columns)


def _type_text(column: Column) -> str:
    order = _UNKNOWN
    if column.type in _WHOLE or (column.type == Type.NEWDECIMAL and _is_decimal(column)):
        order = _NUMBER
    elif column.type in _BYTES and column.charset == BINARY and not column.declared:
        order = _FIXED if column.type == Type.STRING else _VARYING
    sign = " unsigned" if column.unsigned else ""
    return f"{order}:{column.type}{sign}:{column.charset}"


def _is_decimal(column: Column) -> bool:
    """True if the values of a DECIMAL are decoded as numbers, and not as text."""
    return column.meta >> 8 <= _DIGITS_MAX


def is_ordered(key: Sequence[KeyPart]) -> bool:
    """True if this module can compare values of this key."""
    return all(_order(part) != _UNKNOWN for part in key)


def _order(part: KeyPart) -> str:
    return part.type.partition(":")[0]


def are_comparable(key: Sequence[KeyPart], other: Sequence[KeyPart]) -> bool:
    """True if values of the two keys can be compared with each other. Both keys have the same number of columns. If an
    ALTER TABLE changes a column from INT to VARCHAR, values from before the statement cannot be compared with values
    from after it."""
    return all(_values(a) == _values(b) for a, b in zip(key, other, strict=True))


def _values(part: KeyPart) -> tuple[str, int]:
    """Returns the kind of a column's values. Values of one kind can be compared with each other. If this module does
    not know the order of the values, the kind contains their type."""
    order = _order(part)
    if order != _UNKNOWN:
        return order, 0
    code = int(part.type.split(":")[1].partition(" ")[0])
    return order, next((min(equal) for equal in _EQUAL_TYPES if code in equal), code)


class KeyLimit:
    """Compares keys with the end of a chunk."""

    def __init__(self, key: Sequence[KeyPart], bound: Bound) -> None:
        self._orders = [_order(part) for part in key]
        self._bound: tuple[Any, ...] | None = None
        if is_ordered(key):
            pairs = zip(self._orders, bound, strict=True)
            self._bound = tuple(_comparable(order, _value(literal)) for order, literal in pairs)

    def includes(self, key: Sequence[Any]) -> bool:
        """True if a key (decoded values) is not after the limit, or if this module cannot compare the key with the
        limit."""
        if self._bound is None:
            return True
        pairs = zip(self._orders, key, strict=True)
        return tuple(_comparable(order, value) for order, value in pairs) <= self._bound


def _value(literal: str) -> Any:
    """Returns the value of a literal that `chunks.key_literal` has made."""
    if literal.startswith("X'"):
        return bytes.fromhex(literal[2:-1])
    return Decimal(literal)


def _comparable(order: str, value: Any) -> Any:
    # The log omits the zeros at the end of a BINARY value.
    return value.rstrip(b"\0") if order == _FIXED else value
