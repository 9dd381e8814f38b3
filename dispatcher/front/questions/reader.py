"""Reads the parts that questions share: constants, variables, calls, conditions, limits.

The front accepts only the forms that replication clients send. To bound the work, a statement may have at most
TOKENS_MAX tokens. Every function raises `NotUnderstoodError` for syntax that the front does not accept.
"""

from __future__ import annotations

import re

from dispatcher.binlog.sql.lexer import Bounds, Name, NotUnderstoodError, SqlToken, SqlTokens
from dispatcher.binlog.sql.logged import LoggedStatement, SessionFacts
from dispatcher.front.questions.conditions import PATTERN_MAX, LikePattern, OneOf, RowFilter
from dispatcher.front.questions.question import (
    ColumnName,
    Constant,
    Expression,
    FunctionCall,
    Item,
    Scope,
    SystemVariable,
    UserVariable,
)

TOKENS_MAX = 1000
_NUMBER = re.compile(r"[0-9]{1,20}\Z")
_SCOPES: dict[str, Scope] = {
    "SESSION": "session",
    "LOCAL": "session",
    "GLOBAL": "global",
}
# Words that end an item of SELECT. After an item, such a word is not an alias.
_AFTER_ITEM = frozenset(
    ("FROM", "LIMIT", "WHERE", "ORDER", "GROUP", "HAVING", "UNION", "INTO", "FOR")
)


class Reader(SqlTokens):
    """The tokens of one statement."""

    def __init__(self, sql: str, sql_mode: int, database: str) -> None:
        statement = LoggedStatement(sql, database, SessionFacts(sql_mode))
        super().__init__(statement, Bounds(len(sql) + 1, TOKENS_MAX))
        self._sql = sql

    def at_end(self) -> bool:
        return self.peek() is None

    def at_text(self) -> bool:
        token = self.peek()
        return token is not None and token.kind == "text"

    def identifier(self) -> str:
        """Consume a name, which may contain any character. If no server accepts the name, the answer to the question is
        that no such object exists."""
        token = self.advance()
        name = None if token is None else token.name
        if name is None:
            raise NotUnderstoodError
        return name

    def next_name(self) -> str:
        """Consume a name, and return it in lower case."""
        return self.identifier().lower()

    def number(self) -> int:
        """Consume a whole number."""
        token = self.advance()
        if token is None or not _NUMBER.match(token.text):
            raise NotUnderstoodError
        return int(token.text)

    def scope(self) -> Scope:
        """Consume GLOBAL, SESSION or LOCAL if it is the next token. Otherwise return ""."""
        for word, scope in _SCOPES.items():
            if self.accept(word):
                return scope
        return ""

    # -- expressions -----------------------------------------------------------------------------------------

    def expression(self) -> Expression:
        """Consume a constant, a variable, a call, or a column."""
        token = self.peek()
        if token is None:
            raise NotUnderstoodError
        if token.kind == "word" and self._next_is_bracket():
            self.advance()
            self.advance()
            return FunctionCall(token.text.lower(), self._arguments_of_call())
        return self._operand(token)

    def _operand(self, token: SqlToken | None) -> Expression:
        """Consume an expression that is not a call."""
        if token is None:
            raise NotUnderstoodError
        if self.accept("@"):
            return self._variable()
        if self.at_text():
            return Constant(self.text())
        if token.kind == "number":
            return Constant(self.number())
        if token.keyword == "NULL":
            self.advance()
            return Constant(None)
        return ColumnName(self.next_name())

    def _variable(self) -> Expression:
        if not self.accept("@"):
            return UserVariable(self.next_name())
        name = self.next_name()
        scope = _SCOPES.get(name.upper())
        if scope is not None:
            self.expect(".")
            return SystemVariable(scope, self.next_name())
        return SystemVariable("", name)

    def _next_is_bracket(self) -> bool:
        following = self.peek(1)
        return following is not None and following.text == "("

    def _arguments_of_call(self) -> tuple[Expression, ...]:
        if self.accept(")"):
            return ()
        arguments = [self._operand(self.peek())]
        while self.accept(","):
            arguments.append(self._operand(self.peek()))
        self.expect(")")
        return tuple(arguments)

    def items(self) -> tuple[Item, ...]:
        """Consume the items that SELECT returns."""
        items = [self._item()]
        while self.accept(","):
            items.append(self._item())
        return tuple(items)

    def _item(self) -> Item:
        first = self.peek()
        if first is None:
            raise NotUnderstoodError
        start = first.end - len(first.text)
        expression = self.expression()
        written = self._sql[start : self.offset]
        if first.kind == "text" and isinstance(expression, Constant):
            written = str(expression.value).lstrip()
        if self.accept("AS"):
            return Item(self._alias(), expression, alias=True)
        token = self.peek()
        if token is not None and (
            token.kind in ("text", "quoted")
            or (token.kind == "word" and token.keyword not in _AFTER_ITEM)
        ):
            return Item(self._alias(), expression, alias=True)
        return Item(written, expression)

    def _alias(self) -> str:
        return self.text() if self.at_text() else self.identifier()

    # -- conditions ------------------------------------------------------------------------------------------

    def filter(self, *, like: bool = True) -> RowFilter:
        """Consume LIKE or WHERE, if one of them is next. `like`: False if the statement allows no LIKE."""
        if like and self.accept("LIKE"):
            return RowFilter(like=self._pattern())
        if not self.accept("WHERE"):
            return RowFilter()
        tests = [self._test()]
        while self.accept("AND"):
            tests.append(self._test())
        return RowFilter(where=tuple(tests))

    def _test(self) -> OneOf:
        column = self.next_name()
        if self.accept("="):
            return OneOf.of(column, [self.text()])
        self.expect("IN")
        self.expect("(")
        values = [self.text()]
        while self.accept(","):
            values.append(self.text())
        self.expect(")")
        return OneOf.of(column, values)

    def _pattern(self) -> LikePattern:
        pattern = self.text()
        if len(pattern) > PATTERN_MAX:
            raise NotUnderstoodError
        return LikePattern(pattern)

    def limit(self) -> int | None:
        """Consume LIMIT, if it is the next token."""
        return self.number() if self.accept("LIMIT") else None

    # -- names -----------------------------------------------------------------------------------------------

    def table_from(self) -> Name:
        """Consume a table, and a following FROM or IN with the table's database, if there is one."""
        database, table = self.name()
        if self.accept_either("FROM", "IN"):
            database = self.identifier()
        return database, table

    def database_from(self) -> str:
        """Consume FROM or IN with a database, and return the database. Without FROM or IN, return the connection's
        default database."""
        return self.identifier() if self.accept_either("FROM", "IN") else self.default_database
