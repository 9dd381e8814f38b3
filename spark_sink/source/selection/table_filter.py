"""The option `tables`: selects changes by their table. Rows of other tables are not decoded. Runs on the executors."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.model.subscription import Subscription, TablePattern
from spark_sink.source.selection.touched import TouchedObjects


class TableFilter:
    """Selects tables by the same rules by which the daemon selects a consumer's tables: see
    `dispatcher.model.subscription`."""

    def __init__(self, tables: Sequence[TablePattern]) -> None:
        self._subscription = Subscription([database for database, _ in tables], tables)
        self._known: dict[tuple[str, str], bool] = {}

    def selects_table(self, database: str, table: str) -> bool:
        name = database, table
        if name not in self._known:
            self._known[name] = self._subscription.has_table(database, table)
        return self._known[name]

    def selects_statement(self, touched: TouchedObjects) -> bool:
        """True if a statement touches a selected table or the whole database of one, or could not be parsed."""
        if touched.tables is None or touched.databases is None:
            return True
        return any(self.selects_table(*name) for name in touched.tables) or any(
            self._subscription.has_database(database) for database in touched.databases
        )
