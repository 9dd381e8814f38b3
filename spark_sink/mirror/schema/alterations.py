"""Determines the columns of a mirrored table after an ALTER TABLE, and what the statement shows about their values.
Pure.

`dispatcher.binlog.sql.alteration` decides which columns there are, and their order. A column that the policy leaves out
(`omit_columns`) has no values in the mirror, but has a place among the other columns here, because a statement may name
it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dispatcher.binlog.sql import alteration
from dispatcher.binlog.sql.alteration import PlacedColumn, UnclearAlterationError
from dispatcher.binlog.sql.clauses import ColumnClause, Computed, DefinedColumn
from dispatcher.binlog.sql.data_types import TEXT_WORDS
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.model.errors import BinlogError
from spark_sink.mirror.schema.columns import ColumnSignature
from spark_sink.mirror.schema.session_facts import StatementFacts, UnknownFactError, ValueRules
from spark_sink.mirror.values.policies import is_omitted


@dataclass(frozen=True, slots=True)
class OmittedColumn:
    """A column of the server's table that the mirrored table does not have."""

    name: str


ServerColumn = ColumnSignature | OmittedColumn


@dataclass(slots=True)
class AlteredColumn:
    """A column after the statement. `before`: the column before the statement, None for an added column; `definition`:
    the column's definition in the statement, None if the statement changes only the column's name or the table's
    character set; `recomputed`: why the server computes all values of the column again, "" if it does not;
    `numbers_zeros`: True if AUTO_INCREMENT may replace zeros by new numbers."""

    after: ColumnSignature
    before: ColumnSignature | None = None
    definition: DefinedColumn | None = None
    recomputed: str = ""
    numbers_zeros: bool = False


@dataclass(frozen=True, slots=True)
class Alteration:
    """The columns after the statement.

    `columns`: the columns of the mirrored table in order; `key`: the primary key, by the new names; `order`: the names
    of all columns of the server's table in order; `redefined`: the old names of the columns that the statement defines
    anew, but that the mirrored table does not have after the statement.
    """

    columns: list[AlteredColumn]
    key: tuple[str, ...]
    order: tuple[str, ...]
    redefined: tuple[str, ...]


def alter(
    columns: Sequence[ServerColumn],
    key: Sequence[str],
    clauses: Sequence[ColumnClause],
    rules: ValueRules,
    omitted: Collection[str] = (),
) -> Alteration | str:
    """Returns the columns and the key after the statement, or why they are not known. `columns`: the columns of the
    server's table before the statement; `omitted`: names of columns that the policy leaves out."""
    try:
        placed = alteration.placed_columns([(column.name, column) for column in columns], clauses)
        altered = [
            _altered(column, rules) for column in placed if not is_omitted(column.name, omitted)
        ]
    except UnclearAlterationError as error:
        return f"the mirrored table {error}"
    except UnknownFactError as error:
        return str(error)
    except BinlogError as error:  # a type that the mirror does not know
        return error.what
    if any(column.converted == "binary" for column in placed):
        return "CONVERT TO CHARACTER SET binary"
    named = [(c.before.name if c.before is not None else None, c) for c in placed]
    new_key = alteration.altered_key(key, named, clauses)
    if lacking := [name for name in new_key if is_omitted(name, omitted)]:
        return f"omit_columns leaves out the column {lacking[0]}, which is now a part of the key"
    redefined = tuple(
        column.before.name
        for column in placed
        if column.before is not None
        and (column.definition is not None or column.converted is not None)
        and is_omitted(column.name, omitted)
    )
    return Alteration(altered, new_key, tuple(column.name for column in placed), redefined)


def _altered(placed: PlacedColumn[ServerColumn], rules: ValueRules) -> AlteredColumn:
    before, defined = placed.before, placed.definition
    if isinstance(before, OmittedColumn):
        raise UnclearAlterationError(
            f"has no values of the column {before.name}, now {placed.name}, because omit_columns left it out"
        )
    if defined is not None or placed.converted is not None:
        rules.facts.require_whole()
    if defined is not None:
        nullable = defined.nullable is not False and not placed.in_new_key
        after = ColumnSignature.of_definition(
            defined.name, defined.type, defined.charset, nullable, rules.invalid_dates
        )
        for label in after.column.labels:
            rules.facts.literal(label)
        column = AlteredColumn(after, before, defined)
        if before is not None:
            _set_computed(column, before, defined, rules.facts, in_key=placed.in_new_key)
        return column
    assert before is not None
    after = replace(before, name=placed.name, nullable=before.nullable and not placed.in_new_key)
    column = AlteredColumn(after, before)
    if placed.converted is not None and after.mysql_type.partition("(")[0] in TEXT_WORDS:
        # The place of the clause among others may be ignored: `signature.difference` compares no character sets.
        column.after = replace(after, charset=placed.converted)
        column.definition = DefinedColumn(
            after.name, after.mysql_type, placed.converted, after.nullable
        )
    return column


def _set_computed(
    column: AlteredColumn,
    before: ColumnSignature,
    defined: DefinedColumn,
    facts: StatementFacts,
    *,
    in_key: bool,
) -> None:
    """Record which values of a redefined column the server computes."""
    if defined.computed is Computed.GENERATED:
        column.recomputed = str(Computed.GENERATED)
    elif defined.computed is Computed.AUTO_INCREMENT:
        column.numbers_zeros = True
        column.after = replace(column.after, nullable=False)
    elif column.after.column.type == Type.TIMESTAMP2 and defined.nullable is None:
        try:
            facts.require_nullable_timestamps()
        except UnknownFactError as error:
            if before.nullable:
                # With explicit_defaults_for_timestamp=OFF the column becomes NOT NULL, and NULL becomes the present
                # time.
                column.recomputed = str(error)
            column.after = replace(column.after, nullable=before.nullable and not in_key)
