"""The values of expressions: variables, and the functions that clients call.

Sources: MySQL manual, "Information Functions", "Functions Used with Global Transaction Identifiers (GTIDs)".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dispatcher.front.questions.answer import Who
from dispatcher.front.questions.question import (
    Constant,
    Expression,
    FunctionCall,
    SystemVariable,
    UserVariable,
    Value,
)
from dispatcher.front.questions.refusals import (
    answer_too_large,
    malformed_gtids,
    unknown_function,
    unknown_variable,
    wrong_arguments,
)
from dispatcher.front.questions.variables import Variables
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import GtidSet
from dispatcher.model.server_picture import Picture

# Counters of a session. In the front they are always 0.
_ZERO = frozenset(("warning_count", "error_count"))


GTID_CHARACTERS_MAX = 32 << 10  # the most characters of all GTID sets that one statement may parse
CONCAT_CHARACTERS_MAX = 64 << 10


@dataclass(slots=True)
class Context:
    """The data from which an expression's value is computed. `gtid_characters`: how many more characters of GTID sets
    the statement may parse."""

    picture: Picture
    variables: Variables
    who: Who
    gtid_characters: int = GTID_CHARACTERS_MAX


def evaluate(expression: Expression, context: Context) -> Value:
    """Return an expression's value. Raises `WireError`."""
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, UserVariable):
        return context.variables.user(expression.name)
    if isinstance(expression, SystemVariable):
        return _system(expression, context)
    if isinstance(expression, FunctionCall):
        return _call(expression, context)
    raise unknown_variable(expression.name)


def _system(asked: SystemVariable, context: Context) -> Value:
    if asked.name in _ZERO and asked.scope != "global":
        return 0
    if asked.scope == "global":
        variable = context.picture.variables.get(asked.name)
    else:
        variable = context.variables.session(asked.name, context.picture)
    if variable is None:
        raise unknown_variable(asked.name)
    if variable.integer and variable.selected is not None:
        return int(variable.selected)
    return variable.selected


def _call(call: FunctionCall, context: Context) -> Value:
    if call.function not in _FUNCTIONS or (
        context.picture.mariadb and call.function.startswith("gtid_")
    ):
        raise unknown_function(call.function)
    count, function = _FUNCTIONS[call.function]
    if count is not None and len(call.arguments) != count:
        raise wrong_arguments(call.function)
    return function(context, [evaluate(argument, context) for argument in call.arguments])


def _concat(_: Context, arguments: Sequence[Value]) -> Value:
    if any(argument is None for argument in arguments):
        return None
    texts = [str(argument) for argument in arguments]
    # A server returns NULL for a result that exceeds max_allowed_packet.
    return "".join(texts) if sum(map(len, texts)) <= CONCAT_CHARACTERS_MAX else None


def _gtid_subtract(context: Context, arguments: Sequence[Value]) -> Value:
    first, second = arguments
    if first is None or second is None:
        return None
    context.gtid_characters -= len(str(first)) + len(str(second))
    if context.gtid_characters < 0:
        raise answer_too_large()
    try:
        rest = GtidSet.parse(str(first)).subtract(GtidSet.parse(str(second)))
    except BinlogError as error:
        raise malformed_gtids(error.what) from error
    return str(rest).replace(",", ",\n")


# Each function, with the number of its arguments; None = any number.
_FUNCTIONS: dict[str, tuple[int | None, Callable[[Context, Sequence[Value]], Value]]] = {
    "version": (0, lambda context, _: context.picture.version),
    "unix_timestamp": (0, lambda context, _: context.who.unix_time),
    "database": (0, lambda context, _: context.variables.database or None),
    "uuid": (0, lambda *_: str(uuid.uuid4())),
    "concat": (None, _concat),
    "gtid_subtract": (2, _gtid_subtract),
}
