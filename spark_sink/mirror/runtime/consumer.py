"""One consumer of the applier: passes events to the consumer's rules, and the works of the rules to threads.

Other threads may call only `progress` of an `AppliedConsumer`. All its other methods are for the thread that calls
`step`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.log_lines import log_event
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.effects import (
    AskTable,
    ChangeTable,
    CommitRows,
    Effect,
    EndConsumer,
    MoveFolders,
    ReadLog,
    RepairRows,
    Stepped,
    StopCopy,
    WriteNote,
)
from spark_sink.mirror.rules.events import (
    Claimed,
    EntriesRead,
    Event,
    LogLost,
    RangeRead,
    RowsRepaired,
    Stopping,
    TableChanged,
    Ticked,
    WorkFailed,
)
from spark_sink.mirror.rules.mirror import Mirror
from spark_sink.mirror.rules.mirror_state import MirrorOptions
from spark_sink.mirror.rules.proofs import Proof
from spark_sink.mirror.rules.queues import WaitingTable
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import ChangeColumns
from spark_sink.mirror.runtime.look import Look
from spark_sink.mirror.runtime.progress import (
    TABLES_MAX,
    ConsumerProgress,
    ProgressCounter,
    proved_tables,
)
from spark_sink.mirror.runtime.works import ConsumerWorks, Work
from spark_sink.mirror.values.faults import in_one_line
from spark_sink.mirror.values.policies import ApplyOptions

log = logging.getLogger("spark_sink.mirror")

WAITING_S = 5.0  # time between two updates of the list of tables that wait
APPLIED_EVERY_S = 30.0  # shortest time between two lines `applied` of the log


def mirror_options(
    consumer: str, options: ApplyOptions, *, copies: bool, proves: bool
) -> MirrorOptions:
    """Returns the options of a consumer's rules. `copies`, `proves`: True if this job can copy tables, and compare
    them with the server."""
    target = options.target.rstrip("/")
    return MirrorOptions(
        consumer,
        policy=options.policy,
        excluded=partial(options.excludes, consumer),
        path=lambda folder: f"{target}/{folder}",
        can_copy=options.can_copy,
        copies=copies,
        parallel=options.parallel,
        invalid_dates=options.invalid_dates,
        step_bytes_max=options.step_bytes_max,
        held_bytes_max=options.held_bytes_max,
        retry_first_s=options.retry_first_s,
        watermark_s=options.watermark_s,
        proofs=options.proofs if proves else None,
    )


@dataclass(frozen=True, slots=True)
class ConsumerSnapshot:
    """The consumer's state, which other threads may read. `watermark`: the lsn (number of an entry) up to which no
    queue has entries that wait; `waiting`: number of items in the queues; `failing`, `histories_lsn`, `waiting_tables`:
    see `ConsumerProgress`; `proofs`: the proofs by table id, None if this job proves no tables."""

    watermark: int = 0
    waiting: int = 0
    records: tuple[TableRecord, ...] = ()
    failing: int = 0
    histories_lsn: int | None = None
    waiting_tables: tuple[WaitingTable, ...] = ()
    proofs: Mapping[str, Proof] | None = None


class UnloggedSteps:
    """The steps since the last line `applied` of the log. A line for each step would hide the other lines of a busy
    mirror."""

    def __init__(self) -> None:
        self._rows = self._steps = 0
        self._tables: set[str] = set()
        self._logged_at: float | None = None

    def add(self, table: str, rows: int) -> None:
        self._rows += rows
        self._steps += 1
        self._tables.add(table)

    def take(self, now: float) -> dict[str, int] | None:
        """Returns the fields of a line, and forgets the steps; None if there is no step, or if the last line was
        returned less than `APPLIED_EVERY_S` ago. `now`: s, of a monotonic clock."""
        rests = self._logged_at is not None and now - self._logged_at < APPLIED_EVERY_S
        if not self._steps or rests:
            return None
        fields = {"rows": self._rows, "steps": self._steps, "tables": len(self._tables)}
        self._rows = self._steps = 0
        self._tables.clear()
        self._logged_at = now
        return fields


class AppliedConsumer:
    """`failure`: why the consumer's entries are no longer applied; `snapshot`: its state after the last event."""

    def __init__(
        self,
        works: ConsumerWorks,
        mirror: Mirror,
        counter: ProgressCounter,
        look: Look,
        submit: Callable[[ConsumerWorks, Work], None],
    ) -> None:
        self.name = works.consumer
        self.failure: BinlogError | None = None
        self.snapshot = ConsumerSnapshot()
        self.wakeup: float | None = None
        self._works, self._mirror, self._counter = works, mirror, counter
        self._look, self._submit = look, submit
        self._running: dict[int, Effect] = {}
        self._broken = False
        self._waiting: tuple[WaitingTable, ...] = ()
        self._waiting_at = 0.0
        self._unlogged = UnloggedSteps()

    # -- events ------------------------------------------------------------------------------------------------

    def start(self, rows: ControlRows, *, drain: bool) -> None:
        """Pass the first events to the rules. `rows`: the rows of the control table; `drain`: True to apply only the
        entries that the log contains now."""
        for event in self._look.first(rows, drain=drain):
            self.step(event)

    def look(self) -> None:
        """Let a thread look for changes of the log and of the control table."""
        if self.failure is None:
            self._look.ask(self.snapshot.records)
        if (now := time.monotonic()) >= self._waiting_at:
            self._waiting_at = now + WAITING_S
            self._waiting = tuple(self._mirror.waiting(TABLES_MAX))
            self.snapshot = self._snapshot()
        self._log_applied()

    def tick(self, now: float) -> None:
        if self.wakeup is not None and now >= self.wakeup:
            self.step(Ticked())

    def stop(self) -> None:
        """Stop copies and proofs, and pass `Stopping` to the rules."""
        self._works.stop()
        self.step(Stopping())

    def store_watermark(self) -> None:
        """Make the rules store the watermark now instead of at its usual time."""
        self.step(Ticked(), ahead_s=self._works.options.watermark_s)

    # -- the rules ---------------------------------------------------------------------------------------------

    def step(self, event: Event, ahead_s: float = 0.0) -> None:
        """Pass an event to the rules, and execute the effects that they return. `ahead_s`: seconds by which the time
        that is passed to the rules is ahead of the clock."""
        if self._broken:
            return
        self._observe(event)
        try:
            effects = self._mirror.step(event, time.monotonic() + ahead_s)
        except Exception as error:
            # This is a bug, after which the state of the rules may be wrong.
            log.exception("%s: the applier has failed", self.name)
            self._broken = True
            self._end(
                BinlogError(ErrorKind.INTERNAL, in_one_line(error), where=f"consumer {self.name}")
            )
            return
        for effect in effects:
            self._execute(effect, event)
        self.wakeup = self._mirror.next_wakeup()
        self.snapshot = self._snapshot()

    def _observe(self, event: Event) -> None:
        """Update the counts of the progress with an event."""
        effect = self._running.pop(getattr(event, "run", 0), None)
        match event:
            case EntriesRead(entries=entries) | LogLost(before=entries) if _reads_all(effect):
                self._counter.read(entries)
            case RangeRead():
                self._counter.read_for_proof(event.rows)
            case RowsRepaired():
                self._counter.repaired(event.keys)
            case TableChanged(refused=""):
                if isinstance(effect, ChangeTable) and isinstance(effect.change, ChangeColumns):
                    self._altered(effect.record, effect.change)
            case WorkFailed() if isinstance(
                effect, AskTable | ChangeTable | CommitRows | MoveFolders | RepairRows
            ):
                self._counter.failed()

    def _execute(self, effect: Effect, event: Event) -> None:
        match effect:
            case WriteNote():
                level = logging.getLevelNamesMapping()[effect.level.upper()]
                log_event(log, effect.event, effect.fields, level)
            case Stepped():
                self._stepped(effect)
            case StopCopy():
                self._works.copies.stop(effect.run)
            case EndConsumer():
                if not isinstance(event, Claimed):
                    log.error("%s: %s", self.name, effect.error)
                self._end(effect.error)
            case _:
                self._running[effect.run] = effect
                self._submit(self._works, effect)

    def _end(self, error: BinlogError) -> None:
        self.failure = error
        self._works.stop()

    def _altered(self, record: TableRecord, altered: ChangeColumns) -> None:
        fields: dict[str, Any] = {"consumer": self.name, "table": record.label}
        fields |= {"columns": altered.change.summary, "lsn": altered.lsn}
        log_event(log, "altered", fields)

    def _stepped(self, step: Stepped) -> None:
        times = self._works.times.pop(step.run)
        self._counter.stepped(step.record.label, step.rows, times.phases)
        self._counter.invalid(step.record.label, times.invalid)
        fields = {"consumer": self.name, "table": step.record.label, "rows": step.rows}
        fields |= {"seconds": times.seconds}
        fields |= {f"{name}_s": s for name, s in times.phases.items()}
        log_event(log, "step", fields, logging.DEBUG)
        self._unlogged.add(step.record.label, step.rows)
        self._log_applied()

    def _log_applied(self) -> None:
        if (fields := self._unlogged.take(time.monotonic())) is not None:
            log_event(log, "applied", {"consumer": self.name, **fields})

    # -- progress ----------------------------------------------------------------------------------------------

    def _snapshot(self) -> ConsumerSnapshot:
        state, mirror = self._mirror.state, self._mirror
        return ConsumerSnapshot(
            state.watermark(),
            state.queues.items,
            state.snapshot(),
            mirror.failing(),
            mirror.histories_cursor(),
            self._waiting,
            None if state.options.proofs is None else state.proof_snapshot(),
        )

    def progress(self) -> ConsumerProgress:
        """Returns how far the consumer is applied. Other threads may call this method."""
        snapshot = self.snapshot
        now = self._counter.progress(snapshot.watermark, snapshot.waiting, snapshot.records)
        return replace(
            now,
            failed=self.failure is not None,
            failing=snapshot.failing,
            histories_lsn=snapshot.histories_lsn,
            waiting_tables=snapshot.waiting_tables,
            proved=None
            if snapshot.proofs is None
            else proved_tables(snapshot.records, snapshot.proofs),
        )

    def at_rest(self) -> bool:
        """True if a drain has ended: all entries up to its goal are applied, or left in the log."""
        return self.failure is not None or self._mirror.at_rest()

    def unfinished(self) -> list[str]:
        """Returns the tables and histories that are stopped, not copied yet, or failing."""
        return self._mirror.unfinished()

    @property
    def needed(self) -> int:
        """The lsn after which the log is still needed."""
        return self._mirror.needed_to


def _reads_all(effect: Effect | None) -> bool:
    """True if a work reads the log into the queues."""
    return isinstance(effect, ReadLog) and effect.before is None and effect.tables is None
