"""The mirror on a standalone cluster: the environment of master, workers and driver contains only the wheel."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spark_sink.cache import cache_dir
from tests.daemon.harness import until
from tests.mirror.harness import TIMEOUT_S, MirrorJob
from tests.mirror.test_crash_matrix import require_each_change_once
from tests.spark.conftest import KILLING
from tests.support import installed
from tests.support.spark_cluster import SparkCluster, clean_environment, spark_cluster

DATABASE = "shop"
_LOOPBACK = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=512m",
)
# With these settings, Spark starts and ends executors as needed, and runs a slow task a second time on the other host.
_ELASTIC = (
    "spark.dynamicAllocation.enabled=true",
    "spark.dynamicAllocation.minExecutors=1",
    "spark.dynamicAllocation.maxExecutors=2",
    "spark.dynamicAllocation.executorIdleTimeout=20s",
    "spark.speculation=true",
    "spark.speculation.interval=200ms",
    "spark.speculation.minTaskRuntime=2s",
    "spark.speculation.task.duration.threshold=5s",
)
# A worker is killed after it has written, decoded or read more than this; see killing/sitecustomize.py.
_LARGE = 300_000


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the package folder of an environment that has only the wheel and its extra `spark`."""
    folder = tmp_path_factory.mktemp("installed")
    installed.build(folder / "dist", "--wheel")
    packages = installed.environment(folder / "venv", installed.wheel_of(folder / "dist"))
    installed.link(packages, installed.of_spark())
    installed.put_kernels(packages)
    return packages


@pytest.fixture(scope="module")
def cluster(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster"), packages / "pyspark") as cluster:
        yield cluster


@pytest.fixture
def distributed(job: MirrorJob, packages: Path, cluster: SparkCluster) -> MirrorJob:
    """A job that uses the cluster. Its processes import nothing from this repository except the module that kills
    them."""
    driver = job.home / "driver"
    driver.mkdir()
    killing = {"KILL_FOLDER": str(job.kills), "PYTHONPATH": str(KILLING)}
    cache = {"BINLOG_DISPATCHER_CACHE": str(cache_dir())}
    job.environment = clean_environment(driver, packages / "pyspark", cache | killing)
    job.python = str(packages.parents[2] / "bin/python")
    job.settings = f"spark: {{master: '{cluster.url}'}}\n"
    killing["KILL_EXECUTOR"] = "1"
    job.conf = (*_LOOPBACK, *(f"spark.executorEnv.{name}={killing[name]}" for name in killing))
    return job


def _fill(job: MirrorJob) -> None:
    job.server.execute(
        "SET SESSION sql_log_bin = 0",  # the table's first rows are not in the log, so the mirror copies it
        "CREATE TABLE copied (id INT PRIMARY KEY, v INT, t VARCHAR(300))",
        "INSERT INTO copied WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
        " SELECT i, i, REPEAT('t', 200) FROM n",
        "SET SESSION sql_log_bin = 1",
        "UPDATE copied SET v = 0 WHERE id < 50",
        "CREATE TABLE wide (id INT PRIMARY KEY, t LONGTEXT)",
        f"INSERT INTO wide VALUES (1, REPEAT('1', {_LARGE})), (2, REPEAT('2', {_LARGE}))",
        f"INSERT INTO wide VALUES (3, REPEAT('3', {_LARGE})), (4, REPEAT('4', {_LARGE}))",
        f"UPDATE wide SET t = REPEAT('5', {_LARGE}) WHERE id < 3",
        database=DATABASE,
    )


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.timeout(3600)
def test_the_mirror_runs_on_executors_that_have_the_wheel_alone(
    distributed: MirrorJob, cluster: SparkCluster
) -> None:
    job = distributed
    _fill(job)
    assert job.start(DATABASE).wait(3 * TIMEOUT_S) == 0, job.log
    assert job.differences(DATABASE) == []
    assert "executors on" in job.log
    assert "Traceback" not in job.log
    output = cluster.executor_output()
    assert str(installed.ROOT / "spark_sink") not in output
    require_each_change_once(job)


@pytest.mark.deep
@pytest.mark.timeout(14_400)
def test_executors_are_killed_in_every_stage(distributed: MirrorJob) -> None:
    job = distributed
    job.conf += _ELASTIC
    _fill(job)
    execute = job.server.execute
    job.start(DATABASE, now=False)
    job.until_equal(DATABASE, timeout_s=3 * TIMEOUT_S)
    wide = f"INSERT INTO wide VALUES ({{n}}, REPEAT('x', {_LARGE}))"
    copied = "ALTER TABLE copied ADD COLUMN d{n} DATETIME DEFAULT CURRENT_TIMESTAMP"
    points = {"slice_written": wide, "decoding": wide, "chunk_read": copied}
    points |= {f"{point}_slow": statement for point, statement in points.items()}
    for n, (point, statement) in enumerate(points.items(), 10):
        armed = job.kills / point
        second = job.kills / f"{point.removesuffix('_slow')}_second"
        second.unlink(missing_ok=True)
        armed.touch()
        execute(statement.format(n=n), database=DATABASE)
        until(partial(_gone, armed), f"{point} is passed", timeout_s=2 * TIMEOUT_S)
        if point.endswith("_slow"):
            until(second.exists, f"a second attempt is at {point}", timeout_s=2 * TIMEOUT_S)
        job.until_equal(DATABASE, timeout_s=3 * TIMEOUT_S)
        assert job.process is not None and job.process.poll() is None, job.log
    require_each_change_once(job)
    job.until_complete(DATABASE)
    job.settings = ""  # without the cluster, because the job uses all of its resources
    printed = job.verify(DATABASE)
    assert printed.count("equal") == 2, printed
    assert job.stop() == 0, job.log


def _gone(file: Path) -> bool:
    return not file.exists()
