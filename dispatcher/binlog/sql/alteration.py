"""Applies the clauses of an ALTER TABLE to a table's columns, as the servers do.

A clause names the column that it changes or drops by the column's name before the statement. Only AFTER and the lists
of PRIMARY KEY contain the names after the statement. First, all columns are dropped, renamed and changed, at their
places. Then added and moved columns (FIRST, AFTER) are placed in the order of the clauses. This follows MySQL's source,
sql/sql_table.cc (mysql_prepare_alter_table); MariaDB has the same rules.

The functions decide which columns the table has, their order, and which definition each one gets. The callers decide
what the definition means for the type, the character set or the values of a column. The functions pass the callers' own
columns (`C`) through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dispatcher.binlog.sql.clauses import (
    AddColumnClause,
    ChangeColumnClause,
    ColumnClause,
    ColumnPosition,
    ConvertCharsetClause,
    DefinedColumn,
    DropColumnClause,
    PrimaryKeyClause,
    RenameColumnClause,
)

C = TypeVar("C")


class UnclearAlterationError(Exception):
    """The columns after the statement are not known. The message says why, as the predicate of a sentence about the
    table: `has no column x`."""


@dataclass(slots=True)
class PlacedColumn(Generic[C]):
    """A column after the statement. `before`: the caller's column before the statement, None for an added column;
    `definition`: the column's definition in the statement, None if the statement does not define the column;
    `converted`: the character set of CONVERT TO, if the column has no definition in the statement ("" for DEFAULT);
    `in_new_key`: True if the statement makes the column a part of the primary key."""

    name: str
    before: C | None = None
    definition: DefinedColumn | None = None
    converted: str | None = None
    in_new_key: bool = False


def placed_columns(
    columns: Iterable[tuple[str, C]], clauses: Sequence[ColumnClause]
) -> list[PlacedColumn[C]]:
    """Return the columns after the statement in order. `columns`: names and columns before the statement.

    Raises UnclearAlterationError.
    """
    return _Alteration(columns).apply(clauses)


class _Alteration(Generic[C]):
    def __init__(self, columns: Iterable[tuple[str, C]]) -> None:
        self._placed = [PlacedColumn(name, column) for name, column in columns]
        # The columns before the statement, by name; None for a column that the statement drops.
        self._by_name: dict[str, PlacedColumn[C] | None] = {
            column.name.lower(): column for column in self._placed
        }

    def apply(self, clauses: Sequence[ColumnClause]) -> list[PlacedColumn[C]]:
        for clause in clauses:
            self._change(clause)
        for clause in clauses:
            self._place_clause(clause)
        self._set_key(clauses)
        return self._placed

    def _change(self, clause: ColumnClause) -> None:
        match clause:
            case DropColumnClause():
                self._drop(clause)
            case RenameColumnClause():
                column = self._find(clause.old, clause.if_exists)
                if column is not None:
                    column.name = clause.new
            case ChangeColumnClause():
                column = self._find(clause.old, clause.if_exists)
                if column is not None:
                    column.name, column.definition = clause.column.name, clause.column

    def _place_clause(self, clause: ColumnClause) -> None:
        match clause:
            case ConvertCharsetClause():
                for column in self._placed:
                    if column.definition is None:
                        column.converted = clause.charset
            case AddColumnClause():
                self._add(clause)
            case ChangeColumnClause() if clause.position is not None:
                moved = self._find(clause.old, clause.if_exists)
                if moved is not None:
                    self._placed.remove(moved)
                    self._place(moved, clause.position)

    def _find(self, name: str, may_lack: bool) -> PlacedColumn[C] | None:
        column = self._by_name.get(name.lower())
        if column is None and not may_lack:
            raise UnclearAlterationError(f"has no column {name}")
        return column

    def _add(self, clause: AddColumnClause) -> None:
        name = clause.column.name
        if clause.if_not_exists and name.lower() in self._by_name:
            return
        if name.lower() in (column.name.lower() for column in self._placed):
            raise UnclearAlterationError(f"has a column {name} already")
        self._place(PlacedColumn(name, None, clause.column), clause.position)

    def _drop(self, clause: DropColumnClause) -> None:
        column = self._find(clause.name, clause.if_exists)
        if column is not None:
            self._placed.remove(column)
            self._by_name[clause.name.lower()] = None

    def _place(self, column: PlacedColumn[C], position: ColumnPosition | None) -> None:
        if position is None:
            self._placed.append(column)
        elif not position.after:
            self._placed.insert(0, column)
        else:
            names = [placed.name.lower() for placed in self._placed]
            if position.after.lower() not in names:
                raise UnclearAlterationError(f"has no column {position.after}")
            self._placed.insert(names.index(position.after.lower()) + 1, column)

    def _set_key(self, clauses: Sequence[ColumnClause]) -> None:
        named = {name.lower() for c in clauses if isinstance(c, PrimaryKeyClause) for name in c.columns}  # fmt: skip
        for column in self._placed:
            defines = column.definition is not None and column.definition.primary
            column.in_new_key = defines or column.name.lower() in named


def altered_key(
    key: Sequence[str],
    altered: Sequence[tuple[str | None, PlacedColumn[C]]],
    clauses: Sequence[ColumnClause],
) -> tuple[str, ...]:
    """Return the primary key after the statement, by the new names of its columns. `key`: the key before the statement,
    by the old names; `altered`: each column after the statement, with its old name (None for an added column)."""
    columns = [column for _, column in altered]
    inline = [c.name for c in columns if c.definition is not None and c.definition.primary]
    if inline:
        return (inline[0],)
    changed = [clause.columns for clause in clauses if isinstance(clause, PrimaryKeyClause)]
    if changed:
        wanted = {name.lower(): name for names in changed for name in names}
        names = {column.name.lower(): column.name for column in columns}
        return tuple(names.get(name, written) for name, written in wanted.items())
    renamed = {old: column.name for old, column in altered if old is not None}
    return tuple(renamed[name] for name in key if name in renamed)
