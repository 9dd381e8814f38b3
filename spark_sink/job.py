"""The mirror job: one Spark application, one streaming query per consumer.

A query reads its own consumer, has its own checkpoint and sessions, and is independent of the others. Its failure is
logged once, with the message of the fault. Spark's traces of the same fault, one per layer that it passed through, are
logged with the log level DEBUG only.

The first query that fails ends the job with exit code 1, after the others were stopped; with `available_now` the others
first run to their ends. The job itself waits for the current batch when it stops, because Spark does not.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from spark_sink import register
from spark_sink.settings import JobSettings, load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from spark_sink.mirror import Mirror

log = logging.getLogger("spark_sink.job")

_POLL_S = 1
_STOP_S = 60.0
# Spark gives the process that plans a query's batches 10 s to start, whatever its settings say. On a busy machine that
# is too short; such a query is started again.
_SLOW_START_TEXT = "Python worker failed to connect back"
_STARTS_MAX = 5
# A fault of another process arrives as the text of its traceback.
_FAULT = re.compile(r"dispatcher\.model\.errors\.(BinlogError|UserError): ([^\n]+)")


@dataclass
class Running:
    consumer: str
    query: StreamingQuery
    mirror: Mirror
    starts: int = 1


class Job:
    """Runs the queries of all consumers, and stops them on SIGTERM and SIGINT."""

    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._stopping = False

    def run(self) -> int:
        """Run until stopped, failed, or (`available_now`) done. Returns the exit code of the process."""
        spark = spark_session(self._settings)
        # After the start of Spark, which sets handlers of its own.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        try:
            register(spark)
            running: list[Running] = []
            try:
                running += (self._start(spark, consumer) for consumer in self._settings.consumer)
                return self._watch(spark, running)
            finally:
                _stop_all(running)
        finally:
            spark.stop()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _start(self, spark: SparkSession, consumer: str) -> Running:
        from spark_sink.mirror import Mirror  # noqa: PLC0415
        from spark_sink.target import folder_name  # noqa: PLC0415

        settings = self._settings
        mirror = Mirror(
            spark,
            consumer,
            settings.target,
            parallel=settings.parallel_tables,
            invalid_dates=settings.invalid_dates,
        )
        stream = spark.readStream.format("binlog").options(**settings.source_options(consumer))
        writer = (
            stream.load()
            .writeStream.queryName(consumer)
            .foreachBatch(mirror)
            .option(
                "checkpointLocation", f"{settings.checkpoint.rstrip('/')}/{folder_name(consumer)}"
            )
        )
        if settings.available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=settings.trigger_interval)
        query = writer.start()
        log.info("%s: mirroring into %s", consumer, settings.target)
        return Running(consumer, query, mirror)

    def _watch(self, spark: SparkSession, running: list[Running]) -> int:
        from pyspark.errors import StreamingQueryException  # noqa: PLC0415

        failed: list[str] = []
        active = list(running)
        while active and not self._stopping:
            if failed and not self._settings.available_now:
                break
            # Raises the failure of a query that ended; `_fault` reads it in any case.
            with suppress(StreamingQueryException):
                active[0].query.awaitTermination(_POLL_S)
            for ended in [each for each in active if not each.query.isActive]:
                active.remove(ended)
                fault = _fault(ended)
                if fault and _SLOW_START_TEXT in fault and ended.starts < _STARTS_MAX:
                    log.warning(
                        "%s: %s; the query is started again", ended.consumer, _SLOW_START_TEXT
                    )
                    again = self._start(spark, ended.consumer)
                    again.starts = ended.starts + 1
                    running.append(again)
                    active.append(again)
                elif fault is not None:
                    failed.append(ended.consumer)
                    log.error("%s: %s", ended.consumer, fault)
                else:
                    log.info("%s: done", ended.consumer)
        return 1 if failed else 0


def spark_session(settings: JobSettings) -> SparkSession:
    """Returns a session for many small tables: few partitions, no user interface, UTC.

    The settings of spark-submit override these; `spark.jars` is set only if Delta's jars come from nowhere else.
    """
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName("binlog-dispatcher mirror")
    given = _small_tables(settings.shuffle_partitions) | _SLOW_START
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        given |= _standalone(settings)
    else:
        given |= _DELTA
    for key, value in (given | settings.conf_values()).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"Spark does not start: {error.getMessage()}",
            remedy="install Java 17 or newer, on PATH or in JAVA_HOME",
        ) from None


def _small_tables(partitions: int) -> dict[str, str]:
    """Returns settings with which a MERGE of few rows takes one second in place of five.

    Delta keeps a table's state, and the recorded versions, in the checksum file of each commit, so that the next commit
    does not compute them with Spark jobs.
    """
    return {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.databricks.delta.snapshotPartitions": str(partitions),
        "spark.databricks.delta.incremental.commit.enabled": "true",
        "spark.databricks.delta.setTransactionsInCrc.writeOnCommit": "true",
        "spark.databricks.delta.allFilesInCrc.enabled": "true",
        "spark.databricks.delta.allFilesInCrc.verificationMode.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "30s",
    }


# The time that a Python worker may take to start. The default of 15 s was too short on a busy machine with cold caches.
_SLOW_START = {"spark.python.authenticate.socketTimeout": "120s"}

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def _standalone(settings: JobSettings) -> dict[str, str]:
    """Returns the settings for a Spark that this process starts itself."""
    from spark_sink.jars import delta_settings  # noqa: PLC0415

    # Spark starts its Python processes by this name; the default python3 may lack this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = delta_settings() | {"spark.master": settings.master, "spark.ui.enabled": "false"}
    if settings.master.startswith("local"):
        given |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if settings.log_level != "DEBUG":
        quiet = Path(__file__).with_name("log4j2.properties").as_uri()
        given |= {
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}",
            "spark.log.level": "FATAL",
            "spark.ui.showConsoleProgress": "false",
        }
    return given


def _stop_all(running: Iterable[Running]) -> None:
    for each in running:
        each.query.stop()
    for each in running:
        if not each.mirror.wait_idle(_STOP_S):
            log.warning(
                "%s: a batch is still running; it is repeated at the next start", each.consumer
            )


def _fault(ended: Running) -> str | None:
    """Returns why a query that has ended failed; None if it did not."""
    error: BaseException | None = ended.query.exception()
    if error is None:
        return None
    error = ended.mirror.failure or error
    if isinstance(error, BinlogError):
        return str(error)
    text = str(error)
    if match := _FAULT.search(text):
        return match[2].strip()
    return f"{type(error).__name__}: {text}"


def run_job(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns exit code 0, 2 for bad input, 1 for any other failure."""
    try:
        settings = load_settings(sys.argv[1:] if arguments is None else arguments)
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
        logging.getLogger("spark_sink").setLevel(settings.log_level)
        if settings.log_level != "DEBUG":
            # py4j logs traces of the faults that the job logs itself.
            logging.getLogger("py4j").setLevel(logging.CRITICAL)
        return Job(settings).run()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except BinlogError as error:
        print(error, file=sys.stderr)
        return 1
