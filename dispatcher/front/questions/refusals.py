"""The errors with which the front refuses a client's statement. They have the error numbers of a MySQL server.

Source: share/messages_to_clients.txt of MySQL; ER_NO_SUCH_TABLE and others are the same on MariaDB.
"""

from __future__ import annotations

from dispatcher.front.wire.errors import WireError
from dispatcher.model.printable import printable

_ONLY = (
    "binlog-dispatcher answers here only what replication clients ask; docs/front.md lists it, and everything else is"
    " for the MySQL server itself"
)
_QUOTED_MAX = 80


def _quoted(text: str) -> str:
    text = printable(" ".join(text[: _QUOTED_MAX * 2].split()))
    return text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}..."


def not_answered(sql: str) -> WireError:
    """The error for a statement that the front does not answer."""
    return WireError(1235, f"{_ONLY}: {_quoted(sql)}", "42000")


def change_refused(statement: str) -> WireError:
    """The error for a statement that changes something at a server."""
    return WireError(1290, f"{statement} is refused: {_ONLY}", "HY000")


def syntax_error(sql: str, at: int) -> WireError:
    """`at`: the offset in the statement where the syntax error is."""
    near = _quoted(sql[at:])
    return WireError(1064, f"You have an error in your SQL syntax near '{near}'; {_ONLY}", "42000")


def question_too_large(bytes_max: int) -> WireError:
    return WireError(
        1235, f"a question of more than {bytes_max} bytes is refused: {_ONLY}", "42000"
    )


def several_statements() -> WireError:
    return WireError(1064, f"several statements in one query are refused: {_ONLY}", "42000")


def empty_query() -> WireError:
    return WireError(1065, "Query was empty", "42000")


def invalid_characters() -> WireError:
    return WireError(1300, "Invalid utf8mb4 character string", "HY000")


def unknown_variable(name: str) -> WireError:
    return WireError(1193, f"Unknown system variable '{_quoted(name)}'", "HY000")


def variable_not_settable(name: str) -> WireError:
    return WireError(1238, f"Variable '{name}' is a read only variable", "HY000")


def global_variable() -> WireError:
    return WireError(
        1227,
        f"Access denied; you need the SUPER privilege to set global variables: {_ONLY}",
        "42000",
    )


def wrong_value(name: str, value: str | None) -> WireError:
    shown = "NULL" if value is None else _quoted(value)
    return WireError(1231, f"Variable '{name}' can't be set to the value of '{shown}'", "42000")


def too_many_variables() -> WireError:
    return WireError(1235, f"too many or too large variables in one connection; {_ONLY}", "42000")


def answer_too_large() -> WireError:
    return WireError(1235, f"the answer would be too large or take too long; {_ONLY}", "42000")


def unknown_thread(connection_id: int) -> WireError:
    return WireError(1094, f"Unknown thread id: {connection_id}", "HY000")


def unknown_function(name: str) -> WireError:
    return WireError(1305, f"FUNCTION {_quoted(name)} does not exist; {_ONLY}", "42000")


def wrong_arguments(name: str) -> WireError:
    return WireError(
        1582, f"Incorrect parameter count in the call to native function '{name}'", "42000"
    )


def malformed_gtids(why: str) -> WireError:
    return WireError(1772, f"Malformed GTID set specification: {why}", "HY000")


def no_database() -> WireError:
    return WireError(1046, "No database selected", "3D000")


def unknown_database(name: str) -> WireError:
    """The error for databases that the server does not have, and for databases that the consumer does not read."""
    return WireError(1049, f"Unknown database '{_quoted(name)}'", "42000")


def unknown_table(database: str, table: str) -> WireError:
    """The error for tables that the server does not have, and for tables that the consumer does not read."""
    return WireError(1146, f"Table '{_quoted(f'{database}.{table}')}' doesn't exist", "42S02")


def table_denied(user: str, host: str, table: str) -> WireError:
    """The error for tables that the consumer reads, but on which the daemon's own account at the server has no
    privilege."""
    return WireError(
        1142,
        f"SELECT command denied to user '{_quoted(user)}'@'{_quoted(host)}' for table '{_quoted(table)}'; grant SELECT,"
        " for a view also SHOW VIEW, to the account of binlog-dispatcher",
        "42000",
    )


def unknown_column() -> WireError:
    return WireError(1054, "the server's version lacks one of the columns", "42S22")


def server_refused(number: int) -> WireError:
    """`number`: the error number of the server, or 0 if the server has not answered."""
    why = f"refused this statement with error {number}" if number else "did not answer"
    return WireError(
        1105, f"the server {why}; the log of binlog-dispatcher has the details", "HY000"
    )
