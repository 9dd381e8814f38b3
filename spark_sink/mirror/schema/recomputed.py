"""Finds which generated columns the server computes again when ALTER TABLE changes the columns from which they are
computed. Pure.

A generated column's value depends on the type of its source columns, not only on their values: `e + 0` on the order of
an ENUM's labels, `LENGTH(a)` on the character set, `CONCAT(a)` on the scale of a DECIMAL or on ZEROFILL. So if a
statement defines a source column anew, the mirror does not know the values of the generated column, unless the new
definition certainly has the same type as before. The log does not show which columns are generated: the mirror knows
them from the CREATE TABLE, or from the server's definition when it copies the table.
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.binlog.sql.clauses import (
    AddColumnClause,
    ChangeColumnClause,
    ColumnClause,
    Computed,
    DropColumnClause,
    RenameColumnClause,
)
from dispatcher.binlog.sql.data_types import TEXT_WORDS
from dispatcher.binlog.sql.generated import GeneratedColumn
from spark_sink.mirror.schema.alterations import AlteredColumn
from spark_sink.mirror.schema.columns import ColumnSignature

_DEFAULT = "default"  # the function DEFAULT(a)

Generated = tuple[GeneratedColumn, ...]
"""The generated columns of a table. In place of it, None means that they are not known."""


def recomputed(
    altered: Sequence[AlteredColumn], generated: Generated | None, redefined: Sequence[str] = ()
) -> str:
    """Returns why the server may compute values of generated columns again; "" if it does not. `generated`: the
    generated columns before the statement; `redefined`: the old names of the columns that the statement defines anew,
    but that the mirrored table does not have after the statement."""
    names = {column.before.name.lower() for column in altered if column.before is not None}
    defined = [column for column in altered if column.before and column.definition is not None]
    # The types of columns that the mirror leaves out are not known.
    is_new = {_name(column): _is_new_type(column) for column in defined} | dict.fromkeys(
        redefined, True
    )
    if generated is None:
        for name in (name for name, new in is_new.items() if new):
            return f"column {name} gets another type, and it is not known which columns are computed from it"
        return ""
    for name, new in is_new.items():
        for other in generated:
            # A column that the mirror leaves out, or that the statement drops, has no values in the mirror.
            if other.name.lower() not in names or not _depends(other, name):
                continue
            if new or _DEFAULT in (other.sources or ()):
                return f"the generated column {other.name} is computed again from column {name}"
    return ""


def _name(column: AlteredColumn) -> str:
    assert column.before is not None
    return column.before.name


def _depends(generated: GeneratedColumn, source: str) -> bool:
    if generated.sources is None or generated.name.lower() == source.lower():
        return True
    # Servers compare the names of columns by a collation in which `é` equals `e`.
    if not all(name.isascii() for name in (source, *generated.sources)):
        return True
    return source.lower() in generated.sources


def _is_new_type(column: AlteredColumn) -> bool:
    """False if the column certainly has the same type as before, with collation and ZEROFILL."""
    before, after = column.before, column.after
    assert before is not None
    return _whole_type(before) is None or _whole_type(before) != _whole_type(after)


def _whole_type(column: ColumnSignature) -> str | None:
    """Returns the column's type as text; None if the signature does not describe the type completely. A signature
    contains neither the collation of a text column nor ZEROFILL (ZEROFILL implies UNSIGNED)."""
    word = column.mysql_type.partition("(")[0]
    incomplete = word in TEXT_WORDS or column.mysql_type.endswith(" unsigned")
    return None if incomplete else column.mysql_type


def generated_after(
    generated: Generated | None, clauses: Sequence[ColumnClause]
) -> Generated | None:
    """Returns the generated columns after an ALTER TABLE. `generated`: those before the statement."""
    if generated is None:
        return None
    columns = {column.name.lower(): column for column in generated}
    after, renamed = dict(columns), dict[str, str]()
    for clause in clauses:
        match clause:
            case DropColumnClause(name=name):
                after.pop(name.lower(), None)
            case RenameColumnClause(old=old, new=new):
                renamed[old.lower()] = new
            case ChangeColumnClause(old=old, column=column):
                renamed[old.lower()] = column.name
                if column.computed is Computed.GENERATED:
                    after[old.lower()] = GeneratedColumn(old, None)
                else:
                    after.pop(old.lower(), None)
    kept = [_renamed(column, renamed) for column in after.values()]
    return (*kept, *(GeneratedColumn(name, None) for name in _added(clauses)))


def _added(clauses: Sequence[ColumnClause]) -> list[str]:
    return [
        clause.column.name
        for clause in clauses
        if isinstance(clause, AddColumnClause) and clause.column.computed is Computed.GENERATED
    ]


def _renamed(column: GeneratedColumn, names: dict[str, str]) -> GeneratedColumn:
    """`names`: the new names, by the old names in lower case."""
    sources = column.sources
    if sources is not None:
        sources = tuple(names.get(name, name).lower() for name in sources)
    return GeneratedColumn(names.get(column.name.lower(), column.name), sources)
