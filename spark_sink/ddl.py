"""What a statement in the stream does to mirrored tables: nothing, empty them, or something that a
mirror cannot follow.

A statement that is not understood stops the mirror, because it might have changed rows that no
event tells of. `CREATE TABLE` does nothing: a table comes to be in the target with its first rows,
and one of the same name was emptied when it was dropped.

An ALTER TABLE that leaves the rows as they are, or adds columns that are NULL in them, does nothing
either: the columns are added when the first rows come that have them, because only then are their
types known exactly.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import StrEnum

from dispatcher.binlog.sql.lexer import SqlTokens
from dispatcher.binlog.sql.statement import DdlKind, parse_statement
from dispatcher.model.errors import SEEK, BinlogError, ErrorKind
from spark_sink.alter import only_adds


class MirrorAction(StrEnum):
    EMPTY = "empty"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class MirrorChange:
    """`table` "": all tables of the database."""

    action: MirrorAction
    database: str
    table: str = ""
    why: str = ""


# They change neither rows nor columns of a table that a mirror has. OTHER: servers, tablespaces, plug-ins.
HARMLESS = frozenset(
    (
        DdlKind.ACCOUNT,
        DdlKind.ALTER_DATABASE,
        DdlKind.CREATE_DATABASE,
        DdlKind.INDEX,
        DdlKind.MAINTENANCE,
        DdlKind.OTHER,
        DdlKind.ROUTINE,
        DdlKind.TEMPORARY_TABLE,
        DdlKind.VIEW,
    )
)


def changes_of(query: str, database: str, sql_mode: int = 0) -> list[MirrorChange]:
    """The changes of one statement, run with the default `database`.

    Raises `BinlogError` UNSUPPORTED_CHANGE for a statement that is not understood.
    """
    ddl = parse_statement(query, database, sql_mode)
    if not ddl.parsed:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"a statement that is not understood: {_beginning(query, sql_mode)} ...",
            where=f"default database {database}" if database else "",
            remedy="apply to the mirrored tables by hand what it changed, move the consumer behind the statement"
            f" ({SEEK}), and start the query with a new checkpoint",
        )
    match ddl.kind:
        case kind if kind in HARMLESS:
            return []
        case DdlKind.DROP_TABLE | DdlKind.TRUNCATE:
            return [MirrorChange(MirrorAction.EMPTY, *name) for name in ddl.tables]
        case DdlKind.DROP_DATABASE:
            return [MirrorChange(MirrorAction.EMPTY, name) for name in ddl.databases]
        case DdlKind.CREATE_TABLE:
            replaces = _beginning(query, sql_mode).startswith("CREATE OR REPLACE")
            return [MirrorChange(MirrorAction.EMPTY, *name) for name in ddl.tables if replaces]
        case DdlKind.ALTER_TABLE:
            harmless, part = only_adds(query, sql_mode)
            return (
                []
                if harmless
                else [MirrorChange(MirrorAction.STOP, *name, part) for name in ddl.tables]
            )
    return [MirrorChange(MirrorAction.STOP, *name, ddl.kind.value.upper()) for name in ddl.tables]


def _beginning(query: str, sql_mode: int) -> str:
    """The leading keywords: enough to find a statement by, and none of its values."""
    words = itertools.islice((token.keyword for token in SqlTokens(query, sql_mode)), 4)
    return " ".join(itertools.takewhile(str.isalpha, words))
