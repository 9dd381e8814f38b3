"""Parses a column's data type to the text that information_schema shows for it: `INTEGER(11) UNSIGNED` becomes `int
unsigned`.

A synonym of a type becomes the name of the type, even if the meaning of the synonym depends on sql_mode. Display widths
are left out, because they affect no value. Sources: MySQL 9.7 manual, "Data Types"; MariaDB knowledge base, "Data
Types", "SQL_MODE=ORACLE"; sql_yacc.yy of both.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dispatcher.binlog.sql.lexer import (
    MAXDB,
    ORACLE,
    REAL_AS_FLOAT,
    NotUnderstoodError,
    SqlTokens,
    lower,
)

_INTEGERS = {
    **dict.fromkeys(("TINYINT", "INT1", "BOOL", "BOOLEAN"), "tinyint"),
    **dict.fromkeys(("SMALLINT", "INT2"), "smallint"),
    **dict.fromkeys(("MEDIUMINT", "INT3", "MIDDLEINT"), "mediumint"),
    **dict.fromkeys(("INT", "INTEGER", "INT4"), "int"),
    **dict.fromkeys(("BIGINT", "INT8"), "bigint"),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC", "FIXED")
_FRACTIONAL = ("DATETIME", "TIMESTAMP", "TIME")
_CHARS = {"CHAR": "char", "CHARACTER": "char", "NCHAR": "char"}
_VARCHARS = ("VARCHAR", "VARCHARACTER", "NVARCHAR", "VARCHAR2")
_PLAIN = (
    "DATE", "JSON", "UUID", "INET4", "INET6", "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT",
    "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION",
)  # fmt: skip
_BLOBS = ("TINYBLOB", "MEDIUMBLOB", "LONGBLOB")
_TEXTS = ("TINYTEXT", "MEDIUMTEXT", "LONGTEXT")
_BYTES_OF = {
    "char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
    "longtext": "longblob",
}  # fmt: skip
# First words of the types that have a character set.
TEXT_WORDS = frozenset((*_BYTES_OF, "enum", "set"))
_NATIONAL = "utf8mb3"
_ESCAPES = {"\\": r"\\", "\0": r"\0", "\n": r"\n", "\r": r"\r"}


class DataType(NamedTuple):
    """`text`: the form in information_schema. `charset`: "" if the type does not contain it. `serial`: True for the
    synonym SERIAL. `binary`: True if a text type has the attribute BINARY, which means the binary collation of the
    type's character set."""

    text: str
    charset: str = ""
    serial: bool = False
    binary: bool = False


def data_type(tokens: SqlTokens) -> DataType:
    """Consume a data type with its attributes up to COLLATE. Raises NotUnderstoodError."""
    text, charset = _type(tokens)
    if text == "serial":
        return DataType("bigint unsigned", serial=True)
    word, binary = text.partition("(")[0], False
    if word in TEXT_WORDS:
        written, binary = _charset(tokens)
        charset = written or charset
    return in_charset(DataType(text, charset, binary=binary), charset)


def in_charset(found: DataType, charset: str) -> DataType:
    """Return the type with a character set. With `binary`, a text type becomes its binary form: VARCHAR becomes
    VARBINARY."""
    word, bracket, rest = found.text.partition("(")
    if charset == "binary" and word in _BYTES_OF:
        return DataType(_BYTES_OF[word] + bracket + rest)
    return found._replace(charset=charset)


def _type(  # noqa: C901, PLR0911, PLR0912 - one branch per family of types
    tokens: SqlTokens,
) -> tuple[str, str]:
    """Consume a type's name and arguments. Return (type, character set that the name implies)."""
    word = tokens.word()
    if word in _INTEGERS:
        _arguments(tokens)
        return _INTEGERS[word] + _sign(tokens), ""
    if word in _DECIMALS:
        return f"decimal({_precision(tokens)})" + _sign(tokens), ""
    if word in ("FLOAT", "FLOAT4", "FLOAT8", "DOUBLE", "REAL"):
        return _floating(tokens, word) + _sign(tokens), ""
    if word in _FRACTIONAL:
        # With the sql_mode MAXDB, or ORACLE below, type names have the meaning that they have on other database
        # servers.
        name = "datetime" if word == "TIMESTAMP" and tokens.facts.sql_mode & MAXDB else lower(word)
        digits = (_arguments(tokens) or ["0"])[0]
        return (f"{name}({digits})" if digits != "0" else name), ""
    if word == "DATE" and _oracle(tokens):
        return "datetime", ""
    if word in _PLAIN:
        return lower(word), ""
    if word == "GEOMCOLLECTION":
        return "geometrycollection", ""
    if word == "YEAR":
        _arguments(tokens)
        return "year", ""
    if word in ("ENUM", "SET"):
        return f"{lower(word)}({_labels(tokens)})", ""
    if word in ("BIT", "BINARY", "VECTOR"):
        default = "2048" if word == "VECTOR" else "1"
        return f"{lower(word)}({(_arguments(tokens) or [default])[0]})", ""
    if word in ("VARBINARY", "RAW"):
        return f"varbinary({_one_argument(tokens)})", ""
    if word in _BLOBS or word in _TEXTS:
        return lower(word), ""
    if word == "BLOB":
        return _sized(tokens, "blob"), ""
    if word in ("TEXT", "CLOB"):
        return ("longtext" if word == "CLOB" else _sized(tokens, "text")), ""
    if word == "SERIAL":
        return "serial", ""
    return _string(tokens, word)


def _string(tokens: SqlTokens, word: str) -> tuple[str, str]:
    charset = _NATIONAL if word in ("NCHAR", "NVARCHAR", "NATIONAL") else ""
    if word == "NATIONAL":
        word = tokens.word()
    if word in _VARCHARS:
        return f"varchar({_one_argument(tokens)})", charset
    if word in _CHARS:
        if tokens.accept("VARYING") or tokens.accept("VARCHAR"):
            return f"varchar({_one_argument(tokens)})", charset
        return f"char({(_arguments(tokens) or ['1'])[0]})", charset
    if word == "LONG":
        if tokens.accept("VARBINARY"):
            return "mediumblob", ""
        if not tokens.accept("VARCHAR") and tokens.accept_either("CHAR", "CHARACTER"):
            tokens.accept("VARYING")
        return "mediumtext", ""
    if word == "NUMBER" and _oracle(tokens):
        if tokens.at("("):
            return f"decimal({_precision(tokens)})", ""
        return "double", ""
    raise NotUnderstoodError


def _oracle(tokens: SqlTokens) -> bool:
    """True if the names of types have Oracle's meaning. MySQL before 8.0 has the sql_mode, but not this meaning."""
    return tokens.facts.mariadb and bool(tokens.facts.sql_mode & ORACLE)


def _arguments(tokens: SqlTokens) -> list[str]:
    """Consume numbers in brackets, if there are any."""
    found: list[str] = []
    if not tokens.accept("("):
        return found
    while True:
        found.append(tokens.digits().lstrip("0") or "0")
        if tokens.accept(")"):
            return found
        # MariaDB in Oracle's mode: VARCHAR2(10 CHAR)
        if not tokens.accept(","):
            tokens.accept_any("CHAR")
            tokens.expect(")")
            return found


def _one_argument(tokens: SqlTokens) -> str:
    found = _arguments(tokens)
    if len(found) != 1:
        raise NotUnderstoodError
    return found[0]


def _precision(tokens: SqlTokens) -> str:
    numbers = [*_arguments(tokens), *("10", "0")]
    if len(numbers) == 3:  # DECIMAL(p): the scale is 0
        numbers[1] = "0"
    # DECIMAL(0) means the default precision, like DECIMAL.
    return f"{numbers[0] if numbers[0] != '0' else '10'},{numbers[1]}"


def _floating(tokens: SqlTokens, word: str) -> str:
    name = "float" if word in ("FLOAT", "FLOAT4") else "double"
    if word == "REAL" and tokens.facts.sql_mode & REAL_AS_FLOAT:
        name = "float"
    if word == "DOUBLE":
        tokens.accept("PRECISION")
    numbers = _arguments(tokens)
    if len(numbers) == 1:  # the bits of the mantissa
        return "float" if int(numbers[0]) <= 24 else "double"
    return f"{name}({','.join(numbers)})" if numbers else name


def _sign(tokens: SqlTokens) -> str:
    unsigned = False
    while True:
        if tokens.accept_either("UNSIGNED", "ZEROFILL"):
            unsigned = True
        elif not tokens.accept("SIGNED"):
            return " unsigned" if unsigned else ""


def _sized(tokens: SqlTokens, word: str) -> str:
    """Return the smallest type for values of the size (in bytes) in the arguments. TEXT(n) counts characters, so the
    server may choose a larger type."""
    size = int((_arguments(tokens) or ["0"])[0])
    if size == 0:
        return word
    for prefix, limit in (("tiny", 1 << 8), ("", 1 << 16), ("medium", 1 << 24)):
        if size < limit:
            return prefix + word
    return "long" + word


def _labels(tokens: SqlTokens) -> str:
    tokens.expect("(")
    labels = []
    while True:
        # The servers remove spaces at a label's end.
        labels.append(quoted_label(tokens.text().rstrip(" ")))
        if tokens.accept(")"):
            return ",".join(labels)
        tokens.expect(",")


def quoted_label(label: str) -> str:
    """Quote a label of ENUM or SET as information_schema does."""
    escaped = re.sub(r"[\\\0\n\r]", lambda match: _ESCAPES[match[0]], label).replace("'", "''")
    return f"'{escaped}'"


def _charset(tokens: SqlTokens) -> tuple[str, bool]:
    """Consume the attributes after a text type. Return the character set ("" if the attributes do not contain it), and
    True if they contain BINARY, which means the binary collation of the character set."""
    charset, binary = "", False
    while True:
        if tokens.accept("CHARACTER", "SET") or tokens.accept("CHAR", "SET") or tokens.accept("CHARSET"):  # fmt: skip
            charset = charset_name(tokens)
        elif tokens.accept("ASCII"):
            charset = "latin1"
        elif tokens.accept("UNICODE"):
            charset = "ucs2"
        elif tokens.accept("BYTE"):
            charset = "binary"
        elif tokens.accept("COMPRESSED"):  # MariaDB
            if tokens.accept("="):
                tokens.advance()
        elif tokens.accept("BINARY"):
            binary = True
        else:
            return charset, binary


def charset_name(tokens: SqlTokens) -> str:
    """Consume the name of a character set, an identifier or a quoted string. Returns "" for DEFAULT."""
    following = tokens.peek()
    name = (
        tokens.text() if following is not None and following.kind == "text" else tokens.identifier()
    )
    name = lower(name)
    return {"utf8": "utf8mb3", "default": ""}.get(name, name)


def charset_of_collation(name: str) -> str:
    """Return the character set in a collation's name; "" if the name has none (MariaDB's `uca1400_ai_ci`)."""
    charset = lower(name).partition("_")[0]
    return "" if charset in ("uca1400", "default") else {"utf8": "utf8mb3"}.get(charset, charset)
