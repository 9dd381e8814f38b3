"""Handles the columns that a table's policy leaves out of the mirrored table (`omit_columns`) or masks (`mask`). Pure.

MariaDB 11.8 does not write generated columns into the images of an UPDATE. The log does not show which columns are
generated, so the mirror cannot distinguish such an image from an image that is incomplete because of
`binlog_row_image`. So a person has to name the generated columns in `omit_columns`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from dispatcher.binlog.table_map.column_rules import ColumnRules, hides_key
from dispatcher.binlog.table_map.column_types import Column
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.nearest import did_you_mean
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.schema.signature import Signature
from spark_sink.mirror.values.policies import TablePolicy, is_omitted


def kept_columns(
    columns: Sequence[Column], key: Sequence[int], omitted: Collection[str], label: str
) -> list[int]:
    """Returns the indices of the columns that the mirrored table has. `key`: indices of the key's columns; `omitted`:
    names of columns; case is ignored, and the table may lack some of these columns; `label`: database.table.

    Raises `BinlogError` UNSUPPORTED_CHANGE if `omitted` names a column of the key, or all columns.
    """
    kept = [i for i, column in enumerate(columns) if not is_omitted(column.name, omitted)]
    if lacking := [columns[i].name for i in key if i not in kept]:
        raise _impossible(label, f"{lacking[0]}, which is a part of its key")
    if not kept:
        raise _impossible(label, "all its columns")
    return kept


def kept_table_map(table_map: TableMap, policy: TablePolicy) -> TableMap:
    """Returns the TABLE_MAP with only the columns of the mirrored table, and with the rules for their values. Raises
    the `BinlogError` of `kept_columns` and of `ruled_columns`."""
    if policy.omitted:
        kept = kept_columns(table_map.columns, table_map.key, policy.omitted, table_map.label)
        columns = tuple(table_map.columns[i] for i in kept)
        key = tuple(kept.index(i) for i in table_map.key)
        table_map = replace(table_map, columns=columns, key=key)
    columns = ruled_columns(table_map.columns, table_map.key, policy.rules, table_map.label)
    return replace(table_map, columns=columns)


def ruled_columns(
    columns: Sequence[Column], key: Sequence[int], rules: ColumnRules, label: str
) -> tuple[Column, ...]:
    """Returns the columns with the rules for their values. Raises `BinlogError` UNSUPPORTED_CHANGE if a column of the
    key has a mask under which different keys become equal."""
    ruled = tuple(map(rules.column, columns))
    if name := hides_key(ruled, key):
        what = f"table {label} cannot mask {name}, which is a part of its key, except with keyed"
        raise BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE, what, remedy=remedies.of_copy_again(label, _CORRECT_MASK)
        )
    return ruled


def has_column(name: str, columns: Iterable[str]) -> bool:
    """True if one of the columns has this name. Case is ignored, as the policies ignore it."""
    return name.casefold() in {column.casefold() for column in columns}


def lacking_text(subject: str, key: str, name: str, columns: Iterable[str]) -> str:
    """Returns the text about a column that the settings name and that does not exist. `subject`: what lacks it, with
    the verb: "table shop.orders has no"; `key`: the key of the settings, `mask` or `omit_columns`; `columns`: those
    that exist."""
    what = "masked" if key == "mask" else "left out"
    remedy = did_you_mean(name, columns) or f"; correct it or remove it from {key}"
    return f"{subject} column {name}, so nothing is {what} by this name{remedy}"


def changed_masks(signature: str, policy: TablePolicy) -> list[str]:
    """Returns the columns whose values the mirrored table shows with another mask than the policy wants. `signature`:
    the table's; if it is "", the table's columns are not known, and the list is empty."""
    if not signature:
        return []
    columns = [(c, policy.rules.mask(c.name)) for c in Signature.from_json(signature).columns]
    return [c.name for c, mask in columns if c.mask != ("" if mask is None else str(mask))]


def shown_by_name(signature: str, before: TablePolicy, after: TablePolicy) -> list[str]:
    """Returns the columns of a renamed table that have a mask in `before`, the policy of the former name, but none in
    `after`, the policy of the new name. `signature`: the table's; if it is "", the table's columns are not known, and
    the list may name columns that the table lacks."""
    if signature:
        names = [column.name for column in Signature.from_json(signature).columns]
    else:
        names = [name for name, _ in before.masks]
    return [n for n in names if before.rules.mask(n) and not after.rules.mask(n)]


_CORRECT_MASK = "correct mask of the table's policy in the settings and restart the job"


def _impossible(label: str, what: str) -> BinlogError:
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"table {label} cannot leave out {what}",
        remedy=remedies.of_copy_again(
            label, "correct omit_columns of the table's policy in the settings and restart the job"
        ),
    )
