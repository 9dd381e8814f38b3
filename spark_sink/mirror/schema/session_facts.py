"""What the modules `fills` and `conversions` may know about the session that executed a statement. Pure.

They ask `StatementFacts` for each fact on which a value depends. It raises `UnknownFactError` for a fact that the log
does not contain, and for a fact whose value was not tested on servers. The mirror then follows the policy `on_alter`.

Sources: MySQL source, sql/item.cc (Item_string), sql/sql_lex.cc; MariaDB, sql/sql_lex.cc (make_text_string_node). A
literal is converted from `character_set_client` to the character set of `collation_connection`, and from there to the
column's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from dispatcher.binlog.charset.collations import charset_of
from dispatcher.binlog.sql.lexer import STRICT_ALL_TABLES, STRICT_TRANS_TABLES
from dispatcher.binlog.sql.logged import SessionFacts
from dispatcher.binlog.table_map.column_types import InvalidDates

PAD_CHAR_TO_FULL_LENGTH = 1 << 31
EMPTY_STRING_IS_NULL = 1 << 32  # MariaDB; MySQL's TIME_TRUNCATE_FRACTIONAL
# Character sets that contain all characters of Unicode, and those that contain U+0000 to U+FFFF.
_ALL_CHARACTERS = ("utf8mb4", "utf16", "utf16le", "utf32", "gb18030")
_BASIC_PLANE = ("utf8mb3", "ucs2")
# Character sets in which ASCII characters have other bytes than in ASCII. swe7 lacks some of these characters.
_OTHER_BYTES = ("utf16", "utf16le", "utf32", "ucs2", "swe7")
_OFFSET = re.compile(r"([+-])(\d\d?):([0-5]\d)", re.ASCII)


class UnknownFactError(Exception):
    """The message says which fact of the session is not known, and what depends on it."""


@dataclass(frozen=True, slots=True)
class StatementFacts:
    """`session`: the facts that the log holds; `ignore`: True for ALTER IGNORE."""

    session: SessionFacts
    ignore: bool = False

    def require_whole(self) -> None:
        """Raises UnknownFactError if the log contains a setting of the session that this program does not know. Such a
        setting may concern any value."""
        code = self.session.unknown_variable
        if code is not None:
            raise UnknownFactError(
                f"the server logged the statement with a setting (status variable {code}) that is not known"
            )

    @property
    def strict(self) -> bool:
        """True if a value that does not fit makes the statement fail, so no value was cut."""
        strict = STRICT_TRANS_TABLES | STRICT_ALL_TABLES
        return not self.ignore and bool(self.session.sql_mode & strict)

    @property
    def pads_char(self) -> bool:
        return bool(self.session.sql_mode & PAD_CHAR_TO_FULL_LENGTH)

    @property
    def empty_text_is_null(self) -> bool:
        return self.session.mariadb and bool(self.session.sql_mode & EMPTY_STRING_IS_NULL)

    def require_nullable_timestamps(self) -> None:
        """Raises UnknownFactError if a TIMESTAMP that is declared without NULL and without NOT NULL may be NOT NULL. It
        is nullable if the log has explicit_defaults_for_timestamp=ON, which MySQL logs since 8.0."""
        if self.session.explicit_defaults_for_timestamp is not True:
            raise UnknownFactError("a TIMESTAMP without NULL or NOT NULL")

    def literal(self, text: str) -> str:
        """Returns the text of a literal. Raises UnknownFactError if the server may have converted the literal to
        another text."""
        client, connection = self.session.client, self.session.connection
        if not client or not connection:
            raise UnknownFactError("the log does not hold the character sets of the session")
        between = charset_of(connection)
        if "binary" in (charset_of(client), between) or "\ufffd" in text:
            raise UnknownFactError("a text whose character set is not known")
        if between in _ALL_CHARACTERS:
            return text
        if between in _BASIC_PLANE:
            kept = all(character <= "\uffff" for character in text)
        elif text.isascii():
            kept = between != "swe7"
        else:
            kept = charset_of(client) == between
        if not kept:
            raise UnknownFactError(
                f"{between}, the character set of collation_connection, may lack characters of a text"
            )
        return text

    def literal_bytes(self, text: str) -> bytes:
        """Returns the bytes of a literal that is a value of a binary type."""
        between = charset_of(self.session.connection)
        if not self.literal(text).isascii() or between in _OTHER_BYTES:
            raise UnknownFactError("the bytes of a text depend on collation_connection")
        return text.encode()

    def utc_offset(self) -> timedelta:
        """Returns the offset of `time_zone`. Raises UnknownFactError for a time zone with a name, such as SYSTEM."""
        match = _OFFSET.fullmatch(self.session.time_zone or "")
        if match is None:
            raise UnknownFactError("its default depends on the session's time zone")
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return -offset if match[1] == "-" else offset


@dataclass(frozen=True, slots=True)
class ValueRules:
    """The values, besides types and definitions, on which fills and conversions depend."""

    facts: StatementFacts
    invalid_dates: InvalidDates
