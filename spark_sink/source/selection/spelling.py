"""Finds tables that the options name in another spelling than the log. Runs on the executors.

A server with `lower_case_table_names=1` finds a table by any spelling, but writes lower case into its log. A stream
with `table=shop.Orders` would omit all rows of `shop.orders`, and acknowledge them. On a server with
`lower_case_table_names=0`, the two names are two tables. The daemon does not say which setting the server has. So if
the log has a name that differs only by case, this module asks the daemon for the table in a third spelling, which only
a server that ignores case finds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.subscription import is_pattern
from spark_sink.source.http.client import ConsumerClient
from spark_sink.source.http.endpoint import DaemonEndpoint
from spark_sink.source.options import SourceOptions

log = logging.getLogger("spark_sink.source")


def check_spelling(options: SourceOptions, database: str, table: str) -> None:
    """Raise `UserError` if the options name this table of the log in another spelling. Logs a warning if the two
    spellings are two tables, or if this is not known."""
    key = "tables" if options.table is None else "table"
    for name in named_tables(options):
        if name == (database, table) or folded(name) != folded((database, table)):
            continue
        given, logged = ".".join(name), f"{database}.{table}"
        if _is_same(options.address, options.consumer, database, table, name[1]):
            raise UserError(
                ErrorKind.SETTINGS,
                f"option {key!r} names {given}, but the server's log names this table {logged}: the server ignores the"
                " case of names (lower_case_table_names), the source does not",
                where=f"consumer {options.consumer}",
                remedy=f"write {logged} in the option {key}",
            )


def named_tables(options: SourceOptions) -> Sequence[tuple[str, str]]:
    """Returns the tables that the options name, without patterns."""
    if options.table is not None:
        return [options.table]
    return [pair for pair in options.tables or () if not any(map(is_pattern, pair))]


def folded(name: tuple[str, str]) -> tuple[str, str]:
    """Returns a table's name without the case of its letters."""
    return name[0].casefold(), name[1].casefold()


@lru_cache(maxsize=1024)
def _is_same(address: DaemonEndpoint, consumer: str, database: str, table: str, other: str) -> bool:
    """True if the server finds the table in a spelling that is neither `table` nor `other`. The answer is stored,
    because each slice may ask, and the daemon asks the server."""
    third = _third_spelling(table, other)
    is_same = third is not None and _is_found(address, consumer, f"{database}.{third}")
    if not is_same:
        log.warning(
            "consumer %s: rows of %s.%s are left out, because the options name %s (names are case-sensitive)",
            consumer,
            database,
            table,
            other,
        )
    return is_same


def _is_found(address: DaemonEndpoint, consumer: str, name: str) -> bool:
    client = ConsumerClient(address, consumer)
    try:
        client.table(name)
    except BinlogError as error:
        if error.kind is not ErrorKind.UNKNOWN_TABLE:
            raise
        return False
    finally:
        client.close()
    return True


def _third_spelling(table: str, other: str) -> str | None:
    """Returns the name with another case of one letter, which differs from both names; None if there is none. The end
    of the name is changed first, because a consumer's pattern rather contains its beginning."""
    for i in reversed(range(len(table))):
        name = table[:i] + table[i].swapcase() + table[i + 1 :]
        if name not in (table, other) and name.casefold() == table.casefold():
            return name
    return None
