"""The option `flat`: a table's columns at the top level of a typed stream, among the stream's own columns.

Each row has one image: the row after the change, or for a deletion the row before. Runs on the driver and the
executors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.subscription import NamePatterns

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_sink.source.options import SourceOptions

OWN_COLUMNS = (
    *("epoch", "seq", "ordinal", "gtid", "file", "pos", "committed_at", "database", "table", "op"),
    "absent",
)
"""The names of the stream's own columns, without the columns of `metadata` and without the prefix."""


def own_names(options: SourceOptions) -> set[str]:
    """Returns the names of the stream's own columns, including columns that the option `select` omits."""
    return {options.flat_prefix + name for name in (*OWN_COLUMNS, *options.metadata)}


def check_names(options: SourceOptions, columns: Sequence[str]) -> None:
    """Raise `UserError` if a column of the table has the same name as one of the stream's own columns, by Spark's rules
    for equal names."""
    own = {name.casefold() for name in own_names(options)}
    same = [name for name in columns if name.casefold() in own]
    if not same:
        return
    names = ", ".join(map(repr, same))
    raise UserError(
        ErrorKind.SETTINGS,
        f"source \"binlog\": option 'flat': columns of the table and columns of the stream itself have the same names:"
        f" {names} of {'.'.join(options.table or ())}",
        remedy="set the option flatPrefix, like __, which is put before the names of the stream's own columns; or"
        " leave the table's columns out with the option columns",
    )


def table_fields(options: SourceOptions, expected: pa.Schema) -> tuple[pa.Field, ...]:
    """Returns the columns of the table in the schema of a flat stream."""
    own = own_names(options)
    return tuple(field for field in expected if field.name not in own)


def selected_names(options: SourceOptions, columns: Sequence[str]) -> list[str]:
    """Returns the table's columns that the option `select` selects."""
    if options.select is None:
        return list(columns)
    patterns = NamePatterns(options.select)
    return [name for name in columns if patterns.match(name.lower())]
