"""Which changes the option `tables` selects. Rows of other tables are not decoded. Runs on the executors."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.binlog.decode.delivered import Ddl, TableSlice
from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, parse_statement
from dispatcher.model.subscription import Subscription, TablePattern


class TableFilter:
    """Selects by the rules by which the daemon selects a consumer's tables: see `dispatcher.model.subscription`."""

    def __init__(self, tables: Sequence[TablePattern]) -> None:
        self._subscription = Subscription([database for database, _ in tables], tables)
        self._known: dict[tuple[str, str], bool] = {}

    def selects(self, change: Ddl | TableSlice) -> bool:
        """True for rows of a selected table, and for statements that touch one, or its database as a whole."""
        if isinstance(change, Ddl):
            return self._selects_statement(change)
        return self._selects_table(change.database, change.table)

    def _selects_table(self, database: str, table: str) -> bool:
        name = database, table
        if name not in self._known:
            self._known[name] = self._subscription.has_table(database, table)
        return self._known[name]

    def _selects_statement(self, ddl: Ddl) -> bool:
        parsed = parse_statement(ddl.query, ddl.database, ddl.sql_mode, ROUTING_BOUNDS)
        if not parsed.parsed:
            return True  # it may touch any table
        return any(self._selects_table(*name) for name in parsed.tables) or any(
            self._subscription.has_database(database) for database in parsed.databases
        )
