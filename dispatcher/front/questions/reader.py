"""Reads the parts that questions share: constants, variables, calls, conditions, limits.

To bound the work, a statement may have at most TOKENS_MAX tokens and DEPTH_MAX nested brackets. Every function raises
`NotUnderstoodError` for syntax that the front does not accept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from dispatcher.binlog.sql.lexer import Bounds, Name, NotUnderstoodError, SqlToken, SqlTokens
from dispatcher.binlog.sql.logged import LoggedStatement, SessionFacts
from dispatcher.front.questions.conditions import (
    PATTERN_MAX,
    AllOf,
    AnyOf,
    Condition,
    Like,
    LikePattern,
    OneOf,
    RowFilter,
)
from dispatcher.front.questions.question import (
    ColumnName,
    Constant,
    Expression,
    FunctionCall,
    Item,
    Limit,
    Scope,
    SystemVariable,
    UserVariable,
    Value,
)

T = TypeVar("T")

TOKENS_MAX = 4000
DEPTH_MAX = 16
TESTS_MAX = 200  # the most tests in a condition; each test is evaluated for each row
_NUMBER = re.compile(r"[0-9]{1,20}\Z")
_DECIMAL = re.compile(r"([0-9]{1,20})(?:\.([0-9]{0,20}))?\Z")
_SCOPES: dict[str, Scope] = {
    "SESSION": "session",
    "LOCAL": "session",
    "GLOBAL": "global",
}
# Functions that may be written without brackets.
_BARE_FUNCTIONS = frozenset(("CURRENT_USER",))
_WORDS: dict[str, Value] = {"NULL": None, "TRUE": 1, "FALSE": 0}
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
        self._depth = 0
        self._tests = 0

    def at_end(self) -> bool:
        return self.peek() is None

    def at_text(self) -> bool:
        token = self.peek()
        return token is not None and token.kind == "text"

    def identifier(self) -> str:
        """Consume a name, which may contain any character: a question about a name that no server accepts has the
        answer that no such object exists."""
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
        if self.accept("@"):
            return self._variable()
        if self.accept("("):
            inner = self._nested(self.expression)
            self.expect(")")
            return inner
        if self.at_text():
            return Constant(self.text())
        if self.accept("-"):
            return _negative(self._number())
        token = self.peek()
        if token is None:
            raise NotUnderstoodError
        if token.kind == "number":
            return Constant(self._number())
        return self._named(token)

    def _variable(self) -> Expression:
        if not self.accept("@"):
            token = self.peek()
            # The name of a user variable may be written as a quoted text.
            name = self.text() if token is not None and token.kind == "text" else self._dotted()
            return UserVariable(name.lower())
        name = self.next_name()
        scope = _SCOPES.get(name.upper())
        if scope is not None:
            self.expect(".")
            return SystemVariable(scope, self.next_name())
        return SystemVariable("", name)

    def _dotted(self) -> str:
        name = self.identifier()
        while self.accept("."):
            name += "." + self.identifier()
        return name

    def _number(self) -> Value:
        """Consume a number. Return an integer, or the text of a number with a fraction."""
        token = self.advance()
        if token is None or not (match := _DECIMAL.match(token.text)):
            raise NotUnderstoodError
        whole = int(match[1])
        return whole if match[2] is None else f"{whole}.{match[2]}"

    def _named(self, token: SqlToken) -> Expression:
        """Consume a constant, a call, or a column."""
        word = token.text.upper() if token.kind == "word" else ""
        if word and self._next_is_bracket():
            self.advance()
            self.advance()
            return FunctionCall(token.text.lower(), self._nested(self._arguments_of_call))
        if word in _WORDS or word in _BARE_FUNCTIONS:
            self.advance()
            return Constant(_WORDS[word]) if word in _WORDS else FunctionCall(word.lower())
        return ColumnName(self.column())

    def _next_is_bracket(self) -> bool:
        following = self.peek(1)
        return following is not None and following.text == "("

    def _arguments_of_call(self) -> tuple[Expression, ...]:
        if self.accept(")"):
            return ()
        arguments = [self.expression()]
        while self.accept(","):
            arguments.append(self.expression())
        self.expect(")")
        return tuple(arguments)

    def column(self) -> str:
        """Consume the name of a column, which may be qualified. Return the unqualified name in lower case."""
        name = self.next_name()
        while self.accept("."):
            name = self.next_name()
        return name

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
        brackets = self._brackets()
        expression = self.expression()
        # In a column's name, a server leaves out the brackets around the whole expression.
        written = self._sql[start : self.offset]
        for _ in range(brackets):
            written = written[1:-1].strip()
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

    def _brackets(self) -> int:
        """Return how many opening brackets come next."""
        count = 0
        while (token := self.peek(count)) is not None and token.text == "(":
            count += 1
        return count

    def _alias(self) -> str:
        return self.text() if self.at_text() else self.identifier()

    # -- conditions ------------------------------------------------------------------------------------------

    def filter(self, *, like: bool = True) -> RowFilter:
        """Consume LIKE or WHERE, if one of them is next. `like`: False if the statement allows no LIKE."""
        if like and self.accept("LIKE"):
            return RowFilter(like=self._pattern())
        if self.accept("WHERE"):
            return RowFilter(where=self._any())
        return RowFilter()

    def _any(self) -> Condition:
        parts = [self._all()]
        while self.accept("OR"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all(self) -> Condition:
        parts = [self._test()]
        while self.accept("AND"):
            parts.append(self._test())
        flat = [
            each for part in parts for each in (part.parts if isinstance(part, AllOf) else (part,))
        ]
        return flat[0] if len(flat) == 1 else AllOf(tuple(flat))

    def _test(self) -> Condition:
        if self.accept("("):
            condition = self._nested(self._any)
            self.expect(")")
            return condition
        self._tests += 1
        if self._tests > TESTS_MAX:
            raise NotUnderstoodError
        column = self.column()
        if self.accept("="):
            return _one_of(column, [self._compared()])
        if self.accept("<", ">") or self.accept("!", "="):
            return _one_of(column, [self._compared()], negated=True)
        negated = self.accept("NOT")
        if self.accept("LIKE"):
            return Like(column, self._pattern(), negated)
        self.expect("IN")
        self.expect("(")
        values = [self._compared()]
        while self.accept(","):
            values.append(self._compared())
        self.expect(")")
        return _one_of(column, values, negated=negated)

    def _pattern(self) -> LikePattern:
        value = self._compared()
        if len(value) > PATTERN_MAX:
            raise NotUnderstoodError
        return LikePattern(value)

    def _compared(self) -> str:
        """Consume a value that a condition compares with a column. Return it as text."""
        expression = self.expression()
        if isinstance(expression, FunctionCall) and expression.function in ("database", "schema"):
            return self.default_database
        if not isinstance(expression, Constant) or expression.value is None:
            raise NotUnderstoodError
        return str(expression.value)

    def limit(self) -> Limit:
        """Consume LIMIT, if it is the next token."""
        if not self.accept("LIMIT"):
            return Limit()
        first = self.number()
        if self.accept(","):
            return Limit(self.number(), first)
        return Limit(first, self.number() if self.accept("OFFSET") else 0)

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

    def _nested(self, read: Callable[[], T]) -> T:
        """Call `read` for the text inside a bracket."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise NotUnderstoodError
        result = read()
        self._depth -= 1
        return result


def _negative(value: Value) -> Constant:
    return Constant(-value if isinstance(value, int) else f"-{value}")


def _one_of(column: str, values: Sequence[str], *, negated: bool = False) -> OneOf:
    given = tuple(dict.fromkeys(values))
    return OneOf(column, frozenset(value.casefold() for value in given), negated, given)
