"""Parses SET.

Source: MySQL manual, "SET Syntax for Variable Assignment", "SET NAMES Statement", "SET TRANSACTION Statement".
"""

from __future__ import annotations

from dispatcher.binlog.sql.lexer import NotUnderstoodError
from dispatcher.front.questions.question import (
    ColumnName,
    Constant,
    Expression,
    Question,
    Scope,
    SetVariables,
    SystemVariable,
    UserVariable,
    VariableSetting,
)
from dispatcher.front.questions.reader import Reader

_LEVELS = (
    ("REPEATABLE", "READ"),
    ("READ", "COMMITTED"),
    ("READ", "UNCOMMITTED"),
    ("SERIALIZABLE",),
)


def read_set(reader: Reader) -> Question:
    scope = reader.scope()
    if reader.accept("TRANSACTION"):
        return SetVariables(_transaction(reader, scope))
    assignments = [_assignment(reader, scope)]
    while reader.accept(","):
        assignments.append(_assignment(reader, reader.scope()))
    return SetVariables(tuple(assignments))


def _transaction(reader: Reader, scope: Scope) -> tuple[VariableSetting, ...]:
    """Parse SET [SESSION] TRANSACTION. Without SESSION, the statement applies only to the next transaction. The front
    has no transactions, so the statement then has no effect."""
    assignments = [_characteristic(reader, scope)]
    while reader.accept(","):
        assignments.append(_characteristic(reader, scope))
    return tuple(assignments) if scope else ()


def _characteristic(reader: Reader, scope: Scope) -> VariableSetting:
    if reader.accept("READ", "ONLY"):
        return VariableSetting(SystemVariable(scope, "transaction_read_only"), Constant(1))
    if reader.accept("READ", "WRITE"):
        return VariableSetting(SystemVariable(scope, "transaction_read_only"), Constant(0))
    reader.expect("ISOLATION", "LEVEL")
    for words in _LEVELS:
        if reader.accept(*words):
            level = Constant("-".join(words))
            return VariableSetting(SystemVariable(scope, "transaction_isolation"), level)
    raise NotUnderstoodError


def _assignment(reader: Reader, scope: Scope) -> VariableSetting:
    if not scope and reader.accept("NAMES"):
        value = _charset(reader)
        collation = _word(reader) if reader.accept("COLLATE") else ""
        return VariableSetting("names", value, collation)
    if not scope and (reader.accept("CHARSET") or reader.accept("CHARACTER", "SET")):
        return VariableSetting("charset", _charset(reader))
    at_variable = reader.at("@")
    target = reader.expression() if at_variable else SystemVariable(scope, reader.next_name())
    if not isinstance(target, SystemVariable | UserVariable):
        raise NotUnderstoodError
    reader.accept(":")
    reader.expect("=")
    return VariableSetting(target, _value(reader, target))


def _value(reader: Reader, target: SystemVariable | UserVariable) -> Expression | None:
    if isinstance(target, UserVariable):
        value = reader.expression()
        if isinstance(value, ColumnName):
            raise NotUnderstoodError
        return value
    if reader.accept("DEFAULT"):
        return None
    # `expression` reads a bare word, such as `on` or `utf8mb4`, as the name of a column.
    value = reader.expression()
    return Constant(value.name) if isinstance(value, ColumnName) else value


def _charset(reader: Reader) -> Expression | None:
    return None if reader.accept("DEFAULT") else Constant(_word(reader))


def _word(reader: Reader) -> str:
    return (reader.text() if reader.at_text() else reader.identifier()).lower()
