"""What Delta tables show of the server's values: the masks of columns, and NULL in place of invalid values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from dispatcher.binlog.table_map.column_rules import UNCHANGED, ColumnRules
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.schema.signature import Signature
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import InvalidValue
from tests.mirror_simulation.log import Row, RowChange, Rows

MASKED = 10_000_000  # a masked value is larger by this; the server's values are smaller than this
INVALID = (5, 6)  # the invalid values of tables that have some


class InvalidCell(NamedTuple):
    """An invalid value. `key`: the values, as the Delta table shows them, of the columns that identify the row; `data`:
    the value, None in a masked column."""

    key: Row
    column: str
    data: int | None


@dataclass
class ColumnValues:
    """`rules`: the masks of columns; `bad`: the values that are invalid in each column except `id`; `policy`: what the
    mirror does with invalid values; `unmasked`: the names of tables whose columns the settings do not mask."""

    rules: ColumnRules = UNCHANGED
    bad: tuple[int, ...] = ()
    policy: InvalidValue = InvalidValue.STOP
    unmasked: Collection[TableName] = ()

    def __post_init__(self) -> None:
        self.masked = frozenset(name for name, _ in self.rules.masks)

    @property
    def are_plain(self) -> bool:
        """True if Delta tables show the server's values as they are."""
        return not (self.masked or self.bad)

    @property
    def are_kept(self) -> bool:
        """True if invalid values are written to the quarantine."""
        return bool(self.bad) and self.policy is InvalidValue.QUARANTINE

    def under(self, name: TableName) -> ColumnValues:
        """Returns what the settings want for the table of this name."""
        return self._unmasked() if name in self.unmasked else self

    def of(self, record: TableRecord) -> ColumnValues:
        """Returns what the Delta table of a record shows. This may differ from the settings, because new settings
        change only rows that are read later."""
        if not record.signature:
            return self.under(record.name)
        columns = Signature.from_json(record.signature).columns
        return self if any(column.mask for column in columns) else self._unmasked()

    def is_current(self, record: TableRecord) -> bool:
        """True if the Delta table of a record shows what the settings want for its name."""
        return self.of(record).rules == self.under(record.name).rules

    def _unmasked(self) -> ColumnValues:
        return replace(self, rules=replace(self.rules, masks=())) if self.masked else self

    # -- what is shown -----------------------------------------------------------------------------------------

    def row(self, row: Row) -> Row:
        return tuple((c, self._shown(c, v)) for c, v in row)

    def rows(self, rows: Rows) -> Rows:
        if self.are_plain:
            return rows
        shown: Rows = Counter()
        for row, n in rows.items():
            shown[self.row(row)] += n
        return shown

    def change(self, change: RowChange) -> RowChange:
        before, after = change.before, change.after
        return RowChange(before and self.row(before), after and self.row(after))

    def _shown(self, column: str, value: int | None) -> int | None:
        if value is None or (value in self.bad and column != "id"):
            return None
        return masked(value) if column in self.masked else value

    # -- invalid values ----------------------------------------------------------------------------------------

    def invalid(self, row: Row | None, *, keyed: bool) -> Iterator[InvalidCell]:
        """Yields the invalid values of a row of the server. `keyed`: True if its table has a key."""
        for column, value in row or ():
            if value in self.bad and column != "id":
                key = tuple(cell for cell in self.row(row or ()) if not keyed or cell[0] == "id")
                yield InvalidCell(key, column, None if column in self.masked else value)

    def has_invalid(self, rows: Iterable[Row | None]) -> bool:
        return bool(self.bad) and any(any(self.invalid(row, keyed=True)) for row in rows)

    def require_valid(self, rows: Iterable[Row | None]) -> None:
        """Raises BinlogError if a row has an invalid value, and the policy does not allow it."""
        if self.policy is InvalidValue.STOP and self.has_invalid(rows):
            raise BinlogError(ErrorKind.INVALID_VALUE, "a value is invalid for its column")


def masked(value: int) -> int:
    return value if value >= MASKED else value + MASKED


def images(changes: Iterable[RowChange]) -> Iterator[Row | None]:
    """Yields the rows before and after each change. A step decodes both."""
    for change in changes:
        yield change.before
        yield change.after
