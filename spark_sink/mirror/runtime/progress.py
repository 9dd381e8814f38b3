"""Counts how far the log of a consumer is applied, for metrics, messages and the page."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC

from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.rules.proofs import Proof, is_provable
from spark_sink.mirror.rules.queues import WaitingTable
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.step_clock import StepPhase
from spark_sink.source.raw_entries import EntryKind

# At most this many tables have separate counts; the steps of all other tables are counted together.
TABLES_MAX = 200
OTHER_TABLES = ""


@dataclass(frozen=True, slots=True)
class TableSteps:
    """The steps of a table since the start of the job. `seconds`: the time of all these steps, by phase."""

    steps: int = 0
    rows: int = 0
    seconds: Mapping[StepPhase, float] = field(
        default_factory=lambda: dict.fromkeys(StepPhase, 0.0)
    )

    def after(self, rows: int, seconds: Mapping[StepPhase, float]) -> TableSteps:
        summed = {phase: before + seconds.get(phase, 0.0) for phase, before in self.seconds.items()}
        return TableSteps(self.steps + 1, self.rows + rows, summed)


@dataclass(frozen=True, slots=True)
class ProvedTables:
    """The proofs of a consumer's complete tables. `since`: by label, when the last comparison began that compared the
    whole table and found no difference, s since 1970; if more than `TABLES_MAX` tables have such a time, only those
    with the oldest times; `differing`: how many tables differ; `unproved`: how many were never proved, although they do
    not differ."""

    since: Mapping[str, float]
    differing: int
    unproved: int


def proved_tables(records: Iterable[TableRecord], proofs: Mapping[str, Proof]) -> ProvedTables:
    """Returns the proofs of a consumer's tables. `proofs`: by table id."""
    since: dict[str, float] = {}
    differing = unproved = 0
    for record in records:
        if not is_provable(record):
            continue
        proof = proofs.get(record.table_id)
        if proof is not None and proof.proved is not None:
            since[record.label] = proof.proved
        if proof is not None and proof.difference is not None:
            differing += 1
        elif proof is None or proof.proved is None:
            unproved += 1
    oldest = sorted(since, key=since.__getitem__)[:TABLES_MAX]
    return ProvedTables({label: since[label] for label in oldest}, differing, unproved)


@dataclass(frozen=True, slots=True)
class ConsumerProgress:
    """How far a consumer's log is applied.

    `read_lsn`: the lsn up to which the log is read; `applied_lsn`: the lsn up to which it is applied; `logged_seq`: the
    consumer's last transaction in the log; `applied_seq`: its last applied transaction; `logged_at`, `applied_at`: when
    the server committed these two transactions, s since 1970, 0 if not known; `rows`, `steps`, `failures`: counted
    since the start of the job; `tables`: how many tables are in each state; `waiting`: number of items in the queues;
    `copies`: the copies that run; `ended_copies`: for each table with a copy that has ended, the final progress of the
    last such copy; `failed`: True if the consumer's entries are no longer applied; `failing`: number of tables and
    histories whose steps fail; `stopped`: the stopped tables, with the time of the stop, s since 1970; `stepped`: the
    steps of at most `TABLES_MAX` tables, by label, and those of all other tables under ""; `histories`: how many
    histories are in each state; `histories_lsn`: the lsn up to which the log is applied to all histories, None if there
    are none; `waiting_tables`: the tables with the most entries that are not applied, at most `TABLES_MAX`;
    `proof_rows`: number of rows that were read from the server for comparisons; `repaired_rows`: how many keys had rows
    that differed and were rewritten; `proved`: the proofs, None if this job proves no tables; `invalid`: how many
    invalid values became NULL, by label, as in `stepped`.
    """

    consumer: str
    read_lsn: int = 0
    applied_lsn: int = 0
    logged_seq: int = 0
    applied_seq: int = 0
    logged_at: float = 0.0
    applied_at: float = 0.0
    rows: int = 0
    steps: int = 0
    failures: int = 0
    waiting: int = 0
    tables: Mapping[TableState, int] = field(default_factory=Counter)
    copies: tuple[CopyProgress, ...] = ()
    ended_copies: tuple[CopyProgress, ...] = ()
    failed: bool = False
    failing: int = 0
    stopped: Mapping[str, float] = field(default_factory=dict)
    stepped: Mapping[str, TableSteps] = field(default_factory=dict)
    histories: Mapping[TableState, int] = field(default_factory=Counter)
    histories_lsn: int | None = None
    waiting_tables: tuple[WaitingTable, ...] = ()
    proof_rows: int = 0
    repaired_rows: int = 0
    proved: ProvedTables | None = None
    invalid: Mapping[str, int] = field(default_factory=Counter)

    def lag_s(self) -> float:
        """Returns the age of the newest applied transaction if later transactions wait in the log; otherwise 0."""
        waits = self.applied_seq < self.logged_seq and self.applied_at
        return max(0.0, time.time() - self.applied_at) if waits else 0.0


@dataclass(frozen=True, slots=True)
class _LogPoint:
    """The end of an append."""

    lsn: int
    seq: int
    at: float


class ProgressCounter:
    """Counts what a consumer's applier reads and applies. Threads may share it."""

    def __init__(self, consumer: str) -> None:
        self._lock = threading.Lock()
        self._now = ConsumerProgress(consumer)
        self._ahead: deque[_LogPoint] = deque()  # the ends of the read appends that are not applied
        self._at = 0.0
        self._copies: dict[str, CopyProgress] = {}
        self._ended: dict[str, CopyProgress] = {}
        self._steps: dict[str, TableSteps] = {}
        self._invalid: Counter[str] = Counter()

    def read(self, entries: Iterable[LogEntry]) -> None:
        """Count entries of the log that were read, in order."""
        with self._lock:
            for entry in entries:
                if entry.committed_at is not None:
                    self._at = max(self._at, entry.committed_at.timestamp())
                if entry.kind is EntryKind.END and entry.position is not None:
                    point = _LogPoint(entry.lsn, entry.position.seq, self._at)
                    self._ahead.append(point)
                    self._now = replace(self._now, logged_seq=point.seq, logged_at=point.at)
                self._now = replace(self._now, read_lsn=entry.lsn)

    def stepped(self, table: str, rows: int, seconds: Mapping[StepPhase, float]) -> None:
        """Count a step that was applied."""
        with self._lock:
            if table not in self._steps and len(self._steps) >= TABLES_MAX:
                table = OTHER_TABLES
            self._steps[table] = self._steps.get(table, TableSteps()).after(rows, seconds)
            self._now = replace(self._now, rows=self._now.rows + rows, steps=self._now.steps + 1)

    def invalid(self, table: str, values: int) -> None:
        """Count invalid values that became NULL in rows of a table."""
        with self._lock:
            if values and table not in self._invalid and len(self._invalid) >= TABLES_MAX:
                table = OTHER_TABLES
            self._invalid[table] += values

    def read_for_proof(self, rows: int) -> None:
        """Count rows of a range that were read from the server to compare them."""
        with self._lock:
            self._now = replace(self._now, proof_rows=self._now.proof_rows + rows)

    def repaired(self, keys: int) -> None:
        """Count keys whose rows differed and were rewritten."""
        with self._lock:
            self._now = replace(self._now, repaired_rows=self._now.repaired_rows + keys)

    def failed(self) -> None:
        """Count an attempt at a step that failed."""
        with self._lock:
            self._now = replace(self._now, failures=self._now.failures + 1)

    def copying(self, state: CopyProgress) -> None:
        with self._lock:
            self._copies[state.label] = state

    def copied(self, table: str) -> None:
        """Count a copy that has ended, and remove its progress."""
        with self._lock:
            if (ended := self._copies.pop(table, None)) is not None:
                self._ended[table] = ended

    def progress(
        self, applied_lsn: int, waiting: int, records: Iterable[TableRecord]
    ) -> ConsumerProgress:
        """Returns the progress now. `applied_lsn`: the watermark; `waiting`: the number of items in the queues;
        `records`: the records of the tables and histories."""
        all_records = list(records)
        stopped = [record for record in all_records if record.word is TableState.STOPPED]
        with self._lock:
            while self._ahead and self._ahead[0].lsn <= applied_lsn:
                point = self._ahead.popleft()
                self._now = replace(self._now, applied_seq=point.seq, applied_at=point.at)
            return replace(
                self._now,
                applied_lsn=applied_lsn,
                waiting=waiting,
                tables=Counter(record.word for record in all_records if not record.history),
                histories=Counter(record.word for record in all_records if record.history),
                copies=tuple(self._copies.values()),
                ended_copies=tuple(self._ended.values()),
                stopped={record.label: _stopped_at(record) for record in stopped},
                stepped=dict(self._steps),
                invalid=+self._invalid,
            )


def _stopped_at(record: TableRecord) -> float:
    """Returns when the record was written, s since 1970; 0 if this time is not known yet."""
    return record.at.replace(tzinfo=UTC).timestamp() if record.at else 0.0
