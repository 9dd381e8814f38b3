"""Assertions about the watermark, at each Store that has one.

After a crash, the queues do not read the entries up to the watermark again. So for each entry of rows up to the
watermark, the entry is applied to its table, or the table's record shows how the entry will be handled, or the settings
exclude the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copied,
    Copying,
    Dropped,
    LeftOut,
    Live,
    Replaying,
    Stopped,
)
from spark_sink.mirror.rules.table_record import FormerName, TableRecord
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import TableName
from spark_sink.source.raw_entries import EntryKind
from tests.mirror_simulation.control import Control
from tests.mirror_simulation.lake import Lake


class WatermarkRules:
    """`excluded`: names whose tables the settings exclude."""

    def __init__(self, lake: Lake, control: Control, excluded: set[TableName]) -> None:
        self._lake, self._control, self._excluded = lake, control, excluded
        self._names: dict[
            str, dict[int, FormerName]
        ] = {}  # by table id, then by `FormerName.until`

    def stores(self, watermark: int | None) -> None:
        """A Store is about to be written."""
        if watermark is not None:
            assert watermark >= self._control.applied, "the watermark goes back"

    def forgets(self, needed: int, decided: Mapping[str, TableRecord]) -> None:
        """Check that the mirror no longer needs the log up to the lsn `needed`. `decided`: the records in memory of the
        rules."""
        for record in (*decided.values(), *self._control.records.values()):
            state = record.state
            waits = isinstance(state, Copying | Copied | Replaying | CatchingUp | Stopped)
            if waits and not record.history:
                assert needed <= record.from_lsn, f"the log is deleted that {record.label} needs"
            if record.history and isinstance(state, Live) and record.name not in self._excluded:
                assert needed <= self._version(record), (
                    f"the log is deleted that {record.label} needs"
                )

    def _version(self, record: TableRecord) -> int:
        """Returns the lsn up to which entries are applied to a history."""
        table = self._lake.folders.get(record.folder)
        return max(record.from_lsn, -1 if table is None else table.version)

    def at_rest(self) -> None:
        """Check the watermark after everything is applied and time has passed."""
        entries = self._lake.log.entries
        assert self._control.applied >= entries[-1].lsn, "the watermark stays behind"

    def stored(self, before: int, records: Sequence[TableRecord]) -> None:
        """Check these records, which were stored. `before`: the previous watermark."""
        for record in records:
            known = self._names.setdefault(record.table_id, {})
            known |= {former.until: former for former in record.names}
        log = self._lake.log
        for entry in log.between(before, self._control.applied + 1):
            name = entry.database, entry.table
            is_rows = entry.kind is EntryKind.ROWS and name not in self._excluded
            if is_rows and entry.append not in log.doubtful:
                self._passed(entry, name)

    def _passed(self, entry: LogEntry, name: TableName) -> None:
        records = [r for r in self._control.records.values() if not r.history]
        known = [record for record in records if self._name_at(record, entry.lsn) == name]
        is_kept = any(self._has(record, entry.lsn) for record in known)
        assert is_kept, f"the watermark passes the entry {entry.lsn:x} of {name[1]}"

    def _name_at(self, record: TableRecord, lsn: int) -> TableName:
        former = self._names.get(record.table_id, {})
        until = min((until for until in former if lsn <= until), default=None)
        return record.name if until is None else former[until].name

    def _has(self, record: TableRecord, lsn: int) -> bool:
        """True if the entry is applied to the table, or if the table's record shows that the entry will be applied or
        need not be applied."""
        match record.state:
            case LeftOut():
                return True
            case Dropped():
                return lsn <= record.from_lsn
            case Live():
                table = self._lake.of(record)
                return lsn <= max(record.from_lsn, -1 if table is None else table.version)
        return True
