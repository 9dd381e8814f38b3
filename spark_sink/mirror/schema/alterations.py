"""Applies the clauses of an ALTER TABLE to a table's columns, as the servers do. Pure.

All clauses refer to the columns before the statement. Changed columns keep their place unless FIRST or AFTER moves
them. After that, added and moved columns are placed in the order of the clauses, and AFTER names a column by its new
name. This follows MySQL's source, sql/sql_table.cc (mysql_prepare_alter_table); MariaDB has the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dispatcher.binlog.sql.clauses import (
    AddColumnClause,
    ChangeColumnClause,
    ColumnClause,
    ColumnPosition,
    Computed,
    ConvertCharsetClause,
    DefinedColumn,
    DropColumnClause,
    PrimaryKeyClause,
    RenameColumnClause,
)
from dispatcher.binlog.sql.data_types import TEXT_WORDS
from dispatcher.binlog.table_map.column_types import InvalidDates, Type
from dispatcher.model.errors import BinlogError
from spark_sink.mirror.schema.columns import ColumnSignature


@dataclass(slots=True)
class AlteredColumn:
    """A column after the statement. `before`: the column before, None for an added one; `definition`: its definition in
    the statement, None if only its name or the table's character set changes; `recomputed`: why the server computes all
    values of the column again, "" if it does not; `numbers_zeros`: True if AUTO_INCREMENT may replace zeros by new
    numbers."""

    after: ColumnSignature
    before: ColumnSignature | None = None
    definition: DefinedColumn | None = None
    recomputed: str = ""
    numbers_zeros: bool = False


class _UnclearError(Exception):
    """The message says why the columns after the statement are not known."""


def alter(
    columns: Sequence[ColumnSignature], clauses: Sequence[ColumnClause], invalid_dates: InvalidDates
) -> list[AlteredColumn] | str:
    """Returns the columns after the statement in order, or why they are not known."""
    try:
        return _Alteration(columns, invalid_dates).apply(clauses)
    except _UnclearError as error:
        return str(error)
    except BinlogError as error:  # a type that the mirror does not know
        return error.what


class _Alteration:
    def __init__(self, columns: Sequence[ColumnSignature], invalid_dates: InvalidDates) -> None:
        self._invalid_dates = invalid_dates
        self._placed = [AlteredColumn(column, column) for column in columns]
        # The columns before the statement, by name; None for a column that the statement drops.
        self._by_name: dict[str, AlteredColumn | None] = {
            column.after.name.lower(): column for column in self._placed
        }

    def apply(self, clauses: Sequence[ColumnClause]) -> list[AlteredColumn]:
        for clause in clauses:
            match clause:
                case DropColumnClause():
                    self._drop(clause)
                case RenameColumnClause():
                    column = self._find(clause.old, clause.if_exists)
                    if column is not None:
                        column.after = replace(column.after, name=clause.new)
                case ChangeColumnClause():
                    self._change(clause)
        for clause in clauses:
            match clause:
                case ConvertCharsetClause():
                    self._convert(clause)
                case AddColumnClause():
                    self._add(clause)
                case ChangeColumnClause() if clause.position is not None:
                    moved = self._find(clause.old, clause.if_exists)
                    if moved is not None:
                        self._placed.remove(moved)
                        self._place(moved, clause.position)
        self._set_key(clauses)
        return self._placed

    def _find(self, name: str, may_lack: bool) -> AlteredColumn | None:
        column = self._by_name.get(name.lower())
        if column is None and not may_lack:
            raise _UnclearError(f"the mirrored table has no column {name}")
        return column

    def _add(self, clause: AddColumnClause) -> None:
        defined = clause.column
        if clause.if_not_exists and defined.name.lower() in self._by_name:
            return
        names = (column.after.name.lower() for column in self._placed)
        if defined.name.lower() in names:
            raise _UnclearError(f"the mirrored table has a column {defined.name} already")
        nullable = defined.nullable is not False and not defined.primary
        after = self._signature(defined, nullable)
        self._place(AlteredColumn(after, None, defined), clause.position)

    def _drop(self, clause: DropColumnClause) -> None:
        column = self._find(clause.name, clause.if_exists)
        if column is not None:
            self._placed.remove(column)
            self._by_name[clause.name.lower()] = None

    def _change(self, clause: ChangeColumnClause) -> None:
        column = self._find(clause.old, clause.if_exists)
        if column is None:
            return
        assert column.before is not None
        defined = clause.column
        nullable = defined.nullable is not False and not defined.primary
        column.after = self._signature(defined, nullable)
        column.definition = defined
        if defined.computed is Computed.GENERATED:
            column.recomputed = str(Computed.GENERATED)
        elif defined.computed is Computed.AUTO_INCREMENT:
            column.numbers_zeros = True
            column.after = replace(column.after, nullable=False)
        elif column.after.column.type == Type.TIMESTAMP2 and defined.nullable is None:
            if column.before.nullable:
                # With explicit_defaults_for_timestamp=OFF the column becomes NOT NULL, and NULL becomes the present
                # time.
                column.recomputed = "a TIMESTAMP without NULL or NOT NULL"
            column.after = replace(column.after, nullable=column.before.nullable)

    def _convert(self, clause: ConvertCharsetClause) -> None:
        """Change the character sets of text columns, except columns that another clause redefines. The order of these
        clauses may be ignored, because `signature.difference` does not compare character sets."""
        if clause.charset == "binary":
            raise _UnclearError("CONVERT TO CHARACTER SET binary")
        for column in self._placed:
            after = column.after
            word = after.mysql_type.partition("(")[0]
            if column.definition is None and word in TEXT_WORDS:
                column.after = replace(after, charset=clause.charset)
                column.definition = DefinedColumn(
                    after.name, after.mysql_type, clause.charset, after.nullable
                )

    def _signature(self, defined: DefinedColumn, nullable: bool) -> ColumnSignature:
        return ColumnSignature.of_definition(
            defined.name, defined.type, defined.charset, nullable, self._invalid_dates
        )

    def _place(self, column: AlteredColumn, position: ColumnPosition | None) -> None:
        if position is None:
            self._placed.append(column)
        elif not position.after:
            self._placed.insert(0, column)
        else:
            names = [placed.after.name.lower() for placed in self._placed]
            if position.after.lower() not in names:
                raise _UnclearError(f"the mirrored table has no column {position.after}")
            self._placed.insert(names.index(position.after.lower()) + 1, column)

    def _set_key(self, clauses: Sequence[ColumnClause]) -> None:
        """Make the columns of a new primary key NOT NULL."""
        named = {name.lower() for c in clauses if isinstance(c, PrimaryKeyClause) for name in c.columns}  # fmt: skip
        for column in self._placed:
            if column.after.name.lower() in named:
                column.after = replace(column.after, nullable=False)


def altered_key(
    key: Sequence[str], altered: Sequence[AlteredColumn], clauses: Sequence[ColumnClause]
) -> tuple[str, ...]:
    """Returns the primary key after the statement, by the new names of its columns."""
    inline = [c.after.name for c in altered if c.definition is not None and c.definition.primary]
    if inline:
        return (inline[0],)
    changed = [clause.columns for clause in clauses if isinstance(clause, PrimaryKeyClause)]
    if changed:
        wanted = {name.lower(): name for columns in changed for name in columns}
        names = {column.after.name.lower(): column.after.name for column in altered}
        return tuple(names.get(name, written) for name, written in wanted.items())
    renamed = {c.before.name: c.after.name for c in altered if c.before is not None}
    return tuple(renamed[name] for name in key if name in renamed)
