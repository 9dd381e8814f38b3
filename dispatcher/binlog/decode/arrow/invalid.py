"""The error for one cell of a column."""

from __future__ import annotations

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
