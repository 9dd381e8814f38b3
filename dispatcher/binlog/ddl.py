"""What a statement in the binlog is, and which tables and databases it touches.

Row changes come as events; statements come as text, and routing has to know whom they concern.
Everything that matters stands in a statement's head (and, for ALTER TABLE, at the beginning of its
clauses), so a lexer that knows MySQL's quoting and comments and a few lines per kind of statement
are enough. A general SQL parser was tried in thought and left out: it gives up on partitioning and
on much of MariaDB, and executors would have to carry it. What is not understood says so (`parsed`
False), and its reader must then assume that it touches anything.

`/*! ... */` and `/*M! ... */` hold code that the server executes, so here they are code, whatever
version they ask for. Sources: MySQL manual, "Data Definition Statements", "Comments", "Schema
Object Names"; MariaDB knowledge base, "ALTER TABLE", "DROP TABLE", "SET STATEMENT".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

Name = tuple[str, str]  # database, table


class QueryKind(StrEnum):
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"  # also RELEASE and ROLLBACK TO
    XA = "xa"
    DML = "dml"  # data as a statement: not row format
    DDL = "ddl"
    OTHER = "other"  # SET, an empty statement, anything unknown


class DdlKind(StrEnum):
    CREATE_TABLE = "create table"
    ALTER_TABLE = "alter table"
    DROP_TABLE = "drop table"
    TRUNCATE = "truncate"
    RENAME_TABLE = "rename table"
    TEMPORARY_TABLE = "temporary table"  # touches no table that others can see
    INDEX = "index"
    VIEW = "view"
    CREATE_DATABASE = "create database"
    ALTER_DATABASE = "alter database"
    DROP_DATABASE = "drop database"
    ROUTINE = "routine"  # procedure, function, trigger, event, package
    ACCOUNT = "account"  # users, roles, privileges
    MAINTENANCE = "maintenance"  # ANALYZE, OPTIMIZE, REPAIR, CHECK: rows stay as they are
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Ddl:
    """A statement, as far as routing needs it.

    `tables`: (database, table) of each table touched, as written, in order; not those that are only
    read from or referred to. `databases`: touched as a whole, or holding a routine; not those of
    `tables`. `parsed`: False when the statement was not understood, and both are empty. `renamed`:
    (old, new) pairs in the order in which they happen; both are in `tables`.
    """

    kind: DdlKind
    tables: tuple[Name, ...] = ()
    databases: tuple[str, ...] = ()
    parsed: bool = True
    renamed: tuple[tuple[Name, Name], ...] = ()


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
_LEADING = re.compile(
    r"(?:\s+|\#[^\n]*|--(?=[\s\x00-\x1f]|\Z)[^\n]*|/\*M?!\d*|/\*.*?\*/|\()*", re.DOTALL
)
_WORDS = re.compile(r"[A-Za-z]+")

_KIND_BY_WORD = (
    {"BEGIN": QueryKind.BEGIN, "COMMIT": QueryKind.COMMIT, "ROLLBACK": QueryKind.ROLLBACK}
    | dict.fromkeys(("SAVEPOINT", "RELEASE"), QueryKind.SAVEPOINT)
    | {"XA": QueryKind.XA}
    | dict.fromkeys(
        ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH", "SELECT", "DO", "VALUES"),
        QueryKind.DML,
    )
    | dict.fromkeys(
        (
            *("CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "GRANT", "REVOKE", "ANALYZE"),
            *("OPTIMIZE", "REPAIR", "CHECK", "FLUSH", "INSTALL", "UNINSTALL", "IMPORT"),
        ),
        QueryKind.DDL,
    )
)


def classify(query: str) -> QueryKind:
    """The kind of a statement by its first words; cheap enough for every statement of a log."""
    at = _LEADING.match(query).end()  # type: ignore[union-attr]  # it matches nothing, too
    word = _WORDS.match(query, at)
    if word is None:
        return QueryKind.OTHER
    kind = _KIND_BY_WORD.get(word[0].upper(), QueryKind.OTHER)
    if kind is QueryKind.OTHER or kind is QueryKind.ROLLBACK:
        return _by_more_words(query, kind)
    return kind


def _by_more_words(query: str, kind: QueryKind) -> QueryKind:
    tokens = _Tokens(query)
    first = tokens.word()
    if first == "ROLLBACK":
        tokens.take("WORK")
        return QueryKind.SAVEPOINT if tokens.take("TO") else kind
    if first == "START" and tokens.take("TRANSACTION"):
        return QueryKind.BEGIN
    if first == "SET":
        if tokens.take("PASSWORD") or tokens.take("DEFAULT", "ROLE"):
            return QueryKind.DDL
        if tokens.take("STATEMENT") and tokens.skip_to("FOR"):  # MariaDB
            return classify(query[tokens.offset :])
    return kind


def first_word(query: str) -> str:
    """The statement's verb, in capitals; "" where it has none."""
    return _Tokens(query).word()


def savepoint(query: str) -> tuple[str, str]:
    """(SAVEPOINT, ROLLBACK or RELEASE; the savepoint's name as servers compare it) of a statement of that kind."""
    tokens = _Tokens(query)
    verb = tokens.word()
    tokens.take("WORK")
    tokens.take("TO")
    if verb != "SAVEPOINT" and tokens.peek(1) is not None:
        tokens.take("SAVEPOINT")
    try:
        return verb, tokens.identifier().lower()
    except _NotUnderstoodError:
        return verb, ""


def xa_verb(query: str) -> str:
    """START, BEGIN, END, PREPARE, COMMIT or ROLLBACK of an XA statement."""
    tokens = _Tokens(query)
    tokens.word()
    return tokens.word()


def parse(query: str, default_database: str, sql_mode: int = 0) -> Ddl:
    """What a statement touches.

    `default_database`: the session's, for names that name none; `sql_mode`: the session's flags, as
    in the event's status variables.
    """
    tokens = _Tokens(query, sql_mode)
    tokens.default_database = default_database
    try:
        return _statement(tokens)
    except _NotUnderstoodError:
        return Ddl(DdlKind.OTHER, parsed=False)


class _NotUnderstoodError(Exception):
    """Leaves the parser for `parse`, never the module."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    end: int


class _Tokens:
    """A statement's tokens, read one after the other."""

    def __init__(self, query: str, sql_mode: int = 0) -> None:
        self.default_database = ""
        modes = bool(sql_mode & _ANSI_QUOTES), bool(sql_mode & _NO_BACKSLASH_ESCAPES)
        self._pattern = _LEXICONS[modes]
        self.offset = 0
        self._query = query
        self._tokens = self._read()
        self._next: list[_Token] = []

    def _read(self) -> Iterator[_Token]:
        for match in self._pattern.finditer(self._query):
            if match.lastgroup != "skip":
                yield _Token(str(match.lastgroup), match[0], match.end())

    def peek(self, n: int = 0) -> _Token | None:
        while len(self._next) <= n:
            token = next(self._tokens, None)
            if token is None:
                return None
            self._next.append(token)
        return self._next[n]

    def advance(self) -> _Token | None:
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
            raise _NotUnderstoodError

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
            raise _NotUnderstoodError
        if token.kind == "word":
            return token.text
        # A name in double quotes is one under sql_mode ANSI_QUOTES.
        if token.kind == "quoted" or token.text.startswith('"'):
            quote = token.text[0]
            return token.text[1:-1].replace(quote * 2, quote)
        raise _NotUnderstoodError

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


def _statement(tokens: _Tokens) -> Ddl:
    if tokens.peek() is None:  # a comment: MariaDB's "# Dummy event" for an event that it hides
        return Ddl(DdlKind.OTHER)
    verb = tokens.word()
    if verb == "SET" and tokens.take("STATEMENT"):
        if not tokens.skip_to("FOR"):
            raise _NotUnderstoodError
        verb = tokens.word()
    read = _VERBS.get(verb)
    if read is None:
        raise _NotUnderstoodError
    return read(tokens)


def _create(tokens: _Tokens) -> Ddl:
    tokens.take("OR", "REPLACE")
    if tokens.take("TEMPORARY"):
        return Ddl(DdlKind.TEMPORARY_TABLE)
    if tokens.take("TABLE"):
        tokens.if_exists()
        return Ddl(DdlKind.CREATE_TABLE, (tokens.name(),))
    return _other_object(tokens, DdlKind.CREATE_DATABASE)


def _alter(tokens: _Tokens) -> Ddl:
    tokens.take_any("ONLINE", "OFFLINE", "IGNORE")
    if tokens.take("TABLE"):
        tokens.if_exists()
        return _alter_table(tokens, tokens.name())
    return _other_object(tokens, DdlKind.ALTER_DATABASE)


def _alter_table(tokens: _Tokens, table: Name) -> Ddl:
    """The clauses that name a second table; each stands at the beginning of one."""
    tables, renamed = [table], []
    more = True
    while more:
        if tokens.take("RENAME"):
            # COLUMN, INDEX and KEY are reserved words, no table is called so without quotes.
            if not (tokens.at("COLUMN") or tokens.at("INDEX") or tokens.at("KEY")):
                tokens.take_any("TO", "AS", "=")
                tables.append(tokens.name())
                renamed.append((table, tables[-1]))
        elif tokens.take("EXCHANGE", "PARTITION"):
            tokens.identifier()
            tokens.need("WITH", "TABLE")
            tables.append(tokens.name())
        elif tokens.take("CONVERT", "TABLE"):  # MariaDB 11.4
            tables.append(tokens.name())
        elif tokens.take("CONVERT", "PARTITION"):  # MariaDB 10.7
            tokens.identifier()
            tokens.need("TO", "TABLE")
            tables.append(tokens.name())
        more = tokens.skip_to(",")
    return Ddl(DdlKind.ALTER_TABLE, tuple(tables), renamed=tuple(renamed))


def _drop(tokens: _Tokens) -> Ddl:
    if tokens.take("TEMPORARY"):
        return Ddl(DdlKind.TEMPORARY_TABLE)
    if tokens.take("TABLE") or tokens.take("TABLES"):
        tokens.if_exists()
        return Ddl(DdlKind.DROP_TABLE, tokens.names())
    return _other_object(tokens, DdlKind.DROP_DATABASE)


def _truncate(tokens: _Tokens) -> Ddl:
    # TABLE is reserved, so it is no table's name here.
    tokens.take("TABLE")
    return Ddl(DdlKind.TRUNCATE, (tokens.name(),))


def _rename(tokens: _Tokens) -> Ddl:
    if tokens.take("USER"):
        return Ddl(DdlKind.ACCOUNT)
    if not tokens.take("TABLE"):
        tokens.need("TABLES")
    tokens.if_exists()
    renamed = []
    while True:
        old = tokens.name()
        if tokens.take("WAIT"):  # MariaDB: how long to wait for the lock
            tokens.advance()
        tokens.take("NOWAIT")
        tokens.need("TO")
        renamed.append((old, tokens.name()))
        if not tokens.take(","):
            tables = tuple(name for pair in renamed for name in pair)
            return Ddl(DdlKind.RENAME_TABLE, tables, renamed=tuple(renamed))


def _maintain(tokens: _Tokens) -> Ddl:
    tokens.take_any("NO_WRITE_TO_BINLOG", "LOCAL")
    if tokens.take("TABLE") or tokens.take("TABLES"):
        return Ddl(DdlKind.MAINTENANCE, tokens.names())
    tokens.need("VIEW")
    return Ddl(DdlKind.MAINTENANCE, tokens.names())


def _set(tokens: _Tokens) -> Ddl:
    if tokens.take("PASSWORD") or tokens.take("DEFAULT", "ROLE"):
        return Ddl(DdlKind.ACCOUNT)
    raise _NotUnderstoodError


def _account(_tokens: _Tokens) -> Ddl:
    return Ddl(DdlKind.ACCOUNT)


def _server_wide(_tokens: _Tokens) -> Ddl:
    return Ddl(DdlKind.OTHER)


def _other_object(tokens: _Tokens, database_kind: DdlKind) -> Ddl:
    """What CREATE, ALTER and DROP have beside tables."""
    if tokens.take("DATABASE") or tokens.take("SCHEMA"):
        return _database(tokens, database_kind)
    _skip_attributes(tokens)
    tokens.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "ONLINE", "OFFLINE", "AGGREGATE", "VECTOR")
    if tokens.take("INDEX"):
        if not tokens.skip_to("ON"):
            raise _NotUnderstoodError
        return Ddl(DdlKind.INDEX, (tokens.name(),))
    if tokens.take("VIEW"):
        tokens.if_exists()
        return Ddl(DdlKind.VIEW, tokens.names())
    if tokens.take("SEQUENCE"):  # MariaDB: a table with one row
        tokens.if_exists()
        return Ddl(DdlKind.OTHER, tokens.names())
    if any(tokens.at(word) for word in ("USER", "ROLE")):
        return Ddl(DdlKind.ACCOUNT)
    if any(tokens.at(word) for word in _SERVER_OBJECTS):
        return Ddl(DdlKind.OTHER)
    return _routine(tokens)


_SERVER_OBJECTS = (
    *("TABLESPACE", "UNDO", "LOGFILE", "SERVER", "RESOURCE", "INSTANCE", "LIBRARY", "CATALOG"),
    "PREPARE",
    "REFERENCE",
)


def _database(tokens: _Tokens, kind: DdlKind) -> Ddl:
    tokens.if_exists()
    following = tokens.peek()
    # ALTER DATABASE may leave the name out; then an option comes at once.
    options = ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "ENCRYPTION", "READ", "COMMENT")
    if kind is DdlKind.ALTER_DATABASE and (
        following is None or (following.kind == "word" and following.text.upper() in options)
    ):
        return Ddl(kind, databases=(tokens.default_database,))
    return Ddl(kind, databases=(tokens.identifier(),))


def _routine(tokens: _Tokens) -> Ddl:
    if tokens.take("PACKAGE"):
        tokens.take("BODY")
    elif not any(tokens.take(word) for word in ("PROCEDURE", "FUNCTION", "TRIGGER", "EVENT")):
        raise _NotUnderstoodError
    tokens.if_exists()
    database, _ = tokens.name()
    return Ddl(DdlKind.ROUTINE, databases=(database,) if database else ())


def _skip_attributes(tokens: _Tokens) -> None:
    """ALGORITHM = x, DEFINER = user@host, SQL SECURITY x: before VIEW and routines."""
    while True:
        if tokens.take("ALGORITHM"):
            tokens.need("=")
            tokens.advance()
        elif tokens.take("DEFINER"):
            tokens.need("=")
            tokens.advance()
            if tokens.take("@"):
                tokens.advance()
            if tokens.take("("):  # CURRENT_USER()
                tokens.need(")")
        elif tokens.take("SQL", "SECURITY"):
            tokens.advance()
        else:
            return


_VERBS: dict[str, Callable[[_Tokens], Ddl]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "RENAME": _rename,
    "ANALYZE": _maintain,
    "OPTIMIZE": _maintain,
    "REPAIR": _maintain,
    "CHECK": _maintain,
    "GRANT": _account,
    "REVOKE": _account,
    "SET": _set,
    "FLUSH": _server_wide,
    "INSTALL": _server_wide,
    "UNINSTALL": _server_wide,
}
