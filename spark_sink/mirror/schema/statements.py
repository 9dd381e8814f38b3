"""Finds what a statement in the log does to mirrored tables: it creates, drops, empties, renames or alters them. Pure.

`effects_of` raises an error for a statement that it cannot parse, because the statement may have changed rows without a
rows event.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.binlog.sql.alter_clauses import ParsedAlter
from dispatcher.binlog.sql.clauses import ColumnClause
from dispatcher.binlog.sql.create_table import ParsedCreate, cascades_of
from dispatcher.binlog.sql.generated import GeneratedColumn, generated_in
from dispatcher.binlog.sql.lexer import (
    Name,
    SqlTokens,
    upper,
)
from dispatcher.binlog.sql.logged import NO_FACTS, LoggedStatement, SessionFacts
from dispatcher.binlog.sql.statement import DdlKind, ParsedStatement, parse_statement
from dispatcher.model.errors import BinlogError, ErrorKind


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`like`: the table whose columns, but not rows, the new table gets; `replaces`: True for OR REPLACE, which first
    drops a table with this name; `if_not_exists`: True if the statement does nothing when there is a table with this
    name; `cascades`: foreign keys with ON DELETE or ON UPDATE actions, whose changes a server may not log; `generated`:
    the table's generated columns, None if the statement does not show them."""

    name: Name
    like: Name | None = None
    replaces: bool = False
    if_not_exists: bool = False
    cascades: tuple[str, ...] = ()
    generated: tuple[GeneratedColumn, ...] | None = None

    @property
    def tables(self) -> tuple[Name, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class DropTable:
    name: Name

    @property
    def tables(self) -> tuple[Name, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class TruncateTable:
    name: Name

    @property
    def tables(self) -> tuple[Name, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """Drops all tables of the database. The statement does not name them: `tables` is empty."""

    database: str

    @property
    def tables(self) -> tuple[Name, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class RenameTables:
    """`pairs`: (old, new) names. The renames are executed in this order: after `t -> old, new -> t`, the former table
    `new` is `t`."""

    pairs: tuple[tuple[Name, Name], ...]

    @property
    def tables(self) -> tuple[Name, ...]:
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair))


@dataclass(frozen=True, slots=True)
class AlterTable:
    """`clauses`: the clauses that concern columns and keys; `copy_reason`: for a message, the clause that changes rows
    in a way that the log does not show, "" if there is none. A RENAME TO of the statement is a separate effect,
    `RenameTables`, which follows this effect."""

    name: Name
    clauses: tuple[ColumnClause, ...] = ()
    copy_reason: str = ""
    cascades: tuple[str, ...] = ()
    facts: SessionFacts = NO_FACTS
    ignore: bool = False

    @property
    def tables(self) -> tuple[Name, ...]:
        return (self.name,)


TableEffect = CreateTable | DropTable | TruncateTable | DropDatabase | RenameTables | AlterTable


class UnclearTablesError(BinlogError):
    """The log does not show what a statement did to `tables`. The statement concerns no other table."""

    def __init__(self, tables: Sequence[Name], what: str) -> None:
        super().__init__(ErrorKind.UNSUPPORTED_CHANGE, what)
        self.tables = tuple(tables)


# ER_BAD_TABLE_ERROR: some tables of the DROP TABLE did not exist; it has dropped the others.
_UNKNOWN_TABLE = 1051


def effects_of(statement: LoggedStatement) -> list[TableEffect]:
    """Returns the effects of one statement on tables, in order.

    One statement may concern several tables: EXCHANGE PARTITION changes two, CONVERT TABLE drops one. Raises
    `BinlogError` UNSUPPORTED_CHANGE if it is not known what the statement does, and `UnclearTablesError` if this is
    unknown for certain tables only.
    """
    ddl = parse_statement(statement)
    if ddl.maybe_temporary:
        raise UnclearTablesError(
            ddl.tables,
            f"{_beginning(statement)} ... was executed on this table or on a temporary table of its name: the log does"
            " not show which",
        )
    if statement.facts.error not in (0, _UNKNOWN_TABLE) and ddl.kind not in HARMLESS:
        what = f"failed with error {statement.facts.error} after it may have changed this table"
        raise UnclearTablesError(ddl.tables, f"{_beginning(statement)} ... {what}")
    if ddl.doubt and ddl.alter is None:
        what = f"a statement that is not understood: {_beginning(statement)} ...: not understood: {ddl.doubt}"
        if ddl.create is not None:
            raise UnclearTablesError(ddl.tables, what)
        where = f"default database {statement.database}" if statement.database else ""
        raise BinlogError(ErrorKind.UNSUPPORTED_CHANGE, what, where=where)
    return _effects(ddl, statement)


def _effects(ddl: ParsedStatement, statement: LoggedStatement) -> list[TableEffect]:
    match ddl.kind:
        case kind if kind in HARMLESS:
            return []
        case DdlKind.DROP_TABLE | DdlKind.REPLACE_BY_SEQUENCE | DdlKind.DROP_SEQUENCE:
            return [DropTable(name) for name in ddl.tables]
        case DdlKind.TRUNCATE:
            return [TruncateTable(name) for name in ddl.tables]
        case DdlKind.DROP_DATABASE:
            return [DropDatabase(name) for name in ddl.databases]
        case DdlKind.RENAME_TABLE:
            return [RenameTables(ddl.renamed)]
    if ddl.create is not None:
        return [_created(ddl.create, statement)]
    assert ddl.alter is not None
    return _altered(ddl.alter, statement)


def _created(made: ParsedCreate, statement: LoggedStatement) -> CreateTable:
    if made.selects:
        # The decoder refuses such a statement, because its rows are not in the log.
        what = f"{_beginning(statement)} ... adds rows that are not in the log"
        raise UnclearTablesError((made.table,), what)
    cascades, generated = _cascades(statement), generated_in(statement, made)
    return CreateTable(
        made.table, made.like, made.replaces, made.if_not_exists, cascades, generated
    )


def _altered(parsed: ParsedAlter, statement: LoggedStatement) -> list[TableEffect]:
    effects: list[TableEffect] = []
    cascades, clauses = _cascades(statement), tuple(parsed.clauses)
    if clauses or parsed.copy_reason or cascades:
        effects.append(
            AlterTable(
                parsed.table, clauses, parsed.copy_reason, cascades, statement.facts, parsed.ignore
            )
        )
    for other, is_gone in parsed.others.items():
        if is_gone:
            effects.append(DropTable(other))
        elif parsed.copy_reason == "CONVERT PARTITION":
            effects += [
                CreateTable(other, like=parsed.table),
                AlterTable(other, copy_reason=parsed.copy_reason),
            ]
        else:
            effects.append(AlterTable(other, copy_reason=parsed.copy_reason))
    if parsed.renamed_to is not None:
        effects.append(RenameTables(((parsed.table, parsed.renamed_to),)))
    return effects


def _cascades(statement: LoggedStatement) -> tuple[str, ...]:
    return cascades_of(SqlTokens(statement)) if "REFERENCES" in upper(statement.text) else ()


_KEYWORD = re.compile(r"[A-Z]+")
# Kinds that change neither rows nor columns of a mirrored table. OTHER is for servers, tablespaces and plug-ins.
HARMLESS = frozenset((
    DdlKind.ACCOUNT, DdlKind.ALTER_SEQUENCE, DdlKind.ALTER_DATABASE, DdlKind.CREATE_DATABASE, DdlKind.INDEX,
    DdlKind.MAINTENANCE,
    DdlKind.OTHER, DdlKind.ROUTINE, DdlKind.TEMPORARY_TABLE, DdlKind.VIEW,
))  # fmt: skip


def _beginning(statement: LoggedStatement) -> str:
    """Returns the leading keywords of a statement, for messages. They suffice to find the statement, and contain no
    values."""
    words = itertools.islice((token.keyword for token in SqlTokens(statement)), 4)
    return " ".join(itertools.takewhile(_KEYWORD.fullmatch, words))
