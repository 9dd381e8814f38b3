"""The error for one cell of a column, and the search for all such cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dispatcher.model.errors import ErrorKind


class Invalid(Exception):
    """A cell that is invalid for its type, or whose value the log does not contain. `row`: the cell's number in the
    column; `why`: the reason, without the value."""

    def __init__(
        self,
        row: int,
        why: str,
        *,
        kind: ErrorKind = ErrorKind.INVALID_VALUE,
        remedy: str | None = None,
    ) -> None:
        super().__init__(why)
        self.row, self.why, self.kind, self.remedy = row, why, kind, remedy


class InvalidCell(NamedTuple):
    """A cell that became NULL because it is invalid for its type. `row`: its row in the batch; `why`: the reason;
    `data`: the cell's bytes or, for a date, the text that the server shows; b"" if the column is masked."""

    column: str
    row: int
    why: str
    data: bytes


def invalid_rows(decode: Callable[[slice], object], rows: int) -> Iterator[tuple[int, str]]:
    """Yields the row and the reason of each cell that `decode` refuses, in order. `decode`: decodes some of the cells;
    raises `Invalid`. A part with an invalid cell is halved until one cell is left, so that few invalid cells cost
    little. Raises `Invalid` if the value of a cell is missing rather than invalid."""
    parts = [slice(0, rows)]
    while parts:
        part = parts.pop()
        try:
            decode(part)
        except Invalid as error:
            if error.kind is not ErrorKind.INVALID_VALUE:
                raise
            if part.stop - part.start == 1:
                yield part.start, error.why
                continue
            middle = (part.start + part.stop) // 2
            parts += [slice(middle, part.stop), slice(part.start, middle)]
