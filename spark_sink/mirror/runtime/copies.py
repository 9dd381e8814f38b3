"""Executes the works that copy tables from the server, counts their progress, and can stop them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from dispatcher.model.position import Position
from spark_sink.mirror.copy.progress import CopyProgress, CopyResult
from spark_sink.mirror.rules.effects import CopyTable
from spark_sink.mirror.rules.events import TableCopied
from spark_sink.mirror.rules.states import Copying
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.progress import ProgressCounter
from spark_sink.mirror.values.entries import LogEnd, append_of

_NOWHERE = Position("", "", "", 0, 0, 0)


class TableCopier(Protocol):
    """Copies one table into _binlog/copies/<table id>, or continues a copy that was interrupted."""

    def copy(
        self,
        record: TableRecord,
        *,
        begin: LogEnd,
        progress: Callable[[CopyProgress], None],
        stopping: Callable[[], bool],
    ) -> CopyResult: ...


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
                record, begin=begin, progress=self.counter.copying, stopping=stopping
            )
        finally:
            self.counter.copied(record.label)
            self._stopped.discard(work.run)
        self.counter.invalid(record.label, result.invalid_values)
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
