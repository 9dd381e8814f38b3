"""Finds the tables that a snapshot reads, by the options `table` and `tables`."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.model.subscription import TablePattern, is_pattern, literal
from spark_sink.source.options import SourceOptions


def selected_tables(options: SourceOptions) -> Sequence[TablePattern]:
    """Returns patterns of the tables that the options select."""
    if options.table is not None:
        database, table = options.table
        return [(literal(database), literal(table))]
    return options.tables or ()


def named_tables(options: SourceOptions) -> Sequence[tuple[str, str]]:
    """Returns the tables that the options name, without patterns."""
    if options.table is not None:
        return [options.table]
    return [pair for pair in options.tables or () if not any(map(is_pattern, pair))]
