"""The state of one consumer's rules: the records of the tables, facts about their Delta tables, the queues, and the lsn
(number of an entry: rows of a table, or a statement) up to which the log is read. Tasks read and change this state;
`Mirror` stores the changed records.

A record that was changed is *unsaved* until it is in the control table. A table is busy while a work (see `effects`)
runs on it, or while its record is unsaved. A task that uses the table waits meanwhile. So a work begins only after the
record on which it relies is stored, and after a crash the records show where to continue.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from spark_sink.mirror.rules.effects import Effect, WriteNote
from spark_sink.mirror.rules.events import Failure
from spark_sink.mirror.rules.proofs import Proof
from spark_sink.mirror.rules.queues import TableQueues
from spark_sink.mirror.rules.records import find_record, is_named_later
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.states import COPIED_ASIDE, REPLAYED, TableState
from spark_sink.mirror.rules.table_record import Request, TableRecord, new_table_id
from spark_sink.mirror.rules.table_work import UNKNOWN, DeltaFacts, WorkContext
from spark_sink.mirror.rules.transitions import Situation
from spark_sink.mirror.values.entries import LogEnd, LogEntry, last_lsn
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import ProofOptions, TablePolicy
from spark_sink.source.raw_entries import EntryKind


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """The settings for one consumer.

    `policy`: returns the policy of a table, by its name; `excluded`: returns True for a table's name if the settings
    exclude it; `can_copy`: True if the settings name a server to copy from; `copies`: True if this job can copy;
    `parallel`: how many steps of tables run at the same time; `held_bytes_max`: memory of the entries that wait in the
    queues; `path`: returns the path of a folder; `new_id`: returns a new id for a table; `proofs`: how much proofs may
    cost, None if this job compares no tables with the server.
    """

    consumer: str
    policy: Callable[[TableName], TablePolicy]
    excluded: Callable[[TableName], bool]
    path: Callable[[str], str]
    can_copy: bool = False
    copies: bool = False
    parallel: int = 2
    invalid_dates: InvalidDates = InvalidDates.NULL
    step_bytes_max: int = 256 << 20
    held_bytes_max: int = 256 << 20
    retry_first_s: float = 0.5
    watermark_s: float = 30.0
    new_id: Callable[[], str] = new_table_id
    proofs: ProofOptions | None = None


@dataclass
class MirrorState:
    """`read_to`: the lsn of the last entry in the queues; `append_seen`: the append up to which the log is read;
    `newest`, `oldest`, `end`: facts about the log, see `Started`; `asked`: ids of records with an open request;
    `to_copy`, `to_replay`: ids of tables in one of the states `COPIED_ASIDE` and `REPLAYED`; `changed`: ids of records
    that have changed since the last search for histories to start; `left`: by table id, the lsn of the table's last
    entry that was left in the log; `counts`: by table name, the number of failures in succession; `draining`: True if
    the job drains the log; `clock_s`: the difference between the time since 1970 and `now`, in seconds; `proofs`: the
    proofs by table id; `proofs_due`: when the changed proofs have to be stored; `has_changed`: True if a record or a
    proof has changed since `ProofTask` looked for the next table."""

    options: MirrorOptions
    records: dict[str, TableRecord] = field(default_factory=dict)
    facts: dict[tuple[str, str], DeltaFacts] = field(default_factory=dict)
    owners: Mapping[TableName, str] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    counts: Counter[TableName] = field(default_factory=Counter)
    now: float = 0.0
    read_to: int = 0
    append_seen: int = 0
    newest: int = 0
    oldest: int = 0
    end: LogEnd | None = None
    server: str = ""
    draining: bool = False
    stopping: bool = False
    failure: BinlogError | None = None
    clock_s: float = 0.0
    proofs: dict[str, Proof] = field(default_factory=dict)
    proofs_due: float | None = None
    has_changed: bool = True

    def __post_init__(self) -> None:
        options = self.options
        self.queues = TableQueues(options.step_bytes_max, options.held_bytes_max, options.parallel)
        self.effects: list[Effect] = []
        self._every: tuple[TableRecord, ...] | None = None
        self._every_proof: Mapping[str, Proof] | None = None
        self._histories: dict[str, None] = {}
        self.asked: dict[str, None] = {}
        self.to_copy: dict[str, None] = {}
        self.to_replay: dict[str, None] = {}
        self.changed: dict[str, None] = {}
        self._last_run = 0
        self._named: dict[TableName, dict[str, None]] = {}  # ids of tables that have or had a name
        self._using: Counter[str] = Counter()  # number of works that run, by id of table
        self.unsure: set[str] = set()  # tables whose move has not ended
        self.joining: set[str] = (
            set()
        )  # tables whose queues wait, because their replays are about to end
        self.unsaved: dict[str, None] = {}
        self.saving: dict[str, TableRecord] = {}
        self.unsaved_proofs: dict[str, None] = {}

    # -- tables ----------------------------------------------------------------------------------------------

    def tables(self) -> Iterator[TableRecord]:
        return (record for record in self.records.values() if not record.history)

    def histories(self) -> Iterator[TableRecord]:
        """The histories that are not dropped."""
        return (self.records[table_id] for table_id in self._histories)

    def snapshot(self) -> tuple[TableRecord, ...]:
        """Returns all records. All calls between two changes of records return the same object."""
        if self._every is None:
            self._every = tuple(self.records.values())
        return self._every

    def find(self, name: TableName, lsn: int) -> TableRecord | None:
        """Returns the table that had the name at `lsn`."""
        candidates = (self.records[table_id] for table_id in self._named.get(name, ()))
        return find_record(candidates, name, lsn)

    def is_named_later(self, name: TableName, lsn: int) -> bool:
        """True if a table got the name by a RENAME after `lsn`. See `records.is_named_later`."""
        candidates = (self.records[table_id] for table_id in self._named.get(name, ()))
        return is_named_later(candidates, name, lsn)

    def names(self, *, dropped: bool = False) -> list[TableName]:
        """The names of mirrored tables, and the names that have items in their queues, except the names that the
        settings exclude. `dropped`: True to include the names of dropped tables."""
        mirrored = [record.name for record in self.tables() if dropped or not record.is_dropped]
        every = dict.fromkeys([*mirrored, *self.queues.names()])
        return [name for name in every if not self.options.excluded(name)]

    def hold(self, record: TableRecord) -> None:
        """Replace the former record of the table by `record`, without marking `record` as unsaved."""
        table_id = record.table_id
        self.records[table_id], self._every = record, None
        self.changed[table_id], self.has_changed = None, True
        _mark(self._histories, table_id, holds=record.history and not record.is_dropped)
        _mark(self.asked, table_id, holds=record.request is not None)
        is_table = not record.history
        _mark(self.to_copy, table_id, holds=is_table and isinstance(record.state, COPIED_ASIDE))
        _mark(self.to_replay, table_id, holds=is_table and isinstance(record.state, REPLAYED))
        if not record.history:
            for name in (record.name, *(former.name for former in record.names)):
                self._named.setdefault(name, {})[record.table_id] = None

    def stored(self, table_id: str, serial: int, at: datetime | None) -> None:
        """Note when a record was stored, and with which serial."""
        self.records[table_id] = replace(self.records[table_id], serial=serial, at=at)
        self._every = None

    def save(self, *records: TableRecord, why: str = "") -> None:
        """Replace records and mark them as unsaved. One commit will write all of these records."""
        for record in records:
            before = self.records.get(record.table_id)
            self.hold(record)
            self.unsaved[record.table_id] = None
            is_told = before and (before.word, before.reason) == (record.word, record.reason)
            goes_on = record.word is TableState.STOPPED and not record.reason
            if not (is_told or goes_on):
                self._note(record, why)

    def update(self, record: TableRecord, why: str = "") -> None:
        """Replace a record, as `save` does, if the new record was computed before a work began. Events may have changed
        the record's request, registration or deletion vectors during the work; these changes are kept."""
        now = self.records.get(record.table_id)
        if now is not None:
            record = replace(
                record,
                request=now.request,
                registered=now.registered,
                refused=now.refused,
                deletion_vectors=now.deletion_vectors,
            )
        self.save(record, why=why)

    def _note(self, record: TableRecord, why: str) -> None:
        level = "warning" if record.word is TableState.STOPPED else "info"
        fields = {"consumer": record.consumer, "table": record.label, "state": str(record.word)}
        fields |= {"why": why} if why else {}
        fields |= {"reason": record.reason} if record.reason else {}
        self.note("table", fields, level)

    def note(self, event: str, fields: Mapping[str, object], level: str = "info") -> None:
        self.effects.append(WriteNote(level, event, fields))

    def note_retry(self, failure: Failure, wait_s: float, table: str = "") -> None:
        """Log that a work has failed and will be tried again after `wait_s`. `table`: the table of the work, "" for a
        work of the whole consumer."""
        of_table = {"table": table} if table else {}
        fields = {"consumer": self.options.consumer, **of_table, "seconds": wait_s}
        self.note("retry", fields | {"error": failure.text}, "warning")

    # -- proofs ----------------------------------------------------------------------------------------------

    @property
    def at(self) -> float:
        """The time now, s since 1970."""
        return self.now + self.clock_s

    def proof_snapshot(self) -> Mapping[str, Proof]:
        """Returns the proofs by table id. All calls between two changes of proofs return the same object."""
        if self._every_proof is None:
            self._every_proof = dict(self.proofs)
        return self._every_proof

    def prove(self, proof: Proof, *, at_once: bool = False) -> None:
        """Replace a table's proof. `at_once`: True to store the proof now; otherwise it is stored with the next records
        or watermark."""
        self.proofs[proof.table_id], self.has_changed = proof, True
        self._every_proof = None
        self.unsaved_proofs[proof.table_id] = None
        due = self.now + (0.0 if at_once else self.options.watermark_s)
        self.proofs_due = due if self.proofs_due is None else min(due, self.proofs_due)

    def doubt_rows(self, record: TableRecord) -> None:
        """Let the next round of a table's proof begin at once, because a job has ended after it committed rows of the
        table, and before it stored the watermark."""
        proof = self.proofs.get(record.table_id)
        if proof is not None and not proof.doubted:
            self.prove(replace(proof, doubted=True))

    def ask_repair(self, record: TableRecord) -> None:
        """Let the proofs compare the table at once, and rewrite rows that differ, because a person has requested a
        repair."""
        known = self.proofs.get(record.table_id)
        proof = Proof(record.table_id, record.consumer) if known is None else known
        self.prove(proof.asked_for_repair(), at_once=True)

    # -- works -------------------------------------------------------------------------------------------------

    def reserve(self, table_id: str) -> None:
        """Prevent works from beginning on a table until `release` is called."""
        self._using[table_id] += 1

    def release(self, table_id: str) -> None:
        self._using[table_id] -= 1

    def new_run(self, table_ids: Iterable[str]) -> int:
        self._using.update(table_ids)
        self._last_run += 1
        return self._last_run

    def run_ended(self, table_ids: Iterable[str]) -> None:
        self._using.subtract(table_ids)

    def is_busy(self, table_id: str) -> bool:
        """True if a work runs on the table, or its record is not stored yet."""
        return self._using[table_id] > 0 or self.is_unsaved(table_id)

    def is_free(self, table_id: str) -> bool:
        """True if a work other than a move may begin on the table: the table is not busy, and the place of its folder
        is known."""
        return not self.is_busy(table_id) and table_id not in self.unsure

    def is_unsaved(self, table_id: str) -> bool:
        return table_id in self.unsaved or table_id in self.saving

    def without_place(self) -> dict[TableName, float]:
        """Returns the names of the tables whose folder is being moved, or could not be moved, and of those whose replay
        is about to end (`joining`). For each name, returns the lsn up to which the entries of the name belong to such a
        table. A step of such an entry would have to wait. It must not begin, because it would count as one of the
        `parallel` steps, and delay other tables."""
        until: dict[TableName, float] = {}
        for record in map(self.records.__getitem__, {*self.unsure, *self.joining}):
            for former in record.names:
                until[former.name] = max(former.until, until.get(former.name, 0))
            until[record.name] = math.inf
        return until

    # -- Delta tables ------------------------------------------------------------------------------------------

    def facts_of(self, record: TableRecord | None) -> DeltaFacts:
        if record is None:
            return UNKNOWN
        return self.facts.get((record.table_id, folder_or_place(record)), UNKNOWN)

    def learn(self, record: TableRecord, facts: DeltaFacts) -> None:
        self.facts[record.table_id, folder_or_place(record)] = facts

    def doubt(self, table_id: str) -> None:
        """Forget the facts about the Delta table, because a commit that was reported as failed may exist, or because
        the table has moved. The next work reads the facts again."""
        for key in [key for key in self.facts if key[0] == table_id]:
            del self.facts[key]

    def committed(self, record: TableRecord, lsn: int) -> None:
        """Update the facts about the Delta table after a commit that has recorded `lsn`."""
        facts = self.facts_of(record)
        applied = max(lsn, -1 if facts.applied is None else facts.applied)
        self.learn(record, DeltaFacts(applied, None, record.table_id))

    # -- the log -----------------------------------------------------------------------------------------------

    def learn_end(self, entries: Iterable[LogEntry]) -> None:
        """Update the log's end with the newest END entry (the end of an append) among the read `entries`."""
        for entry in entries:
            is_end = entry.kind is EntryKind.END and entry.position is not None
            # Older entries are read again after a crash, and by tasks of single tables.
            if is_end and (self.end is None or self.end.append < entry.append):
                self.end = LogEnd(entry.append, entry.position)

    def leave(self, record: TableRecord, lsn: int) -> None:
        """Record that the entry `lsn` of the table is left in the log."""
        self.left[record.table_id] = max(lsn, self.left.get(record.table_id, 0))

    def dealt_with(self, name: TableName) -> int:
        """Returns the lsn up to which each entry of a name is executed, or is left in the log."""
        # An append is always read as a whole.
        return self.queues.dealt_with(name, last_lsn(self.append_seen))

    def watermark(self) -> int:
        return self.queues.watermark(self.read_to)

    # -- rules -------------------------------------------------------------------------------------------------

    def situation(self, name: TableName) -> Situation:
        options = self.options
        return Situation(
            options.consumer,
            self.server,
            options.policy(name),
            options.can_copy,
            options.invalid_dates,
            options.new_id,
        )

    def context(
        self, name: TableName, snapshot: tuple[Position, Position] | None = None
    ) -> WorkContext:
        owners = self.owners
        return WorkContext(
            self.situation(name),
            lambda n: owners.get(n, ""),
            self._has_left,
            self.options.path,
            snapshot,
        )

    def _has_left(self, table_id: str, folder: str) -> bool:
        record = self.records.get(table_id)
        if record is None:
            return False
        # If the record names another folder, the Delta table in `folder` may be a copy that a person has made, so it
        # must not be replaced.
        return not record.folder or (record.is_dropped and record.folder == folder)

    # -- requests ----------------------------------------------------------------------------------------------

    def ask(self, table_id: str, request: Request) -> None:
        """Add a request to a table's record. The request is not stored with the record, so the record does not become
        unsaved."""
        self.hold(replace(self.records[table_id], request=request))


def _mark(ids: dict[str, None], table_id: str, *, holds: bool) -> None:
    if holds:
        ids[table_id] = None
    else:
        ids.pop(table_id, None)


def folder_or_place(record: TableRecord) -> str:
    """Returns the folder of the table or, if it has none yet, the folder in which it will be created."""
    return record.lies_at or folder_of(record.name)
