"""Finds the tables that a statement touches, for the columns `database`, `table` and `tables` of the statement's row.
Runs on the executors.

The daemon routes statements by the same analysis, `dispatcher.binlog.sql.statement`, with the same limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, parse_statement


@dataclass(frozen=True, slots=True)
class TouchedObjects:
    """`tables`: (database, table) of each table or view that the statement names, as `folded_name` spells them, in the
    statement's order; `databases`: the databases that the statement touches as a whole, or whose routines it touches.
    Both are None for a statement that could not be parsed, because it may touch anything. Both are also None if the log
    does not show whether the statement touched a table or a temporary table."""

    tables: tuple[tuple[str, str], ...] | None
    databases: tuple[str, ...] | None

    @classmethod
    def of(cls, statement: LoggedStatement) -> TouchedObjects:
        parsed = parse_statement(statement, ROUTING_BOUNDS)
        if not parsed.parsed or parsed.maybe_temporary:
            return cls(None, None)
        return cls(tuple(dict.fromkeys(parsed.tables)), parsed.databases)

    @property
    def database(self) -> str | None:
        """The database of everything that the statement touches; None if there are several or none."""
        names = {database for database, _ in self.tables or ()} | set(self.databases or ())
        return names.pop() if len(names) == 1 else None

    @property
    def table(self) -> str | None:
        """The table that the statement touches; None if there are several or none."""
        tables = self.tables or ()
        return tables[0][1] if len(tables) == 1 else None

    def columns(self) -> dict[str, Any]:
        """Returns the values of the columns `database`, `table` and `tables`."""
        tables = None
        if self.tables is not None:
            tables = [{"database": database, "table": table} for database, table in self.tables]
        return {"database": self.database, "table": self.table, "tables": tables}
