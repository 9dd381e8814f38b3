"""The values that the copy of a table reports while it runs, and the result of the copy. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.position import Position
from dispatcher.model.sizes import size_text
from spark_sink.mirror.schema.recomputed import Generated
from spark_sink.mirror.schema.signature import Signature

if TYPE_CHECKING:
    from spark_sink.source.table_rows.source_table import SourceTable


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """`rows_estimated`: the server's estimate of the rows of the whole table; `rest_s`: the remaining time by this
    estimate, None if unknown."""

    label: str
    rows: int
    rows_estimated: int
    bytes: int
    chunks: int
    seconds: float
    rest_s: float | None

    def fields(self) -> dict[str, Any]:
        """Returns the known values, for a line of the log."""
        values = {"table": self.label} | {n: getattr(self, n) for n in self.__slots__[1:]}
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        if not self.rows:
            about = f", of about {self.rows_estimated} rows" if self.rows_estimated else ""
            return f"{self.label}: its first rows are being read{about}"
        percent = 100 * min(1.0, self.rows / self.rows_estimated) if self.rows_estimated else 100
        rest = "" if self.rest_s is None else f", about {self.rest_s:.0f} s left"
        speed = self.rows / self.seconds if self.seconds else 0
        return (
            f"{self.label}: {self.rows} rows copied ({percent:.0f} %), {size_text(self.bytes)}, {self.chunks} chunks,"
            f" {speed:.0f} rows/s{rest}"
        )


def remaining_s(rows: int, estimated: int, rows_per_second: float) -> float | None:
    """Returns how long a copy still takes after it has copied `rows` rows; None if its speed or the estimated number of
    rows is not known."""
    return max(0, estimated - rows) / rows_per_second if rows_per_second and estimated else None


@dataclass(frozen=True, slots=True)
class CopyResult:
    """`executed`: R; `exact`: True if the rows contain exactly the transactions of R, as for a table without a key;
    `complete`: False if the copy was stopped before its end; `invalid_values`: how many invalid values became NULL."""

    rows: int
    bytes: int
    chunks: int
    executed: Position
    source: SourceTable
    invalid_dates: InvalidDates
    exact: bool = False
    complete: bool = True
    invalid_values: int = 0

    @property
    def signature(self) -> str:
        """The signature of the copied columns as JSON."""
        source = self.source
        table_map = TableMap(0, source.database, source.table, source.columns, source.key, "")
        signature = Signature.of_table_map(table_map, self.invalid_dates)
        return signature.in_order(source.order).to_json()

    @property
    def generated(self) -> Generated:
        return self.source.generated
