"""When executors are checked, and how a fault of one ends the job. A fake replaces Spark."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.cluster import executors
from spark_sink.mirror.cluster.executors import ExecutorWatch, _unusable
from spark_sink.mirror.values.settings import MirrorSettings

SETTINGS = MirrorSettings.model_validate(
    {"url": "http://127.0.0.1:1", "consumers": ["shop"], "target": "/none"}
)
DEADLINE_S = 30.0


@dataclass
class Cluster:
    """Replaces a session, its context and its settings. `seen`: the executors that each check found."""

    monkeypatch: pytest.MonkeyPatch
    master: str = "spark://master:7077"
    ids: list[str] = field(default_factory=lambda: ["0"])
    fault: Exception | None = None
    free: threading.Event = field(default_factory=threading.Event)
    seen: list[list[str]] = field(default_factory=list)
    checked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.free.set()
        self.monkeypatch.setattr(executors, "LOOK_S", 0.001)
        self.monkeypatch.setattr(executors, "WAIT_S", 0.001)
        self.monkeypatch.setattr(executors, "executor_ids", lambda _: list(self.ids))
        self.monkeypatch.setattr(executors, "check_executors", self.check)

    @property
    def sparkContext(self) -> Cluster:  # noqa: N802
        return self

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {"spark.executor.memory": "64g", "spark.driver.host": "driver"}

    def check(self, *_: object) -> list[str]:
        assert self.free.wait(DEADLINE_S)
        self.seen.append(list(self.ids))
        self.checked.release()
        if self.fault is not None:
            raise self.fault
        return ["host"]

    def watch(self, stop: threading.Event) -> ExecutorWatch:
        return ExecutorWatch(cast(Any, self), SETTINGS, stop)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_a_local_master_has_no_executors_to_check(cluster: Cluster) -> None:
    cluster.master = "local[2,4]"
    cluster.watch(threading.Event()).start()
    assert cluster.seen == []


def test_executors_that_come_later_are_checked_once(cluster: Cluster) -> None:
    stop = threading.Event()
    watch = cluster.watch(stop)
    watch.start()
    assert cluster.checked.acquire(timeout=DEADLINE_S)
    cluster.ids = ["1"]  # the first one is gone
    assert cluster.checked.acquire(timeout=DEADLINE_S)
    stop.set()
    watch._thread.join(DEADLINE_S)
    assert cluster.seen == [["0"], ["1"]]
    assert watch.fault is None


def test_a_fault_stops_the_job(cluster: Cluster) -> None:
    cluster.fault = BinlogError(ErrorKind.SETTINGS, "no folder")
    stop = threading.Event()
    watch = cluster.watch(stop)
    watch.start()
    assert watch.fault is cluster.fault and stop.is_set()


def test_a_job_that_waits_for_executors_says_so_and_can_be_stopped(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executors, "WAITED_LONG_S", 0.001)
    stop = threading.Event()
    cluster.free.clear()
    watch = cluster.watch(stop)

    class Said(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            stop.set()

    monkeypatch.setattr(executors.log, "handlers", [Said()])
    watch.start()
    cluster.free.set()
    watch._thread.join(DEADLINE_S)
    (text, *_) = caplog.messages
    assert "spark://master:7077 has no room for one with 64g of memory" in text
    assert watch.fault is None


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            "Job aborted due to stage failure: Task 0 failed: org.apache.spark.api.python.PythonException:"
            " Traceback (most recent call last):\n"
            '  File "worker.py", line 1, in main\n'
            "ModuleNotFoundError: No module named 'spark_sink'\n\n"
            "\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1)\n",
            "ModuleNotFoundError: No module named 'spark_sink'",
        ),
        (
            "Job aborted due to stage failure: Task 0 failed\n"
            'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory\n',
            'IOException: Cannot run program "/opt/python": error=2, No such file or directory',
        ),
    ],
)
def test_an_executor_without_the_package_is_told_in_one_line(raised: str, said: str) -> None:
    fault = _unusable(PySparkException(raised))
    assert fault.what == f"an executor cannot load this package: {said}"
    assert "PYSPARK_PYTHON" in fault.remedy
