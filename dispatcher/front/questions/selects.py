"""Parses SELECT of variables and functions, and SELECT of columns of information_schema."""

from __future__ import annotations

from dispatcher.binlog.sql.lexer import NotUnderstoodError
from dispatcher.front.questions.question import ColumnName, Item, Question, Select, SelectSchema
from dispatcher.front.questions.reader import Reader
from dispatcher.front.questions.schema_views import VIEWS, SchemaView


def read_select(reader: Reader) -> Question:
    items = reader.items()
    if reader.accept("FROM"):
        return _of_schema(reader, items)
    if any(isinstance(item.expression, ColumnName) for item in items):
        raise NotUnderstoodError
    return Select(items, reader.limit())


def _of_schema(reader: Reader, items: tuple[Item, ...]) -> Question:
    database, name = reader.name()
    view = VIEWS.get(name.lower())
    if database.lower() != "information_schema" or view is None:
        raise NotUnderstoodError
    for item in items:
        if not isinstance(item.expression, ColumnName):
            raise NotUnderstoodError
        _check(view, item.expression.name)
    rows = reader.filter(like=False)
    for test in rows.where:
        _check(view, test.column)
    order = _order(reader, view) if reader.accept("ORDER", "BY") else ()
    return SelectSchema(name.lower(), items, rows, order)


def _order(reader: Reader, view: SchemaView) -> tuple[str, ...]:
    order = []
    while True:
        column = reader.next_name()
        _check(view, column)
        order.append(column)
        if not reader.accept(","):
            return tuple(order)


def _check(view: SchemaView, column: str) -> None:
    if column not in view.columns:
        raise NotUnderstoodError
