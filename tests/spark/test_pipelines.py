"""The declarative pipeline of examples/pipeline: `spark-pipelines run` keeps a view equal to a MySQL table.

Each run here starts two JVMs, one for the program and one for its Spark. test_connect.py tests the pipeline faster."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import pipelines
from pyspark.pipelines.graph_element_registry import graph_element_registration_context

from deploy.demo import delta
from spark_sink.jars import delta_settings
from tests.daemon.harness import PASSWORD, Daemon
from tests.servers import Server
from tests.spark.conftest import mysql_rows
from tests.support.java import QUICK_JAVA, QUICK_SPARK

ROOT = Path(__file__).parents[2]
PIPELINE = ROOT / "examples/pipeline"
_PROGRAM = Path(sys.executable).with_name("spark-pipelines")


class Registry:
    """Records what a file of a pipeline defines."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def register_output(self, output: Any) -> None:
        self.found[f"{type(output).__name__} {output.name}"] = output

    def register_flow(self, flow: Any) -> None:
        self.found[f"{type(flow).__name__} {flow.name}"] = flow

    register_auto_cdc_flow = register_flow

    def register_sql(self, *_: Any) -> None:
        raise AssertionError("the pipeline has no SQL")


def test_the_example_defines_a_history_and_a_view() -> None:
    registry: Any = Registry()
    spec = importlib.util.spec_from_file_location("orders", PIPELINE / "transformations/orders.py")
    assert spec is not None and spec.loader is not None
    with graph_element_registration_context(registry):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert list(registry.found) == [
        "StreamingTable order_changes",
        "Flow order_changes",
        "MaterializedView orders",
        "Flow orders",
    ]


def test_the_flow_in_the_documentation_is_accepted() -> None:
    """Spark accepts it up to the check of its target, which needs a catalog."""
    text = (ROOT / "docs/pipelines.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    registry: Any = Registry()
    with graph_element_registration_context(registry):
        exec(program, {"dp": pipelines})
    assert list(registry.found) == ["StreamingTable orders", "AutoCdcFlow orders"]


@pytest.fixture
def daemon(
    mysql97: Server, new_database: Callable[[Server], str], tmp_path: Path
) -> Iterator[Daemon]:
    """A daemon whose consumer `shop` reads the database that `database` below names."""
    mysql97.add_user("repl", PASSWORD)
    consumer = {
        "mysql": f"repl@{mysql97.host}:{mysql97.port}",
        "password": PASSWORD,
        "databases": [new_database(mysql97)],
        "start": "earliest",
    }
    daemon = Daemon(tmp_path / "daemon", {"consumers": {"shop": consumer}})
    daemon.start()
    yield daemon
    daemon.close()


def pipelines_command(remote: str) -> list[str]:
    """The command that runs the pipeline of the working folder once, up to the newest change."""
    return [str(_PROGRAM), "--remote", remote, "run"]


def run(folder: Path) -> None:
    """Run the pipeline once, with a Spark of its own."""
    settings = dict(setting.split("=", 1) for setting in QUICK_SPARK) | delta_settings()
    settings |= {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.sources.default": "delta",
        "spark.python.authenticate.socketTimeout": "120s",
    }
    submit = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    with (folder / "out.log").open("wb") as log:
        done = subprocess.run(
            pipelines_command("local[2]"),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ
            | {
                "PYSPARK_PYTHON": sys.executable,
                "PATH": f"{_PROGRAM.parent}:{os.environ['PATH']}",
                "JDK_JAVA_OPTIONS": QUICK_JAVA,
                "PYSPARK_SUBMIT_ARGS": shlex.join([*submit, "pyspark-shell"]),
            },
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, (folder / "out.log").read_text(errors="replace")[-6000:]


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(2400)
def test_its_view_equals_the_table(mysql97: Server, daemon: Daemon, tmp_path: Path) -> None:
    (database,) = daemon.settings["consumers"]["shop"]["databases"]
    folder = tmp_path / "pipeline"
    shutil.copytree(PIPELINE, folder)
    for file, old, new in (
        ("spark-pipeline.yml", "file:///tmp/shop-pipeline", (tmp_path / "storage").as_uri()),
        ("spark-pipeline.yml", "127.0.0.1:8085", f"127.0.0.1:{daemon.port}"),
        ("transformations/orders.py", "shop.orders", f"{database}.orders"),
    ):
        text = (folder / file).read_text(encoding="utf-8")
        assert old in text
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    mysql97.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(40), amount DECIMAL(10,2), at DATETIME(6))",
        "INSERT INTO orders SELECT n, CONCAT('item ', n), n + 0.5, NOW(6) FROM"
        " (WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 100) SELECT n FROM t) x",
        "UPDATE orders SET amount = 99 WHERE id BETWEEN 10 AND 20",
        "DELETE FROM orders WHERE id > 90",
        database=database,
    )

    def is_equal() -> bool:
        rows = delta.read(folder / "spark-warehouse/orders").to_pylist()
        found = {row["id"]: row for row in rows}
        assert len(found) == len(rows)
        return found == {
            row["id"]: row for row in mysql_rows(mysql97, database, "SELECT * FROM orders")
        }

    run(folder)
    assert is_equal()
    mysql97.execute(
        "UPDATE orders SET id = id + 1000 WHERE id < 5",  # the keys change
        "DELETE FROM orders WHERE id = 50",
        "INSERT INTO orders VALUES (50, NULL, NULL, NULL), (95, 'again', 1, NOW(6))",
        database=database,
    )
    run(folder)
    assert is_equal()
    mysql97.execute(
        "UPDATE orders SET amount = 1 WHERE id = 51",
        "ALTER TABLE orders ADD note VARCHAR(10)",
        "UPDATE orders SET note = 'new' WHERE id = 52",
        database=database,
    )
    run(folder)
    assert is_equal()
