"""One consumer of the applier: passes events to its rules, and their works to threads.

Only one thread may call it, because it steps the rules. Other threads may ask for the progress.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.log_lines import log_event
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.log.files import LostFileError, log_is_shorter
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.effects import (
    AskTable,
    ChangeTable,
    CommitRows,
    Effect,
    EndConsumer,
    MoveFolders,
    ReadLog,
    Stepped,
    StopCopy,
    WriteNote,
)
from spark_sink.mirror.rules.events import (
    Claimed,
    EntriesRead,
    Event,
    LogGrew,
    LogLost,
    RequestsRead,
    Started,
    Stopping,
    Ticked,
    WorkFailed,
)
from spark_sink.mirror.rules.mirror import Mirror
from spark_sink.mirror.rules.mirror_state import MirrorOptions
from spark_sink.mirror.rules.retries import LASTING_AFTER, backoff_s
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.claims import Claims
from spark_sink.mirror.runtime.progress import ConsumerProgress, ProgressCounter
from spark_sink.mirror.runtime.works import ConsumerWorks, Work, other_owners
from spark_sink.mirror.values.entries import LogEnd, last_lsn
from spark_sink.mirror.values.faults import in_one_line
from spark_sink.mirror.values.policies import ApplyOptions

if TYPE_CHECKING:
    from spark_sink.mirror.lake.control_table import ControlTable

log = logging.getLogger("spark_sink.mirror")


def mirror_options(consumer: str, options: ApplyOptions, *, copies: bool) -> MirrorOptions:
    """Returns the options of a consumer's rules. `copies`: True if this job can copy."""
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
        retry_first_s=options.retry_first_s,
        watermark_s=options.watermark_s,
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """The consumer's state, for other threads. `watermark`: the lsn up to which everything is applied; `waiting`:
    number of entries in the queues; `failing`, `histories_lsn`: see `ConsumerProgress`."""

    watermark: int = 0
    waiting: int = 0
    records: tuple[TableRecord, ...] = ()
    failing: int = 0
    histories_lsn: int | None = None


class AppliedConsumer:
    """`failure`: why the consumer's entries are no longer applied; `standing`: its state after the last event."""

    def __init__(
        self,
        works: ConsumerWorks,
        mirror: Mirror,
        counter: ProgressCounter,
        submit: Callable[[ConsumerWorks, Work], None],
    ) -> None:
        self.name = works.consumer
        self.failure: BinlogError | None = None
        self.standing = Standing()
        self.wakeup: float | None = None
        self._works, self._mirror, self._counter, self._submit = works, mirror, counter, submit
        self._log: BinlogLog = works.binlog_log
        self._policy, self._retry_first_s = works.options.policy, works.options.retry_first_s
        self._newest, self._serial = 0, -1
        self._running: dict[int, Effect] = {}
        self._drain = self._broken = False
        self._attempts, self._retry_at = 0, 0.0

    # -- what the rules are told -------------------------------------------------------------------------------

    def start(self, rows: ControlRows, claimed: BinlogError | None, *, drain: bool) -> None:
        """Begin. `claimed`: the error if another job has the consumer; `drain`: True to apply only what the log holds
        now."""
        self._drain = drain
        own = [*rows.records.values(), *rows.histories.values()]
        records = tuple(record for record in own if record.consumer == self.name)
        applied, owners = rows.applied.get(self.name, 0), other_owners(rows, self.name)
        end, oldest = None, 0
        if claimed is not None:
            self.step(Claimed(claimed))
        else:
            try:
                end, oldest = self._look(records, applied)
            except BinlogError as error:
                self._mirror.fail(error)
        goal = (last_lsn(self._newest) if self._newest else 0) if drain else None
        self.step(Started(records, owners, applied, end, self._newest, oldest, goal))
        self._read_requests(rows)

    def _look(self, records: tuple[TableRecord, ...], applied: int) -> tuple[LogEnd | None, int]:
        """Returns the end of the log and the smallest lsn that it still has. Raises `BinlogError` if tables are applied
        beyond the end of the log."""
        self._newest = self._log.last_append(self.name)
        if applied > (last_lsn(self._newest) if self._newest else 0):
            raise log_is_shorter(self.name, self._log.path)
        end = None
        # If the end is lost, the next END entry that is read counts.
        with suppress(LostFileError):
            end = self._log.end(self.name)
        return end, self._oldest(records)

    def _oldest(self, records: tuple[TableRecord, ...]) -> int:
        """Returns the smallest lsn that the log still has; 0 if no history needs to know it, because finding it
        requires a list of all files of the log."""
        if not any(record.history or self._policy(record.name).history for record in records):
            return 0
        return self._log.first_lsn_held(self.name) or 0

    def poll(self, control: ControlTable, claims: Claims) -> None:
        """Pass to the rules what has changed in the log and in the control table."""
        now = time.monotonic()
        if self.failure is not None or now < self._retry_at:
            return
        try:
            newest = self._log.last_append(self.name)
            if newest > self._newest:
                oldest = self._oldest(self.standing.records)
                self._newest = newest
                self.step(LogGrew(newest, oldest))
            rows = control.rows()
            if rows.serial == self._serial:
                return
            if (error := claims.lost(self.name)) is not None:
                self.step(Claimed(error))
                return
            self._read_requests(rows)
        except Exception as error:  # noqa: BLE001 - every kind of it is handled
            self._not_read(error, now)
        else:
            self._attempts = 0

    def _read_requests(self, rows: ControlRows) -> None:
        self._serial = rows.serial
        records = [*rows.records.values(), *rows.histories.values()]
        asked = {
            record.table_id: record.request
            for record in records
            if record.consumer == self.name and record.request is not None
        }
        named = {name: request for (of, name), request in rows.named.items() if of == self.name}
        self.step(RequestsRead(asked, named, other_owners(rows, self.name)))

    def _not_read(self, error: Exception, now: float) -> None:
        """Check the log again later. A fault of the log ends the consumer. In a drain, a failure that lasts ends it,
        too."""
        if isinstance(error, BinlogError):
            self.fail(error)
            return
        self._attempts += 1
        wait_s = backoff_s(self._retry_first_s, self._attempts)
        self._retry_at = now + wait_s
        text = in_one_line(error)
        said = {"consumer": self.name, "seconds": wait_s, "error": text}
        log_event(log, "retry", said, logging.WARNING)
        log.debug("%s: the whole error", self.name, exc_info=error)
        if self._drain and self._attempts >= LASTING_AFTER:
            self.fail(BinlogError(ErrorKind.INTERNAL, text, where=f"consumer {self.name}"))

    def fail(self, error: BinlogError) -> None:
        """Stop applying this consumer."""
        self._mirror.fail(error)
        self.step(Ticked())

    def tick(self, now: float) -> None:
        if self.wakeup is not None and now >= self.wakeup:
            self.step(Ticked())

    def stop(self) -> None:
        """Tell the rules that the job ends."""
        self._works.copies.stop_all()
        self.step(Stopping())

    def store_watermark(self) -> None:
        """Let the rules store now how far everything is applied, before the usual time."""
        self.step(Ticked(), ahead_s=self._works.options.watermark_s)

    # -- the rules ---------------------------------------------------------------------------------------------

    def step(self, event: Event, ahead_s: float = 0.0) -> None:
        """Pass an event to the rules, and begin what they return. `ahead_s`: how far their clock is advanced."""
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
        self.standing = self._stands()

    def _observe(self, event: Event) -> None:
        """Count an event for the progress."""
        effect = self._running.pop(getattr(event, "run", 0), None)
        match event:
            case EntriesRead(entries=entries) | LogLost(before=entries) if _reads_all(effect):
                self._counter.read(entries)
            case WorkFailed() if isinstance(
                effect, AskTable | ChangeTable | CommitRows | MoveFolders
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
        self._works.copies.stop_all()

    def _stepped(self, step: Stepped) -> None:
        times = self._works.times.pop(step.run)
        self._counter.stepped(step.record.label, step.rows, times.phases)
        said = {"consumer": self.name, "table": step.record.label, "rows": step.rows}
        said |= {"seconds": times.seconds}
        log_event(log, "step", said | {f"{name}_s": s for name, s in times.phases.items()})

    # -- how it stands -----------------------------------------------------------------------------------------

    def _stands(self) -> Standing:
        state, mirror = self._mirror.state, self._mirror
        return Standing(
            state.watermark(),
            state.queues.items,
            tuple(state.records.values()),
            mirror.failing(),
            mirror.histories_cursor(),
        )

    def progress(self) -> ConsumerProgress:
        """Returns how far the consumer is applied. Other threads may call it."""
        stands = self.standing
        now = self._counter.progress(stands.watermark, stands.waiting, stands.records)
        return replace(
            now,
            failed=self.failure is not None,
            failing=stands.failing,
            histories_lsn=stands.histories_lsn,
        )

    def at_rest(self) -> bool:
        """True if a drain is done."""
        return self.failure is not None or self._mirror.at_rest()

    def stands(self) -> list[str]:
        """Returns the tables and histories that are not applied."""
        return self._mirror.standing()

    @property
    def needed(self) -> int:
        """The lsn behind which the log is still needed."""
        return self._mirror.needed_to


def _reads_all(effect: Effect | None) -> bool:
    """True if a work reads the log into the queues."""
    return isinstance(effect, ReadLog) and effect.before is None and effect.tables is None
