"""Answers the questions of clients. The answers come from the server's `Picture`, from the variables of the client's
connection, or from a look-up at the server.

The answers have the server's values, column names and error numbers, with these exceptions:

* Databases and tables that the consumer does not read do not exist.
* Only the variables of `SHOWN_VARIABLES` exist.
* Statements about the log are accepted in the syntax of all versions, independent of the server's version.
* The server's own replicas are not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatcher.front.questions import look_ups
from dispatcher.front.questions.answer import (
    Answer,
    LookUp,
    Ok,
    ResultSet,
    Who,
    of_table,
    result_set,
)
from dispatcher.front.questions.conditions import RowFilter
from dispatcher.front.questions.functions import Context, evaluate
from dispatcher.front.questions.question import (
    FunctionCall,
    Kill,
    Nothing,
    Question,
    Select,
    SelectSchema,
    SetVariables,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowGrants,
    ShowLogs,
    ShowLogStatus,
    ShowReplicas,
    ShowStatus,
    ShowTables,
    ShowVariables,
    ShowWarnings,
    SystemVariable,
    Use,
    UserVariable,
    Value,
    VariableSetting,
)
from dispatcher.front.questions.refusals import (
    answer_too_large,
    global_variable,
    unknown_database,
    unknown_thread,
    wrong_value,
)
from dispatcher.front.questions.variables import Variables
from dispatcher.model.server_picture import Picture, ServerAnswer

ROW_CHARACTERS_MAX = 64 << 20
MADE_CHARACTERS_MAX = 1 << 20
"""The most characters in a row, not counting the distinct values of system variables. With a short question, a client
can make only this part of a row long."""
_GTID_OF_PLACE = "binlog_gtid_pos"


def answer_to(question: Question, picture: Picture, variables: Variables, who: Who) -> Answer:
    """Return the answer. Raises `WireError` for a refusal. A SET or USE changes `variables`.

    If this function returns a `LookUp`, the caller asks the server, and gets the client's answer from the look-up's
    `result` or `refusal`. This function refuses every `Kill`, so the caller must first answer a `Kill` of one of the
    consumer's connections.
    """
    context = Context(picture, variables, who)
    if isinstance(question, Select):
        return _select(question, context)
    if isinstance(question, SetVariables):
        return _set(question, context)
    if isinstance(question, ShowVariables):
        return _show_variables(question, context)
    if isinstance(question, Nothing):
        return Ok()
    if isinstance(question, Kill):
        raise unknown_thread(question.connection_id)
    if isinstance(question, Use):
        return _use(question, context)
    return _of_log(question, context) or _of_schema(question, context)


def _of_log(question: Question, context: Context) -> Answer | None:
    picture, who = context.picture, context.who
    if isinstance(question, ShowLogStatus):
        return of_table(_own_databases(picture.status, context))
    if isinstance(question, ShowLogs):
        return of_table(picture.logs)
    if isinstance(question, ShowReplicas):
        return result_set(_columns_of_replicas(question, picture), ())
    if isinstance(question, ShowWarnings):
        return result_set(("Level", "Code", "Message"), ())
    if isinstance(question, ShowStatus):
        status = {"Ssl_cipher": who.tls_cipher, "Ssl_version": who.tls_version}
        return _named_values(status.items(), question.filter)
    if isinstance(question, ShowGrants):
        grant = f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {_account(who)}"
        return result_set((f"Grants for {who.user}@%",), ((grant,),))
    return None


def _of_schema(question: Question, context: Context) -> Answer:
    picture, who = context.picture, context.who
    if isinstance(question, ShowCreateTable):
        return look_ups.show_create_table(question, picture, who)
    if isinstance(question, ShowColumns):
        return look_ups.show_columns(question, picture, who)
    if isinstance(question, ShowDatabases):
        return look_ups.show_databases(question, picture, who)
    if isinstance(question, ShowTables):
        return look_ups.show_tables(question, picture, who)
    assert isinstance(question, SelectSchema)
    return look_ups.select_schema(question, picture, who)


def check_database(name: str, picture: Picture, who: Who) -> None:
    """Raise `WireError` 1049 if the connection may not use this database. The names "" and information_schema are
    allowed."""
    if not name or name.lower() == look_ups.INFORMATION_SCHEMA:
        return
    if not look_ups.reads_database(name, who, picture):
        raise unknown_database(name)


def _use(question: Use, context: Context) -> Ok:
    check_database(question.database, context.picture, context.who)
    context.variables.database = question.database
    return Ok()


# -- variables -------------------------------------------------------------------------------------------------


def _select(question: Select, context: Context) -> Answer:
    first = question.items[0].expression
    if (
        isinstance(first, FunctionCall)
        and first.function == _GTID_OF_PLACE
        and context.picture.mariadb
    ):
        return _gtid_of_place(question, first, context)
    row = tuple(evaluate(item.expression, context) for item in question.items)
    size, of_server = 0, set[str]()
    for item, value in zip(question.items, row, strict=True):
        if isinstance(value, str):
            size += len(value)
            if isinstance(item.expression, SystemVariable):
                of_server.add(value)
    made = size - sum(map(len, of_server))
    if size > ROW_CHARACTERS_MAX or made > MADE_CHARACTERS_MAX:
        raise answer_too_large()
    names = [item.name for item in question.items]
    columns = result_set(names, [row]).columns
    return ResultSet(columns, () if question.limit == 0 else (row,))


def _gtid_of_place(question: Select, call: FunctionCall, context: Context) -> Answer:
    """Answer MariaDB's binlog_gtid_pos, which returns the GTIDs before a place in the log, or NULL if the file does not
    exist."""
    values = [evaluate(argument, context) for argument in call.arguments]
    name = question.items[0].name
    files = [file for file, _ in context.picture.log_files]
    if len(values) != 2 or values[0] not in files or not isinstance(values[1], int):
        return result_set((name,), ((None,),))
    file = files[files.index(str(values[0]))]
    statement = f"SELECT {_GTID_OF_PLACE}({look_ups.hexadecimal(file)}, {max(values[1], 0)})"
    return LookUp(statement, lambda table: of_table(table, names=(name,)), context.who)


def _set(question: SetVariables, context: Context) -> Ok:
    """Set all variables of the statement, or none if one of them is refused. The new values are computed from the
    variables as they were before the statement."""
    values = [
        None if assignment.value is None else evaluate(assignment.value, context)
        for assignment in question.assignments
    ]
    changed = context.variables.copy()
    for assignment, value in zip(question.assignments, values, strict=True):
        _assign(assignment, value, changed, context.picture)
    context.variables.take(changed)
    return Ok()


def _assign(
    assignment: VariableSetting, value: Value, variables: Variables, picture: Picture
) -> None:
    target = assignment.target
    if isinstance(target, UserVariable):
        variables.set_user(target.name, value)
    elif isinstance(target, SystemVariable):
        if target.scope == "global":
            raise global_variable()
        if assignment.value is None:
            variables.reset_session(target.name, picture)
        else:
            variables.set_session(target.name, value, picture)
    elif isinstance(value, int):
        raise wrong_value("character_set_client", str(value))
    elif target == "names":
        variables.set_names(value, assignment.collation, picture)
    else:
        variables.set_charset(value, picture)


def _show_variables(question: ShowVariables, context: Context) -> ResultSet:
    picture, variables = context.picture, context.variables
    shown = []
    for name, of_server in picture.variables.items():
        variable = of_server
        if question.scope != "global":
            variable = variables.session(name, picture) or of_server
        shown.append((name, variable.shown))
    return _named_values(shown, question.filter)


def _named_values(values: Iterable[tuple[str, str]], wanted: RowFilter) -> ResultSet:
    rows = [
        (name, value)
        for name, value in values
        if wanted.matches({"variable_name": name, "value": value})
    ]
    return result_set(("Variable_name", "Value"), rows)


# -- the log ---------------------------------------------------------------------------------------------------


def _own_databases(status: ServerAnswer, context: Context) -> ServerAnswer:
    """Return the status of the log without the names of other consumers' databases."""
    names = [column.name.lower() for column in status.columns]

    def cell(name: str, value: str | None) -> str | None:
        if not name.startswith("binlog_") or not value:
            return value
        reads = look_ups.reads_database
        own = [each for each in value.split(",") if reads(each, context.who, context.picture)]
        return ",".join(own)

    rows = tuple(tuple(map(cell, names, row)) for row in status.rows)
    return ServerAnswer(status.columns, rows)


def _columns_of_replicas(question: ShowReplicas, picture: Picture) -> Sequence[str]:
    if not question.old:
        return "Server_Id", "Host", "Port", "Source_Id", "Replica_UUID"
    names = ("Server_id", "Host", "Port", "Master_id")
    return names if picture.mariadb else (*names, "Slave_UUID")


def _account(who: Who) -> str:
    return f"{look_ups.quoted(who.user)}@`%`"
