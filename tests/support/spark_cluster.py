"""A standalone cluster of Spark, as on several hosts: a master and workers, each a process with a folder of its own, on
addresses of the loopback.

No process uses this repository or the tests' environment: each has a clean environment with a given `SPARK_HOME`. A
worker starts its executors in its folder `work`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.daemon.harness import until
from tests.mirror.harness import end_group
from tests.support.java import QUICK_JAVA

START_S = 1500.0
MASTER_HOST = "127.0.0.1"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_PASSED_ON = ("PATH", "JAVA_HOME", "LANG", "TMPDIR")


@dataclass(frozen=True)
class SparkCluster:
    """`url`: of the master, for Spark; `page`: the address of its web page."""

    url: str
    page: str
    folder: Path

    def state(self) -> dict[str, Any]:
        """Returns the master's description of its workers and applications."""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=30) as answer:
            state = json.load(answer)
        assert isinstance(state, dict)
        return state

    def executor_output(self) -> str:
        """Returns all that the executors have written to stderr and stdout so far."""
        files = sorted(self.folder.glob("worker*/work/*/*/std*"))
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')}" for file in files)


@contextmanager
def spark_cluster(
    folder: Path,
    spark_home: Path,
    *,
    workers: Sequence[str] = ("127.0.0.2", "127.0.0.3"),
    cores: int = 1,
    memory: str = "600m",
) -> Iterator[SparkCluster]:
    """Start a master, and a worker on each address. Each worker has `cores` and `memory` for its executors."""
    with ExitStack() as stack:
        master = _start(
            stack, folder / "master", spark_home, MASTER_HOST,
            _MASTER, "--host", MASTER_HOST, "--port", "0", "--webui-port", "0",
        )  # fmt: skip
        url = _said(master, r"Starting Spark master at (spark://\S+)")
        page = _said(master, r"MasterWebUI to \S+, and started at (http://\S+)")
        for number, host in enumerate(workers):
            home = folder / f"worker{number}"
            _start(
                stack, home, spark_home, host,
                _WORKER, "--host", host, "--cores", str(cores), "--memory", memory,
                "--work-dir", str(home / "work"), "--webui-port", "0", url,
            )  # fmt: skip
        cluster = SparkCluster(url, page, folder)
        until(
            lambda: len(cluster.state()["workers"]) == len(workers),
            "all workers are known to the master",
            timeout_s=START_S,
        )
        yield cluster


def clean_environment(home: Path, spark_home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a process, with only those variables that a host of a cluster has."""
    own = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    own |= {"HOME": str(home), "SPARK_HOME": str(spark_home), "JDK_JAVA_OPTIONS": QUICK_JAVA}
    return own | dict(more)


def _start(
    stack: ExitStack, home: Path, spark_home: Path, host: str, *command: str
) -> tuple[subprocess.Popen[bytes], Path]:
    home.mkdir(parents=True)
    more = {"SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
    log = home / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(spark_home / "bin/spark-class"), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=home,
            env=clean_environment(home, spark_home, more),
            start_new_session=True,
        )
    stack.callback(end_group, process)
    return process, log


def _said(started: tuple[subprocess.Popen[bytes], Path], pattern: str) -> str:
    """Wait for a line in the output of a process that matches the pattern. Returns the pattern's group."""
    process, log = started

    def found() -> re.Match[str] | None:
        text = log.read_text(errors="replace")
        match = re.search(pattern, text)
        assert match or process.poll() is None, text
        return match

    match = until(found, f"{pattern} in {log}", timeout_s=START_S)
    assert match is not None
    return match[1]
