"""The quarantine of the simulated mirror: the invalid values of Delta tables that have NULL in their place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from spark_sink.mirror.values.invalid_values import copied_value_id, logged_value_id
from tests.mirror_simulation.column_values import InvalidCell


class Quarantined(NamedTuple):
    """A row of the quarantine. `owner`: the id of a table, or of a copy; `lsn`, `ordinal`: the change of the log with
    the value, -1 for the value of a copy."""

    table_id: str
    owner: str
    cell: InvalidCell
    lsn: int = -1
    ordinal: int = -1

    @property
    def id(self) -> str:
        if self.lsn >= 0:
            return logged_value_id(self.owner, f"{self.lsn}/{self.ordinal}", self.cell.column)
        data = b"" if self.cell.data is None else str(self.cell.data).encode()
        return copied_value_id(self.owner, str(self.cell.key), self.cell.column, data)


@dataclass
class Quarantine:
    rows: list[Quarantined] = field(default_factory=list)

    def add(self, found: Iterable[Quarantined]) -> None:
        """Add the values that the quarantine lacks, in one commit."""
        known = {row.id for row in self.rows}
        for row in found:
            if row.id not in known:
                known.add(row.id)
                self.rows.append(row)
