"""Classifies the statements of a binlog and finds the tables and databases that each one touches.

DDL is logged as text, and the daemon routes it by the tables that it touches. The first words of the statement name
these tables; in ALTER TABLE, the first words of a clause may name another table. So a lexer and a few lines of code per
kind of statement suffice. General SQL parsers fail on partitioning and on much of MariaDB's syntax, and every Spark
executor would have to install the parser. If a statement is not understood, `ParsedStatement.parsed` is False. Then the
caller must assume that the statement may touch any table.

Sources: MySQL manual, "Data Definition Statements"; MariaDB knowledge base, "ALTER TABLE", "DROP
TABLE", "SET STATEMENT".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from dispatcher.binlog.sql.lexer import Bounds, Name, NotUnderstoodError, SqlTokens, upper
from dispatcher.binlog.sql.logged import LoggedStatement


class QueryKind(StrEnum):
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"  # also RELEASE and ROLLBACK TO
    XA = "xa"
    DML = "dml"  # a change of data that was not logged in row format
    DDL = "ddl"
    DDL_WITHOUT_EFFECT = "ddl without effect"  # MariaDB's START ALTER and ROLLBACK ALTER
    OTHER = "other"  # SET, an empty or unknown statement


class DdlKind(StrEnum):
    CREATE_TABLE = "create table"
    ALTER_TABLE = "alter table"
    DROP_TABLE = "drop table"
    TRUNCATE = "truncate"
    RENAME_TABLE = "rename table"
    TEMPORARY_TABLE = "temporary table"  # touches no table that other sessions can see
    INDEX = "index"
    # Sequences of MariaDB. CREATE SEQUENCE is OTHER, unless it also drops a table of this name. DROP SEQUENCE with IF
    # EXISTS is OTHER, because it may name tables, which it does not drop.
    REPLACE_BY_SEQUENCE = "replace by sequence"
    DROP_SEQUENCE = "drop sequence"
    ALTER_SEQUENCE = "alter sequence"
    VIEW = "view"
    CREATE_DATABASE = "create database"
    ALTER_DATABASE = "alter database"
    DROP_DATABASE = "drop database"
    ROUTINE = "routine"  # procedure, function, trigger, event, package
    ACCOUNT = "account"  # users, roles, privileges
    MAINTENANCE = "maintenance"  # ANALYZE, OPTIMIZE, REPAIR, CHECK: they change no rows
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement's kind and the objects that it touches.

    `tables`: (database, table) of each table touched, in the statement's spelling and order. Tables that the statement
    only reads or refers to are left out. `databases`: the databases that the statement creates, alters or drops, and
    the database of a routine that it creates, alters or drops. The databases of `tables` are not included. `parsed`:
    True if the statement was understood. If False, `tables` and `databases` are empty. `renamed`: (old, new) pairs in
    the order in which the server renames the tables; both names are in `tables`. `maybe_temporary`: True if the log
    does not show whether the statement was executed on `tables` or on temporary tables of these names.
    """

    kind: DdlKind
    tables: tuple[Name, ...] = ()
    databases: tuple[str, ...] = ()
    parsed: bool = True
    renamed: tuple[tuple[Name, Name], ...] = ()
    maybe_temporary: bool = False


# How much of a statement the daemon reads at most. To read this much takes some 20 ms.
ROUTING_BOUNDS = Bounds(characters=1 << 20, pieces=10_000)

_LEADING = re.compile(
    r"(?:[\t-\r (]++|\#[^\n]*+|--(?=[\x00-\x20\x7f]|\Z)[^\n]*+|/\*(?!M?!).*?\*/)*+", re.DOTALL
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
    """Return a statement's kind by its first words. This function is fast enough for every statement of a log."""
    at = _LEADING.match(query).end()  # type: ignore[union-attr]  # it also matches ""
    word = _WORDS.match(query, at)
    if word is None:
        return QueryKind.OTHER
    kind = _KIND_BY_WORD.get(upper(word[0]), QueryKind.OTHER)
    if kind is QueryKind.OTHER or kind is QueryKind.ROLLBACK:
        return _by_more_words(query, kind)
    return kind


def _by_more_words(query: str, kind: QueryKind) -> QueryKind:
    tokens = SqlTokens(LoggedStatement(query))
    first = tokens.word()
    if first == "ROLLBACK":
        tokens.accept("WORK")
        return QueryKind.SAVEPOINT if tokens.accept("TO") else kind
    if first == "START" and tokens.accept("TRANSACTION"):
        return QueryKind.BEGIN
    if first == "SET":
        if tokens.accept("PASSWORD") or tokens.accept("DEFAULT", "ROLE"):
            return QueryKind.DDL
        if tokens.accept("STATEMENT"):  # MariaDB
            return _set_statement_kind(query)
    return kind


def _set_statement_kind(query: str) -> QueryKind:
    """Return the kind of the inner statement of SET STATEMENT ... FOR; OTHER if FOR lies outside ROUTING_BOUNDS."""
    tokens = SqlTokens(LoggedStatement(query), ROUTING_BOUNDS)
    if not tokens.skip_to("FOR"):
        return QueryKind.OTHER
    tokens.accept_any("(")
    kind = _KIND_BY_WORD.get(tokens.word(), QueryKind.OTHER)
    return kind if tokens.complete else QueryKind.OTHER


def first_word(query: str) -> str:
    """Return the statement's first word in upper case; "" if it does not begin with a word."""
    return SqlTokens(LoggedStatement(query)).word()


def savepoint(query: str) -> tuple[str, str]:
    """Return the verb (SAVEPOINT, ROLLBACK or RELEASE) and the savepoint's name. The name is in lower case, because
    servers ignore the case of savepoint names."""
    tokens = SqlTokens(LoggedStatement(query))
    verb = tokens.word()
    tokens.accept("WORK")
    tokens.accept("TO")
    if verb != "SAVEPOINT" and tokens.peek(1) is not None:
        tokens.accept("SAVEPOINT")
    try:
        return verb, tokens.identifier().lower()
    except NotUnderstoodError:
        return verb, ""


def xa_verb(query: str) -> str:
    """Return the second word of an XA statement: START, BEGIN, END, PREPARE, COMMIT or ROLLBACK."""
    tokens = SqlTokens(LoggedStatement(query))
    tokens.word()
    return tokens.word()


def parse_statement(statement: LoggedStatement, bounds: Bounds | None = None) -> ParsedStatement:
    """Find the objects that a statement touches.

    `bounds`: how much of the statement is read at most; a statement that exceeds the bounds is not understood.
    """
    tokens = SqlTokens(statement, bounds)
    try:
        parsed = _statement(tokens)
    except NotUnderstoodError:
        return _UNKNOWN
    if not tokens.complete:
        return _UNKNOWN
    if statement.facts.thread_specific and _maybe_temporary(parsed.kind, statement.text):
        return replace(parsed, maybe_temporary=True)
    return parsed


_UNKNOWN = ParsedStatement(DdlKind.OTHER, parsed=False)
# Since MySQL 5.5 and MariaDB 5.5, servers append this comment to each DROP TABLE that they log. They log the drop of a
# temporary table as DROP TEMPORARY TABLE.
_SPLIT_DROP = "/* generated by server */"


def _maybe_temporary(kind: DdlKind, query: str) -> bool:
    """True if a statement with LOG_EVENT_THREAD_SPECIFIC_F may have been executed on a temporary table.

    Servers set the flag if a statement used a temporary table or CONNECTION_ID(), even if CONNECTION_ID() is only the
    default of a column of the table. ALTER, TRUNCATE and DROP without the flag were executed on a table that is not
    temporary. RENAME TABLE never has the flag: MySQL cannot rename temporary tables by RENAME TABLE, and MariaDB logs
    the RENAME TABLE of a temporary table like that of any other table. Tested on four servers
    (`test_temporary_tables`).
    """
    if kind is DdlKind.DROP_TABLE:
        return not query.endswith(_SPLIT_DROP)
    return kind is DdlKind.ALTER_TABLE or kind is DdlKind.TRUNCATE


def _statement(tokens: SqlTokens) -> ParsedStatement:
    if (
        tokens.peek() is None
    ):  # only a comment: MariaDB sends "# Dummy event" in place of some events
        return ParsedStatement(DdlKind.OTHER)
    verb = tokens.word()
    if verb == "SET" and tokens.accept("STATEMENT"):
        if not tokens.skip_to("FOR"):
            raise NotUnderstoodError
        verb = tokens.word()
    parse = _PARSERS.get(verb)
    if parse is None:
        raise NotUnderstoodError
    return parse(tokens)


def _create(tokens: SqlTokens) -> ParsedStatement:
    replaces = tokens.accept("OR", "REPLACE")
    if tokens.accept("TEMPORARY"):
        return ParsedStatement(DdlKind.TEMPORARY_TABLE)
    if replaces and tokens.accept("SEQUENCE"):
        return ParsedStatement(DdlKind.REPLACE_BY_SEQUENCE, (tokens.name(),))
    if tokens.accept("TABLE"):
        tokens.if_exists()
        return ParsedStatement(DdlKind.CREATE_TABLE, (tokens.name(),))
    return _other_object(tokens, DdlKind.CREATE_DATABASE)


def _alter(tokens: SqlTokens) -> ParsedStatement:
    tokens.accept_any("ONLINE", "OFFLINE", "IGNORE")
    if tokens.accept("TABLE"):
        tokens.if_exists()
        return _alter_table(tokens, tokens.name())
    return _other_object(tokens, DdlKind.ALTER_DATABASE)


_NAMING_CLAUSES = ("RENAME", "EXCHANGE", "CONVERT")


def _alter_table(tokens: SqlTokens, table: Name) -> ParsedStatement:
    """Parse the clauses of an ALTER TABLE. A clause that names a second table does so in its first words, so the parser
    examines only these words."""
    tables, renamed = [table], []
    more = True
    while more:
        following = tokens.peek()
        if following is None or following.keyword not in _NAMING_CLAUSES:
            pass
        elif tokens.accept("RENAME"):
            # COLUMN, INDEX and KEY are reserved words: a table with such a name would be quoted.
            if not (tokens.at("COLUMN") or tokens.at("INDEX") or tokens.at("KEY")):
                tokens.accept_any("TO", "AS", "=")
                tables.append(tokens.name())
                renamed.append((table, tables[-1]))
        elif tokens.accept("EXCHANGE", "PARTITION"):
            tokens.identifier()
            tokens.expect("WITH", "TABLE")
            tables.append(tokens.name())
        elif tokens.accept("CONVERT", "TABLE"):  # MariaDB 11.4
            tables.append(tokens.name())
        elif tokens.accept("CONVERT", "PARTITION"):  # MariaDB 10.7
            tokens.identifier()
            tokens.expect("TO", "TABLE")
            tables.append(tokens.name())
        more = tokens.skip_clause()
    return ParsedStatement(DdlKind.ALTER_TABLE, tuple(tables), renamed=tuple(renamed))


def _drop(tokens: SqlTokens) -> ParsedStatement:
    if tokens.accept("TEMPORARY"):
        return ParsedStatement(DdlKind.TEMPORARY_TABLE)
    if tokens.accept("TABLE") or tokens.accept("TABLES"):
        tokens.if_exists()
        return ParsedStatement(DdlKind.DROP_TABLE, tokens.names())
    return _other_object(tokens, DdlKind.DROP_DATABASE)


def _truncate(tokens: SqlTokens) -> ParsedStatement:
    # TABLE is a reserved word, so it is not the table's name here.
    tokens.accept("TABLE")
    return ParsedStatement(DdlKind.TRUNCATE, (tokens.name(),))


def _rename(tokens: SqlTokens) -> ParsedStatement:
    if tokens.accept("USER"):
        return ParsedStatement(DdlKind.ACCOUNT)
    if not tokens.accept("TABLE"):
        tokens.expect("TABLES")
    tokens.if_exists()
    renamed = []
    while True:
        old = tokens.name()
        if tokens.accept("WAIT"):  # MariaDB: the lock timeout in seconds
            tokens.advance()
        tokens.accept("NOWAIT")
        tokens.expect("TO")
        renamed.append((old, tokens.name()))
        if not tokens.accept(","):
            tables = tuple(name for pair in renamed for name in pair)
            return ParsedStatement(DdlKind.RENAME_TABLE, tables, renamed=tuple(renamed))


def _maintain(tokens: SqlTokens) -> ParsedStatement:
    tokens.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
    if not tokens.accept("TABLE") and not tokens.accept("TABLES"):
        tokens.expect("VIEW")
    return ParsedStatement(DdlKind.MAINTENANCE, tokens.names())


def _set(tokens: SqlTokens) -> ParsedStatement:
    if tokens.accept("PASSWORD") or tokens.accept("DEFAULT", "ROLE"):
        return ParsedStatement(DdlKind.ACCOUNT)
    raise NotUnderstoodError


def _other_object(tokens: SqlTokens, database_kind: DdlKind) -> ParsedStatement:
    """Parse the rest of CREATE, ALTER or DROP for any object except a table."""
    if tokens.accept("DATABASE") or tokens.accept("SCHEMA"):
        return _database(tokens, database_kind)
    _skip_attributes(tokens)
    tokens.accept_any("UNIQUE", "FULLTEXT", "SPATIAL", "ONLINE", "OFFLINE", "AGGREGATE", "VECTOR")
    if tokens.accept("INDEX"):
        if not tokens.skip_to("ON"):
            raise NotUnderstoodError
        return ParsedStatement(DdlKind.INDEX, (tokens.name(),))
    if tokens.accept("VIEW"):
        tokens.if_exists()
        return ParsedStatement(DdlKind.VIEW, tokens.names())
    if tokens.accept("SEQUENCE"):
        conditional = tokens.at("IF")
        tokens.if_exists()
        kind = DdlKind.OTHER if conditional else _SEQUENCE_KINDS.get(database_kind, DdlKind.OTHER)
        return ParsedStatement(kind, tokens.names())
    if any(tokens.at(word) for word in ("USER", "ROLE")):
        return ParsedStatement(DdlKind.ACCOUNT)
    if any(tokens.at(word) for word in _SERVER_OBJECTS):
        return ParsedStatement(DdlKind.OTHER)
    return _routine(tokens)


_SEQUENCE_KINDS = {
    DdlKind.ALTER_DATABASE: DdlKind.ALTER_SEQUENCE,
    DdlKind.DROP_DATABASE: DdlKind.DROP_SEQUENCE,
}
_SERVER_OBJECTS = (
    *("TABLESPACE", "UNDO", "LOGFILE", "SERVER", "RESOURCE", "INSTANCE", "LIBRARY", "CATALOG"),
    *("PREPARE", "REFERENCE"),
)


def _database(tokens: SqlTokens, kind: DdlKind) -> ParsedStatement:
    tokens.if_exists()
    following = tokens.peek()
    # ALTER DATABASE may omit the name; then the next word is an option.
    options = ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "ENCRYPTION", "READ", "COMMENT")
    if kind is DdlKind.ALTER_DATABASE and (following is None or following.keyword in options):
        return ParsedStatement(kind, databases=(tokens.default_database,))
    return ParsedStatement(kind, databases=(tokens.identifier(),))


def _routine(tokens: SqlTokens) -> ParsedStatement:
    if tokens.accept("PACKAGE"):
        tokens.accept("BODY")
    elif not any(tokens.accept(word) for word in ("PROCEDURE", "FUNCTION", "TRIGGER", "EVENT")):
        raise NotUnderstoodError
    tokens.if_exists()
    database, _ = tokens.name()
    return ParsedStatement(DdlKind.ROUTINE, databases=(database,) if database else ())


def _skip_attributes(tokens: SqlTokens) -> None:
    """Consume ALGORITHM = x, DEFINER = user@host and SQL SECURITY x, which stand before VIEW and routines."""
    while True:
        if tokens.accept("ALGORITHM"):
            tokens.expect("=")
            tokens.advance()
        elif tokens.accept("DEFINER"):
            tokens.expect("=")
            tokens.advance()
            if tokens.accept("@"):
                tokens.advance()
            if tokens.accept("("):  # CURRENT_USER()
                tokens.expect(")")
        elif tokens.accept("SQL", "SECURITY"):
            tokens.advance()
        else:
            return


_PARSERS: dict[str, Callable[[SqlTokens], ParsedStatement]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "RENAME": _rename,
    **dict.fromkeys(("ANALYZE", "OPTIMIZE", "REPAIR", "CHECK"), _maintain),
    **dict.fromkeys(("GRANT", "REVOKE"), lambda _: ParsedStatement(DdlKind.ACCOUNT)),
    "SET": _set,
    **dict.fromkeys(("FLUSH", "INSTALL", "UNINSTALL"), lambda _: ParsedStatement(DdlKind.OTHER)),
}
