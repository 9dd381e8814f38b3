"""Asks a server, on the daemon's own connection, for the facts that the front reports to its clients. The calls block.

`read_picture` reads the facts from which the front answers most questions. `read_look_up` executes one statement that
the front has composed, for facts that the picture does not hold, such as the definition of a table.

Sources: MySQL manual, "SHOW VARIABLES Statement", "SHOW BINARY LOGS Statement"; field_types.h (type codes).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pymysql.constants import FIELD_TYPE

from dispatcher.model.errors import BinlogError
from dispatcher.model.server_picture import (
    GTID_VARIABLES,
    SHOWN_VARIABLES,
    Cell,
    Picture,
    ServerAnswer,
    TableColumn,
    Variable,
)
from dispatcher.mysql.answers import (
    Row,
    Value,
    ask,
    conversing,
    log_file,
    log_offset,
    not_understood,
    optional_text,
    text_value,
    where_of,
)
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.error_map import number_of
from dispatcher.mysql.server_facts import says_replica, server_version

_INTEGERS = frozenset(
    (
        FIELD_TYPE.TINY,
        FIELD_TYPE.SHORT,
        FIELD_TYPE.INT24,
        FIELD_TYPE.LONG,
        FIELD_TYPE.LONGLONG,
        FIELD_TYPE.YEAR,
    )
)
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_UNKNOWN_VARIABLE = 1193


def read_picture(connection: Connection, earlier: Picture | None = None) -> Picture:
    """Return what the front shows of the server. Raises `BinlogError`.

    The function reads the end of the log first, then the list of its files, then the variables. So the list contains
    the file in which the log ends, and gtid_executed contains all transactions before the end. `earlier`: the previous
    picture of the same server; if no variable has changed since then, the function does not execute the slow SHOW
    VARIABLES.
    """
    log = "BINARY LOG" if says_replica(server_version(connection)) else "MASTER"
    status = _log_table(connection, f"SHOW {log} STATUS")
    logs = _log_table(connection, "SHOW BINARY LOGS") if status.rows else ServerAnswer()
    variables = _changed(connection, earlier) if earlier is not None else None
    return Picture(_variables(connection) if variables is None else variables, logs, status)


def read_look_up(connection: Connection, statement: str) -> ServerAnswer:
    """Return the server's answer to a statement. Raises `BinlogError`, for which `error_map.number_of` returns the
    server's number."""
    with conversing(connection, statement), connection.cursor() as cursor:
        cursor.execute(statement)
        columns = tuple(
            TableColumn(str(column[0]), column[1] in _INTEGERS)
            for column in cursor.description or ()
        )
        rows = tuple(tuple(map(_text, row)) for row in cursor.fetchall())
    return ServerAnswer(columns, rows)


def _text(value: Value) -> Cell:
    # The value is `bytes` if the server declares its type as binary; then the bytes need not be UTF-8.
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _log_table(connection: Connection, statement: str) -> ServerAnswer:
    """Return a table whose rows begin with a file of the log and an offset in it."""
    table = read_look_up(connection, statement)
    try:
        for row in table.rows:
            log_file(row[0])
            log_offset(row[1])
    except (ValueError, LookupError) as error:
        raise not_understood(statement, str(error), where_of(connection)) from error
    return table


def _variables(connection: Connection) -> dict[str, Variable]:
    names = ", ".join(f"'{name}'" for name in sorted(SHOWN_VARIABLES))
    statement = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"
    shown = dict(ask(connection, statement, _shown))
    selected = _selected(connection, tuple(shown))
    return {name: _variable(name, shown[name], *selected[name]) for name in shown}


def _changed(connection: Connection, earlier: Picture) -> dict[str, Variable] | None:
    """Return the variables of an earlier picture, with the present GTIDs; None if a variable other than the GTIDs has
    changed."""
    try:
        selected = _selected(connection, tuple(earlier.variables))
    except BinlogError as error:
        if number_of(error) != _UNKNOWN_VARIABLE:
            raise
        return None  # the server's version has changed
    if any(
        selected[name][0] != variable.selected and name not in GTID_VARIABLES
        for name, variable in earlier.variables.items()
    ):
        return None
    return {
        name: _variable(name, variable.shown, *selected[name])
        for name, variable in earlier.variables.items()
    }


def _selected(connection: Connection, names: Sequence[str]) -> dict[str, tuple[Cell, bool]]:
    """Return for each variable its value in SELECT, and True if it is a whole number."""
    statement = "SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in names)
    table = read_look_up(connection, statement)
    if len(table.rows) != 1 or len(table.columns) != len(names):
        raise not_understood(statement, "another number of rows or columns", where_of(connection))
    for value, column in zip(table.rows[0], table.columns, strict=True):
        if column.integer and value is not None and not _INTEGER.fullmatch(value):
            raise not_understood(statement, f"{value!r} instead of a number", where_of(connection))
    return {
        name: (value, column.integer)
        for name, value, column in zip(names, table.rows[0], table.columns, strict=True)
    }


def _shown(row: Row) -> tuple[str, str]:
    name, value = row
    if (lower := text_value(name).lower()) not in SHOWN_VARIABLES:
        raise ValueError(f"variable {lower!r}, which was not asked for")
    return lower, optional_text(value) or ""


def _variable(name: str, shown: str, selected: Cell, integer: bool) -> Variable:
    if name in GTID_VARIABLES:
        # SHOW VARIABLES may have cut the value.
        return Variable(selected, selected or "")
    return Variable(selected, shown, integer)
