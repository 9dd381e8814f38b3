"""Composes the statements that the front sends to the server, and computes the clients' answers from the server's
answers.

A statement consists of constants, names of allowed columns and views, and names of databases and tables. This module
writes the name of a database or table as a hexadecimal constant or quotes it with backticks. Between backticks, only
the backtick has a special meaning, in every sql_mode. So a client's text cannot change the syntax of a statement. The
daemon's connection uses utf8mb4, and all names are valid UTF-8.

This module removes from the server's answer the rows of databases and tables that the consumer does not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.binlog.event.header import server_numbers
from dispatcher.binlog.sql.lexer import Name
from dispatcher.front.questions.answer import Answer, LookUp, ResultSet, Who, of_table
from dispatcher.front.questions.conditions import RowFilter
from dispatcher.front.questions.question import (
    ColumnName,
    Expression,
    SelectSchema,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowTables,
)
from dispatcher.front.questions.refusals import (
    answer_too_large,
    no_database,
    not_answered,
    unknown_database,
    unknown_table,
)
from dispatcher.front.questions.schema_views import VIEWS, SchemaView
from dispatcher.front.wire.result_set import AnswerColumn
from dispatcher.model.names import folded_name
from dispatcher.model.server_picture import Picture, ServerAnswer

INFORMATION_SCHEMA = "information_schema"
NAME_MAX = 64  # characters, the servers' limit
_NAMES_MAX = 100  # the most names of databases or tables in one statement
_UPPER_CASE_SINCE = (
    8,
)  # in this version of MySQL and newer ones, the column names of information_schema are in upper case


def quoted(name: str) -> str:
    """Return the name of a database or table as it is written in a statement."""
    return "`" + name.replace("`", "``") + "`"


def hexadecimal(text: str) -> str:
    """Return a text as it is written as a constant in a statement."""
    return f"_utf8mb4 x'{text.encode().hex()}'"


def is_name(text: str) -> bool:
    """True if a server can have a database or table of this name. Servers allow only characters of Unicode's first
    plane."""
    return (
        0 < len(text) <= NAME_MAX
        and min(text) > "\0"
        and max(text) < "\U00010000"
        and text[-1] != " "
    )


def reads_database(name: str, who: Who, picture: Picture) -> bool:
    """True if the consumer reads databases of this name. Does not check whether the database exists."""
    names = {name, folded_name(name, picture.lower_case_table_names)}
    return is_name(name) and any(map(who.reads.has_database, names))


def reads_table(database: str, table: str, who: Who, picture: Picture) -> bool:
    value = picture.lower_case_table_names
    names = {(database, table), (folded_name(database, value), folded_name(table, value))}
    return (
        is_name(database) and is_name(table) and any(who.reads.has_table(*each) for each in names)
    )


# -- tables ----------------------------------------------------------------------------------------------------


def _table_of(name: Name, who: Who, picture: Picture) -> str:
    """Return the table's name as it is written in a statement. Raises `WireError` if the consumer does not read the
    table."""
    database, table = name
    if not database:
        raise no_database()
    if not reads_table(database, table, who, picture):
        raise unknown_table(database, table)
    return f"{quoted(database)}.{quoted(table)}"


def show_create_table(asked: ShowCreateTable, picture: Picture, who: Who) -> LookUp:
    statement = f"SHOW CREATE TABLE {_table_of(asked.table, who, picture)}"
    return LookUp(statement, of_table, who, *asked.table)


def show_columns(asked: ShowColumns, picture: Picture, who: Who) -> LookUp:
    full = "FULL " if asked.full else ""
    statement = f"SHOW {full}COLUMNS FROM {_table_of(asked.table, who, picture)}"
    return LookUp(statement, of_table, who, *asked.table)


# -- databases and lists of tables -----------------------------------------------------------------------------


def show_databases(asked: ShowDatabases, picture: Picture, who: Who) -> LookUp:
    def result(table: ServerAnswer) -> ResultSet:
        rows = tuple(
            (name,)
            for name, *_ in table.rows
            if name is not None
            and (name.lower() == INFORMATION_SCHEMA or reads_database(name, who, picture))
            and asked.filter.matches({"database": name})
        )
        return ResultSet((AnswerColumn("Database" + _suffix(asked.filter)),), rows)

    return LookUp("SHOW DATABASES", result, who)


def show_tables(asked: ShowTables, picture: Picture, who: Who) -> Answer:
    database = asked.database
    if not database:
        raise no_database()
    names = [f"Tables_in_{database}{_suffix(asked.filter)}", "Table_type"]
    columns = tuple(AnswerColumn(name) for name in (names if asked.full else names[:1]))
    if database.lower() == INFORMATION_SCHEMA:
        return ResultSet(columns)
    if not reads_database(database, who, picture):
        raise unknown_database(database)

    def result(table: ServerAnswer) -> ResultSet:
        rows = []
        for name, kind, *_ in table.rows:
            row = {f"tables_in_{database}".lower(): name, "table_type": kind}
            is_read = name is not None and reads_table(database, name, who, picture)
            if is_read and asked.filter.matches(row):
                rows.append((name, kind) if asked.full else (name,))
        return ResultSet(columns, tuple(rows))

    return LookUp(f"SHOW FULL TABLES FROM {quoted(database)}", result, who, database)


def _suffix(wanted: RowFilter) -> str:
    return "" if wanted.like is None else f" ({wanted.like.text})"


# -- information_schema ----------------------------------------------------------------------------------------


def select_schema(asked: SelectSchema, picture: Picture, who: Who) -> Answer:
    view = VIEWS[asked.view]
    names = [item.name if item.alias else _server_name(item.name, picture) for item in asked.items]
    wanted = [_column(item.expression) for item in asked.items]
    selected = [*wanted, *view.owner, *dict.fromkeys(test.column for test in asked.filter.where)]
    conditions = _conditions(asked, view)
    if conditions is None:
        return ResultSet(tuple(map(AnswerColumn, names)))
    statement = (
        f"SELECT {', '.join(map(str.upper, selected))}"
        f" FROM {INFORMATION_SCHEMA}.{asked.view.upper()}"
        f"{' WHERE ' if conditions else ''}{' AND '.join(conditions)}{_order(asked)}"
    )

    def result(answer: ServerAnswer) -> ResultSet:
        lower = [column.name.lower() for column in answer.columns]
        rows = []
        for row in answer.rows:
            values = dict(zip(lower, row, strict=True))
            owner = [values.get(column) or "" for column in view.owner]
            if _reads_owner(owner, who, picture) and asked.filter.matches(values):
                rows.append(row)
        return of_table(ServerAnswer(answer.columns, tuple(rows)), range(len(wanted)), names)

    return LookUp(statement, result, who)


def _conditions(asked: SelectSchema, view: SchemaView) -> list[str] | None:
    """Return the conditions on databases and tables that the server evaluates, or None if no row can match. Raises
    `WireError`."""
    conditions = []
    for column in view.owner:
        given = asked.filter.required(column)
        if given is not None:
            known = [name for name in given if is_name(name)]
            if not known:
                return None
            if len(known) > _NAMES_MAX:
                raise answer_too_large()
            conditions.append(_equals(column, known))
        elif column == "table_schema":
            # Without this condition, the server would open the tables of all databases.
            raise not_answered(f"a question to {asked.view} without a condition on table_schema")
    return conditions


def _order(asked: SelectSchema) -> str:
    return f" ORDER BY {', '.join(map(str.upper, asked.order))}" if asked.order else ""


def _reads_owner(owner: Sequence[str], who: Who, picture: Picture) -> bool:
    """True if the consumer reads the database or table that `owner` names."""
    if len(owner) == 1:
        (database,) = owner
        is_schema = database.lower() == INFORMATION_SCHEMA
        return is_schema or reads_database(database, who, picture)
    database, table = owner
    return reads_table(database, table, who, picture)


def _column(expression: Expression) -> str:
    assert isinstance(expression, ColumnName), "the parser admits only columns"
    return expression.name


def _server_name(written: str, picture: Picture) -> str:
    """Return the name of a column in the server's answer. MySQL 8.0 and newer return the name in upper case. Other
    servers return it as the client has written it."""
    name = written.strip("`")
    version = server_numbers(picture.version)
    return name.upper() if not picture.mariadb and version >= _UPPER_CASE_SINCE else name


def _equals(column: str, values: Sequence[str]) -> str:
    constants = ", ".join(map(hexadecimal, values))
    name = column.upper()
    return f"{name} = {constants}" if len(values) == 1 else f"{name} IN ({constants})"
