"""Fixtures: a session of the installed Spark, and a database whose changes a real daemon delivers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dispatcher.model.errors import BinlogError
from spark_sink.jars import delta_package
from tests.daemon.harness import PASSWORD, Daemon
from tests.servers import Server
from tests.spark.conftest import stop_at_end
from tests.support.java import QUICK_JAVA, QUICK_SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUEUE_BYTES = 1 << 20
TIMEOUT_S = 600  # on a busy machine, Spark's Python processes start slowly


def has_delta() -> bool:
    """True if a Delta Lake for the installed Spark exists."""
    try:
        delta_package()
    except BinlogError:
        return False
    return True


@pytest.fixture(scope="session")
def session(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session of the mirror's tests, or a separate session if no Delta Lake exists for the installed Spark."""
    if has_delta():
        yield request.getfixturevalue("spark")
        return
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415

    builder = Session.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    for setting in (
        *QUICK_SPARK,
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
    ):
        builder = builder.config(*setting.split("=", 1))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JDK_JAVA_OPTIONS", QUICK_JAVA)
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        made = builder.getOrCreate()
    yield made
    made.stop()


@dataclass
class Shop:
    """A database, and a daemon that delivers its changes to the consumer `shop` through a queue of `QUEUE_BYTES`."""

    spark: SparkSession
    server: Server
    database: str
    daemon: Daemon
    checkpoint: Path
    batches: list[tuple[int, list[int]]] = field(default_factory=list)

    def execute(self, *statements: str) -> None:
        self.server.execute(*statements, database=self.database)

    def insert(self, *ids: int, size: int = 1) -> None:
        """Insert rows with these ids and a text of `size` bytes, each in a transaction."""
        self.execute(*(f"INSERT INTO t VALUES ({number}, REPEAT('x', {size}))" for number in ids))

    def options(self) -> dict[str, str]:
        given = {"url": self.daemon.url, "consumer": "shop", "retryTimeoutSeconds": "60"}
        return given | {"table": f"{self.database}.t"}

    def stream(self, each: Callable[[int, list[int]], None] | None = None) -> Any:
        """Returns a writer that adds (number, ids) of each batch to `batches`. `each` is called before the batch is
        added."""

        def collect(rows: DataFrame, number: int) -> None:
            ids = [row["after"]["id"] for row in rows.orderBy("seq", "ordinal").collect()]
            if each is not None:
                each(number, ids)
            self.batches.append((number, ids))

        changes = self.spark.readStream.format("binlog").options(**self.options()).load()
        return changes.writeStream.foreachBatch(collect).option(
            "checkpointLocation", str(self.checkpoint)
        )

    def run(self, each: Callable[[int, list[int]], None] | None = None) -> list[int]:
        """Run the stream with Trigger.AvailableNow. Returns the ids that it has read."""
        before = len(self.batches)
        query: StreamingQuery = self.stream(each).trigger(availableNow=True).start()
        stop_at_end(query, TIMEOUT_S)
        return [number for _, ids in self.batches[before:] for number in ids]

    def once(self) -> list[int]:
        """Returns the ids of all batches by their numbers. A batch that was repeated must have had the same rows."""
        found: dict[int, list[int]] = {}
        for number, ids in self.batches:
            assert found.setdefault(number, ids) == ids
        return [number for _, ids in sorted(found.items()) for number in ids]

    def has_read(self, number: int) -> bool:
        return any(number in ids for _, ids in self.batches)


@pytest.fixture
def shop(
    session: SparkSession,
    mysql97: Server,
    new_database: Callable[[Server], str],
    tmp_path: Path,
) -> Iterator[Shop]:
    """A `Shop` whose table `t (id, b)` is empty."""
    database = new_database(mysql97)
    mysql97.execute("CREATE TABLE t (id INT PRIMARY KEY, b MEDIUMTEXT)", database=database)
    user = f"lines{os.getpid() % 10**6}"
    mysql97.add_user(user, PASSWORD)
    consumer = {
        "mysql": f"{user}@{mysql97.host}:{mysql97.port}",
        "password": PASSWORD,
        "databases": [database],
        "max_bytes_in_binlog_queue": QUEUE_BYTES,
    }
    daemon = Daemon(tmp_path / "daemon", {"consumers": {"shop": consumer}})
    try:
        daemon.start()
        daemon.api.until_state("shop", "streaming")
        yield Shop(session, mysql97, database, daemon, tmp_path / "checkpoint")
    finally:
        daemon.close()
        mysql97.execute(f"DROP USER '{user}'@'%'")
