"""The columns by which the mirror finds the rows of a table: the key that the log of a real server shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.table_map.parse import TableMap
from tests.servers import Server
from tests.support.server_log import delivered_log, fresh_log

TABLES = {
    "by_primary": ("a INT NOT NULL UNIQUE, b INT PRIMARY KEY", ["b"]),
    "by_unique": (
        "a INT UNIQUE, b INT NOT NULL, c INT NOT NULL, UNIQUE (c, b), UNIQUE (b)",
        ["c", "b"],
    ),
    "by_none": ("a INT UNIQUE, b INT NOT NULL, INDEX (b)", []),
}


def keys(server: Server, log: str, database: str) -> dict[str, list[str]]:
    """Returns the key columns of each table in the log, of its newest rows."""
    found = {}
    for part in delivered.split_by_table(delivered_log(server, log)):
        if isinstance(part, delivered.TableSlice) and part.database == database:
            table_map = TableMap.parse(part.table_map)
            found[part.table] = [table_map.columns[i].name for i in table_map.key]
    return found


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_the_log_tells_the_primary_key_or_the_first_unique_one_without_nulls(
    kind: str, request: pytest.FixtureRequest, new_database: Callable[[Server], str]
) -> None:
    server: Server = request.getfixturevalue(kind)
    database, log = new_database(server), fresh_log(server)
    for name, (columns, _) in TABLES.items():
        server.execute(f"CREATE TABLE {name} ({columns})", database=database)
        values = ", ".join("1" for _ in columns.split(" INT")[1:])
        server.execute(f"INSERT INTO {name} VALUES ({values})", database=database)
    assert keys(server, log, database) == {name: key for name, (_, key) in TABLES.items()}
    server.execute("DROP INDEX c ON by_unique", "DROP INDEX b ON by_unique", database=database)
    server.execute("INSERT INTO by_unique VALUES (2, 1, 1)", database=database)
    assert keys(server, log, database)["by_unique"] == []


def test_the_log_tells_a_generated_invisible_primary_key(
    mysql97: Server, new_database: Callable[[Server], str]
) -> None:
    database, log = new_database(mysql97), fresh_log(mysql97)
    mysql97.execute(
        "SET SESSION sql_generate_invisible_primary_key = ON",
        "CREATE TABLE invisible (a INT)",
        "INSERT INTO invisible VALUES (1), (1)",
        database=database,
    )
    assert keys(mysql97, log, database) == {"invisible": ["my_row_id"]}
