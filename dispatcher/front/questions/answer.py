"""The front's answer to a question, and the client that asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol, TypeAlias

from dispatcher.front.questions.refusals import (
    server_refused,
    table_denied,
    unknown_column,
    unknown_database,
    unknown_table,
)
from dispatcher.front.wire.errors import WireError
from dispatcher.front.wire.result_set import AnswerColumn, ColumnKind
from dispatcher.model.server_picture import ServerAnswer

Cell: TypeAlias = str | int | None
_SIGNED_MAX = (1 << 63) - 1


class Reads(Protocol):
    """Decides which databases and tables a consumer reads. `dispatcher.model.subscription.Subscription` implements
    it."""

    def has_database(self, name: str) -> bool: ...

    def has_table(self, database: str, table: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Who:
    """The client that asks. `host`: the client's address; `unix_time`: when the question arrived, in seconds since
    1970; `tls_version`, `tls_cipher`: "" without TLS."""

    consumer: str
    user: str
    host: str
    connection_id: int
    reads: Reads
    unix_time: int = 0
    tls_version: str = ""
    tls_cipher: str = ""


@dataclass(frozen=True, slots=True)
class ResultSet:
    columns: tuple[AnswerColumn, ...]
    rows: tuple[tuple[Cell, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Ok:
    """The answer is OK, without rows."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """A question that the daemon must ask the server. `statement` consists of constants, quoted names, and names of
    allowed columns; `result` computes the client's answer from the server's answer, row by row, so that a long answer
    can be computed in parts (`joined_answer`). `database`, `table`: the names in error messages, "" = none."""

    statement: str
    result: Callable[[ServerAnswer], ResultSet]
    who: Who
    database: str = ""
    table: str = ""

    def refusal(self, number: int) -> WireError:
        """Return the error for the client if the server has refused the statement. `number`: the server's error number,
        0 if the server has not answered."""
        if number == 1049 or (number == 1146 and not self.table):
            return unknown_database(self.database)
        if number in (1051, 1102, 1103, 1146):
            return unknown_table(self.database, self.table)
        if number in (1044, 1142, 1143, 1227, 1370):
            return table_denied(self.who.user, self.who.host, self.table or self.database)
        if number == 1054:  # a column that this version of the server lacks
            return unknown_column()
        return server_refused(number)


Answer: TypeAlias = ResultSet | Ok | LookUp


def result_set(names: Sequence[str], rows: Iterable[Sequence[Cell]]) -> ResultSet:
    """Return a result set. A column has a numeric type if it contains at least one number and no text."""
    cells = tuple(tuple(row) for row in rows)
    columns = tuple(
        AnswerColumn(name, _kind([row[at] for row in cells])) for at, name in enumerate(names)
    )
    return ResultSet(columns, cells)


def _kind(values: Sequence[Cell]) -> ColumnKind:
    numbers = [value for value in values if isinstance(value, int)]
    if not numbers or any(isinstance(value, str) for value in values):
        return ColumnKind.TEXT
    return ColumnKind.UNSIGNED if max(numbers) > _SIGNED_MAX else ColumnKind.INTEGER


def of_table(
    table: ServerAnswer, at: Sequence[int] | None = None, names: Sequence[str] = ()
) -> ResultSet:
    """Return some columns of a server's answer. `at`: the indexes of the columns, None = all columns; `names`: the
    names of the returned columns, () = the names in the server's answer."""
    places = range(len(table.columns)) if at is None else at
    columns = []
    for n, place in enumerate(places):
        name, integer = table.columns[place]
        kind = ColumnKind.TEXT
        if integer:
            large = any(_is_large(row[place]) for row in table.rows)
            kind = ColumnKind.UNSIGNED if large else ColumnKind.INTEGER
        columns.append(AnswerColumn(names[n] if names else name, kind))
    return ResultSet(tuple(columns), tuple(tuple(row[n] for n in places) for row in table.rows))


def joined_answer(parts: Sequence[ResultSet]) -> ResultSet:
    """Return the whole answer. `parts`: the answers for consecutive rows of one server's answer, at least one."""
    if len(parts) == 1:
        return parts[0]
    columns = []
    for at, (name, kind) in enumerate(parts[0].columns):
        is_unsigned = any(part.columns[at].kind is ColumnKind.UNSIGNED for part in parts)
        columns.append(AnswerColumn(name, ColumnKind.UNSIGNED if is_unsigned else kind))
    return ResultSet(tuple(columns), tuple(chain.from_iterable(part.rows for part in parts)))


def _is_large(value: str | None) -> bool:
    return value is not None and len(value) >= 19 and value.isdigit() and int(value) > _SIGNED_MAX
