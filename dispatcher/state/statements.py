"""The interface for the statements that the state store in a file and the state store in a database have in common.

These statements are SQL that SQLite, MySQL and MariaDB understand. `?` stands for a value; double quotes enclose names
that a server reserves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Rows(Protocol):
    """The answer to a statement. `rowcount`: how many rows it has changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


class Statements(Protocol):
    """A connection of sqlite3, or a session of a database server."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows: ...

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]], /) -> object: ...
