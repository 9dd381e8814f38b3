"""The signature of a mirrored table: the columns that its rows have now, and how statements change these columns. Pure.

The mirror stores each table's signature. `change_of` applies the clauses of an ALTER TABLE to the signature. Its result
shows from which old column each new column comes, or with which value the new column is filled. The TABLE_MAP of the
next rows must have the columns of the new signature; `difference` checks this.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from dispatcher.binlog.table_map.column_rules import UNCHANGED, ColumnRules
from dispatcher.binlog.table_map.column_types import Column, InvalidDates, MaskForm, Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.binlog.table_map.type_text import charset_text, type_text
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.schema.alterations import AlteredColumn, OmittedColumn, alter
from spark_sink.mirror.schema.columns import ColumnSignature, spark_type_of
from spark_sink.mirror.schema.conversions import COLUMN, Kept, conversion
from spark_sink.mirror.schema.fills import Fill, FillValue, existing_value
from spark_sink.mirror.schema.recomputed import Generated, recomputed
from spark_sink.mirror.schema.session_facts import StatementFacts, ValueRules
from spark_sink.mirror.schema.statements import AlterTable
from spark_sink.mirror.values.entries import append_of


@dataclass(frozen=True, slots=True)
class Signature:
    """The columns of a table in order. `key`: names of the primary key's columns, in its order; `order`: the names of
    all columns of the server's table in order, including those that the policy leaves out; () if the policy leaves out
    no column, or if the order is not known."""

    columns: tuple[ColumnSignature, ...]
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    @classmethod
    def of_table_map(cls, table_map: TableMap, invalid_dates: InvalidDates) -> Signature:
        """Raises `BinlogError` METADATA_MISSING or UNSUPPORTED_TYPE. The error's message names table and column."""
        table_map.require_names()
        table_map.require_kind()
        names = [table_map.columns[i].name for i in table_map.key]
        return cls.of_columns(table_map.columns, names, invalid_dates, table_map.label)

    @classmethod
    def of_columns(
        cls, columns: Sequence[Column], key: Sequence[str], invalid_dates: InvalidDates, label: str
    ) -> Signature:
        """`columns`: the columns of a TABLE_MAP, with sizes in bytes; `label`: the table's name for messages."""
        signatures = []
        for column in columns:
            spark_type = spark_type_of(column, invalid_dates, label)
            signatures.append(
                ColumnSignature(
                    column.name,
                    type_text(column),
                    charset_text(column),
                    column.nullable,
                    spark_type,
                    "" if column.mask is None else str(column.mask),
                )
            )
        return cls(tuple(signatures), tuple(key))

    def to_json(self) -> str:
        values = asdict(self)
        for column in values["columns"]:
            if not column["mask"]:
                del column["mask"]
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Signature:
        values = json.loads(text)
        columns = tuple(ColumnSignature(**column) for column in values["columns"])
        return cls(columns, tuple(values["key"]), tuple(values.get("order", ())))

    def in_order(self, names: Iterable[str]) -> Signature:
        """Returns the signature of a table whose columns on the server have these names, in this order."""
        order = tuple(names)
        return replace(self, order=order if len(order) > len(self.columns) else ())

    @property
    def all_columns(self) -> list[ColumnSignature | OmittedColumn]:
        """The columns of the server's table in order; if the order is not known, only the columns of the mirrored
        table."""
        mirrored = {column.name: column for column in self.columns}
        return [mirrored.get(name, OmittedColumn(name)) for name in self.order or mirrored]

    def find(self, name: str) -> ColumnSignature | None:
        """Returns the column with this name, compared without regard to case, as the servers do."""
        matching = (column for column in self.columns if column.name.lower() == name.lower())
        return next(matching, None)


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """How the values of a column of the mirrored table are computed from the table before the change. `source`: the old
    column, None for a new column; `fill`: the value of a new column in existing rows; `spark_type_before`: the old
    column's type, "" for a new column."""

    name: str
    spark_type: str
    source: str | None
    fill: FillValue = None
    spark_type_before: str = ""


@dataclass(frozen=True, slots=True)
class Unless:
    """If `predicate` (Spark SQL over the columns before the change) is true for a row, the row cannot follow the
    change, for this reason."""

    predicate: str
    reason: str


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The change that a statement makes to a mirrored table. `signature`: the table's signature after the change;
    `columns`: one source for each column of `signature`, in its order; `dropped`: columns that the change removes;
    `kept`: (old name, new name) of columns that stay in the Delta table although `signature` lacks them; `unless`:
    conditions under which an existing row cannot follow the change."""

    signature: Signature
    columns: tuple[ColumnSource, ...]
    dropped: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    unless: tuple[Unless, ...] = ()

    @property
    def summary(self) -> str:
        """The change as a text: "note added, email renamed to mail, id bigint (was int), card dropped"."""
        parts = []
        for column in self.columns:
            if column.source is None:
                parts.append(f"{column.name} added")
                continue
            if column.source != column.name:
                parts.append(f"{column.source} renamed to {column.name}")
            if column.spark_type != column.spark_type_before:
                parts.append(f"{column.name} {column.spark_type} (was {column.spark_type_before})")
        parts += [f"{name} dropped" for name in self.dropped]
        parts += [f"{old} kept as {new}" for old, new in self.kept]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Recopy:
    """The table needs a copy: the statement changes existing rows in a way that the statement does not show. `reason`:
    a text with the clause or column, and why; `others`: True if columns change that the statement does not define, so
    that it is not enough to replace the defined columns by new ones."""

    reason: str
    others: bool = False


class _RecopyError(Exception):
    """The message is the reason of a `Recopy`."""


def change_of(
    old: Signature,
    statement: AlterTable,
    invalid_dates: InvalidDates,
    generated: Generated | None,
    omitted: Collection[str] = (),
    column_rules: ColumnRules = UNCHANGED,
) -> SchemaChange | Recopy:
    """Returns how the mirrored table with the signature `old` follows an ALTER TABLE. `generated`: the table's
    generated columns before the statement; `omitted`: names of columns that the policy leaves out; `column_rules`:
    the masks of columns.

    Raises `BinlogError` UNSUPPORTED_CHANGE if a masked column gets a name without a mask.
    """
    if statement.copy_reason:
        return Recopy(statement.copy_reason)
    rules = ValueRules(StatementFacts(statement.facts, statement.ignore), invalid_dates)
    alteration = alter(old.all_columns, old.key, statement.clauses, rules, omitted)
    if isinstance(alteration, str):
        return Recopy(alteration)
    altered = alteration.columns
    try:
        for column in altered:
            mask = column_rules.mask(column.after.name)
            column.after = column.after.with_mask(mask, invalid_dates)
    except BinlogError as error:  # a type that cannot be masked
        return Recopy(error.what)
    if reason := _other_mask(altered):
        return Recopy(reason, others=True)
    unless: list[Unless] = []
    try:
        sources = tuple(_source(column, rules, unless) for column in altered)
    except _RecopyError as error:
        return Recopy(str(error))
    if reason := recomputed(altered, generated, alteration.redefined):
        return Recopy(reason, others=True)
    used = {column.before.name for column in altered if column.before is not None}
    dropped = tuple(column.name for column in old.columns if column.name not in used)
    signature = Signature(tuple(column.after for column in altered), alteration.key)
    signature = signature.in_order(alteration.order)
    return SchemaChange(signature, sources, dropped, unless=tuple(unless))


def _source(column: AlteredColumn, rules: ValueRules, unless: list[Unless]) -> ColumnSource:
    before, after = column.before, column.after
    if before is None:
        assert column.definition is not None
        fill = existing_value(column.definition, after.column, rules)
        if not isinstance(fill, Fill):
            raise _RecopyError(f"ADD COLUMN {after.name}: {fill}")
        value = None if after.mask == MaskForm.NULL else fill.value
        if after.mask and value is not None:
            raise _RecopyError(f"ADD COLUMN {after.name}: its values are masked")
        return ColumnSource(after.name, after.spark_type, None, value)
    if column.definition is not None:
        reason = column.recomputed or _converted(before, column, rules, unless)
        if reason:
            was = before.name if before.name == after.name else f"{before.name}, now {after.name}"
            types = f"{before.mysql_type} becomes {after.mysql_type}"
            raise _RecopyError(f"column {was}: {types}: {reason}")
    is_timestamp = after.column.type == Type.TIMESTAMP2
    if before.nullable and not after.nullable and (is_timestamp or not rules.facts.strict):
        # A server that is not strict replaces NULL by the implicit default of the type. MariaDB, even if it is strict,
        # replaces NULL in a TIMESTAMP by the present time.
        unless.append(_unless(before, f"{COLUMN} IS NULL", "a value is NULL"))
    return ColumnSource(
        after.name, after.spark_type, before.name, spark_type_before=before.spark_type
    )


def _converted(
    before: ColumnSignature, column: AlteredColumn, rules: ValueRules, unless: list[Unless]
) -> str:
    """Returns why the values of a column cannot follow the change; "" if they can. Adds to `unless` the conditions
    under which a row cannot follow the change."""
    after = column.after
    if after.mysql_type != before.mysql_type and after.mysql_type.startswith(("float(", "double(")):
        return "the values are rounded to the decimals of the type"
    kept = conversion(before.column, after.column, rules)
    if not isinstance(kept, Kept):
        return kept
    predicates = [*kept.unless]
    if before.mask and (predicates or column.numbers_zeros or not _is_same_type(before, after)):
        return "its values are masked"
    if column.numbers_zeros:
        predicates.append((f"{COLUMN} = 0 OR {COLUMN} IS NULL", "AUTO_INCREMENT gives 0 a number"))
    unless += [_unless(before, predicate, why) for predicate, why in predicates]
    return ""


def _other_mask(altered: Sequence[AlteredColumn]) -> str:
    """Returns a text that names a column which gets another mask; "" if there is none. Raises `BinlogError`
    UNSUPPORTED_CHANGE if a statement gives a masked column a name without a mask: only a person may decide to show its
    values."""
    for column in altered:
        before, after = column.before, column.after
        if before is None or before.mask == after.mask:
            continue
        if after.mask or before.name == after.name:
            return f"the mask of column {after.name} has changed"
        raise BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"the masked column {before.name} is now {after.name}, which is not masked",
            remedy="name the column in mask of the table's policy in the settings as it is named now, and restart the"
            " job",
        )
    return ""


def _is_same_type(before: ColumnSignature, after: ColumnSignature) -> bool:
    """True if both columns have the same type without their masks."""
    dates = InvalidDates.NULL
    return spark_type_of(before.column, dates) == spark_type_of(after.column, dates)


def _unless(before: ColumnSignature, predicate: str, why: str) -> Unless:
    return Unless(predicate.format(c=_spark_name(before.name)), f"column {before.name}: {why}")


def _spark_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def kept_name(name: str, lsn: int) -> str:
    """Returns the name that the policy `new_column` gives to an old column, so that a new column can have the old name.
    `lsn`: the number of the ALTER TABLE in the mirror's log."""
    return f"{name}__{lsn}"


def is_kept_column(name: str) -> bool:
    """True if `kept_name` may have returned the name."""
    lsn = name.rpartition("__")[2]
    return lsn.isdecimal() and append_of(int(lsn)) > 0


def new_columns(old: Signature, new: Signature, lsn: int) -> SchemaChange:
    """Returns the change for the policy `new_column`: a column whose values cannot follow the statement is renamed to
    `<name>__<lsn>`, and a new column, which is NULL in existing rows, gets the name `<name>`. `new`: the signature from
    the TABLE_MAP of the next rows."""
    sources, kept = [], {column.name: kept_name(column.name, lsn) for column in old.columns}
    for column in new.columns:
        before = old.find(column.name)
        if before is not None and _stored(before) == _stored(column):
            del kept[before.name]
            sources.append(
                ColumnSource(
                    column.name, column.spark_type, before.name, spark_type_before=before.spark_type
                )
            )
        else:
            sources.append(ColumnSource(column.name, column.spark_type, None))
    return SchemaChange(new, tuple(sources), kept=tuple(kept.items()))


def difference(signature: Signature, table_map: TableMap, invalid_dates: InvalidDates) -> str:
    """Returns a text that says how the columns of a TABLE_MAP differ from the signature; "" if they do not differ.

    Lengths, character sets and NULL are not compared, since no mirrored value depends on them.
    """
    actual = Signature.of_table_map(table_map, invalid_dates)
    expected_names = [column.name for column in signature.columns]
    names = [column.name for column in actual.columns]
    if sorted(expected_names) != sorted(names):
        missing = [name for name in expected_names if name not in names]
        more = [name for name in names if name not in expected_names]
        parts = [f"no column {name!r}" for name in missing] + [
            f"a column {name!r}" for name in more
        ]
        return "the log has " + ", ".join(parts)
    if expected_names != names:
        return f"the log has the columns in the order {', '.join(names)}"
    changed = [
        f"column {before.name!r} is {_described(before)} in the mirror and {_described(after)} in the log"
        for before, after in zip(signature.columns, actual.columns, strict=True)
        if _stored(before) != _stored(after)
    ]
    return "; ".join(changed)


def _described(column: ColumnSignature) -> str:
    return f"{column.mysql_type}, masked by {column.mask}," if column.mask else column.mysql_type


def _stored(column: ColumnSignature) -> tuple[str, int, tuple[str, ...], str]:
    """Returns the properties of a column on which its mirrored values depend. JSON is text, as in MariaDB."""
    mysql_column = column.column
    kind = mysql_column.type
    if kind in (Type.STRING, Type.VARCHAR, Type.JSON):
        kind = Type.BLOB
    elif kind in (Type.TINY, Type.SHORT, Type.INT24, Type.LONG):
        kind = Type.LONGLONG
    return column.spark_type, kind, mysql_column.labels, column.mask
