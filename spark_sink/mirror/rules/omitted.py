"""Columns that a mirrored table leaves out by its policy: `omit_columns`. Pure.

MariaDB 11.8 does not write generated columns into the images of an UPDATE. The log does not show which columns are
generated, so the mirror cannot distinguish such an image from one that binlog_row_image has shortened. So a person has
to name these columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from dispatcher.binlog.table_map.column_types import Column
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.values.names import TableName

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
    names = {name.casefold() for name in omitted}
    kept = [i for i, column in enumerate(columns) if column.name.casefold() not in names]
    if lacking := [columns[i].name for i in key if i not in kept]:
        raise _impossible(label, f"{lacking[0]}, which is a part of its key")
    if not kept:
        raise _impossible(label, "all its columns")
    return kept


def _impossible(label: str, what: str) -> BinlogError:
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"table {label} cannot leave out {what}",
        remedy=remedies.of_copy_again(
            label, "correct omit_columns of the table's policy in the settings and restart the job"
        ),
    )
