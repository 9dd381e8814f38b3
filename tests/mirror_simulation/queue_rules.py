"""Assertions about the queues: a table that can go on goes on, and the memory of the entries that wait is bounded."""

from __future__ import annotations

from collections.abc import Container, Iterable

from spark_sink.mirror.rules.effects import (
    AskTable,
    ChangeTable,
    ClearCopy,
    CommitRows,
    CompareVersions,
    CopyTable,
    Effect,
    EndVersions,
    MoveFolders,
    ReadLog,
    RepairRows,
    WriteVersions,
)
from spark_sink.mirror.rules.events import EntriesRead, Event, LogLost
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.table_queue import held_bytes
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.names import TableName


class QueueRules:
    def __init__(self) -> None:
        self._held = 0

    def begins(self, effect: Effect, state: MirrorState) -> None:
        """Check a work that begins."""
        if isinstance(effect, ReadLog) and effect.before is None and effect.tables is None:
            is_free = state.queues.held < state.options.held_bytes_max
            assert is_free, "the log is read although the memory is used"

    def stepped(self, event: Event, state: MirrorState) -> None:
        """Check the queues after an event."""
        queues, limit = state.queues, state.options.held_bytes_max
        every = list(queues._queues.values())
        held = {queue.name: sum(map(held_bytes, queue.items)) for queue in every}
        assert queues.held == sum(held.values()), "the memory is counted wrong"
        assert queues.items == sum(queue.count for queue in every), "the items are counted wrong"
        for queue in every:
            largest = max(map(held_bytes, queue.items), default=0)
            own = limit // (2 * state.options.parallel)
            assert held[queue.name] <= own + largest, f"{queue.name[1]} has more than its share"
        reads = isinstance(event, EntriesRead | LogLost)
        assert queues.held <= max(limit, self._held) or reads, "the memory grows without a read"
        self._held = queues.held

    def go_on(self, names: Iterable[TableName], state: MirrorState) -> None:
        """Check that the queues of the tables `names`, which can go on, have come to the end of the log."""
        assert state.append_seen == state.newest, "a table stops the reading of the log"
        for name in names:
            goes_on = state.dealt_with(name) >= state.read_to
            assert goes_on, f"{name[1]} can go on, and waits for another table"


def is_of(effect: Effect, names: Container[TableName], records: Iterable[TableRecord]) -> bool:
    """True if a work is for the table, or for the history, of one of the names."""
    match effect:
        case AskTable(table_id=table_id) | ClearCopy(table_id=table_id):
            return any(r.table_id == table_id and r.name in names for r in records)
        case CompareVersions(record=record, mirrored=mirrored):
            return record.name in names or (mirrored is not None and mirrored.name in names)
        case ChangeTable() | CommitRows() | CopyTable() | WriteVersions() | EndVersions():
            return effect.record.name in names
        case RepairRows(record=record):
            return record.name in names
        case MoveFolders(moving=moving):
            return any(record.name in names for record in moving)
        case ReadLog(tables=tables):
            return any(name in names for name in tables or ())
    return False
