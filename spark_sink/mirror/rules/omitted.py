"""Columns that a mirrored table leaves out by its policy: `omit_columns`. Pure.

MariaDB 11.8 does not write generated columns into the images of an UPDATE. The log does not show which columns are
generated, so the mirror cannot distinguish such an image from one that binlog_row_image has shortened. So a person has
to name these columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from dispatcher.binlog.table_map.column_types import Column
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import is_omitted

OmittedColumns = Callable[[TableName], Collection[str]]


def no_columns(_: TableName) -> Collection[str]:
    return ()


def kept_columns(
    columns: Sequence[Column], key: Sequence[int], omitted: Collection[str], label: str
) -> list[int]:
    """Returns the indices of the columns that the mirrored table has. `key`: indices of the key's columns; `omitted`:
    names, in upper or lower case, which may include columns that the table does not have; `label`: database.table.

    Raises `BinlogError` UNSUPPORTED_CHANGE if `omitted` names a column of the key, or all columns.
    """
    kept = [i for i, column in enumerate(columns) if not is_omitted(column.name, omitted)]
    if lacking := [columns[i].name for i in key if i not in kept]:
        raise _impossible(label, f"{lacking[0]}, which is a part of its key")
    if not kept:
        raise _impossible(label, "all its columns")
    return kept


def kept_table_map(table_map: TableMap, omitted: Collection[str]) -> TableMap:
    """Returns the TABLE_MAP without the columns of these names. Raises `BinlogError` as `kept_columns` does."""
    if not omitted:
        return table_map
    kept = kept_columns(table_map.columns, table_map.key, omitted, table_map.label)
    columns = tuple(table_map.columns[i] for i in kept)
    return replace(table_map, columns=columns, key=tuple(kept.index(i) for i in table_map.key))


def _impossible(label: str, what: str) -> BinlogError:
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"table {label} cannot leave out {what}",
        remedy=remedies.of_copy_again(
            label, "correct omit_columns of the table's policy in the settings and restart the job"
        ),
    )
