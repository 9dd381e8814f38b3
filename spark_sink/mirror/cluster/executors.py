"""Checks executors on other hosts before they work for the mirror: the executors that exist when the job starts, and
each executor that registers while the job runs.

A host that lacks the target's folder would write data files that the other hosts do not see. And in a small mirror, the
driver reads small batches itself, so executors that cannot reach the daemon would cause an error only much later.
"""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import PySparkException

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.cluster.host_check import (
    RESULT,
    HostNeeds,
    check_hosts,
    package_version,
    reach_daemon,
    reach_server,
)
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.values.faults import in_one_line
from spark_sink.mirror.values.names import own_path
from spark_sink.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.values.settings import MirrorSettings

log = logging.getLogger("spark_sink.mirror")

WAIT_S = 0.2
LOOK_S = 5.0
WAITED_LONG_S = 30.0
_EXCEPTION = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)

T = TypeVar("T")


class ExecutorWatch:
    """Checks executors in a thread, until `stop` is set. If a check finds a fault, the thread stores it in `fault` and
    sets `stop`."""

    def __init__(
        self, spark: SparkSession, settings: MirrorSettings, stop: threading.Event
    ) -> None:
        self.fault: BinlogError | None = None
        self._spark, self._settings, self._stop = spark, settings, stop
        self._checked: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="executors", daemon=True)
        self._first = threading.Event()

    def start(self) -> None:
        """Start the thread. Returns when the executors that exist at the start are checked, or when the job has to
        stop."""
        if str(self._spark.sparkContext.master).startswith("local"):
            return  # the driver is the executor
        self._thread.start()
        waited_s = 0.0
        while not self._first.wait(WAIT_S) and not self._stop.is_set():
            waited_s += WAIT_S
            if waited_s >= WAITED_LONG_S:
                waited_s = 0.0
                self._say_waiting()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                present = set(executor_ids(self._spark))
                if not self._first.is_set() or present - self._checked:
                    hosts = check_executors(self._spark, self._settings)
                    # An executor that registered during the check may have run no task of the check, so it does not
                    # count as checked.
                    self._checked |= present
                    log.info("executors on %s are ready", ", ".join(hosts))
                self._first.set()
                self._stop.wait(LOOK_S)
        except BinlogError as fault:
            self.fault = fault
        except Exception as error:  # noqa: BLE001 - Spark ends while it is asked; else it is reported
            if not self._stop.is_set():
                self.fault = BinlogError(ErrorKind.INTERNAL, in_one_line(error))
        if self.fault is not None:
            self._stop.set()
        self._first.set()

    def _say_waiting(self) -> None:
        conf = self._spark.sparkContext.getConf()
        log.warning(
            "no executor has done a task yet: they are starting, or %s has no room for one with %s of memory"
            " (spark.executor.memory), or its hosts cannot reach the driver at %s (spark.driver.host)",
            self._spark.sparkContext.master,
            conf.get("spark.executor.memory", "1g"),
            conf.get("spark.driver.host", ""),
        )


def check_executors(spark: SparkSession, settings: MirrorSettings) -> list[str]:
    """Run as many checks at once as tasks can run at once. So if the executors are idle, each of them runs a check.
    Returns the hosts.

    Raises `BinlogError` with the first fault of a host, SETTINGS if the Python of an executor cannot load this package.
    """
    with _mark(spark, settings.target) as mark:
        check = partial(check_hosts, _needs(settings, mark))
        tasks = int(spark.sparkContext.defaultParallelism)
        try:
            rows = spark.range(0, tasks, 1, tasks).mapInArrow(check, RESULT).collect()
        except PySparkException as error:
            raise _unusable(error) from None
    for row in rows:
        if row["what"]:
            place = ", ".join(filter(None, (f"executor on {row['host']}", row["place"])))
            raise BinlogError(ErrorKind.SETTINGS, row["what"], where=place, remedy=row["remedy"])
    return sorted({row["host"] for row in rows})


def _needs(settings: MirrorSettings, mark: str | None) -> HostNeeds:
    consumer = next(iter(settings.consumers))
    daemon = SourceOptions.parse(settings.source_options(consumer)).address
    server = None
    if settings.copy_from is not None:
        from spark_sink.mirror.copy.server import CopyServer  # noqa: PLC0415 - loads PyMySQL

        server = CopyServer.of_settings(settings.copy_from)
    return HostNeeds(
        package_version(),
        mark,
        _reached(daemon, lambda endpoint: reach_daemon(endpoint, consumer)),
        consumer,
        None if server is None else _reached(server, reach_server),
    )


def _reached(endpoint: T, reach: Callable[[T], None]) -> T | None:
    """Returns the endpoint; None if the endpoint does not answer the driver. In that case the executors do not check
    this endpoint. The stages connect to the endpoint again, and report the fault."""
    try:
        reach(endpoint)
    except BinlogError:
        return None
    return endpoint


@contextmanager
def _mark(spark: SparkSession, target: str) -> Iterator[str | None]:
    """Yields the path of a new file in the target; None if the target is not on a local file system. An executor that
    sees the file has the same folder as the driver."""
    system = FileSystem(spark)
    path = own_path(target, f"check-{uuid.uuid4()}")
    local = system.local(path)
    if local is None:
        yield None
        return
    system.write(path, b"")
    try:
        yield local
    finally:
        system.delete(path)


def _unusable(error: PySparkException) -> BinlogError:
    exceptions = _EXCEPTION.findall(str(error))
    causes = [
        f"{kind}: {text}"
        for kind, text in exceptions
        if kind not in ("SparkException", "PythonException")
    ]
    return BinlogError(
        ErrorKind.SETTINGS,
        f"an executor cannot load this package: {causes[-1] if causes else in_one_line(error)}",
        remedy="install the driver's wheel with its extra spark, for the same Python, on the hosts of all executors,"
        " and name that Python in PYSPARK_PYTHON",
    )


def executor_ids(spark: SparkSession) -> list[str]:
    """Returns the ids of the executors that have registered. Must not be called for a local master, where the driver is
    the executor."""
    ids: Any = spark.sparkContext._jsc.sc().getExecutorIds()  # noqa: SLF001
    return [str(ids.apply(index)) for index in range(ids.size())]
