"""The tokens of a statement: MySQL's quoting, comments and names, which `ddl` reads statements from.

`/*! ... */` and `/*M! ... */` hold code that the server executes, so here they are code, whatever version they ask for.
Sources: MySQL manual, "Comments", "Schema Object Names", "Literal Values".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

Name = tuple[str, str]  # database, table

# Of sql_mode.
_ANSI_QUOTES = 1 << 2
_NO_BACKSLASH_ESCAPES = 1 << 20


def _lexicon(*, ansi_quotes: bool, plain_backslash: bool) -> re.Pattern[str]:
    """What a statement is made of. Between backticks, and double quotes that hold a name, a backslash is itself."""
    one = r"'(?:[^']|'')*'" if plain_backslash else r"'(?:[^'\\]|''|\\.)*'"
    plain_two = r'"(?:[^"]|"")*"'
    two = plain_two if plain_backslash else r'"(?:[^"\\]|""|\\.)*"'
    return re.compile(
        rf"""
          (?P<skip> \s+ | \#[^\n]* | --(?=[\s\x00-\x1f]|\Z)[^\n]* | /\*M?!\d* | \*/ | /\*.*?(?:\*/|\Z) )
        | (?P<quoted> `(?:[^`]|``)*` {"|" + plain_two if ansi_quotes else ""} )
        | (?P<text> {one} | {two} )
        | (?P<word> [\w$]+ )
        | (?P<sign> . )
        """,
        re.VERBOSE | re.DOTALL,
    )


_LEXICONS = {
    (ansi, plain): _lexicon(ansi_quotes=ansi, plain_backslash=plain)
    for ansi in (False, True)
    for plain in (False, True)
}


class NotUnderstoodError(Exception):
    """Leaves the parser for `ddl.parse`, never that module."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    end: int


class Tokens:
    """A statement's tokens, read one after the other."""

    def __init__(self, query: str, sql_mode: int = 0) -> None:
        self.default_database = ""
        modes = bool(sql_mode & _ANSI_QUOTES), bool(sql_mode & _NO_BACKSLASH_ESCAPES)
        self._pattern = _LEXICONS[modes]
        self.offset = 0
        self._query = query
        self._tokens = self._read()
        self._next: list[Token] = []

    def _read(self) -> Iterator[Token]:
        for match in self._pattern.finditer(self._query):
            if match.lastgroup != "skip":
                yield Token(str(match.lastgroup), match[0], match.end())

    def peek(self, n: int = 0) -> Token | None:
        while len(self._next) <= n:
            token = next(self._tokens, None)
            if token is None:
                return None
            self._next.append(token)
        return self._next[n]

    def advance(self) -> Token | None:
        token = self.peek()
        if token is not None:
            self._next.pop(0)
            self.offset = token.end
        return token

    def word(self) -> str:
        """The next token as an upper-case key word; "" when it is none."""
        token = self.advance()
        return token.text.upper() if token is not None and token.kind == "word" else ""

    def at(self, *words: str) -> bool:
        """Do these words (or signs) come next?"""
        for n, word in enumerate(words):
            token = self.peek(n)
            if token is None or token.kind not in ("word", "sign") or token.text.upper() != word:
                return False
        return True

    def take(self, *words: str) -> bool:
        """Take these words if they come next, all or none."""
        if not self.at(*words):
            return False
        for _ in words:
            self.advance()
        return True

    def take_any(self, *words: str) -> bool:
        """Take any of these words, as often as they come."""
        taken = False
        while any(self.take(word) for word in words):
            taken = True
        return taken

    def need(self, *words: str) -> None:
        if not self.take(*words):
            raise NotUnderstoodError

    def skip_to(self, *words: str) -> bool:
        """Take everything up to and with one of these words outside brackets; False at the end."""
        depth = 0
        while (token := self.advance()) is not None:
            if token.kind == "sign":
                depth += (token.text == "(") - (token.text == ")")
            if depth == 0 and token.kind != "text" and token.text.upper() in words:
                return True
        return False

    def identifier(self) -> str:
        token = self.advance()
        if token is None:
            raise NotUnderstoodError
        if token.kind == "word":
            return token.text
        # A name in double quotes is one under sql_mode ANSI_QUOTES.
        if token.kind == "quoted" or token.text.startswith('"'):
            quote = token.text[0]
            return token.text[1:-1].replace(quote * 2, quote)
        raise NotUnderstoodError

    def name(self) -> Name:
        """`table`, `database.table` or `.table`."""
        if self.take("."):  # ODBC's way of the default database
            return self.default_database, self.identifier()
        first = self.identifier()
        if self.take("."):
            return first, self.identifier()
        return self.default_database, first

    def names(self) -> tuple[Name, ...]:
        """Names with commas between them."""
        names = [self.name()]
        while self.take(","):
            names.append(self.name())
        return tuple(names)

    def if_exists(self) -> None:
        if not self.take("IF", "EXISTS"):
            self.take("IF", "NOT", "EXISTS")
