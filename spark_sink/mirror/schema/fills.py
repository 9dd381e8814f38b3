"""Finds the value that existing rows have in a column that ALTER TABLE adds. Pure.

The value is NULL, or the constant of DEFAULT, converted as MySQL converts it to the column's type. For a NOT NULL
column without DEFAULT, it is the implicit default of the type. In two cases, the result is a text with the reason why
the value is unknown: the value depends on more than the statement (an expression, the time, a time zone), or this
module does not handle the form of the constant.

Sources: MySQL 9.7 manual, "Data Type Default Values"; MariaDB knowledge base, "CREATE TABLE"; the tests compare with
servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from dispatcher.binlog.charset.collations import BINARY
from dispatcher.binlog.sql.clauses import Computed, DefinedColumn, Literal, LiteralKind
from dispatcher.binlog.table_map.column_types import Column, InvalidDates, Type
from spark_sink.mirror.schema.conversions import integer_range
from spark_sink.mirror.schema.session_facts import StatementFacts, UnknownFactError, ValueRules

# A value of a Spark column. The value of a TIME is in microseconds.
FillValue = int | float | Decimal | str | bytes | date | datetime | None

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_DATETIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?)?", re.ASCII
)
_TIME = re.compile(
    r"(-?)(\d\d|[0-7]\d\d|8[0-2]\d|83[0-8]):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?", re.ASCII
)
# A number as a server prints it: no leading zeros, no spaces, no exponent, and no minus sign before zero
# (`_NEGATIVE_ZERO`).
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?", re.ASCII)
_NEGATIVE_ZERO = re.compile(r"-[0.]+")
_YEAR = re.compile(r"19[1-9]\d|20\d\d", re.ASCII)
_INTEGERS = frozenset((Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG))
_DIGITS = Context(prec=70)
# As the default of a DECIMAL, MySQL converts a literal such as b'01' or x'41' to 2^63 - 1 if its value is this number
# or a larger one. It ignores the bytes before the last eight.
_BYTES_NUMBER_LIMIT = 1 << 63
_EXACT_DIGITS = 15  # a DOUBLE represents this many decimal digits exactly
_LONG_TEXT_MAX = 63  # this many characters fit into a TINYTEXT in any character set
# All servers can store a TIMESTAMP between these two times, in each time zone.
_FIRST_TIMESTAMP, _NO_TIMESTAMP = (
    datetime(1970, 1, 2, tzinfo=UTC),
    datetime(2038, 1, 18, tzinfo=UTC),
)
_FORM = "its default is written in a form that the mirror does not convert"


@dataclass(frozen=True, slots=True)
class Fill:
    """The value that all existing rows have in an added column."""

    value: FillValue


class _UnknownFillError(Exception):
    """The message says why the value is not known."""


def existing_value(definition: DefinedColumn, column: Column, rules: ValueRules) -> Fill | str:
    """Returns the value of an added column in existing rows, or why it is not known. `column`: the column of the
    definition, with lengths in characters."""
    try:
        return _existing_value(definition, column, rules)
    except (_UnknownFillError, UnknownFactError) as error:
        return str(error)


def _existing_value(definition: DefinedColumn, column: Column, rules: ValueRules) -> Fill | str:
    if definition.computed is not Computed.NO:
        return str(definition.computed)
    if definition.type.startswith(("float(", "double(")):
        return "the values are rounded to the decimals of the type"
    if definition.nullable is None and column.type == Type.TIMESTAMP2:
        # With explicit_defaults_for_timestamp=OFF, the column is NOT NULL, and its default may be the present time.
        rules.facts.require_nullable_timestamps()
    default = definition.default
    if default is None or _is_null(default, rules.facts):
        if definition.nullable is not False and not definition.primary:
            return Fill(None)
        default = None
    return Fill(_value(default, column, rules))


def _is_null(default: Literal, facts: StatementFacts) -> bool:
    is_empty = default.kind is LiteralKind.TEXT and not default.text
    return default.kind is LiteralKind.NULL or (is_empty and facts.empty_text_is_null)


def _value(  # noqa: C901, PLR0911 - one return per family of types
    default: Literal | None, column: Column, rules: ValueRules
) -> FillValue:
    if column.declared or column.type in (Type.GEOMETRY, Type.VECTOR):
        raise _UnknownFillError(_FORM if default else "its implicit default depends on the server")
    if column.type in _TIMES:
        return _TIMES[column.type](default, column, rules)
    if column.type in _INTEGERS:
        return int(_within(*integer_range(column), _rounded(default, 0)))
    match column.type:
        case Type.YEAR:
            return _year(default)
        case Type.NEWDECIMAL:
            digits, scale = column.meta >> 8, column.meta & 0xFF
            limit = 10 ** (digits - scale) - Decimal(1).scaleb(-scale)
            value = _within(0 if column.unsigned else -limit, limit, _rounded(default, scale))
            return value if digits <= 38 else f"{value:f}"
        case Type.FLOAT | Type.DOUBLE:
            return _double(default, column)
        case Type.BIT:
            return _bits(default, column)
        case Type.ENUM:
            return _enum(default, column, rules.facts)
        case Type.SET:
            return _set(default, column, rules.facts)
        case Type.JSON:
            return _long_text(default, rules.facts)
        case Type.BLOB if default is not None and column.charset == BINARY:
            return _long_bytes(default, column, rules.facts)
        case Type.BLOB if default is not None:
            return _long_text(default, rules.facts)
        case Type.STRING | Type.VARCHAR | Type.BLOB if column.charset == BINARY:
            return _bytes(default, column, rules.facts)
        case Type.STRING | Type.VARCHAR | Type.BLOB:
            return _text(default, column, rules.facts)
    raise _UnknownFillError(_FORM)


# -- numbers -------------------------------------------------------------------------------------------------


def _number(default: Literal | None) -> Decimal:
    if default is None:
        return Decimal(0)
    if default.kind is LiteralKind.BYTES:
        number = int(default.text or "0", 16)
        if number >= _BYTES_NUMBER_LIMIT:
            raise _UnknownFillError(_FORM)
        return Decimal(number)
    if default.kind not in (LiteralKind.NUMBER, LiteralKind.TEXT):
        raise _UnknownFillError(_FORM)
    # A number with an exponent is a DOUBLE, which MySQL rounds in another way.
    if not _NUMBER.fullmatch(default.text) or _NEGATIVE_ZERO.fullmatch(default.text):
        raise _UnknownFillError(_FORM)
    return Decimal(default.text)


def _rounded(default: Literal | None, scale: int) -> Decimal:
    """Returns the default, rounded to `scale` decimal places; halves are rounded away from zero."""
    try:
        value = _number(default).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _DIGITS)
    except InvalidOperation:
        raise _UnknownFillError(_FORM) from None
    return abs(value) if value.is_zero() else value


def _within(low: Decimal | int, high: Decimal | int, value: Decimal) -> Decimal:
    """Returns `value`. Raises an error for a value outside of the type's range: a server refuses such a value, or cuts
    it to the limit if sql_mode is not strict."""
    if not low <= value <= high:
        raise _UnknownFillError(_FORM)
    return value


def _double(default: Literal | None, column: Column) -> float:
    number = _number(default)
    if (number < 0 and column.unsigned) or len(number.as_tuple().digits) > _EXACT_DIGITS:
        raise _UnknownFillError(_FORM)
    return float(number)


def _bits(default: Literal | None, column: Column) -> bytes:
    """Returns the bytes of a BIT, from a number or from a hexadecimal or binary literal."""
    size = (column.meta + 7) // 8
    if default is None:
        return bytes(size)
    if default.kind is LiteralKind.BYTES:
        number = int(default.text or "0", 16)
    elif default.kind is LiteralKind.NUMBER and default.text.isdecimal():
        number = int(_number(default))
    else:
        raise _UnknownFillError(_FORM)
    if number.bit_length() > column.meta:
        raise _UnknownFillError(_FORM)
    return number.to_bytes(size, "big")


def _year(default: Literal | None) -> int:
    """Returns a year of four digits, or 0. A server converts two digits, even if they are text with leading zeros, to a
    year from 1970 to 2069; this function does not handle years of two digits."""
    if default is None:
        return 0
    if default.kind in (LiteralKind.NUMBER, LiteralKind.TEXT) and _YEAR.fullmatch(default.text):
        return int(default.text)
    if default.kind is LiteralKind.NUMBER and default.text == "0":
        return 0
    raise _UnknownFillError(_FORM)


# -- times ---------------------------------------------------------------------------------------------------


def _invalid_date(text: str, invalid_dates: InvalidDates) -> str | None:
    if invalid_dates is InvalidDates.ERROR:
        raise _UnknownFillError("its default is an invalid date")
    if invalid_dates is InvalidDates.TEXT and not text.startswith("0000-00-00"):
        raise _UnknownFillError("sql_mode decides whether its default becomes 0000-00-00")
    return text if invalid_dates is InvalidDates.TEXT else None


def _date(default: Literal | None, _column: Column, rules: ValueRules) -> FillValue:
    invalid_dates = rules.invalid_dates
    text = "0000-00-00" if default is None or _is_zero(default) else default.text
    match = _DATE.fullmatch(text)
    if match is None or (default is not None and not _is_time(default)):
        raise _UnknownFillError(_FORM)
    try:
        value = date(*map(int, match.groups()))
    except ValueError:
        return _invalid_date(text, invalid_dates)
    return text if invalid_dates is InvalidDates.TEXT else value


def _is_zero(default: Literal) -> bool:
    return default.kind is LiteralKind.NUMBER and default.text == "0"


def _is_time(default: Literal) -> bool:
    return default.kind is LiteralKind.TEXT or _is_zero(default)


def _micros(digits: str | None, column: Column) -> int:
    if digits and len(digits) > column.meta:
        raise _UnknownFillError(_FORM)
    return int((digits or "").ljust(6, "0"))


def _datetime(default: Literal | None, column: Column, rules: ValueRules) -> FillValue:
    invalid_dates = rules.invalid_dates
    fraction = "." + "0" * column.meta if column.meta else ""
    if default is None or _is_zero(default):
        return _invalid_date("0000-00-00 00:00:00" + fraction, invalid_dates)
    match = _DATETIME.fullmatch(default.text)
    if match is None or not _is_time(default):
        raise _UnknownFillError(_FORM)
    numbers = [int(part or "0") for part in match.groups()[:6]]
    micros = _micros(match[7], column)
    date_part = "-".join(match.groups()[:3])
    text = f"{date_part} {numbers[3]:02}:{numbers[4]:02}:{numbers[5]:02}"
    if column.meta:
        text += "." + f"{micros:06}"[: column.meta]
    try:
        value = datetime.fromisoformat(
            f"{date_part} {numbers[3]:02}:{numbers[4]:02}:{numbers[5]:02}.{micros:06}"
        )
    except ValueError:
        return _invalid_date(text, invalid_dates)
    return text if invalid_dates is InvalidDates.TEXT else value


def _timestamp(default: Literal | None, column: Column, rules: ValueRules) -> FillValue:
    if default is None:
        # With explicit_defaults_for_timestamp=OFF, the first such column of a table has the present time as default.
        raise _UnknownFillError("a TIMESTAMP without DEFAULT")
    if _is_zero(default) or (_is_time(default) and default.text.startswith("0000-00-00")):
        return _datetime(default, column, rules)
    offset = rules.facts.utc_offset()
    local = _datetime(default, column, replace(rules, invalid_dates=InvalidDates.ERROR))
    if not isinstance(local, datetime):
        raise _UnknownFillError(_FORM)
    value = local.replace(tzinfo=UTC) - offset
    if rules.invalid_dates is InvalidDates.TEXT or not _FIRST_TIMESTAMP <= value < _NO_TIMESTAMP:
        raise _UnknownFillError(_FORM)
    return value


def _time(default: Literal | None, column: Column, _: ValueRules) -> FillValue:
    if default is None or _is_zero(default):
        return 0
    match = _TIME.fullmatch(default.text)
    if match is None or default.kind is not LiteralKind.TEXT:
        raise _UnknownFillError(_FORM)
    hours, minutes, seconds = (int(match[i]) for i in (2, 3, 4))
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + _micros(match[5], column)
    return -micros if match[1] else micros


_TIMES: dict[int, Callable[[Literal | None, Column, ValueRules], FillValue]] = {
    Type.DATE: _date,
    Type.DATETIME2: _datetime,
    Type.TIMESTAMP2: _timestamp,
    Type.TIME2: _time,
}


# -- text, bytes, labels -------------------------------------------------------------------------------------


def _text(default: Literal | None, column: Column, facts: StatementFacts) -> str:
    if default is None:
        return ""
    if default.kind is LiteralKind.NUMBER:
        _number(default)  # raises an error if a server prints the number in another form
    elif default.kind is not LiteralKind.TEXT:
        raise _UnknownFillError(_FORM)  # the text is given as bytes of a character set
    facts.literal(default.text)
    if len(default.text) > column.meta:  # a server would cut spaces
        raise _UnknownFillError(_FORM)
    return default.text.rstrip(" ") if column.type == Type.STRING else default.text


def _bytes(default: Literal | None, column: Column, facts: StatementFacts) -> bytes:
    if default is None:
        value = b""
    elif default.kind is LiteralKind.BYTES:
        value = bytes.fromhex(default.text)
    elif default.kind is LiteralKind.TEXT:
        value = facts.literal_bytes(default.text)
    else:
        raise _UnknownFillError(_FORM)
    if column.type == Type.BLOB:
        return value
    if len(value) > column.meta:
        raise _UnknownFillError(_FORM)
    return value.ljust(column.meta, b"\0") if column.type == Type.STRING else value


def _long_text(default: Literal | None, facts: StatementFacts) -> str:
    """Returns the default of a TEXT or JSON in MariaDB. MySQL refuses such a default. If sql_mode is not strict, MySQL
    accepts an empty default, but the column then has no default."""
    if default is None:
        raise _UnknownFillError("its implicit default depends on the server")
    if default.kind is not LiteralKind.TEXT or not 0 < len(default.text) <= _LONG_TEXT_MAX:
        raise _UnknownFillError(_FORM)
    return facts.literal(default.text)


def _long_bytes(default: Literal, column: Column, facts: StatementFacts) -> bytes:
    """Returns the default of a BLOB. See `_long_text`."""
    if default.kind is not LiteralKind.TEXT or not 0 < len(default.text) <= _LONG_TEXT_MAX:
        raise _UnknownFillError(_FORM)
    return _bytes(default, column, facts)


def _enum(default: Literal | None, column: Column, facts: StatementFacts) -> str:
    if default is None:
        return column.labels[0]
    facts.literal(default.text)
    return _label(default.text, default, column)


def _set(default: Literal | None, column: Column, facts: StatementFacts) -> str:
    if default is None or (default.kind is LiteralKind.TEXT and default.text == ""):
        return ""
    facts.literal(default.text)
    chosen = {_label(part, default, column) for part in default.text.split(",")}
    return ",".join(label for label in column.labels if label in chosen)


def _label(text: str, default: Literal, column: Column) -> str:
    """Returns the label in the spelling of the column's definition, because the collation may ignore case."""
    if default.kind is LiteralKind.TEXT:
        if text in column.labels:
            return text
        same = [label for label in column.labels if label.casefold() == text.casefold()]
        if len(same) == 1:
            return same[0]
    raise _UnknownFillError(_FORM)
