"""Assertions about masked columns and invalid values: no Delta table shows a clear value, and the quarantine has each
applied invalid value once, and no other value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from spark_sink.mirror.rules.effects import CommitRows
from spark_sink.mirror.rules.states import LeftOut, Live, TableState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import InvalidValue
from tests.mirror_simulation.column_values import MASKED
from tests.mirror_simulation.control import Control
from tests.mirror_simulation.lake import FOREIGN, Lake, LakeTable
from tests.mirror_simulation.log import Row, has_key
from tests.mirror_simulation.quarantine import Quarantined
from tests.mirror_simulation.server import Server


class ValueRules:
    def __init__(self, server: Server, lake: Lake, control: Control) -> None:
        self._server, self._log, self._lake, self._control = server, server.log, lake, control
        self._read: set[Quarantined] = set()  # the invalid values that copies have read
        self._hidden: set[str] = set()  # ids of tables whose masks no person has lifted

    def stored(self, records: Iterable[TableRecord]) -> None:
        """Remember which tables have masks, by their records that were just written. A table that a CREATE or TRUNCATE
        has made anew has no value from before."""
        values = self._lake.values
        for record in records:
            is_new = isinstance(record.state, Live) and record.state.exact_from is not None
            if record.is_dropped or (is_new and record.name in values.unmasked):
                self._hidden.discard(record.table_id)
            elif record.signature and values.of(record).masked and values.under(record.name).masked:
                self._hidden.add(record.table_id)

    def asked(self, record: TableRecord) -> None:
        """A person makes a request about a table. If the table is stopped at a name without masks, the person allows
        the mirror to show its values."""
        if record.word == TableState.STOPPED and record.name in self._lake.values.unmasked:
            self._hidden.discard(record.table_id)

    def shows(self, table: LakeTable, name: TableName) -> None:
        """Check the Delta table of the table `name` after its rows were changed: its masked columns have no value of
        the server."""
        masked = self._lake.values.masked
        is_shown = name in self._lake.values.unmasked and table.owner not in self._hidden
        if not masked or is_shown or table.owner == FOREIGN:
            return
        for row in table.rows:
            clear = [c for c, v in row if c in masked and v is not None and v < MASKED]
            assert not clear, f"the column {clear[0]} of {table.owner} is shown without its mask"

    def committed(self, effect: CommitRows) -> None:
        """Check a step that was just committed."""
        values, record = self._lake.values, effect.record
        if values.masked:
            self.shows(self._lake.folders[record.lies_at], record.name)
        if not values.bad:
            return
        expected = []
        for entry in effect.rows.entries:
            behind = effect.snapshot is None or (
                self._log.offsets[entry.lsn] > effect.snapshot[1].offset
            )
            for ordinal, change in enumerate(self._log.changes[entry.lsn] if behind else ()):
                keyed = has_key(entry)
                for cell in values.invalid(change.after, keyed=keyed):
                    table_id = record.table_id
                    expected.append(Quarantined(table_id, table_id, cell, entry.lsn, ordinal))
        self._are_kept(expected, record)

    def read(self, record: TableRecord, copy_id: str, rows: Iterable[Row], *, keyed: bool) -> None:
        """Remember rows that a copy has read. They may be committed later, or never."""
        cells = (c for row in rows for c in self._lake.values.invalid(row, keyed=keyed))
        self._read.update(Quarantined(record.table_id, copy_id, cell) for cell in cells)

    def copied(self, record: TableRecord, copy_id: str, rows: Sequence[Row], keyed: bool) -> None:
        """Check rows of a copy that were just committed."""
        self.read(record, copy_id, rows, keyed=keyed)
        cells = (c for row in rows for c in self._lake.values.invalid(row, keyed=keyed))
        self._are_kept([Quarantined(record.table_id, copy_id, cell) for cell in cells], record)

    def _are_kept(self, expected: Sequence[Quarantined], record: TableRecord) -> None:
        if not expected:
            return
        values = self._lake.values
        has_stopped = values.policy is not InvalidValue.STOP
        assert has_stopped, f"{record.label} goes on behind the invalid value {expected[0]}"
        if values.are_kept:
            held = Counter(self._lake.quarantine.rows)
            wrong = next((value for value in expected if held[value] != 1), None)
            assert wrong is None, f"the quarantine has {wrong} {held[wrong]} times"

    def at_rest(self) -> None:
        """Check the state after everything is applied."""
        for record in self._control.records.values():
            table = self._lake.of(record)
            # A history has the rows that its table had under other names, and a table that the settings leave out
            # keeps its rows. A table that was stopped when it got a name with masks is copied at its next change.
            may_show = record.history or isinstance(record.state, LeftOut)
            if table is not None and not may_show and self._lake.values.is_current(record):
                self.shows(table, record.name)
        held = Counter(self._lake.quarantine.rows)
        for row, n in held.items():
            assert n == 1, f"the quarantine has {row} {n} times"
            assert self._exists(row), f"the quarantine has {row}, which no change and no copy has"
        if self._lake.values.are_kept:
            for record in self._control.records.values():
                self._has_all(record)

    def _exists(self, row: Quarantined) -> bool:
        if row.lsn < 0:
            return row in self._read
        changes = self._log.changes[row.lsn]
        (entry,) = self._log.between(row.lsn - 1, row.lsn + 1)
        after = changes[row.ordinal].after
        return row.cell in self._lake.values.invalid(after, keyed=has_key(entry))

    def _has_all(self, record: TableRecord) -> None:
        """Assert that the quarantine has each invalid value in whose place a complete table has NULL now."""
        is_complete = isinstance(record.state, Live) and record.state.complete
        server = self._server.tables.get(record.name)
        if not is_complete or record.history or server is None:
            return
        held = {row.cell[1:] if not server.keyed else row.cell for row in self._of(record)}
        for row in server.rows:
            for cell in self._lake.values.invalid(row, keyed=server.keyed):
                # Other columns of a row without a key may have been added since.
                wanted = cell if server.keyed else cell[1:]
                assert wanted in held, f"the quarantine of {record.label} lacks {cell}"

    def _of(self, record: TableRecord) -> Iterable[Quarantined]:
        rows = self._lake.quarantine.rows
        return (row for row in rows if row.table_id == record.table_id)
