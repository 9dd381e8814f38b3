"""Parses the column definitions of CREATE TABLE and ALTER TABLE.

The parser returns the attributes that have an effect on existing rows: the type, whether the column may be NULL, and
the default if it is a constant. It skips all other attributes: comments, indexes, checks, storage.

Sources: MySQL 9.7 manual, "CREATE TABLE Statement", "Data Type Default Values"; MariaDB knowledge base, "CREATE TABLE";
sql_yacc.yy of both (column_attribute, field_spec).
"""

from __future__ import annotations

from dispatcher.binlog.sql import data_types
from dispatcher.binlog.sql.clauses import Computed, DefinedColumn, Literal, LiteralKind
from dispatcher.binlog.sql.data_types import DataType
from dispatcher.binlog.sql.lexer import NotUnderstoodError, SqlToken, SqlTokens

# Words that may follow a column's definition.
_ENDS = (",", ")", ";", "FIRST", "AFTER", "PARTITION", "REMOVE")
_ATTRIBUTES = (
    "NOT", "NULL", "DEFAULT", "ON", "AUTO_INCREMENT", "PRIMARY", "KEY", "UNIQUE", "COMMENT", "COLLATE",
    "COLUMN_FORMAT", "STORAGE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "VISIBLE", "INVISIBLE", "GENERATED",
    "AS", "SRID", "REF_SYSTEM_ID", "REFERENCES", "CONSTRAINT", "CHECK", "SERIAL", "WITH", "WITHOUT", "COMPRESSED",
    "VIRTUAL", "STORED", "PERSISTENT", "ENFORCED",
)  # fmt: skip


def defined_column(tokens: SqlTokens) -> DefinedColumn:
    """Consume a column's name and definition. Raises NotUnderstoodError."""
    name = tokens.column_name()
    return _Definition(tokens, name, data_types.data_type(tokens)).parse()


class _Definition:
    """Those attributes of one column that have been parsed."""

    def __init__(self, tokens: SqlTokens, name: str, kind: DataType) -> None:
        self._tokens = tokens
        self._name = name
        self._kind = kind
        self._nullable: bool | None = False if kind.serial else None
        self._default: Literal | None = None
        self._computed = Computed.AUTO_INCREMENT if kind.serial else Computed.NO
        self._primary = False
        self._unique = kind.serial
        self._visible = True
        self._collation = "binary" if kind.binary else ""

    def parse(self) -> DefinedColumn:
        while (following := self._tokens.peek()) is not None and following.keyword not in _ENDS:
            self._attribute(following)
        return DefinedColumn(
            self._name,
            self._kind.text,
            self._kind.charset,
            self._nullable,
            self._default,
            self._computed,
            self._primary,
            self._unique,
            self._visible,
            self._collation,
        )

    def _attribute(self, following: SqlToken) -> None:
        tokens, word = self._tokens, following.keyword
        if tokens.accept("NOT", "NULL"):
            self._nullable = False
        elif tokens.accept("NULL"):
            self._nullable = True
        elif tokens.accept("DEFAULT"):
            self._set_default()
        elif tokens.accept("SERIAL", "DEFAULT", "VALUE"):
            self._computed, self._nullable, self._unique = Computed.AUTO_INCREMENT, False, True
        elif tokens.accept("AUTO_INCREMENT"):
            self._computed, self._nullable = Computed.AUTO_INCREMENT, False
        elif word in ("GENERATED", "AS"):
            self._generated()
        elif tokens.accept("COLLATE"):
            self._collation = data_types.charset_name(tokens)
            charset = data_types.charset_of_collation(self._collation)
            self._kind = data_types.in_charset(self._kind, charset or self._kind.charset)
        elif tokens.accept("UNIQUE"):
            tokens.accept("KEY")
            self._unique = True
        elif tokens.accept("PRIMARY", "KEY") or tokens.accept("KEY") or tokens.accept("PRIMARY"):
            self._primary = True
        elif word in ("WITH", "WITHOUT"):  # MariaDB
            tokens.expect(word, "SYSTEM", "VERSIONING")
        else:
            self._skip(following)

    def _skip(self, following: SqlToken) -> None:
        """Consume an attribute that has no effect on existing rows."""
        tokens = self._tokens
        match following.keyword:
            case "VISIBLE" | "INVISIBLE":
                self._visible = tokens.word() == "VISIBLE"
            case "COMMENT" | "COLUMN_FORMAT" | "STORAGE" | "SRID" | "CONSTRAINT":
                tokens.advance()
                if following.keyword != "CONSTRAINT" or not tokens.at("CHECK"):
                    tokens.advance()
            case "ENFORCED" | "NOT" | "VIRTUAL" | "STORED" | "PERSISTENT":
                tokens.advance()  # NOT ENFORCED, NOT SECONDARY
                tokens.accept("SECONDARY")
            case "CHECK" | "REF_SYSTEM_ID":
                tokens.advance()
                tokens.accept("=")
                tokens.skip_brackets()
            case "ON":
                tokens.advance()
                tokens.expect("UPDATE")
                tokens.advance()
                if tokens.at("("):
                    tokens.skip_brackets()
            case "REFERENCES":
                self._skip_reference()
            case _:
                self._skip_option()

    def _skip_reference(self) -> None:
        tokens = self._tokens
        tokens.advance()
        tokens.name()
        if tokens.at("("):
            tokens.skip_brackets()
        while True:
            if tokens.accept("MATCH"):
                tokens.advance()
            elif tokens.accept("ON", "DELETE") or tokens.accept("ON", "UPDATE"):
                if tokens.accept("SET") or tokens.accept("NO"):
                    tokens.advance()
                else:
                    tokens.advance()
            else:
                return

    def _skip_option(self) -> None:
        """Consume ENGINE_ATTRIBUTE, or an option of MariaDB's engines: name [=] value."""
        tokens = self._tokens
        name = tokens.advance()
        if not tokens.accept("=") and (name is None or not name.keyword.endswith("_ATTRIBUTE")):
            raise NotUnderstoodError
        tokens.advance()

    def _generated(self) -> None:
        tokens = self._tokens
        if tokens.accept("GENERATED"):
            tokens.accept("ALWAYS")
        tokens.expect("AS")
        self._computed = Computed.GENERATED
        if tokens.accept("ROW"):  # MariaDB: START or END
            tokens.advance()
        else:
            tokens.skip_brackets()

    def _set_default(self) -> None:
        literal = _literal(self._tokens)
        following = self._tokens.peek()
        if literal is not None and (
            following is None or following.keyword in _ENDS or following.keyword in _ATTRIBUTES
        ):
            self._default = literal
            return
        self._computed = Computed.EXPRESSION
        while (following := self._tokens.peek()) is not None:
            if following.keyword in _ENDS or following.keyword in _ATTRIBUTES:
                return
            if following.keyword == "(":
                self._tokens.skip_brackets()
            else:
                self._tokens.advance()


def skip_default(tokens: SqlTokens) -> None:
    """Consume the value of SET DEFAULT: a constant, an expression in brackets, or a function."""
    if tokens.at("("):
        tokens.skip_brackets()
    elif _literal(tokens) is None:
        tokens.identifier()
        if tokens.at("("):
            tokens.skip_brackets()


def _literal(tokens: SqlTokens) -> Literal | None:
    """Consume a constant. Returns None for any other expression. A part of such an expression may have been consumed.
    (A constant in brackets is treated as such an expression.)"""
    following = tokens.peek()
    if following is None:
        raise NotUnderstoodError
    if following.kind == "text":
        return Literal(LiteralKind.TEXT, tokens.text())
    return _signed_number(tokens) or _named(tokens, following)


def _named(tokens: SqlTokens, following: SqlToken) -> Literal | None:
    """Consume NULL, TRUE, FALSE, x'00' or b'01', or a constant of kind OTHER: N'a', _utf8mb4'a', DATE'2024-01-01'."""
    word = following.keyword
    simple = {
        "NULL": Literal(LiteralKind.NULL),
        "TRUE": Literal(LiteralKind.NUMBER, "1"),
        "FALSE": Literal(LiteralKind.NUMBER, "0"),
    }
    if word in simple:
        tokens.advance()
        return simple[word]
    behind = tokens.peek(1)
    if following.kind != "word" or behind is None or behind.kind != "text":
        return None
    tokens.advance()
    if word in ("X", "B"):
        return _digits(tokens.text(), 16 if word == "X" else 2)
    tokens.text()
    return Literal(LiteralKind.OTHER)


def _signed_number(tokens: SqlTokens) -> Literal | None:
    sign = ""
    while tokens.at("-") or tokens.at("+"):
        sign += "-" if tokens.accept("-") else ""
        tokens.accept("+")
    number = _number(tokens)
    if number is None:
        return None
    if number.kind is LiteralKind.NUMBER and len(sign) % 2:
        return Literal(LiteralKind.NUMBER, "-" + number.text)
    return number if not sign else None


def _number(tokens: SqlTokens) -> Literal | None:
    """Consume a number: 1, 1.5, .5, 1e-3, 0x00, 0b01."""
    following = tokens.peek()
    if following is None or following.kind != "number":
        return None
    tokens.advance()
    text = following.text
    if text[:2] in ("0x", "0b"):
        return _digits(text[2:], 16 if text[1] == "x" else 2)
    return Literal(LiteralKind.NUMBER, text.replace("E", "e"))


def _digits(text: str, base: int) -> Literal | None:
    """Return the bytes of x'0f' or b'0101', with zero bits added on the left."""
    per_byte = 2 if base == 16 else 8
    try:
        number = int(text or "0", base)
    except ValueError:
        return None
    size = -(-len(text) // per_byte)
    return Literal(LiteralKind.BYTES, number.to_bytes(size, "big").hex())
