"""Assertions about tables, histories and requests, which compare with the contents that the server's tables had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.records import name_at
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copying,
    Creating,
    LeftOut,
    Live,
    Replaying,
    Stopped,
    TableState,
)
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.names import TableName, copy_folder
from tests.mirror_simulation.control import Control
from tests.mirror_simulation.folders import TAKEN
from tests.mirror_simulation.lake import FOREIGN, Lake
from tests.mirror_simulation.log import Rows
from tests.mirror_simulation.server import Server

LIVE = (TableState.COMPLETE, TableState.PARTIAL)


class TableRules:
    """`excluded`: names whose tables the settings exclude; `registered`: names under which this job has registered
    tables in the catalog, by id; `may_be_unknown`: True if a table may have changed without a trace in the log, or
    while it was excluded; `skipped`: ids of tables for which people have requested to skip entries, or whose entries
    the settings have left out; `planted`: ids of tables whose rows another program has changed."""

    def __init__(
        self, server: Server, lake: Lake, control: Control, excluded: set[TableName]
    ) -> None:
        self._server, self._log, self._lake, self._control = server, server.log, lake, control
        self._excluded = excluded
        self.registered: dict[str, str] = {}
        self.may_be_unknown = False
        self.skipped: set[str] = set()
        self.planted: set[str] = set()
        self._dealt_with: dict[str, int] = {}  # the highest lsn dealt with, by table id

    # -- what is stored ----------------------------------------------------------------------------------------

    def stored(self, records: Sequence[TableRecord]) -> None:
        """Check these records, which were stored."""
        for record in records:
            before = self._dealt_with.get(record.table_id, 0)
            goes_on = record.history or record.from_lsn >= before
            assert goes_on, f"{record.label} goes back in the log"
            self._dealt_with[record.table_id] = record.from_lsn
            if isinstance(record.state, LeftOut):
                self.skipped.add(record.table_id)
            self.table(self._control.records[record.table_id])
            is_stopped = isinstance(record.state, Stopped)
            has_remedy = remedies.MIRROR in record.reason
            assert has_remedy or not is_stopped, f"{record.label} is stopped, and has no remedy"
            in_copy = record.lies_at == copy_folder(record.table_id)
            is_live = isinstance(record.state, Live)
            assert not (is_live and in_copy), f"{record.label} is live before it is in its place"
        existing = (r for r in self._control.records.values() if not (r.is_dropped or r.history))
        names = Counter(record.name for record in existing)
        assert max(names.values(), default=0) <= 1, "a name has two records"

    # -- rows --------------------------------------------------------------------------------------------------

    def table(self, record: TableRecord) -> None:
        """Assert that a complete table equals the server's table at the lsn up to which entries are applied to the
        table."""
        is_complete = isinstance(record.state, Live) and record.state.complete
        if not is_complete or record.move is not None or record.history:
            return
        if record.table_id in self.planted:
            return
        table = self._lake.of(record)
        version = -1 if table is None else table.version
        if version > record.from_lsn and self._log.is_rename(version):
            # The columns of the Delta table were changed, or its rows were deleted because the settings exclude the
            # table now. The record changes later.
            return
        # All entries up to the watermark are also applied to a live table.
        lsn = max(record.from_lsn, version, self._control.applied)
        truth = self._log.at(name_at(record, lsn + 1), lsn)
        held = _values(Counter() if table is None else table.rows)
        wanted = _values(
            Counter() if truth is None else self._lake.values.of(record).rows(truth.rows)
        )
        assert held == wanted, (
            f"{record.label} differs at lsn {lsn:x}: {held - wanted} too many, {wanted - held} missing"
        )

    # -- at rest -----------------------------------------------------------------------------------------------

    def drained(self) -> None:
        """Check the state after a job has applied everything and ended. Only a copy may still wait for more of the log,
        and only a table whose place has a foreign folder may wait for this place."""
        taken = self._taken()
        for record in self._control.records.values():
            self.table(record)
            self._is_newest(record)
            waits = isinstance(record.state, Creating | Copying | Replaying | CatchingUp)
            if isinstance(record.state, CatchingUp) and record.folder in taken:
                says_why = TAKEN in record.reason or "is free" in record.reason
                assert says_why, f"{record.label} does not say why it waits"
                waits = False
            assert record.history or not waits, f"{record.label} is {record}"
        by_id, by_name = self._control.standing()
        # A request about a history may wait for a table that is stopped.
        asked = [i for i in by_id if not self._control.records[i].history]
        assert not asked and self._excluded.issuperset(by_name), "a request is lost"

    def _is_newest(self, record: TableRecord) -> None:
        """Assert that a complete table equals the server's table at the end of the log."""
        is_complete = isinstance(record.state, Live) and record.state.complete
        is_judged = record.move is None and record.table_id not in self.planted
        if is_complete and is_judged and not record.history:
            table, truth = self._lake.of(record), self._server.tables.get(record.name)
            held = _values(Counter() if table is None else table.rows)
            wanted = _values(
                Counter() if truth is None else self._lake.values.of(record).rows(truth.rows)
            )
            assert held == wanted, f"{record.label} is not drained to the end of the log"

    def at_rest(self) -> None:
        """Check the state after everything is applied: each table of the server is live, except a table whose place has
        a foreign folder, and no request is left."""
        taken = self._taken()
        for name in self._server.tables:
            if name not in self._excluded and folder_of(name) not in taken:
                self._live(name)
        for table_id, registered in self.registered.items():
            known = self._control.records[table_id].registered
            assert known == registered, "a registration is lost"
        for record in self._control.records.values():
            self._history(record)
        by_id, by_name = self._control.standing()
        records = [self._control.records[table_id] for table_id in by_id]
        asked = [record.name for record in records if not self._waits_for_stopped(record)]
        wanted = [name for name in [*asked, *by_name] if name not in self._excluded]
        lost = [name for name in wanted if folder_of(name) not in taken]
        assert not lost, f"a request about {lost[0]} is lost"

    def _waits_for_stopped(self, record: TableRecord) -> bool:
        """True for the history of a table that was stopped before the server dropped it. People make requests only
        about tables that the server has. So the dropped table stays stopped, and its history waits for it."""
        if not record.history or record.name in self._server.tables:
            return False
        return any(r.word is TableState.STOPPED for r in self._control.tables(record.name))

    def _taken(self) -> set[str]:
        """Returns the places that have a foreign folder."""
        return {folder for folder, table in self._lake.folders.items() if table.owner == FOREIGN}

    def _live(self, name: TableName) -> None:
        existing = [r for r in self._control.tables(name) if not r.is_dropped]
        if not existing:
            may_be_unknown = self.may_be_unknown or self._log.lost
            assert may_be_unknown or not self._server.tables[name].logged, f"{name} has no record"
            return
        (record,) = existing
        assert record.word in LIVE, f"{record.label} is {record}"
        assert record.move is None, f"{record.label} is not in its place"
        failing = isinstance(record.state, Live) and record.state.failing
        assert not failing, f"{record.label} says that it fails"
        self.table(record)

    def _history(self, record: TableRecord) -> None:
        """Assert that the current versions of a history equal the rows of its table."""
        if (
            not record.history
            or not isinstance(record.state, Live)
            or record.name in self._excluded
        ):
            return
        live = (r for r in self._control.tables(record.name) if isinstance(r.state, Live))
        mirrored = next(live, None)
        if mirrored is None or (
            mirrored.word is TableState.PARTIAL and mirrored.table_id in self.skipped
        ):
            return  # the history has applied the entries that the table skipped
        if mirrored.table_id in self.planted:
            return  # no entry of the log shows the history what was changed in its table
        table = self._lake.of(mirrored)
        wanted = Counter() if table is None else table.rows
        held = self._lake.folders[record.folder].rows if record.folder else Counter()
        assert _values(held) == _values(wanted), f"the history of {record.name} differs"


def _values(rows: Rows) -> Counter[frozenset[tuple[str, int | None]]]:
    """Returns rows without the order of their columns."""
    values: Counter[frozenset[tuple[str, int | None]]] = Counter()
    for row, n in rows.items():
        values[frozenset(row)] += n
    return values
