"""Splits a statement into tokens by MySQL's rules of quoting, comments and names; `statement` parses them.

Comments that a server may execute, `/*! ... */` and `/*M! ... */`, are resolved before the lexer sees the statement
(`comments.executed_text`). The parser does not understand a statement that still contains such a comment.

The time is linear in the statement's length: the patterns do not backtrack (possessive quantifiers), and an unclosed
quote consumes the rest of the statement at once. `Bounds` limits the work further, so that a statement of 1 GiB does
not delay other consumers.
Sources: MySQL manual, "Comments", "Schema Object Names", "Literal Values".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

from dispatcher.binlog.charset.collations import charset_of
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.model.names import folded_name

Name = tuple[str, str]  # database, table

# Bits of sql_mode.
REAL_AS_FLOAT = 1 << 0
ANSI_QUOTES = 1 << 2
ORACLE = 1 << 9  # MariaDB
MAXDB = 1 << 12  # MySQL before 8.0, MariaDB
NO_BACKSLASH_ESCAPES = 1 << 20
STRICT_TRANS_TABLES = 1 << 21
STRICT_ALL_TABLES = 1 << 22

_UTF8 = ("of collation 0", "utf8mb3", "utf8mb4")
_DIGITS = re.compile(r"[0-9]+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": "\\%",
    "_": "\\_",
}

# The characters of unquoted names: in every character set of a session, letters, digits, `$`, `_`, and the characters
# from U+0080 to U+FFFF. Keywords are ASCII.
_NAME = r"[0-9A-Za-z$_\x80-\ud7ff\ue000-\ufffc\ufffe\uffff]"
# Characters that a server accepts only in texts, or that it replaces in names: characters above U+FFFF, and U+FFFD,
# which stands for bytes that are invalid in the session's character set.
_FOREIGN = r"[\ud800-\udfff\ufffd\U00010000-\U0010ffff]"
BLANK = r"[\t-\r\x20]"
_COMMENTS = r"\#[^\n]*+ | --(?=[\x00-\x20\x7f]|\Z)[^\n]*+ | /\*(?!M?!).*?(?:\*/|\Z)"
# All spaces and comments between two tokens together are one piece.
_SKIP = rf"(?: {BLANK}++ | {_COMMENTS} )++"
# The lexer does not understand an unclosed quote, a comment that the server may execute, or a foreign character. Such a
# token consumes the rest of the statement.
_OPEN = rf"[`'\"].*+ | /\*M?!.*+ | {_FOREIGN}.*+"
_BACKTICKS = r"`(?:[^`]++|``)*+"
# A number is not a name: `1e5`, `0x1f`, `0b1`, `1.5`, `.5`; but `1a`, `0x1g`, `0X1` and `1e` are names. Whatever
# follows the point of a qualified name without a blank is a name, too: `t.1e5`.
_NUMBER = rf"""
    (?<!\.)(?: 0x[0-9A-Fa-f]++(?!{_NAME}) | 0b[01]++(?!{_NAME}) | [0-9]++[eE][+\-]?+[0-9]++
              | [0-9]++(?!{_NAME})(?: \.[0-9]*+(?:[eE][+\-]?+[0-9]++)?+ )?+ )
    | (?<!{_NAME})\.[0-9]++(?:[eE][+\-]?+[0-9]++)?+
"""
_BLANKS = re.compile(rf"{BLANK}+")
_TEXTS = re.compile(r"""'(?:[^'\\]|''|\\.)*+'?|"(?:[^"\\]|""|\\.)*+"?""", re.DOTALL)
_FOREIGN_NAME = re.compile(_FOREIGN)
# Only ASCII letters have a case in keywords: to a server, `\u0131ndex` is a name.
_UPPER = str.maketrans(ascii_lowercase, ascii_uppercase)
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def upper(word: str) -> str:
    """Returns the word with its ASCII letters in upper case, as servers compare keywords."""
    return word.translate(_UPPER)


def lower(word: str) -> str:
    """Returns the word with its ASCII letters in lower case."""
    return word.translate(_LOWER)


def _quotes(*, ansi_quotes: bool, plain_backslash: bool) -> tuple[str, str]:
    """Return the patterns of quoted names and of texts. A backslash inside a quoted name is not an escape."""
    one = r"'(?:[^']++|'')*+" if plain_backslash else r"'(?:[^'\\]++|''|\\.)*+"
    plain_two = r'"(?:[^"]++|"")*+'
    two = plain_two if plain_backslash else r'"(?:[^"\\]++|""|\\.)*+'
    if ansi_quotes:
        return rf'{_BACKTICKS}` | {plain_two}"', rf"{one}'"
    return rf"{_BACKTICKS}`", rf"{one}' | {two}\""


@cache
def _lexicon(ansi_quotes: bool, plain_backslash: bool) -> re.Pattern[str]:
    """Return the pattern of one token. `_OPEN` describes the group `open`."""
    quoted, text = _quotes(ansi_quotes=ansi_quotes, plain_backslash=plain_backslash)
    return re.compile(
        rf"""
          (?P<skip> {_SKIP} )
        | (?P<quoted> {quoted} )
        | (?P<text> {text} )
        | (?P<open> {_OPEN} )
        | (?P<number> {_NUMBER} )
        | (?P<word> {_NAME}++ )
        | (?P<sign> . )
        """,
        re.VERBOSE | re.DOTALL,
    )


@cache
def _clause_lexicon(ansi_quotes: bool, plain_backslash: bool) -> re.Pattern[str]:
    """Returns the pattern of one piece in the search for a comma outside brackets. The pattern matches as many
    characters as possible."""
    other = rf"(?!{_FOREIGN})[^`'\"(),\#*/\-]"
    quoted, text = _quotes(ansi_quotes=ansi_quotes, plain_backslash=plain_backslash)
    return re.compile(
        rf"""
          (?P<other> {other}++ | {_SKIP} | {quoted} | {text} )
        | (?P<down> \(++ )
        | (?P<up> \)++ )
        | (?P<comma> , )
        | (?P<open> {_OPEN} )
        | (?P<sign> . )
        """,
        re.VERBOSE | re.DOTALL,
    )


@cache
def _group_lexicon(ansi_quotes: bool, plain_backslash: bool) -> re.Pattern[str]:
    """Returns the pattern of one piece in the search for a closing bracket. Only brackets and quotes matter in this
    search."""
    quoted, text = _quotes(ansi_quotes=ansi_quotes, plain_backslash=plain_backslash)
    other = rf"(?!{_FOREIGN})[^`'\"()\#/\-]"
    return re.compile(
        rf"""
          (?P<other> (?: {other}++ | {_SKIP} | {quoted} | {text} )++ )
        | (?P<down> \( )
        | (?P<up> \) )
        | (?P<open> {_OPEN} )
        | (?P<sign> . )
        """,
        re.VERBOSE | re.DOTALL,
    )


@cache
def _unmarked_text(ansi_quotes: bool, plain_backslash: bool) -> re.Pattern[str]:
    """Returns the pattern of text up to a comment that the server may execute, `*/`, or an unclosed quote."""
    quoted, text = _quotes(ansi_quotes=ansi_quotes, plain_backslash=plain_backslash)
    return re.compile(
        rf"""(?: [^`'"\#/*\-]++ | {quoted} | {text} | {_COMMENTS} | - | \*(?!/) | /(?!\*) )*+""",
        re.VERBOSE | re.DOTALL,
    )


def end_of_unmarked_text(query: str, at: int, sql_mode: int) -> int:
    """Return the offset of the first of these at or after `at`: a comment that the server may execute, a `*/` outside a
    comment, an unclosed quote, or the end of the statement."""
    pattern = _unmarked_text(bool(sql_mode & ANSI_QUOTES), bool(sql_mode & NO_BACKSLASH_ESCAPES))
    match = pattern.match(query, at)
    assert match is not None  # the pattern also matches ""
    return match.end()


class NotUnderstoodError(Exception):
    """The tokens are not of a form that the parser knows. `parse_statement` catches this error."""


def _unquoted(text: str, quote: str, plain_backslash: bool) -> str:
    if plain_backslash:
        return text.replace(quote * 2, quote)
    pattern = _ESCAPED if quote not in text else re.compile(rf"\\(.)|{quote}{quote}", re.DOTALL)
    return pattern.sub(
        lambda match: quote if match[1] is None else _ESCAPES.get(match[1], match[1]), text
    )


class Bounds(NamedTuple):
    """Limits how much of a statement is parsed: the number of `characters` and of `pieces`. A piece is a token, the
    text between two tokens, or the text between two commas or brackets of a list of clauses."""

    characters: int
    pieces: int


class SqlToken(NamedTuple):
    """`kind`: quoted (a name), text, number, word, sign, or open (see `_OPEN`). `keyword`: a word or sign in upper
    case, "" for the other kinds. `end`: the offset after the token."""

    kind: str
    text: str
    keyword: str
    end: int

    @classmethod
    def of(cls, match: re.Match[str]) -> SqlToken:
        kind, text = str(match.lastgroup), match[0]
        keyword = upper(text) if kind == "word" else text if kind == "sign" else ""
        return cls(kind, text, keyword, match.end())

    @property
    def name(self) -> str | None:
        """Returns the token as a name, without quotes; None if it cannot be a name."""
        if self.kind == "word":
            return self.text
        # Under sql_mode ANSI_QUOTES a text in double quotes is a name.
        if self.kind == "quoted" or (self.kind == "text" and self.text.startswith('"')):
            quote = self.text[0]
            return self.text[1:-1].replace(quote * 2, quote)
        return None


class SqlTokens:
    """Reads a statement's tokens one after the other.

    `complete`: False once the reader has reached the bounds or a token that `_OPEN` matches. If it is False, the result
    of parsing may be wrong. `pieces`: how many pieces were read, which measures the cost.
    """

    def __init__(
        self, statement: LoggedStatement, bounds: Bounds | None = None, at: int = 0
    ) -> None:
        """`at`: the offset in the text at which reading begins, between two tokens."""
        query, sql_mode = statement.text, statement.facts.sql_mode
        self.default_database = folded_name(
            statement.database, statement.facts.lower_case_table_names
        )
        self.altered: Name | None = None  # the table whose name may stand before a column
        self.facts = statement.facts
        modes = bool(sql_mode & ANSI_QUOTES), bool(sql_mode & NO_BACKSLASH_ESCAPES)
        self._lexicon, self._clauses = _lexicon(*modes), _clause_lexicon(*modes)
        self._groups = _group_lexicon(*modes)
        self.offset = at  # the offset after the last token that the caller consumed
        # To a session whose character set is not UTF-8, a no-break space may be a blank.
        self.complete = "\xa0" not in query or charset_of(self.facts.client) in _UTF8
        self.pieces = 0
        self._query = query
        self._end = len(query) if bounds is None else min(len(query), bounds.characters)
        self._pieces_max = 0 if bounds is None else bounds.pieces
        self._at = at  # the offset after the last token that was matched
        self._next: list[SqlToken] = []

    def __iter__(self) -> Iterator[SqlToken]:
        """Consume the remaining tokens."""
        while (token := self.advance()) is not None:
            yield token

    def _read(self) -> SqlToken | None:
        match = self._lexicon.match(self._query, self._at, self._end)
        if match is not None and match.lastgroup == "skip":
            self._count(match)
            match = self._lexicon.match(self._query, self._at, self._end)
        if match is None:
            return None
        self._count(match)
        return SqlToken.of(match)

    def _count(self, match: re.Match[str]) -> str:
        """Count a piece as read and return its kind."""
        kind = str(match.lastgroup)
        self._at = match.end()
        self.pieces += 1
        if self.pieces == self._pieces_max:
            self._end = self._at
        if kind == "open" or (self._at == self._end and self._end < len(self._query)):
            self.complete = False
        return kind

    def peek(self, n: int = 0) -> SqlToken | None:
        while len(self._next) <= n:
            token = self._read()
            if token is None:
                return None
            self._next.append(token)
        return self._next[n]

    def advance(self) -> SqlToken | None:
        token = self._next.pop(0) if self._next else self._read()
        if token is not None:
            self.offset = token.end
        return token

    def word(self) -> str:
        """Consume the next token. Return the token in upper case if it is a word, else ""."""
        token = self.advance()
        return token.keyword if token is not None and token.kind == "word" else ""

    def digits(self) -> str:
        """Consume a whole number. Return its digits."""
        token = self.advance()
        if token is None or not _DIGITS.fullmatch(token.text):
            raise NotUnderstoodError
        return token.text

    def at(self, *words: str, n: int = 0) -> bool:
        """True if the token that `peek(n)` returns and the tokens after it are these words (or signs)."""
        for i, word in enumerate(words, n):
            token = self.peek(i)
            if token is None or token.keyword != word:
                return False
        return True

    def accept(self, *words: str) -> bool:
        """Consume these words if they are the next tokens. Returns True if they were consumed."""
        if not self.at(*words):
            return False
        for _ in words:
            self.advance()
        return True

    def accept_either(self, *words: str) -> bool:
        """Consume the next token if it is one of these words. Returns True if it was consumed."""
        return any(self.accept(word) for word in words)

    def accept_any(self, *words: str) -> None:
        """Consume tokens as long as they are among these words."""
        while any(self.accept(word) for word in words):
            pass

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise NotUnderstoodError

    def skip_to(self, *words: str) -> bool:
        """Consume all tokens up to and including the first of these words outside brackets. Returns False if no such
        word follows."""
        depth = 0
        for token in self:
            if token.kind == "sign":
                depth += (token.text == "(") - (token.text == ")")
            if depth == 0 and token.keyword in words:
                return True
        return False

    def skip_set_statement(self) -> None:
        """Consume MariaDB's `SET STATEMENT ... FOR`, if it is next. The event already contains the settings with which
        the statement after FOR was executed."""
        if self.accept("SET", "STATEMENT") and not self.skip_to("FOR"):
            raise NotUnderstoodError

    def skip_clause(self) -> bool:
        """Consume everything up to and including the next comma outside brackets. Returns False if no comma follows.
        This method has the effect of `skip_to(",")`, but counts far fewer pieces."""
        if not self._next:
            return self._skip_from(0)
        depth = 0
        while self._next:
            token = self.advance()
            assert token is not None
            if token.kind == "sign":
                depth += (token.text == "(") - (token.text == ")")
                if depth == 0 and token.text == ",":
                    return True
        return self._skip_from(depth)

    def _skip_from(self, depth: int) -> bool:
        while match := self._clauses.match(self._query, self._at, self._end):
            kind = self._count(match)
            if kind == "down":
                depth += len(match[0])
            elif kind == "up":
                depth -= len(match[0])
            elif kind == "comma" and depth == 0:
                break
        self.offset = self._at
        return match is not None

    def skip_brackets(self) -> None:
        """Consume a group in brackets. Counts few pieces, as `skip_clause` does. Raises NotUnderstoodError if the next
        token is not `(`, or if the bracket is not closed."""
        self.expect("(")
        depth = 1
        while self._next and depth:  # tokens that were peeked
            token = self.advance()
            assert token is not None
            depth += (token.keyword == "(") - (token.keyword == ")")
        while depth:
            match = self._groups.match(self._query, self._at, self._end)
            if match is None:
                raise NotUnderstoodError
            kind = self._count(match)
            depth += (kind == "down") - (kind == "up")
            self.offset = self._at

    def skip_all(self) -> None:
        """Consume the rest of the statement without reading it: nothing in it matters."""
        self._next.clear()
        self._at = self.offset = self._end = len(self._query)

    def at_end(self) -> bool:
        """True if nothing follows but semicolons, which are consumed."""
        while self.accept(";"):
            pass
        return self.peek() is None

    def words_from(self, start: int, size: int = 200) -> str:
        """Returns the statement's words that begin at offset `start`, in one line of at most 80 characters. Texts are
        left out, because they may be values of rows."""
        text = _TEXTS.sub("'...'", self._query[start : start + size])
        text = _BLANKS.sub(" ", text).lstrip(" ").rstrip(", ")
        return text if len(text) <= 80 else text[:77] + "..."

    def since(self, start: int) -> str:
        """Returns the words from `start` to the last consumed token, in the form of `words_from`."""
        return self.words_from(start, min(self.offset - start, 200))

    def text(self) -> str:
        """Consume a text, and return its characters. Adjacent texts are one text: `'a' 'b'` is `ab`."""
        pieces = []
        while (token := self.peek()) is not None and token.kind == "text":
            self.advance()
            quote = token.text[0]
            plain = bool(self.facts.sql_mode & NO_BACKSLASH_ESCAPES)
            pieces.append(_unquoted(token.text[1:-1], quote, plain))
        if not pieces:
            raise NotUnderstoodError
        return "".join(pieces)

    def identifier(self) -> str:
        """Consume a name. A name with a foreign character is not understood: MySQL replaces the character by `?`."""
        token = self.advance()
        name = None if token is None else token.name
        if name is None or _FOREIGN_NAME.search(name):
            raise NotUnderstoodError
        return name

    def name_part(self) -> str:
        """Consume the name of a database or of a table. Return the name by which the server identifies it."""
        return folded_name(self.identifier(), self.facts.lower_case_table_names)

    def name(self) -> Name:
        """Consume `table`, `database.table` or `.table`. Return the name by which the server identifies the table."""
        if self.accept("."):  # ODBC's way to write the default database
            return self.default_database, self.name_part()
        first = self.name_part()
        if self.accept("."):
            return first, self.name_part()
        return self.default_database, first

    def column_name(self) -> str:
        """Consume the name of a column of `altered`, which may be qualified by the names of this table."""
        parts = [self.identifier()]
        while self.accept("."):
            parts.append(self.identifier())
        qualifier = tuple(lower(part) for part in parts[:-1])
        table = tuple(lower(part) for part in self.altered or ())
        if qualifier and qualifier not in (table, table[1:]):
            raise NotUnderstoodError
        return parts[-1]

    def wait(self) -> None:
        """Consume MariaDB's WAIT n or NOWAIT, if one of them is next."""
        if self.accept("WAIT"):
            self.digits()
        else:
            self.accept("NOWAIT")

    def names(self) -> tuple[Name, ...]:
        """Consume names that are separated by commas."""
        names = [self.name()]
        while self.accept(","):
            names.append(self.name())
        return tuple(names)

    def if_exists(self) -> None:
        if not self.accept("IF", "EXISTS"):
            self.accept("IF", "NOT", "EXISTS")
