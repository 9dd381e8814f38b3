"""The mirror job: one Spark application with a streaming query per consumer (the log stage), and the applier.

The two stages share only tables in the target (the mirror's log and the control table), so they may run in two
applications (`--stages`). A consumer or a table that fails does not stop other consumers or tables. The job ends after
SIGTERM or SIGINT. With `available_now` it ends when all changes are in the log and applied. It ends with exit code 1
when one of its stages has no working consumer left. If another job takes over a consumer, this job continues with its
other consumers, and its exit code will be 3. It ends at once if it has no consumer left.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from dispatcher.model.api_addresses import parse_addresses
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.yaml_settings.section import parse_listen
from spark_sink.long_work import LINE_EVERY_S, reporting
from spark_sink.mirror.rules.remedies import MIRROR
from spark_sink.mirror.session import SparkNotStarted, spark_session
from spark_sink.mirror.values.entries import append_of
from spark_sink.mirror.values.faults import in_one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.copy_watch import CopyWatch
    from spark_sink.mirror.log.stage import LogStage
    from spark_sink.mirror.page.job_page import JobPage
    from spark_sink.mirror.page.job_status import AppliedState
    from spark_sink.mirror.runtime.claims import Claims
    from spark_sink.mirror.runtime.progress import ConsumerProgress
    from spark_sink.mirror.values.settings import MirrorSettings
    from spark_sink.source.listener import BinlogListener

log = logging.getLogger("spark_sink.mirror")

CHECK_S = 0.2
CLAIMS_S = 1.0  # time between two checks for a newer claim of another job
EXIT_INPUT, EXIT_TAKEN_OVER = 2, 3
APPLIER_STOP_S = 120.0
WATCHER_STOP_S = 20.0
_NOT_REQUESTED = (
    f"no copy was requested, the job goes on; to request the copies: {MIRROR} copy '*.*'"
)
_NOT_WATCHED = f"the job and the copies go on without a line of their progress; {MIRROR} tables shows the states"


class ApplyStage(Protocol):
    """The methods of the applier that the job calls."""

    def run(self, stop: threading.Event, drain: bool) -> int: ...
    def wake(self) -> None: ...
    def progress(self) -> Iterable[ConsumerProgress]: ...
    def watermark(self, consumer: str) -> int: ...
    def consumers(self) -> Sequence[AppliedState]: ...


class Job:
    """Runs the stages of all consumers, and stops them on SIGTERM and SIGINT."""

    def __init__(
        self,
        settings: MirrorSettings,
        make_applier: Callable[[SparkSession, MirrorSettings, Claims], ApplyStage] | None,
        copy_watch: CopyWatch | None = None,
        complete: Callable[[str], str] = str,
    ) -> None:
        """`make_applier`: None if the job runs only the log stage; `copy_watch`: requests copies and shows their
        progress, None without this; `complete`: adds options to the commands that the page shows."""
        self._complete = complete
        self._copy_watch = copy_watch
        self._watched_code = 0
        self._settings = settings
        self._make_applier = make_applier
        self._stop = threading.Event()
        self._starting = True
        self._applied: int | None = None  # exit code of the applier
        self._stages: list[LogStage] = []

    def run(self) -> int:
        """Run until the job is stopped or, with `available_now`, until all changes are applied. Returns the exit code
        of the process."""
        from py4j.protocol import Py4JError  # noqa: PLC0415

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        code = 0
        try:
            spark = self._started()
            try:
                code = self._run(spark)
            finally:
                _stop(spark)
        except (Py4JError, ConnectionError, SparkNotStarted) as error:
            if not self._stop.is_set():
                raise
            # A signal that was sent to all processes of the job has ended Spark's JVM, too.
            what = error.what if isinstance(error, SparkNotStarted) else in_one_line(error)
            log.warning("Spark's JVM has ended before the job: %s", what)
        log.info("the job has ended with exit code %d", code)
        return code

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._starting and not self._stop.is_set():
            log.info("the job ends as soon as Spark has started")
        self._stop.set()

    def _started(self) -> SparkSession:
        """Start Spark. After a signal, the start goes on, because a JVM whose start is interrupted does not end."""
        began = time.monotonic()
        with logged_phase("starting Spark"):
            spark = spark_session(self._settings)
        self._starting = False
        log.info("Spark has started in %.1f s", time.monotonic() - began)
        return spark

    def _run(self, spark: SparkSession) -> int:
        from spark_sink.mirror.cluster.executors import ExecutorWatch  # noqa: PLC0415
        from spark_sink.mirror.lake.control_table import ControlTable  # noqa: PLC0415
        from spark_sink.mirror.runtime.claims import Claims, stages_of  # noqa: PLC0415

        settings = self._settings
        executors = ExecutorWatch(spark, settings, self._stop)
        executors.start()
        code = 0
        if not self._stop.is_set():
            with logged_phase(f"opening the target {settings.target}"):
                control = ControlTable(spark, settings.target)
            claims = Claims(control, list(settings.consumers), stages_of(settings.stages))
            with logged_phase("claiming the consumers: another job that has them ends"):
                claims.take()
            log.info("this job now has the consumers %s", ", ".join(settings.consumers))
            applier = self._make_applier(spark, settings, claims) if self._make_applier else None
            with self._watched(spark) as listener, self._metrics(applier, listener):
                code = self._run_stages(spark, applier, claims)
            if claims.any_lost:
                code = EXIT_TAKEN_OVER
        if executors.fault is not None:
            raise executors.fault
        return code

    @contextmanager
    def _watched(self, spark: SparkSession) -> Iterator[BinlogListener]:
        """Adds, for the time of the context, a listener that logs each batch of the log stage, and yields it."""
        from spark_sink.source.listener import BinlogListener  # noqa: PLC0415

        def rows(query: str, batch: int) -> int | None:
            return next((s.rows(batch) for s in self._stages if s.consumer == query), None)

        listener = BinlogListener(rows, log, logging.DEBUG)
        if self._settings.stages == "apply":
            yield listener
            return
        spark.streams.addListener(listener)
        try:
            yield listener
        finally:
            spark.streams.removeListener(listener)

    @contextmanager
    def _metrics(self, applier: ApplyStage | None, listener: BinlogListener) -> Iterator[None]:
        """Serve metrics and the page if the settings name an address. Raises `BinlogError` SETTINGS if the job cannot
        listen at this address."""
        if self._settings.metrics is None:
            yield
            return
        from spark_sink.metrics_server import serve_metrics  # noqa: PLC0415
        from spark_sink.mirror.metrics import MirrorCollector, no_progress  # noqa: PLC0415
        from spark_sink.source.listener import StreamCollector  # noqa: PLC0415

        listen = parse_listen(self._settings.metrics)
        mirror = MirrorCollector(applier.progress if applier else no_progress, self._log_stages)
        try:
            server = serve_metrics(
                listen.host,
                listen.port,
                mirror,
                StreamCollector(listener),
                page=self._page(applier, listener) if self._settings.serves_page else None,
            )
        except OSError as error:
            raise BinlogError(
                ErrorKind.SETTINGS,
                f"metrics cannot be served at {self._settings.metrics}: {error.strerror}",
                remedy="set metrics to an address of this host with a free port",
            ) from None
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        served = "page and metrics are" if self._settings.serves_page else "metrics are"
        log.info("%s at http://%s:%d/", served, host, server.server_port)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()

    def _page(self, applier: ApplyStage | None, listener: BinlogListener) -> JobPage:
        from spark_sink.mirror.page.job_page import JobPage  # noqa: PLC0415
        from spark_sink.mirror.page.job_status import SHOWN_MAX, JobStatus  # noqa: PLC0415

        settings = self._settings
        head = {
            "target": settings.target,
            "shown_max": SHOWN_MAX,
            "daemons": [address.text for address in parse_addresses(settings.url)],
        }
        applied = applier.consumers if applier else tuple
        return JobPage(JobStatus(head, applied, self._log_stages, listener.totals, self._complete))

    def _log_stages(self) -> list[tuple[str, bool]]:
        """Returns the consumer of each log stage, and True if the stage works."""
        return [(stage.consumer, stage.works) for stage in self._stages]

    def _run_stages(self, spark: SparkSession, applier: ApplyStage | None, claims: Claims) -> int:
        settings = self._settings
        if settings.available_now:
            failed = self._log(spark, applier, claims) if settings.stages != "apply" else 0
            if applier is not None and not self._stop.is_set():
                return max(failed, applier.run(self._stop, True))
            return failed
        thread = watcher = None
        if applier is not None:
            thread = threading.Thread(target=self._apply, args=(applier,), name="applier")
            thread.start()
            if self._copy_watch is not None:
                watching = partial(self._watch_copies, self._copy_watch, applier, claims)
                watcher = threading.Thread(target=watching, name="copies", daemon=True)
                watcher.start()
        try:
            writes = settings.stages != "apply"
            failed = self._log(spark, applier, claims) if writes else self._wait()
        finally:
            self._stop.set()
            log.info("ending: steps that run are completed")
            if thread is not None:
                thread.join(APPLIER_STOP_S)
                if thread.is_alive():
                    log.warning("a step is still running; it is repeated at the next start")
            if watcher is not None:  # the watcher needs Spark to read the control table
                watcher.join(WATCHER_STOP_S)
        return max(failed, self._applied or 0, self._watched_code)

    def _watch_copies(self, watch: CopyWatch, applier: ApplyStage, claims: Claims) -> None:
        """Request the copies as soon as they can begin, and show their progress. Then end the job if `watch.ends_job`;
        otherwise the job continues, also after an error of the watching."""
        if not watch.ends_job:
            self._watch_requested(watch, applier, claims)
            return
        self._watched_code = 1
        try:
            if self._until_copies_can_begin():
                watch.begin(claims.control)
                self._watched_code = watch.run(claims.control.rows, applier.progress, self._stop)
        except UserError as error:
            self._watched_code = EXIT_INPUT
            log.error("%s", error)
        except BinlogError as error:
            log.error("the copies cannot be watched: %s", error)
        except Exception:
            log.exception("the copies cannot be watched")
        self._stop.set()

    def _watch_requested(self, watch: CopyWatch, applier: ApplyStage, claims: Claims) -> None:
        """Watch the requested copies in a job that does not end with them. An error ends only the watching: the job
        continues to keep the tables of all consumers up to date, and completes the requested copies."""
        failed = _NOT_REQUESTED
        try:
            if self._until_copies_can_begin():
                watch.begin(claims.control)
                failed = _NOT_WATCHED
                watch.run(claims.control.rows, applier.progress, self._stop)
        except BinlogError as error:
            log.error("%s: %s", failed, error)
        except Exception:
            log.exception("%s", failed)

    def _until_copies_can_begin(self) -> bool:
        """Wait until copies can begin. Returns False if the job ends before."""
        while not self._stop.is_set() and not self._can_copy():
            self._stop.wait(CHECK_S)
        return not self._stop.is_set()

    def _can_copy(self) -> bool:
        """True if the log of each consumer that works has a position."""
        stages = self._stages
        return bool(stages) and all(stage.has_position or not stage.works for stage in stages)

    def _apply(self, applier: ApplyStage) -> None:
        self._applied = 1
        try:
            self._applied = applier.run(self._stop, False)
        except BinlogError as error:
            log.error("the applier has failed: %s", error)
        except Exception:
            log.exception("the applier has failed")
        # Stop the log stages, too: without the applier, the log would grow, but no table would change.
        self._stop.set()

    def _wait(self) -> int:
        self._stop.wait()
        return 0

    def _log(self, spark: SparkSession, applier: ApplyStage | None, claims: Claims) -> int:
        """Run the log stages until the job is stopped, or until all stages have ended. Returns 1 if a stage has
        failed."""
        from spark_sink.mirror.log.stage import (  # noqa: PLC0415
            BEHIND_APPENDS,
            JobCalls,
            LogStage,
            StageState,
        )

        def appended() -> None:
            if applier is not None:
                applier.wake()

        def lost(consumer: str) -> bool:
            return claims.lost(consumer) is not None

        def is_behind(consumer: str, number: int) -> bool:
            # With `available_now`, the applier begins after the log stages have ended.
            if applier is None or self._settings.available_now:
                return False
            return append_of(applier.watermark(consumer)) + BEHIND_APPENDS < number

        stages = self._stages = [
            LogStage(
                spark,
                self._settings,
                consumer,
                JobCalls(
                    appended,
                    partial(lost, consumer),
                    partial(claims.control.applied, consumer),
                    partial(is_behind, consumer),
                ),
            )
            for consumer in self._settings.consumers
        ]
        look_at = time.monotonic() + CLAIMS_S
        over = (StageState.DONE, StageState.FAILED)
        try:
            while not self._stop.is_set():
                for stage in stages:
                    stage.check()
                if time.monotonic() >= look_at:
                    _look_for_claims(stages)
                    look_at = time.monotonic() + CLAIMS_S
                if all(stage.state in over for stage in stages):
                    break
                self._stop.wait(CHECK_S)
        finally:
            _stop_all(stages)
        return 1 if any(stage.state is StageState.FAILED for stage in stages) else 0


@contextmanager
def logged_phase(what: str, every_s: float = LINE_EVERY_S) -> Iterator[None]:
    """Log that a phase of the job's start begins, and again each `every_s` seconds until it ends."""
    log.info(what)
    with reporting(partial(log.info, "%s: %.0f s so far", what), every_s):
        yield


def _stop(spark: SparkSession) -> None:
    """Stop Spark, if its JVM still runs."""
    from py4j.protocol import Py4JError  # noqa: PLC0415

    log.info("stopping Spark")
    with suppress(Py4JError, OSError):
        spark.stop()


def _look_for_claims(stages: Sequence[LogStage]) -> None:
    try:
        for stage in stages:
            stage.look_for_claims()
    except Exception as error:  # noqa: BLE001 - storage does not answer; appends fail, too, and are reported
        log.debug("claims cannot be read: %s", error)


def _stop_all(stages: Sequence[LogStage]) -> None:
    threads = [threading.Thread(target=stage.stop) for stage in stages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
