"""The option `columns`: chooses the columns of a table that a stream has. Other columns are not decoded."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from dispatcher.model.subscription import NamePatterns, is_pattern
from spark_sink.source.options import ColumnPattern


class ColumnChoice:
    """Chooses columns by patterns. If no pattern concerns a table, the table keeps all its columns. Case is ignored in
    names of columns, as in MySQL."""

    def __init__(self, patterns: Sequence[ColumnPattern] | None) -> None:
        self._patterns = [
            (database, table, NamePatterns([column.casefold()]))
            for database, table, column in patterns or ()
        ]

    def choose(
        self, database: str, table: str, columns: Sequence[str], lower_case_table_names: int
    ) -> list[str]:
        """Returns the chosen columns of a table, in the table's order. `lower_case_table_names`: the setting of the
        table's server."""
        chosen = [
            of_column
            for of_database, of_table, of_column in self._patterns
            if NamePatterns([of_database], lower_case_table_names).match(database)
            and NamePatterns([of_table], lower_case_table_names).match(table)
        ]
        if not chosen:
            return list(columns)
        return [name for name in columns if any(each.match(name.casefold()) for each in chosen)]


def unknown_column(pattern: str, columns: Sequence[str]) -> str | None:
    """Returns None if the name or pattern fits a column; otherwise a text that names the most similar column."""
    if any(NamePatterns([pattern.casefold()]).match(name.casefold()) for name in columns):
        return None
    what = "fits no column" if is_pattern(pattern) else "is no column"
    by_name = {name.casefold(): name for name in columns}
    near = difflib.get_close_matches(pattern.casefold(), by_name, n=1)
    return f"{pattern!r} {what}" + (f", did you mean {by_name[near[0]]!r}?" if near else "")
