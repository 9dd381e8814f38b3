"""The option `tables`: selects changes by their table. Rows of other tables are not decoded. Runs on the executors."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.model.subscription import Subscription, TablePattern
from spark_sink.source.selection.touched import TouchedObjects


class TableFilter:
    """Selects tables by the same rules by which the daemon selects a consumer's tables: see
    `dispatcher.model.subscription`."""

    def __init__(self, tables: Sequence[TablePattern]) -> None:
        self._tables = tuple(tables)
        # One filter for each value of the server's lower_case_table_names, which the log contains.
        self._subscriptions: dict[int, Subscription] = {}
        self._known: dict[tuple[str, str, int], bool] = {}

    def _subscription(self, lower_case_table_names: int) -> Subscription:
        if lower_case_table_names not in self._subscriptions:
            databases = [database for database, _ in self._tables]
            self._subscriptions[lower_case_table_names] = Subscription(
                databases, self._tables, (), lower_case_table_names
            )
        return self._subscriptions[lower_case_table_names]

    def selects_table(self, database: str, table: str, lower_case_table_names: int) -> bool:
        """`lower_case_table_names`: the setting of the table's server."""
        key = database, table, lower_case_table_names
        if key not in self._known:
            subscription = self._subscription(lower_case_table_names)
            self._known[key] = subscription.has_table(database, table)
        return self._known[key]

    def selects_statement(self, touched: TouchedObjects, lower_case_table_names: int) -> bool:
        """True if a statement touches a selected table, or the whole database of a selected table, or could not be
        parsed."""
        if touched.tables is None or touched.databases is None:
            return True
        subscription = self._subscription(lower_case_table_names)
        return any(
            self.selects_table(*name, lower_case_table_names) for name in touched.tables
        ) or any(map(subscription.has_database, touched.databases))
