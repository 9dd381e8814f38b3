"""Lists the databases of a server, with their tables and sizes."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.model.subscription import SYSTEM_DATABASES
from dispatcher.mysql.answers import Row, ask, number_value, optional_text, text_value
from dispatcher.mysql.driver import Connection

_TABLES = """
SELECT s.SCHEMA_NAME, COUNT(t.TABLE_NAME), SUM(t.DATA_LENGTH + t.INDEX_LENGTH)
FROM information_schema.SCHEMATA s
LEFT JOIN information_schema.TABLES t ON t.TABLE_SCHEMA = s.SCHEMA_NAME AND t.TABLE_TYPE = 'BASE TABLE'
GROUP BY s.SCHEMA_NAME ORDER BY s.SCHEMA_NAME
"""


@dataclass(frozen=True, slots=True)
class DatabaseSize:
    """`tables`: the number of tables; `size`: the server's estimate of their rows and indexes, in bytes."""

    name: str
    tables: int
    size: int


def read_database_sizes(connection: Connection) -> list[DatabaseSize]:
    """Return the databases that the account sees, without the server's own. Raises BinlogError."""

    def size(row: Row) -> DatabaseSize:
        name, tables, size = row
        return DatabaseSize(
            text_value(name), number_value(tables), number_value(optional_text(size) or "0")
        )

    found = ask(connection, _TABLES, size)
    return [each for each in found if each.name not in SYSTEM_DATABASES]
