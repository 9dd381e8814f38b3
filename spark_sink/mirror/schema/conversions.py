"""Decides which values of a column the mirror may keep when ALTER TABLE changes the column's type. Pure.

A value may be kept if the server's conversion and Spark's cast of the mirrored value have equal results. Some
conversions keep all values except a few, such as texts that are too long. `Kept.unless` describes these few values as
predicates of Spark SQL on the mirrored rows. If no row fulfils a predicate, the mirror follows the change; otherwise
the table must be copied. In strict mode the server itself refuses values that do not fit, so they need no predicate.

Sources: MySQL source, sql/field_conv.cc and sql/field.cc (Field_*::store); the tests run each conversion on real
servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dispatcher.binlog.charset.collations import BINARY, charset_of
from dispatcher.binlog.table_map.column_types import Column, InvalidDates, Type
from dispatcher.binlog.table_map.type_text import CHARACTER_BYTES
from spark_sink.mirror.schema.session_facts import ValueRules

COLUMN = "{c}"  # stands for the column's quoted name in a predicate

_INTEGER_BITS: dict[int, int] = {
    Type.TINY: 8,
    Type.SHORT: 16,
    Type.INT24: 24,
    Type.LONG: 32,
    Type.LONGLONG: 64,
}
_DIGITS_MAX = 38  # digits of a decimal in Spark; longer decimals become text
_DOUBLE_EXACT, _FLOAT_EXACT = 1 << 53, 1 << 24
_UNICODE = ("utf8mb4", "utf16", "utf16le", "utf32", "gb18030")
_BEYOND_ASCII = "rlike({c}, '[^\\\\x00-\\\\x7F]')"


@dataclass(frozen=True, slots=True)
class Kept:
    """The mirror may keep the values. `unless`: pairs of a predicate and a reason. A value that fulfils the predicate
    cannot be kept, for this reason. In a predicate, `COLUMN` stands for the quoted name of the column before the
    change."""

    unless: tuple[tuple[str, str], ...] = ()


# (old, new, rules) -> predicates, or the reason why the values cannot be kept
Conversion = Callable[[Column, Column, ValueRules], "list[tuple[str, str]] | str"]


def conversion(old: Column, new: Column, rules: ValueRules) -> Kept | str:
    """Returns `Kept` if the mirror may keep the values of a column whose type changes from `old` to `new`, otherwise a
    text with the reason why not.

    The sizes of CHAR and VARCHAR are in characters, as in a definition.
    """
    convert = _CONVERSIONS.get((_family(old), _family(new)))
    if convert is None:
        return "the values change their form"
    result = convert(old, new, rules)
    return result if isinstance(result, str) else Kept(tuple(result))


def _family(column: Column) -> str:
    if column.declared:
        return column.declared
    match column.type:
        case Type.STRING | Type.VARCHAR | Type.BLOB:
            return "bytes" if column.charset == BINARY else "text"
        case Type.FLOAT | Type.DOUBLE:
            return "real"
        case kind if kind in _INTEGER_BITS:
            return "integer"
    return Type(column.type).name


# -- numbers -------------------------------------------------------------------------------------------------


def integer_range(column: Column) -> tuple[int, int]:
    """Returns the smallest and the greatest number of an integer type or a YEAR."""
    if column.type == Type.YEAR:
        return 0, 2155
    bits = _INTEGER_BITS[column.type]
    return (0, (1 << bits) - 1) if column.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _outside(lowest: int, greatest: int) -> tuple[str, str]:
    return f"{{c}} < {lowest} OR {{c}} > {greatest}", "a value is out of range"


def _integer_to_integer(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    (low, high), (new_low, new_high) = integer_range(old), integer_range(new)
    if rules.facts.strict or (new_low <= low and high <= new_high):
        return []
    return [_outside(new_low, new_high)]


def _whole_digits(column: Column) -> int:
    return (column.meta >> 8) - (column.meta & 0xFF)


def _fits_decimal(old_digits: int, new: Column, rules: ValueRules) -> list[tuple[str, str]]:
    """Returns predicates for numbers with at most `old_digits` digits before the point."""
    predicates = []
    if not rules.facts.strict and old_digits > _whole_digits(new):
        limit = 10 ** _whole_digits(new)
        predicates.append((f"{{c}} <= -{limit} OR {{c}} >= {limit}", "a value is out of range"))
    return predicates


def _negative(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]]:
    lost = new.unsigned and not old.unsigned and not rules.facts.strict
    return [("{c} < 0", "a value is negative")] if lost else []


def _integer_to_decimal(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    if new.meta >> 8 > _DIGITS_MAX:
        return "a DECIMAL of more than 38 digits is text in the mirror"
    digits = len(str(max(map(abs, integer_range(old)))))
    return _fits_decimal(digits, new, rules) + _negative(old, new, rules)


def _decimal_to_integer(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    if old.meta >> 8 > _DIGITS_MAX:
        return "a DECIMAL of more than 38 digits is text in the mirror"
    rounded = [("{c} <> round({c}, 0)", "a value has a fraction")] if old.meta & 0xFF else []
    low, high = integer_range(new)
    # MySQL cuts larger values to (1 << 63) - 1 even if the new type is BIGINT UNSIGNED.
    return rounded + ([] if rules.facts.strict else [_outside(low, min(high, (1 << 63) - 1))])


def _decimal_to_decimal(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    scale, new_scale = old.meta & 0xFF, new.meta & 0xFF
    if max(old.meta, new.meta) >> 8 > _DIGITS_MAX:
        both = min(old.meta, new.meta) >> 8 > _DIGITS_MAX
        kept = both and scale == new_scale and old.meta <= new.meta and old.unsigned == new.unsigned
        return [] if kept else "a DECIMAL of more than 38 digits is text in the mirror"
    predicates = _fits_decimal(_whole_digits(old), new, rules) + _negative(old, new, rules)
    if new_scale < scale:
        predicates.append((f"{{c}} <> round({{c}}, {new_scale})", "a value has more decimals"))
    return predicates


def _integer_to_real(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    exact = _DOUBLE_EXACT if new.type == Type.DOUBLE else _FLOAT_EXACT
    predicates = _negative(old, new, rules)
    if max(map(abs, integer_range(old))) > exact:
        predicates.append((f"{{c}} < -{exact} OR {{c}} > {exact}", "a value would be rounded"))
    return predicates


def _real_to_real(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    predicates = _negative(old, new, rules)
    if old.type == Type.DOUBLE and new.type == Type.FLOAT:
        predicates.append(("CAST(CAST({c} AS FLOAT) AS DOUBLE) <> {c}", "a value would be rounded"))
    return predicates


def _bits(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    if (old.meta + 7) // 8 != (new.meta + 7) // 8:
        return "the values change their length"
    return [] if new.meta >= old.meta or rules.facts.strict else "a value may be out of range"


# -- times ---------------------------------------------------------------------------------------------------


def _fraction(old: Column, new: Column, micros: str) -> list[tuple[str, str]]:
    """Returns a predicate for values that lose digits. `micros`: Spark SQL for the microseconds within a second."""
    if new.meta >= old.meta:
        return []
    return [(f"{micros} % {10 ** (6 - new.meta)} <> 0", "a value has more fractional digits")]


def _instant(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    if rules.invalid_dates is InvalidDates.TEXT:
        return (
            [] if old.meta == new.meta else "dates are text, with fractional digits, in the mirror"
        )
    return _fraction(old, new, "CAST(date_format({c}, 'SSSSSS') AS INT)")


def _time(old: Column, new: Column, _rules: ValueRules) -> list[tuple[str, str]] | str:
    return _fraction(old, new, "{c}")


def _date_to_datetime(_old: Column, _new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    return "dates are text in the mirror" if rules.invalid_dates is InvalidDates.TEXT else []


def _datetime_to_date(_old: Column, _new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    if rules.invalid_dates is InvalidDates.TEXT:
        return "dates are text in the mirror"
    midnight = "CAST(CAST({c} AS DATE) AS TIMESTAMP_NTZ)"
    return [(f"{{c}} <> {midnight}", "a value has a time of day")]


# -- text, bytes, labels -------------------------------------------------------------------------------------


def _in_charset(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    """Returns predicates for characters that the new character set may lack."""
    before, after = charset_of(old.charset), charset_of(new.charset) if new.charset else ""
    if before == after or after in _UNICODE:
        return []
    if after == "swe7":
        return "the character set swe7 has few characters"
    if rules.facts.strict:
        return []
    return [(_BEYOND_ASCII, "a value may have characters that the new character set lacks")]


def _characters_max(column: Column) -> int:
    """Returns the greatest number of characters in a value."""
    return 256**column.meta - 1 if column.type == Type.BLOB else column.meta


def _too_long(old: Column, new: Column, longest: int) -> list[tuple[str, str]]:
    """Returns predicates for the texts that the new type truncates. The texts of the column have at most `longest`
    characters. Servers cut spaces at the end without an error, even in strict mode."""
    if new.type != Type.BLOB:
        if longest <= new.meta:
            return []
        return [(f"char_length({{c}}) > {new.meta}", f"a value is longer than {new.meta}")]
    limit = 256**new.meta - 1
    same = old.charset == new.charset and new.charset != 0
    size = 1 if same and old.type == Type.BLOB else CHARACTER_BYTES.get(charset_of(new.charset), 1)
    if not new.charset:
        size = 4
    if longest * size <= limit:
        return []
    # A character has at most 4 bytes in any character set.
    return [(f"4 * char_length({{c}}) > {limit}", "a value may be too long")]


def _text_to_text(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    if old.type == Type.STRING and new.type != Type.STRING and rules.facts.pads_char:
        return "PAD_CHAR_TO_FULL_LENGTH fills the values with spaces"
    characters = _in_charset(old, new, rules)
    if isinstance(characters, str):
        return characters
    predicates = [*characters, *_too_long(old, new, _characters_max(old))]
    if new.type == Type.STRING and old.type != Type.STRING:
        predicates.append(
            ("right({c}, 1) = ' '", "a value ends with a space, which CHAR does not keep")
        )
    return predicates


def _bytes_to_bytes(old: Column, new: Column, _rules: ValueRules) -> list[tuple[str, str]] | str:
    if new.type == Type.STRING:
        same = old.type == Type.STRING and old.meta == new.meta
        return [] if same else "BINARY fills the values with zero bytes"
    longest = 256**new.meta - 1 if new.type == Type.BLOB else new.meta
    if _characters_max(old) <= longest:
        return []
    return [(f"octet_length({{c}}) > {longest}", f"a value is longer than {longest} bytes")]


def _labels_to_text(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    characters = _in_charset(old, new, rules)
    if isinstance(characters, str):
        return characters
    lengths = [len(label) for label in old.labels]
    longest = max(lengths) if old.type == Type.ENUM else sum(lengths) + len(lengths) - 1
    return [*characters, *_too_long(old, new, longest)]


def _json_to_text(old: Column, new: Column, rules: ValueRules) -> list[tuple[str, str]] | str:
    if new.type != Type.BLOB or new.meta != 4:
        return "a value may be too long"
    return _in_charset(old, new, rules)


def _enum_to_enum(old: Column, new: Column, _rules: ValueRules) -> list[tuple[str, str]] | str:
    """Returns a predicate for labels that the new type lacks. A server converts labels as text, so their order does not
    matter. The server compares labels by the collation: if the new type lacks a label, its value may become a label
    that differs only in spelling, so the mirror cannot keep the value."""
    gone = [label for label in old.labels if label not in new.labels]
    if not gone:
        return []
    return [(f"{{c}} IN ({_texts(gone)})", "a value is a label that is gone")]


def _set_to_set(old: Column, new: Column, _rules: ValueRules) -> list[tuple[str, str]] | str:
    """Returns a predicate for labels that the new type lacks. The order of labels must not change, because the text of
    a value contains its labels in the column's order."""
    left = [label for label in new.labels if label in old.labels]
    if left != [label for label in old.labels if label in new.labels]:
        return "the labels change their order"
    gone = [label for label in old.labels if label not in new.labels]
    if not gone:
        return []
    overlap = f"arrays_overlap(split({{c}}, ','), array({_texts(gone)}))"
    return [(overlap, "a value has a label that is gone")]


def _texts(labels: Sequence[str]) -> str:
    return ", ".join(map(text_literal, labels))


def text_literal(text: str) -> str:
    """Returns a text as a literal of Spark SQL. Doubles the braces of the text, because `str.format` later replaces
    `COLUMN` in the literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("{", "{{").replace("}", "}}") + "'"


# -- the rest ------------------------------------------------------------------------------------------------


def _keeps(_old: Column, _new: Column, _rules: ValueRules) -> list[tuple[str, str]] | str:
    return []


def _geometry(old: Column, new: Column, _rules: ValueRules) -> list[tuple[str, str]] | str:
    return [] if new.geometry in (0, old.geometry) else "another kind of geometry"


def _vector(old: Column, new: Column, _rules: ValueRules) -> list[tuple[str, str]] | str:
    return [] if new.dimensions >= old.dimensions > 0 else "the vectors may be too long"


_CONVERSIONS: dict[tuple[str, str], Conversion] = {
    ("integer", "integer"): _integer_to_integer,
    ("YEAR", "integer"): _integer_to_integer,
    ("YEAR", "YEAR"): _keeps,
    ("integer", "NEWDECIMAL"): _integer_to_decimal,
    ("integer", "real"): _integer_to_real,
    ("NEWDECIMAL", "NEWDECIMAL"): _decimal_to_decimal,
    ("NEWDECIMAL", "integer"): _decimal_to_integer,
    ("real", "real"): _real_to_real,
    ("BIT", "BIT"): _bits,
    ("DATE", "DATE"): _keeps,
    ("DATE", "DATETIME2"): _date_to_datetime,
    ("DATETIME2", "DATE"): _datetime_to_date,
    ("DATETIME2", "DATETIME2"): _instant,
    ("TIMESTAMP2", "TIMESTAMP2"): _instant,
    ("TIME2", "TIME2"): _time,
    ("text", "text"): _text_to_text,
    ("bytes", "bytes"): _bytes_to_bytes,
    ("ENUM", "ENUM"): _enum_to_enum,
    ("SET", "SET"): _set_to_set,
    ("ENUM", "text"): _labels_to_text,
    ("SET", "text"): _labels_to_text,
    ("JSON", "JSON"): _keeps,
    ("JSON", "text"): _json_to_text,
    ("GEOMETRY", "GEOMETRY"): _geometry,
    ("VECTOR", "VECTOR"): _vector,
    ("uuid", "uuid"): _keeps,
    ("inet4", "inet4"): _keeps,
    ("inet6", "inet6"): _keeps,
}
