"""Resolves the comments that a server may execute: `/*! ... */`, `/*!80034 ... */`, and MariaDB's `/*M! ... */`.

Whether a server executes such a comment or skips it depends on the kind and version of the server. So the text alone
does not show which statement the server executed. `executed_text` returns the text as the server that wrote the log
executed it, and the parsers read only that text. Before they log the statement, most servers replace the `!` of a
comment that they skip by a space; MySQL leaves MariaDB's comments unchanged.

The rules, tested on servers:
* A version is five digits, or six if the sixth character is a digit, too. MySQL 5.6 always reads five digits. The
  versions between 5.6 and 9.7 were not tested, so the parsers do not understand a statement of these versions with a
  six-digit comment.
* A comment without a version, or with fewer than five digits, is executed; its digits are then part of the code.
* A comment with a version is executed by servers of that version and later. MariaDB skips `/*!50700` to `/*!99999`,
  which are MySQL's versions. MariaDB executes `/*M!` like `/*!`, but without this exception. To MySQL, `/*M!` begins an
  ordinary comment.
* A comment that is skipped because of its version may contain other comments, one level deep.

Sources: sql_lex.cc of both (lex_one_token, consume_comment).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dispatcher.binlog.event.header import FormatDescription, server_numbers
from dispatcher.binlog.sql.lexer import end_of_unmarked_text

_NEWEST = 999_999
_MYSQL_VERSIONS = range(50_700, 100_000)  # MariaDB 10.0 is 100000
_SIX_DIGITS_SINCE, _FIVE_DIGITS_BEFORE = 90_700, 50_700  # MySQL
_MARK = re.compile(r"/\*(?P<mariadb>M?)!(?P<version>[0-9]{5,6})?")
_BRACKETS = re.compile(r"/\*|\*/")
COMMENTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """The kind and version of the server that wrote a statement. `number`: the version in the form of comments, such as
    80034 for 8.0.34."""

    mariadb: bool = False
    number: int = _NEWEST

    @classmethod
    def of(cls, format_: FormatDescription) -> ServerVersion:
        """Return the version in a FORMAT_DESCRIPTION. If the event contains no version, the result is the version of a
        new server."""
        numbers = server_numbers(format_.server_version)
        if not numbers:
            return cls(format_.mariadb)
        major, minor, patch = numbers
        return cls(format_.mariadb, major * 10_000 + minor * 100 + patch)

    def read(self, digits: str) -> str | None:
        """Returns the digits, out of five or six, that this server reads as the version; None if their number is not
        known."""
        if len(digits) < 6 or self.mariadb or self.number >= _SIX_DIGITS_SINCE:
            return digits
        return digits[:5] if self.number < _FIVE_DIGITS_BEFORE else None

    def executes(self, version: int, *, mariadb_only: bool) -> bool:
        """True if the server executes a comment with this version. `mariadb_only`: True for `/*M!`."""
        if version > self.number:
            return False
        return not self.mariadb or mariadb_only or version not in _MYSQL_VERSIONS


def executed_text(query: str, sql_mode: int, server: ServerVersion) -> str:
    """Returns the statement as the server executed it: blanks replace the marks of the comments that the server
    executed, and the whole comments that the server skipped. So the result is as long as the statement. The time is
    linear in the length.

    If it is not known whether the server executed a comment, the text stays unchanged from the beginning of that
    comment to the end of the statement, so that no parser understands the statement. The text after the first
    COMMENTS_MAX comments stays unchanged, too.
    """
    if "/*!" not in query and "/*M!" not in query:
        return query
    return _Resolver(query, sql_mode, server).resolve()


class _Resolver:
    def __init__(self, query: str, sql_mode: int, server: ServerVersion) -> None:
        self._query, self._sql_mode, self._server = query, sql_mode, server
        self._pieces: list[str] = []  # the resolved text before `_at`
        self._at = 0
        self._is_open = False  # inside a comment that the server executes

    def resolve(self) -> str:
        for _ in range(COMMENTS_MAX):
            self._copy_to(end_of_unmarked_text(self._query, self._at, self._sql_mode))
            if self._query.startswith("*/", self._at) and self._is_open:
                self._blank_to(self._at + 2)
                self._is_open = False
            elif not self._comment():
                break
        self._copy_to(len(self._query))
        return "".join(self._pieces)

    def _copy_to(self, end: int) -> None:
        self._pieces.append(self._query[self._at : end])
        self._at = end

    def _blank_to(self, end: int) -> None:
        self._pieces.append(" " * (end - self._at))
        self._at = end

    def _comment(self) -> bool:
        """If the server executes the comment that begins here, replace its marks by blanks, otherwise the whole
        comment. Returns False at the end of the statement, or if the comment is not understood."""
        mark = _MARK.match(self._query, self._at)
        if mark is None:
            return False
        mariadb_only = bool(mark["mariadb"])
        if mariadb_only and not self._server.mariadb:
            self._blank_to(self._end_of_skipped(self._at + 2, depth=0))
            return True
        version = self._server.read(mark["version"] or "")
        if version is None:
            return False
        start = mark.start("version") if mark["version"] else mark.end()
        if not version or self._server.executes(int(version), mariadb_only=mariadb_only):
            self._blank_to(start + len(version))
            self._is_open = True
        else:
            self._blank_to(self._end_of_skipped(start, depth=1))
        return True

    def _end_of_skipped(self, start: int, depth: int) -> int:
        """Return the end of a comment that the server skips. `depth`: how many levels of comments it may contain."""
        inside = 0
        for mark in _BRACKETS.finditer(self._query, start):
            if mark[0] == "/*":
                inside = min(inside + 1, depth)
            elif inside:
                inside -= 1
            else:
                return mark.end()
        return len(self._query)
