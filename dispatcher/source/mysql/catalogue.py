"""Reads from information_schema what the databases of consumers contain: tables, keys, foreign keys, generated columns.

The account sees only the tables on which it has a privilege. Only base tables count, because a binlog contains no rows
of views.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from dispatcher.binlog.sql.create_table import cascades_of
from dispatcher.binlog.sql.lexer import SqlTokens
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.model.names import folded_name
from dispatcher.model.subscription import TablePattern
from dispatcher.mysql.answers import ask, ask_one, identifier, text_value
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.server_facts import is_mariadb, server_version, version_numbers

_AT_ONCE = 500  # names in one statement


@dataclass(frozen=True, slots=True)
class Cascade:
    """A table whose foreign keys change its rows when other tables change. `actions`: for example ON DELETE CASCADE.
    `parents`: the tables to which the foreign keys refer."""

    child: TablePattern
    parents: tuple[TablePattern, ...]
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """`tables`: maps database and name to True if the table has a primary key or a UNIQUE key of NOT NULL columns.
    `cascades_are_logged`: True if the server logs what cascades change, as MySQL 9.6 and newer do. `left_out`: for each
    table, the generated columns that the server leaves out of row images, whatever binlog_row_image says."""

    tables: dict[TablePattern, bool]
    cascades: tuple[Cascade, ...]
    cascades_are_logged: bool
    left_out: dict[TablePattern, tuple[str, ...]] = field(default_factory=dict)

    def with_server_names(self, lower_case_table_names: int) -> Catalogue:
        """Returns the catalogue with the names by which the server identifies tables. If `lower_case_table_names` is 2,
        information_schema shows the names as they were typed."""

        def own(table: TablePattern) -> TablePattern:
            database, name = (folded_name(part, lower_case_table_names) for part in table)
            return database, name

        return replace(
            self,
            tables={own(table): has_key for table, has_key in self.tables.items()},
            cascades=tuple(
                Cascade(own(c.child), tuple(map(own, c.parents)), c.actions) for c in self.cascades
            ),
            left_out={own(table): columns for table, columns in self.left_out.items()},
        )


def read_catalogue(connection: Connection, databases: Collection[str]) -> Catalogue:
    """Return the catalogue of these databases. Raises BinlogError."""
    tables: dict[TablePattern, bool] = {}
    cascades: list[Cascade] = []
    left_out: dict[TablePattern, tuple[str, ...]] = {}
    leaves_out = _leaves_generated_out(server_version(connection))
    names = sorted(databases)
    for begin in range(0, len(names), _AT_ONCE):
        some = names[begin : begin + _AT_ONCE]
        tables |= _tables(connection, some)
        cascades += _cascades(connection, some)
        left_out |= _generated(connection, some) if leaves_out else {}
    return Catalogue(tables, tuple(cascades), _logs_cascades(connection), left_out)


def _tables(connection: Connection, databases: list[str]) -> dict[TablePattern, bool]:
    places = ", ".join(["%s"] * len(databases))
    found = ask(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
        f" WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA IN ({places})",
        lambda row: (text_value(row[0]), text_value(row[1])),
        databases,
    )
    keyed = ask(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.STATISTICS"
        f" WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA IN ({places})"
        " GROUP BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME HAVING sum(NULLABLE = 'YES') = 0",
        lambda row: (text_value(row[0]), text_value(row[1])),
        databases,
    )
    with_key = set(keyed)
    return {table: table in with_key for table in sorted(found)}


def _cascades(connection: Connection, databases: list[str]) -> list[Cascade]:
    """Return the cascades in the definitions (SHOW CREATE TABLE) of the tables with foreign keys. (MariaDB shows
    REFERENTIAL_CONSTRAINTS only to accounts that have more privileges than SELECT.)"""
    places = ", ".join(["%s"] * len(databases))
    rows = ask(
        connection,
        "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME"
        f" FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA IN ({places})"
        " AND REFERENCED_TABLE_NAME IS NOT NULL ORDER BY 1, 2, 3, 4",
        lambda row: tuple(map(text_value, row)),
        databases,
    )
    parents: dict[TablePattern, list[TablePattern]] = {}
    for database, table, parent_database, parent in rows:
        parents.setdefault((database, table), []).append((parent_database, parent))
    cascades = []
    for child, of in parents.items():
        query = f"SHOW CREATE TABLE {identifier(child[0])}.{identifier(child[1])}"
        definition = ask_one(connection, query, lambda row: text_value(row[1]))
        if actions := cascades_of(SqlTokens(LoggedStatement(definition))):
            cascades.append(Cascade(child, tuple(of), actions))
    return cascades


def _leaves_generated_out(version: str) -> bool:
    """True if the server may leave generated columns out of the images of UPDATE and DELETE. MariaDB 11.8.9 leaves
    these columns out, 10.11.18 does not. The versions between these two have not been tried."""
    return is_mariadb(version) and version_numbers(version) >= (11,)


def _generated(connection: Connection, databases: list[str]) -> dict[TablePattern, tuple[str, ...]]:
    """Return the generated columns by table, without those of system versioning (ROW START, ROW END), which the server
    logs."""
    places = ", ".join(["%s"] * len(databases))
    rows = ask(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS"
        f" WHERE TABLE_SCHEMA IN ({places}) AND GENERATION_EXPRESSION NOT IN ('ROW START', 'ROW END')"
        " ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION",
        lambda row: tuple(map(text_value, row)),
        databases,
    )
    found: dict[TablePattern, tuple[str, ...]] = {}
    for database, table, column in rows:
        found[database, table] = (*found.get((database, table), ()), column)
    return found


def _logs_cascades(connection: Connection) -> bool:
    """True if the server logs cascades. In MySQL 9.6 and newer, the SQL layer executes and logs cascades. But if
    innodb_native_foreign_keys is ON, InnoDB executes the cascades, and the server does not log them."""
    query = "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'"
    values = ask(connection, query, lambda row: text_value(row[1]))
    return [value.upper() for value in values] == ["OFF"]
