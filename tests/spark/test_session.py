"""Which settings the session of the mirror job has, for each way in which a user can start the job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_sink.jars import delta_jars
from tests.support.java import QUICK_JAVA

pytestmark = pytest.mark.rotate(2, of="jobs of Spark")

SCRIPT = """
import json
from spark_sink.mirror.values.settings import MirrorSettings
from spark_sink.mirror.session import spark_session


settings = MirrorSettings.model_validate(
    {"url": "http://127.0.0.1:1", "consumers": ["none"], "target": "/none", "spark": %s}
)
spark = spark_session(settings)
heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()
print("GIVEN " + json.dumps(dict(spark.sparkContext.getConf().getAll(), heap=heap)))
spark.stop()
"""
ROOT = Path(__file__).parents[2]


def given(folder: Path, spark: dict[str, object], *command: str) -> dict[str, str]:
    """Returns the session settings and the heap size of a script that `command` starts."""
    script = folder / "job.py"
    script.write_text(SCRIPT % json.dumps(spark), encoding="utf-8")
    done = subprocess.run(
        [*command, str(script)],
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
        },
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("GIVEN "))
    found: dict[str, str] = json.loads(line.removeprefix("GIVEN "))
    return found


@pytest.mark.spark
def test_what_spark_submit_is_given_wins(tmp_path: Path) -> None:
    submit = str(Path(sys.executable).with_name("spark-submit"))
    options = [
        "--master",
        "local[1]",
        "--driver-memory",
        "600m",
        "--jars",
        ",".join(map(str, delta_jars())),
    ]
    options += [
        "--conf",
        "spark.sql.shuffle.partitions=7",
        "--conf",
        "spark.sql.session.timeZone=CET",
    ]
    found = given(
        tmp_path, {"conf": {"spark.sql.session.timeZone": "Asia/Tokyo"}}, submit, *options
    )
    assert found["spark.sql.shuffle.partitions"] == "7"
    assert found["spark.databricks.delta.snapshotPartitions"] == "2"
    assert found["spark.sql.session.timeZone"] == "Asia/Tokyo"  # from the job's option --conf
    assert found["spark.app.name"] == "binlog-dispatcher mirror"
    assert int(found["heap"]) <= 600 << 20


@pytest.mark.spark
@pytest.mark.parametrize(
    ("section", "least", "most"),
    [
        pytest.param({"master": "local[1]"}, 1500, 2048, marks=pytest.mark.deep),
        ({"master": "local[1]", "conf": {"spark.driver.memory": "700m"}}, 500, 700),
    ],
)
def test_a_local_driver_has_memory_for_its_executors(
    tmp_path: Path, section: dict[str, object], least: int, most: int
) -> None:
    heap = int(given(tmp_path, section, sys.executable)["heap"])
    assert least << 20 <= heap <= most << 20
