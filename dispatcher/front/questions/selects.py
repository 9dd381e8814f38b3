"""Parses SELECT of variables and functions, and SELECT of columns of information_schema."""

from __future__ import annotations

from dispatcher.binlog.sql.lexer import NotUnderstoodError
from dispatcher.front.questions.conditions import columns_of
from dispatcher.front.questions.question import ColumnName, Item, Question, Select, SelectSchema
from dispatcher.front.questions.reader import Reader
from dispatcher.front.questions.schema_views import VIEWS, SchemaView


def read_select(reader: Reader) -> Question:
    items = reader.items()
    if reader.accept("FROM") and not reader.accept("DUAL"):
        return _of_schema(reader, items)
    if any(isinstance(item.expression, ColumnName) for item in items):
        raise NotUnderstoodError
    return Select(items, reader.limit())


def _of_schema(reader: Reader, items: tuple[Item, ...]) -> Question:
    database, name = reader.name()
    view = VIEWS.get(name.lower())
    if database.lower() != "information_schema" or view is None:
        raise NotUnderstoodError
    _skip_alias(reader)
    for item in items:
        if not isinstance(item.expression, ColumnName):
            raise NotUnderstoodError
        _check(view, item.expression.name)
    rows = reader.filter(like=False)
    if rows.where is not None:
        for column in columns_of(rows.where):
            _check(view, column)
    order = _order(reader, view) if reader.accept("ORDER", "BY") else ()
    return SelectSchema(name.lower(), items, rows, order, reader.limit())


def _skip_alias(reader: Reader) -> None:
    """Consume the alias of the table. The alias is not used, because a SELECT has only one table and columns are
    identified by their unqualified names."""
    if reader.accept("AS"):
        reader.identifier()
    elif not any(reader.at(word) for word in ("WHERE", "ORDER", "LIMIT", ";")):
        token = reader.peek()
        if token is not None and token.kind in ("word", "quoted"):
            reader.advance()


def _order(reader: Reader, view: SchemaView) -> tuple[tuple[str, bool], ...]:
    order = []
    while True:
        column = reader.column()
        _check(view, column)
        order.append((column, reader.accept("DESC")))
        if not order[-1][1]:
            reader.accept("ASC")
        if not reader.accept(","):
            return tuple(order)


def _check(view: SchemaView, column: str) -> None:
    if column not in view.columns:
        raise NotUnderstoodError
