"""Executes the works that copy tables from the server, counts their progress, and can stop them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from dispatcher.model.position import Position
from spark_sink.mirror.rules.effects import CopyTable
from spark_sink.mirror.rules.events import TableCopied
from spark_sink.mirror.rules.states import Copying
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.progress import CopyState, ProgressCounter
from spark_sink.mirror.schema.recomputed import Generated
from spark_sink.mirror.values.entries import LogEnd, append_of

_NOWHERE = Position("", "", "", 0, 0, 0)


class CopiedTable(Protocol):
    """The result of a copy.

    `executed`: R, the position that the server had executed after the last row was read; `signature`: the columns as
    JSON; `exact`: True if the rows show exactly the transactions of R, so the replay must not apply them again;
    `complete`: False if the copy was stopped before its end; `generated`: the table's generated columns.
    """

    @property
    def exact(self) -> bool: ...
    @property
    def complete(self) -> bool: ...
    @property
    def executed(self) -> Position: ...
    @property
    def signature(self) -> str: ...
    @property
    def generated(self) -> Generated: ...


class CopiedRows(Protocol):
    """The progress of a copy, see `CopyState`."""

    @property
    def label(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def rows_estimated(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def rest_s(self) -> float | None: ...


class TableCopier(Protocol):
    """Copies one table into _binlog/copies/<table id>, or continues a copy that was interrupted."""

    def copy(
        self,
        record: TableRecord,
        *,
        begin: LogEnd,
        progress: Callable[[CopiedRows], None],
        stopping: Callable[[], bool],
    ) -> CopiedTable: ...


@dataclass
class Copies:
    """The copies of one consumer. Threads may share this object."""

    copier: TableCopier | None
    counter: ProgressCounter
    _ended: threading.Event = field(default_factory=threading.Event)
    _stopped: set[int] = field(default_factory=set)

    def copy(self, work: CopyTable) -> TableCopied:
        """Copy a table until the copy is complete or `stop` ends it. Raises the exceptions of the copier."""
        assert self.copier is not None, "this job cannot copy"
        record = work.record
        assert isinstance(record.state, Copying)

        def stopping() -> bool:
            return self._ended.is_set() or work.run in self._stopped

        if stopping():
            return TableCopied(work.run, False, _NOWHERE, False, "", ())
        begin = LogEnd(append_of(record.from_lsn), record.state.begin)
        try:
            result = self.copier.copy(
                record, begin=begin, progress=self._progress, stopping=stopping
            )
        finally:
            self.counter.copied(record.label)
            self._stopped.discard(work.run)
        return TableCopied(
            work.run,
            result.complete,
            result.executed,
            result.exact,
            result.signature,
            result.generated,
        )

    def stop(self, run: int) -> None:
        """Make the copy of the work `run` end before its next chunk."""
        self._stopped.add(run)

    def stop_all(self) -> None:
        self._ended.set()

    def _progress(self, rows: CopiedRows) -> None:
        state = CopyState(
            rows.label, rows.rows, rows.rows_estimated, rows.bytes, rows.chunks, rows.rest_s
        )
        self.counter.copying(state)
