"""What a statement in the binlog is, and which tables and databases it touches.

Row changes come as events; statements come as text, and routing has to know whom they concern.
Everything that matters stands in a statement's head (and, for ALTER TABLE, at the beginning of its
clauses), so a lexer that knows MySQL's quoting and comments and a few lines per kind of statement
are enough. A general SQL parser was tried in thought and left out: it gives up on partitioning and
on much of MariaDB, and executors would have to carry it. What is not understood says so (`parsed`
False), and its reader must then assume that it touches anything.

Sources: MySQL manual, "Data Definition Statements"; MariaDB knowledge base, "ALTER TABLE", "DROP
TABLE", "SET STATEMENT".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from dispatcher.binlog.sql.lexer import Bounds, Name, NotUnderstoodError, SqlTokens


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
class ParsedStatement:
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


# What the daemon reads of a statement at most: some 20 ms of work.
ROUTING_BOUNDS = Bounds(characters=1 << 20, pieces=10_000)

_LEADING = re.compile(
    r"(?:[\s(]++|\#[^\n]*+|--(?=[\s\x00-\x1f]|\Z)[^\n]*+|/\*M?!\d*+|/\*.*?\*/)*+", re.DOTALL
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
    tokens = SqlTokens(query)
    first = tokens.word()
    if first == "ROLLBACK":
        tokens.take("WORK")
        return QueryKind.SAVEPOINT if tokens.take("TO") else kind
    if first == "START" and tokens.take("TRANSACTION"):
        return QueryKind.BEGIN
    if first == "SET":
        if tokens.take("PASSWORD") or tokens.take("DEFAULT", "ROLE"):
            return QueryKind.DDL
        if tokens.take("STATEMENT"):  # MariaDB
            return _behind_settings(query)
    return kind


def _behind_settings(query: str) -> QueryKind:
    """The kind of SET STATEMENT ... FOR statement; OTHER where that cannot be found in reasonable time."""
    tokens = SqlTokens(query, bounds=ROUTING_BOUNDS)
    if not tokens.skip_to("FOR"):
        return QueryKind.OTHER
    tokens.take_any("(")
    kind = _KIND_BY_WORD.get(tokens.word(), QueryKind.OTHER)
    return kind if tokens.complete else QueryKind.OTHER


def first_word(query: str) -> str:
    """The statement's verb, in capitals; "" where it has none."""
    return SqlTokens(query).word()


def savepoint(query: str) -> tuple[str, str]:
    """(SAVEPOINT, ROLLBACK or RELEASE; the savepoint's name as servers compare it) of a statement of that kind."""
    tokens = SqlTokens(query)
    verb = tokens.word()
    tokens.take("WORK")
    tokens.take("TO")
    if verb != "SAVEPOINT" and tokens.peek(1) is not None:
        tokens.take("SAVEPOINT")
    try:
        return verb, tokens.identifier().lower()
    except NotUnderstoodError:
        return verb, ""


def xa_verb(query: str) -> str:
    """START, BEGIN, END, PREPARE, COMMIT or ROLLBACK of an XA statement."""
    tokens = SqlTokens(query)
    tokens.word()
    return tokens.word()


def parse_statement(
    query: str, default_database: str, sql_mode: int = 0, bounds: Bounds | None = None
) -> ParsedStatement:
    """What a statement touches.

    `default_database`: the session's, for names that name none; `sql_mode`: the session's flags, as
    in the event's status variables. `bounds`: how much of it is read; a statement that cannot be
    understood within them is not understood.
    """
    tokens = SqlTokens(query, sql_mode, bounds)
    tokens.default_database = default_database
    try:
        found = _statement(tokens)
    except NotUnderstoodError:
        return _UNKNOWN
    return found if tokens.complete else _UNKNOWN


_UNKNOWN = ParsedStatement(DdlKind.OTHER, parsed=False)


def _statement(tokens: SqlTokens) -> ParsedStatement:
    if tokens.peek() is None:  # a comment: MariaDB's "# Dummy event" for an event that it hides
        return ParsedStatement(DdlKind.OTHER)
    verb = tokens.word()
    if verb == "SET" and tokens.take("STATEMENT"):
        if not tokens.skip_to("FOR"):
            raise NotUnderstoodError
        verb = tokens.word()
    read = _VERBS.get(verb)
    if read is None:
        raise NotUnderstoodError
    return read(tokens)


def _create(tokens: SqlTokens) -> ParsedStatement:
    tokens.take("OR", "REPLACE")
    if tokens.take("TEMPORARY"):
        return ParsedStatement(DdlKind.TEMPORARY_TABLE)
    if tokens.take("TABLE"):
        tokens.if_exists()
        return ParsedStatement(DdlKind.CREATE_TABLE, (tokens.name(),))
    return _other_object(tokens, DdlKind.CREATE_DATABASE)


def _alter(tokens: SqlTokens) -> ParsedStatement:
    tokens.take_any("ONLINE", "OFFLINE", "IGNORE")
    if tokens.take("TABLE"):
        tokens.if_exists()
        return _alter_table(tokens, tokens.name())
    return _other_object(tokens, DdlKind.ALTER_DATABASE)


_NAMING_CLAUSES = ("RENAME", "EXCHANGE", "CONVERT")


def _alter_table(tokens: SqlTokens, table: Name) -> ParsedStatement:
    """The clauses that name a second table; each stands at the beginning of one."""
    tables, renamed = [table], []
    more = True
    while more:
        following = tokens.peek()
        if following is None or following.keyword not in _NAMING_CLAUSES:
            pass
        elif tokens.take("RENAME"):
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
        more = tokens.skip_clause()
    return ParsedStatement(DdlKind.ALTER_TABLE, tuple(tables), renamed=tuple(renamed))


def _drop(tokens: SqlTokens) -> ParsedStatement:
    if tokens.take("TEMPORARY"):
        return ParsedStatement(DdlKind.TEMPORARY_TABLE)
    if tokens.take("TABLE") or tokens.take("TABLES"):
        tokens.if_exists()
        return ParsedStatement(DdlKind.DROP_TABLE, tokens.names())
    return _other_object(tokens, DdlKind.DROP_DATABASE)


def _truncate(tokens: SqlTokens) -> ParsedStatement:
    # TABLE is reserved, so it is no table's name here.
    tokens.take("TABLE")
    return ParsedStatement(DdlKind.TRUNCATE, (tokens.name(),))


def _rename(tokens: SqlTokens) -> ParsedStatement:
    if tokens.take("USER"):
        return ParsedStatement(DdlKind.ACCOUNT)
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
            return ParsedStatement(DdlKind.RENAME_TABLE, tables, renamed=tuple(renamed))


def _maintain(tokens: SqlTokens) -> ParsedStatement:
    tokens.take_any("NO_WRITE_TO_BINLOG", "LOCAL")
    if tokens.take("TABLE") or tokens.take("TABLES"):
        return ParsedStatement(DdlKind.MAINTENANCE, tokens.names())
    tokens.need("VIEW")
    return ParsedStatement(DdlKind.MAINTENANCE, tokens.names())


def _set(tokens: SqlTokens) -> ParsedStatement:
    if tokens.take("PASSWORD") or tokens.take("DEFAULT", "ROLE"):
        return ParsedStatement(DdlKind.ACCOUNT)
    raise NotUnderstoodError


def _account(_tokens: SqlTokens) -> ParsedStatement:
    return ParsedStatement(DdlKind.ACCOUNT)


def _server_wide(_tokens: SqlTokens) -> ParsedStatement:
    return ParsedStatement(DdlKind.OTHER)


def _other_object(tokens: SqlTokens, database_kind: DdlKind) -> ParsedStatement:
    """What CREATE, ALTER and DROP have beside tables."""
    if tokens.take("DATABASE") or tokens.take("SCHEMA"):
        return _database(tokens, database_kind)
    _skip_attributes(tokens)
    tokens.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "ONLINE", "OFFLINE", "AGGREGATE", "VECTOR")
    if tokens.take("INDEX"):
        if not tokens.skip_to("ON"):
            raise NotUnderstoodError
        return ParsedStatement(DdlKind.INDEX, (tokens.name(),))
    if tokens.take("VIEW"):
        tokens.if_exists()
        return ParsedStatement(DdlKind.VIEW, tokens.names())
    if tokens.take("SEQUENCE"):  # MariaDB: a table with one row
        tokens.if_exists()
        return ParsedStatement(DdlKind.OTHER, tokens.names())
    if any(tokens.at(word) for word in ("USER", "ROLE")):
        return ParsedStatement(DdlKind.ACCOUNT)
    if any(tokens.at(word) for word in _SERVER_OBJECTS):
        return ParsedStatement(DdlKind.OTHER)
    return _routine(tokens)


_SERVER_OBJECTS = (
    *("TABLESPACE", "UNDO", "LOGFILE", "SERVER", "RESOURCE", "INSTANCE", "LIBRARY", "CATALOG"),
    "PREPARE",
    "REFERENCE",
)


def _database(tokens: SqlTokens, kind: DdlKind) -> ParsedStatement:
    tokens.if_exists()
    following = tokens.peek()
    # ALTER DATABASE may leave the name out; then an option comes at once.
    options = ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "ENCRYPTION", "READ", "COMMENT")
    if kind is DdlKind.ALTER_DATABASE and (
        following is None or (following.kind == "word" and following.text.upper() in options)
    ):
        return ParsedStatement(kind, databases=(tokens.default_database,))
    return ParsedStatement(kind, databases=(tokens.identifier(),))


def _routine(tokens: SqlTokens) -> ParsedStatement:
    if tokens.take("PACKAGE"):
        tokens.take("BODY")
    elif not any(tokens.take(word) for word in ("PROCEDURE", "FUNCTION", "TRIGGER", "EVENT")):
        raise NotUnderstoodError
    tokens.if_exists()
    database, _ = tokens.name()
    return ParsedStatement(DdlKind.ROUTINE, databases=(database,) if database else ())


def _skip_attributes(tokens: SqlTokens) -> None:
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


_VERBS: dict[str, Callable[[SqlTokens], ParsedStatement]] = {
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
