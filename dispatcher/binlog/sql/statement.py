"""Classifies the statements of a binlog and finds the tables and databases that each one touches.

DDL is logged as text, and the daemon routes it by the tables that it touches. A statement is understood only if its
whole text, to its end, is one of the forms of `STATEMENTS`. Any other statement is in doubt (`ParsedStatement.doubt`):
the caller must assume that it may touch any table. General SQL parsers fail on partitioning and on much of MariaDB's
syntax, and every Spark executor would have to install the parser.

Sources: MySQL manual, "Data Definition Statements"; MariaDB knowledge base, "ALTER TABLE", "DROP
TABLE", "SET STATEMENT".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dispatcher.binlog.sql.alter_clauses import ParsedAlter, altered_table
from dispatcher.binlog.sql.clauses import PrimaryKeyClause
from dispatcher.binlog.sql.create_table import ParsedCreate, created_table
from dispatcher.binlog.sql.forms import Form, Forms, Found, Slot, is_name
from dispatcher.binlog.sql.lexer import Bounds, Name, NotUnderstoodError, SqlTokens, upper
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.table_options import SLOTS


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

    `tables`: (database, table) of each table touched, in the statement's order, by the names of `folded_name`. Tables
    that the statement only reads or refers to are left out. `databases`: the databases that the statement creates,
    alters or drops, and the database of a routine that it creates, alters or drops. The databases of `tables` are not
    included. `renamed`: (old, new) pairs in the order in which the server renames the tables; both names are in
    `tables`. `doubt`: the words that were not understood, in at most 80 characters; "" if the whole statement is one of
    the forms that the parser knows. A statement in doubt may touch any table, beside those in `tables`.
    `maybe_temporary`: True if the log does not show whether the statement was executed on `tables` or on temporary
    tables of these names. `alter`, `create`: what ALTER TABLE or CREATE TABLE does.
    """

    kind: DdlKind
    tables: tuple[Name, ...] = ()
    databases: tuple[str, ...] = ()
    renamed: tuple[tuple[Name, Name], ...] = ()
    doubt: str = ""
    maybe_temporary: bool = False
    alter: ParsedAlter | None = field(default=None, compare=False)
    create: ParsedCreate | None = field(default=None, compare=False)

    @property
    def parsed(self) -> bool:
        return not self.doubt


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

    `bounds`: how much of the statement is read at most; a statement that exceeds the bounds is in doubt.
    """
    tokens = SqlTokens(statement, bounds)
    try:
        parsed = _statement(tokens)
        if not tokens.at_end() or not tokens.complete:
            raise NotUnderstoodError
    except NotUnderstoodError:
        words = tokens.words_from(tokens.offset) or "the end of the statement"
        return ParsedStatement(DdlKind.OTHER, doubt=words)
    if statement.facts.thread_specific and _maybe_temporary(parsed.kind, statement.text):
        return replace(parsed, maybe_temporary=True)
    return parsed


# Since MySQL 5.5 and MariaDB 5.5, servers append this comment to each DROP TABLE that they log. They log the drop of a
# temporary table as DROP TEMPORARY TABLE.
_SPLIT_DROP = "/* generated by server */"
# MariaDB logs this after a CREATE OR REPLACE TABLE that failed; for a temporary table it logs DROP TEMPORARY TABLE.
_FAILED_REPLACE = "/* Generated to handle failed CREATE OR REPLACE */"


def _maybe_temporary(kind: DdlKind, query: str) -> bool:
    """True if a statement with LOG_EVENT_THREAD_SPECIFIC_F may have been executed on a temporary table.

    Servers set the flag if a statement used a temporary table or CONNECTION_ID(), even if CONNECTION_ID() is only the
    default of a column of the table. ALTER, TRUNCATE and DROP without the flag were executed on a table that is not
    temporary. RENAME TABLE never has the flag: MySQL cannot rename temporary tables by RENAME TABLE, and MariaDB logs
    the RENAME TABLE of a temporary table like that of any other table. Tested on four servers
    (`test_temporary_tables`).
    """
    if kind is DdlKind.DROP_TABLE:
        return not query.endswith((_SPLIT_DROP, _FAILED_REPLACE))
    return kind is DdlKind.ALTER_TABLE or kind is DdlKind.TRUNCATE


def _statement(tokens: SqlTokens) -> ParsedStatement:
    if tokens.at_end():  # only a comment: MariaDB sends "# Dummy event" in place of some events
        return ParsedStatement(DdlKind.OTHER)
    tokens.skip_set_statement()
    form = _FORMS.chosen(tokens)
    if form is None:
        raise NotUnderstoodError
    return _MAKERS[form](tokens, form.match(tokens))


# -- forms ---------------------------------------------------------------------------------------------------

Make = Callable[[SqlTokens, Found], ParsedStatement]


def _attribute(tokens: SqlTokens) -> None:
    """Consume ALGORITHM = x, DEFINER = user@host, SQL SECURITY x or MATERIALIZED, which stand before VIEW and
    routines."""
    for _ in range(_attribute_width(tokens, 0)):
        tokens.advance()


def _at_attribute(tokens: SqlTokens, n: int) -> bool:
    return _attribute_width(tokens, n) > 0


def _attribute_width(tokens: SqlTokens, n: int) -> int:
    if tokens.at("ALGORITHM", "=", n=n) or tokens.at("SQL", "SECURITY", n=n):
        return 3
    if tokens.at("MATERIALIZED", n=n):
        return 1
    if not tokens.at("DEFINER", "=", n=n):
        return 0
    if tokens.at("(", ")", n=n + 3):  # CURRENT_USER()
        return 5
    return 5 if tokens.at("@", n=n + 3) else 3


def _rename_pair(tokens: SqlTokens) -> tuple[Name, Name]:
    old = tokens.name()
    tokens.wait()
    tokens.expect("TO")
    return old, tokens.name()


# Without a name, ALTER DATABASE alters the default database, and begins with an option.
_DATABASE_OPTIONS = ("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "ENCRYPTION", "READ", "COMMENT")


def _at_database(tokens: SqlTokens, n: int) -> bool:
    return is_name(tokens, n) and not any(tokens.at(word, n=n) for word in _DATABASE_OPTIONS)


_SLOTS = SLOTS | {
    "attribute": Slot(_attribute, _at_attribute, _attribute_width),
    "rename": Slot(_rename_pair, is_name),
    "database": Slot(SqlTokens.name_part, _at_database),
    "routine": SLOTS["table"],
}


def _kind(kind: DdlKind) -> Make:
    """Returns the function for statements that touch only the tables and databases that they name."""

    def make(tokens: SqlTokens, found: Found) -> ParsedStatement:  # noqa: ARG001
        routines = [database for database, _ in found.all("routine") if database]
        return ParsedStatement(kind, tuple(found.all("table")), (*found.all("database"), *routines))

    return make


def _create_table(tokens: SqlTokens, found: Found) -> ParsedStatement:
    made = created_table(tokens, replaces=("OR", "REPLACE") in found.words)
    if made.sequence and not made.doubt and not made.selects:
        kind = DdlKind.REPLACE_BY_SEQUENCE if made.replaces else DdlKind.OTHER
        return ParsedStatement(kind, (made.table,))
    return ParsedStatement(DdlKind.CREATE_TABLE, (made.table,), doubt=made.doubt, create=made)


def _alter_table(tokens: SqlTokens, found: Found) -> ParsedStatement:
    altered = altered_table(tokens, ignore=("IGNORE",) in found.words)
    tables, renamed = [altered.table, *altered.others], list[tuple[Name, Name]]()
    if altered.renamed_to is not None:
        tables.append(altered.renamed_to)
        renamed.append((altered.table, altered.renamed_to))
    return ParsedStatement(
        DdlKind.ALTER_TABLE, tuple(tables), (), tuple(renamed), altered.doubt, alter=altered
    )


def _drop_index(tokens: SqlTokens, found: Found) -> ParsedStatement:  # noqa: ARG001
    table = found.first("table")
    if upper(found.first("name")) != "PRIMARY":
        return ParsedStatement(DdlKind.INDEX, (table,))
    altered = ParsedAlter(table, [PrimaryKeyClause()])
    return ParsedStatement(DdlKind.ALTER_TABLE, (table,), alter=altered)


def _rename_table(tokens: SqlTokens, found: Found) -> ParsedStatement:  # noqa: ARG001
    renamed = tuple(found.all("rename"))
    tables = tuple(name for pair in renamed for name in pair)
    return ParsedStatement(DdlKind.RENAME_TABLE, tables, renamed=renamed)


def _alter_database(tokens: SqlTokens, found: Found) -> ParsedStatement:
    name = found.first("database")
    return ParsedStatement(
        DdlKind.ALTER_DATABASE, databases=(tokens.default_database if name is None else name,)
    )


_WAIT = "[WAIT <number> | NOWAIT]"
_ONLINE = "[ALGORITHM [=] <word> | LOCK [=] <word> | WAIT <number> | NOWAIT] ..."
_VIEW = "[JSON DUALITY | JSON RELATIONAL DUALITY] VIEW"
_ROUTINE = "{PROCEDURE | FUNCTION | TRIGGER | EVENT | PACKAGE BODY | PACKAGE | LIBRARY}"
# Objects that hold no rows of tables.
_OBJECT = (
    "{SERVER | TABLESPACE | UNDO TABLESPACE | LOGFILE GROUP | RESOURCE GROUP | SPATIAL REFERENCE SYSTEM"
    " | COMPRESSION_DICTIONARY}"
)
# All statements that are followed, or known to touch no table's rows. Any other statement is in doubt.
STATEMENTS: tuple[tuple[str, Make], ...] = (
    ("CREATE [OR REPLACE] TABLE", _create_table),
    ("ALTER [ONLINE | OFFLINE | IGNORE] ... TABLE", _alter_table),
    (f"DROP {{TABLE | TABLES}} [IF EXISTS] <table>, ... {_WAIT} [RESTRICT | CASCADE]", _kind(DdlKind.DROP_TABLE)),
    (f"TRUNCATE [TABLE] <table> {_WAIT} [DROP STORAGE | REUSE STORAGE]", _kind(DdlKind.TRUNCATE)),
    ("RENAME {TABLE | TABLES} [IF EXISTS] <rename>, ...", _rename_table),
    ("CREATE [OR REPLACE] TEMPORARY {TABLE | SEQUENCE} <rest>", _kind(DdlKind.TEMPORARY_TABLE)),
    ("DROP TEMPORARY {TABLE | TABLES | SEQUENCE} <rest>", _kind(DdlKind.TEMPORARY_TABLE)),
    (
        "CREATE [OR REPLACE] [ONLINE | OFFLINE] [UNIQUE | FULLTEXT | SPATIAL | VECTOR] INDEX [IF NOT EXISTS] <name>"
        f" [{{USING | TYPE}} <word>] ON <table> {_WAIT} <key parts> [<index option>] ... {_ONLINE}",
        _kind(DdlKind.INDEX),
    ),
    (f"DROP [ONLINE | OFFLINE] INDEX [IF EXISTS] <name> ON <table> {_ONLINE}", _drop_index),
    ("CREATE {DATABASE | SCHEMA} [IF NOT EXISTS] <database> <rest>", _kind(DdlKind.CREATE_DATABASE)),
    # MariaDB drops the database with its tables first.
    ("CREATE OR REPLACE {DATABASE | SCHEMA} <database> <rest>", _kind(DdlKind.DROP_DATABASE)),
    ("DROP {DATABASE | SCHEMA} [IF EXISTS] <database>", _kind(DdlKind.DROP_DATABASE)),
    (
        "ALTER {DATABASE | SCHEMA} [<database>] [DEFAULT | CHARACTER SET [=] <charset> | CHARSET [=] <charset>"
        " | COLLATE [=] <charset> | ENCRYPTION [=] <text> | READ ONLY [=] <value> | COMMENT [=] <text>] ...",
        _alter_database,
    ),
    (f"CREATE [OR REPLACE] [<attribute>] ... {_VIEW} [IF NOT EXISTS] <table> <rest>", _kind(DdlKind.VIEW)),
    (f"ALTER [<attribute>] ... {_VIEW} <table> <rest>", _kind(DdlKind.VIEW)),
    (f"DROP [MATERIALIZED] {_VIEW} [IF EXISTS] <table>, ... [RESTRICT | CASCADE]", _kind(DdlKind.VIEW)),
    ("CREATE SEQUENCE [IF NOT EXISTS] <table> <rest>", _kind(DdlKind.OTHER)),
    ("CREATE OR REPLACE SEQUENCE <table> <rest>", _kind(DdlKind.REPLACE_BY_SEQUENCE)),
    ("ALTER SEQUENCE IF EXISTS <table> <rest>", _kind(DdlKind.OTHER)),
    ("ALTER SEQUENCE <table> <rest>", _kind(DdlKind.ALTER_SEQUENCE)),
    (f"DROP SEQUENCE IF EXISTS <table>, ... {_WAIT}", _kind(DdlKind.OTHER)),
    (f"DROP SEQUENCE <table>, ... {_WAIT}", _kind(DdlKind.DROP_SEQUENCE)),
    (
        f"CREATE [OR REPLACE] [<attribute>] ... [AGGREGATE] {_ROUTINE} [IF NOT EXISTS] <routine> <rest>",
        _kind(DdlKind.ROUTINE),
    ),
    (f"ALTER [<attribute>] ... {_ROUTINE} <routine> <rest>", _kind(DdlKind.ROUTINE)),
    (f"DROP {_ROUTINE} [IF EXISTS] <routine>", _kind(DdlKind.ROUTINE)),
    ("CREATE [OR REPLACE] {USER | ROLE} <rest>", _kind(DdlKind.ACCOUNT)),
    ("{ALTER | DROP | RENAME} {USER | ROLE} <rest>", _kind(DdlKind.ACCOUNT)),
    ("{GRANT | REVOKE | SET PASSWORD | SET DEFAULT ROLE} <rest>", _kind(DdlKind.ACCOUNT)),
    (f"CREATE [OR REPLACE] {_OBJECT} <rest>", _kind(DdlKind.OTHER)),
    (f"ALTER {_OBJECT} <rest>", _kind(DdlKind.OTHER)),
    (f"DROP {_OBJECT} <rest>", _kind(DdlKind.OTHER)),
    ("{ALTER INSTANCE | FLUSH | INSTALL | UNINSTALL | PURGE CHANGED_PAGE_BITMAPS} <rest>", _kind(DdlKind.OTHER)),
    (
        "{ANALYZE | OPTIMIZE | REPAIR | CHECK} [NO_WRITE_TO_BINLOG | LOCAL] {TABLE | TABLES | VIEW} <table>, ..."
        " <rest>",
        _kind(DdlKind.MAINTENANCE),
    ),
)  # fmt: skip
_MAKERS = {Form(text, _SLOTS): make for text, make in STATEMENTS}
_FORMS = Forms(_MAKERS)
