"""Reads the rows of a table in pages, each with a statement of its own, because the driver limits the size of an answer
(`mysql.driver`).

A row may contain positions of some MB. So the module reads the sizes of the next rows before it reads the rows.

All pages must show the same moment, so no other process may write the rows while they are read. So the caller must have
the lease, or must have locked the store, or must read all pages in one transaction whose statements see the same
moment. If another daemon takes the lease during the read, the term of this daemon is over, and this daemon does not use
the rows that it has read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dispatcher.state.statements import Statements

PAGE_BYTES = 4 << 20
_ROW_BYTES = 2048  # more than the driver counts for a row without its values
_SIZES = 10_000  # how many sizes are read at a time


def rows_in_pages(
    db: Statements, table: str, columns: str, key: str, *, client: str | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of all rows, or of a client's rows, in the order of `key`: the primary key, or the part of it
    after the client. `columns` has ", " between the names. Keys are texts if `key` is `name`, else positive
    numbers."""
    last: Any = "" if key == "name" else 0
    owner, values = ("", ()) if client is None else ("client = ? AND ", (client,))
    rest = f"FROM {table} WHERE {owner}{key} > ? ORDER BY {key} LIMIT"
    size = " + ".join(f"COALESCE(LENGTH({column}), 0)" for column in columns.split(", "))
    while True:
        sizes = [int(n) for (n,) in db.execute(f"SELECT {size} {rest} {_SIZES}", (*values, last))]
        for count in _pages(sizes):
            page = list(db.execute(f"SELECT {columns}, {key} {rest} {count}", (*values, last)))
            if not page:
                return
            yield from (tuple(row[:-1]) for row in page)
            last = page[-1][-1]
        if len(sizes) < _SIZES:
            return


def _pages(sizes: Sequence[int]) -> Iterator[int]:
    """Yield the number of rows of each page."""
    count = total = 0
    for size in sizes:
        total += size + _ROW_BYTES
        if count and total > PAGE_BYTES:
            yield count
            count, total = 0, size + _ROW_BYTES
        count += 1
    if count:
        yield count
