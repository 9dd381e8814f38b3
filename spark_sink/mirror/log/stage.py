"""The log stage of one consumer: a streaming query that appends each micro-batch to the mirror's log.

A run is one start of the query. It begins with a claim, an entry that it appends to the log. The run's appends get the
numbers after the claim, and older runs can no longer append. The query starts at the position where the log ends, with
a new checkpoint. The stage deletes the checkpoints of older runs, because no run needs them.

The stage restarts a failed query. It waits with exponential backoff and jitter or, after a failure that a person must
correct, 60 s each time. It logs a failure only if the text of the failure differs from that of the last failure. The
stage ends if another job claims the consumer. If a reader without a claim reads the consumer, for instance a job of
another target, the two readers fence each other and make no progress. So the stage ends after it has lost `FENCED_MAX`
sessions. (A session is the right of one reader to read a consumer.)

With `available_now`, a query ends at the position that was the server's newest when the query started. A Spark version
without admission control makes only one batch in such a query, and this batch is at most as large as the consumer's
queue. Then the stage starts the query again until the log has reached the position that was the server's newest at the
first start.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dispatcher.model.errors import POLICY, Action, BinlogError, ErrorKind, with_name
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.log.append import LogAppender
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.values.entries import LogEnd
from spark_sink.mirror.values.faults import fault_line
from spark_sink.mirror.values.names import folder_name, own_path
from spark_sink.source.http.client import ConsumerClient, Session
from spark_sink.source.options import SourceOptions
from spark_sink.source.slices import newest_form
from spark_sink.source.spark_abilities import ADMISSION_CONTROL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from dispatcher.model.position import Position
    from spark_sink.mirror.values.settings import MirrorSettings

log = logging.getLogger("spark_sink.mirror")

BACKOFF_MIN_S, BACKOFF_MAX_S = 1.0, 60.0
OPERATOR_RETRY_S = 60.0
HEALTHY_S = 120.0  # after a longer run, the next backoff is short again
BATCHES_KEPT = 100  # for this many of the newest batches, the number of changed rows is kept
FENCED_MAX = 4  # the stage fails if other readers end this many sessions in quick succession
BEHIND_APPENDS = 4
REST_MAX_S = 1.0  # the longest pause after an append
ATTEMPTS_TO_THE_END = 6  # with available_now, the stage fails after this many attempts
START_STOP_S = 5.0  # how long `stop` waits for a start that runs
_CLAIMING = threading.Lock()
# Kinds of faults that mean that the consumer cannot continue at the position at which the log ends.
_LOST = (
    ErrorKind.POSITION_PURGED,
    ErrorKind.POSITION_UNKNOWN,
    ErrorKind.STORED_POSITION,
)
_LATER = (Action.RETRY, Action.OPERATOR)


class StageState(StrEnum):
    """What a log stage does."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # the stage waits until its query is started again
    DONE = "done"  # with available_now: everything is in the log
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StageFault:
    """Why a query failed. `kind`: None if the exception is no `BinlogError` and its text names no kind."""

    kind: ErrorKind | None
    text: str

    @property
    def action(self) -> Action:
        return POLICY[self.kind].action if self.kind else Action.RETRY


@dataclass(frozen=True, slots=True)
class JobCalls:
    """The functions of the job that a stage calls. `appended`: called after each append; `lost`: returns True if
    another job has claimed the consumer; `applied`: returns the lsn up to which the consumer is applied; `is_behind`:
    returns True if the tables are more than `BEHIND_APPENDS` behind the append with this number."""

    appended: Callable[[], None]
    lost: Callable[[], bool]
    applied: Callable[[], int]
    is_behind: Callable[[int], bool]


class LogStage:
    """Runs the query of one consumer. The job must call `check` repeatedly. `check` does not wait: another thread
    starts the query, because the start takes seconds."""

    def __init__(
        self,
        spark: SparkSession,
        settings: MirrorSettings,
        consumer: str,
        job: JobCalls,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Tests replace `clock` (seconds, monotonic) and `jitter` (0..1)."""
        self.consumer = consumer
        self.state = StageState.WAITING
        self.restarts = 0
        self._spark, self._settings = spark, settings
        self._job, self._clock, self._jitter = job, clock, jitter
        self._given_up = False
        self._stopping = threading.Event()
        # The appender has its own session, in which it reads the recorded append numbers, and makes its commits.
        self._appender = LogAppender(spark.newSession(), settings.target)
        self._query: StreamingQuery | None = None
        self._starter: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._target: Position | None = (
            None  # the position that the log has to reach; None: the log may end with the first query
        )
        self._run_began: Position | None = (
            None  # where the query has begun; None: at the stored position
        )
        self._rows: dict[int, int] = {}  # number of changed rows, by number of the batch
        self._logged = ""
        self._attempts = self._fenced = 0
        self._due = self._began = clock()

    @property
    def works(self) -> bool:
        """False after a failure, until the query runs again."""
        return self.state is not StageState.FAILED and not (
            self.restarts and self.state in (StageState.WAITING, StageState.STARTING)
        )

    @property
    def has_position(self) -> bool:
        """True if the log has a position, at which copies can begin."""
        return self._run_began is not None

    def check(self) -> None:
        """Start the query if it is due, or find out why it has ended."""
        if self.state is StageState.WAITING and self._clock() >= self._due:
            self.state = StageState.STARTING
            # A daemon thread, because it may wait for minutes for the daemon, and the job must be able to end.
            self._starter = threading.Thread(
                target=self._start, name=f"start-{self.consumer}", daemon=True
            )
            self._starter.start()
        elif self.state is StageState.RUNNING and not self._active:
            self._ended()

    @property
    def _active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def rows(self, batch: int) -> int | None:
        """Returns the number of changed rows of a batch; None if it is not known. Spark itself counts slices, not
        changed rows."""
        return self._rows.get(batch)

    def look_for_claims(self) -> None:
        """End the stage if another job has claimed the consumer. Does not wait until the query has ended."""
        if not self._given_up and self._job.lost():
            self._give_up()

    def _give_up(self) -> None:
        self._given_up, self.state = True, StageState.FAILED
        threading.Thread(target=self.stop, name=f"stop-{self.consumer}").start()

    def stop(self) -> None:
        """Stop the query. Its current batch continues, and is appended as a whole or not at all. A start that waits for
        the daemon is left behind after `START_STOP_S`: it then starts no query."""
        self._stopping.set()
        if self._starter is not None and self._starter is not threading.current_thread():
            self._starter.join(START_STOP_S)
        self._end_query()

    def _end_query(self) -> None:
        if self._query is None:
            return
        # `stop` raises if the batch takes longer than spark.sql.streaming.stopTimeout.
        with suppress(Py4JError, PySparkException):
            self._query.stop()

    # -- one run -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._failure = None
        self._began = self._clock()
        try:
            if self._job.lost():
                self._give_up()
                return
            if self._settings.available_now and not ADMISSION_CONTROL and self._target is None:
                self._target = self._read_only_session().head
            end = self._claim()
            self._run_began = end.position
            folder = own_path(self._settings.target, "checkpoints", folder_name(self.consumer))
            FileSystem(self._spark).delete(folder)
            options = self._settings.source_options(self.consumer)
            if end.position is not None:
                options["startingOffsets"] = end.position.to_json()
            writer = (
                self._spark.readStream.format("binlog")
                .options(**options)
                .load()
                .writeStream.queryName(self.consumer)
                .foreachBatch(self._append_from(end.append + 1, SourceOptions.parse(options)))
                .option("checkpointLocation", f"{folder}/{end.append}")
            )
            if self._settings.available_now:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=self._settings.trigger_interval)
            self._query = writer.start()
        except Exception as error:  # noqa: BLE001 - `_failed` reports it, and decides what follows
            if not self._stopping.is_set():
                self._failed(self._fault(error))
            return
        if self._stopping.is_set():
            self._end_query()  # `stop` may have left this thread behind
            return
        self.state = StageState.RUNNING
        where = (
            f"{end.position.file}:{end.position.offset}" if end.position else "its stored position"
        )
        log.info("%s: logging into %s from %s", self.consumer, self._appender.log.path, where)

    def _claim(self) -> LogEnd:
        """Begin a run. If the log's end is lost, raises `BinlogError` or, if the settings allow it, continues the log
        after the loss. If the log has no position yet, append the one at which the run begins: a copy begins at a
        position of the log, and a server without transactions delivers none."""
        applied = self._job.applied()
        behind_loss = None if self._settings.fail_on_data_loss else self._stored_position
        # One at a time: the first claim of a target creates the log.
        with _CLAIMING:
            end = self._appender.claim(self.consumer, applied=applied, behind_loss=behind_loss)
        if end.position is None:
            end = self._appender.append_end(self.consumer, end.append + 1, self._stored_position())
        return end

    def _stored_position(self) -> Position:
        """Returns the position that the daemon has stored for the consumer. This call fences no reader."""
        session = self._read_only_session()
        return newest_form(session.position, session.head)

    def _read_only_session(self) -> Session:
        options = SourceOptions.parse(self._settings.source_options(self.consumer))
        client = ConsumerClient(options.address, self.consumer)
        try:
            return client.open_session(None, read_only=True)
        finally:
            client.close()

    def _append_from(self, first: int, options: SourceOptions) -> Callable[[DataFrame, int], None]:
        def append(batch: DataFrame, number: int) -> None:
            began = self._clock()
            try:
                rows = self._appender.append(batch, options, self.consumer, first + number)
            except Exception as error:  # noqa: BLE001 - `check` reports it, in one line
                self._failure = error
                # Spark matches the text of this exception with a regular expression that overflows the JVM's stack
                # if the text is long, such as the trace of a failed Spark job.
                text = f"append {first + number}: {type(error).__name__}"
                raise BinlogError(ErrorKind.INTERNAL, text, where=self.consumer) from None
            self._rows[number] = rows
            self._rows.pop(number - BATCHES_KEPT, None)
            self._job.appended()
            if self._job.is_behind(first + number):
                # A step applies all waiting appends of its table at once, so more appends do not make the tables newer.
                # They would only take the processor from the steps: appends get at most half of the time.
                self._stopping.wait(min(self._clock() - began, REST_MAX_S))

        return append

    def _ended(self) -> None:
        assert self._query is not None
        error: BaseException | None = self._failure or self._query.exception()
        if error is None and self._is_short():
            self.state, self._due = StageState.WAITING, self._clock()
        elif error is None:
            self.state = StageState.DONE
            log.info(
                "%s: the log has everything that the daemon had at the start of this run",
                self.consumer,
            )
        else:
            self._failed(self._fault(error))

    def _is_short(self) -> bool:
        """True if the query has appended to the log, and the log has not reached the position `_target` yet."""
        if self._target is None:
            return False
        end = self._appender.log.end(self.consumer)
        position = None if end is None else end.position
        if position is None or position == self._run_began:
            return False
        return position.order < self._target.order

    def _fault(self, error: BaseException) -> StageFault:
        fault = stage_fault(error)
        if fault.kind is ErrorKind.SESSION_FENCED and self._was_moved():
            fault = StageFault(ErrorKind.POSITION_PURGED, fault.text)
        return replace(fault, text=with_remedy(fault, self.consumer))

    def _was_moved(self) -> bool:
        """True if a person has moved the consumer to another position: its epoch in the daemon then differs from that
        of the log's end. Such a move fences readers, as the start of another job does."""
        try:
            end = self._appender.log.end(self.consumer)
            return (
                end is not None
                and end.position is not None
                and (self._stored_position().epoch != end.position.epoch)
            )
        except BinlogError as error:
            log.warning("%s: %s", self.consumer, error)
            return False

    def _failed(self, fault: StageFault) -> None:
        if self._given_up:
            return
        if self._clock() - self._began > HEALTHY_S:
            self._attempts = self._fenced = 0
        self._attempts += 1
        if fault.kind is ErrorKind.SESSION_FENCED:
            if self._is_lost():
                self._give_up()
                return
            self._fenced += 1
        self.restarts += 1
        to_the_end = self._settings.available_now
        last = to_the_end and (fault.action not in _LATER or self._attempts >= ATTEMPTS_TO_THE_END)
        if self._fenced >= FENCED_MAX or (last and fault.kind is not ErrorKind.SESSION_FENCED):
            self.state = StageState.FAILED
            log.error("%s: %s", self.consumer, fault.text)
            return
        if fault.action is Action.RETRY or fault.kind is ErrorKind.SESSION_FENCED:
            wait_s = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2 ** min(self._attempts, 16))
            wait_s *= 0.5 + self._jitter() / 2
        else:
            wait_s = OPERATOR_RETRY_S
        if fault.text != self._logged:
            log.error("%s: %s; the query is started again", self.consumer, fault.text)
        self._logged = fault.text
        self.state, self._due = StageState.WAITING, self._clock() + wait_s

    def _is_lost(self) -> bool:
        try:
            return self._job.lost()
        except Exception as error:  # noqa: BLE001 - such as storage that does not answer; `_start` asks again
            log.debug("%s: whether the claim is lost is not known: %s", self.consumer, error)
            return False


def with_remedy(fault: StageFault, consumer: str) -> str:
    """Returns the text of a fault, with a remedy for a mirror. The daemon's own remedies are for readers of any kind:
    they tell a person to copy tables by hand, and to continue at the position of the copy."""
    text = fault.text.partition("; ")[0]
    if fault.kind is ErrorKind.HISTORY_DIFFERS:
        return f"{text}; {remedies.of_other_log(consumer)}"
    if fault.kind in _LOST:
        return f"{text}; {remedies.of_purge(consumer)}"
    if remedies.DAEMON in fault.text:
        return f"{with_name(fault.text, consumer)}; {remedies.of_move()}"
    return fault.text


def stage_fault(error: BaseException) -> StageFault:
    """Returns the fault for an exception of a query, or of code that the query called."""
    if isinstance(error, BinlogError):
        return StageFault(error.kind, str(error))
    line = fault_line(error)
    if line is None:
        first = str(error).strip().partition("\n")[0]
        return StageFault(None, f"{type(error).__name__}: {first}")
    kinds = (kind for kind in ErrorKind if line.startswith(f"{kind.value}:"))
    return StageFault(next(kinds, None), line)
