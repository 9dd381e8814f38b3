"""The applier compares tables with the server in the background, while they change: no difference is reported where
there is none, and changes that another program makes to the Delta tables are found, and corrected if the policy says
so."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta.tables import DeltaTable

from spark_sink.mirror.copy.pace import waited
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.delta_log import delta_version
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.request_commands import request_repair
from spark_sink.mirror.rules.proofs import Proof
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.values.faults import is_conflict
from spark_sink.mirror.values.policies import (
    Deletes,
    MetadataColumn,
    OnDifference,
    ProofOptions,
    TablePolicy,
)
from spark_sink.mirror.verify.range_prover import RangeProver
from tests.spark.conftest import Source, Target
from tests.spark.mirror.copy.conftest import add_reader, copy_settings
from tests.spark.mirror.copy.test_verify import RealMirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 400.0
BETWEEN_CHANGES_S = 2.0
OFTEN = ProofOptions(
    rows_per_second=1_000_000, share=1.0, every_s=1.0, rows_max=100, wait_s=DEADLINE_S
)


def wait_for(condition: Callable[[], object], seconds: float) -> None:
    """Wait until a condition is true, but not longer than this."""
    waited(lambda: bool(condition()), seconds)


@dataclass
class ProvedMirror(RealMirror):
    """A mirror whose applier runs and proves its tables."""

    thread: threading.Thread | None = None

    @contextmanager
    def applier(self, **changes: Any) -> Iterator[None]:
        options = self.options(proofs=OFTEN, watermark_s=1.0, **changes)
        settings = copy_settings(self.source.server)

        def prover(consumer: str, log: BinlogLog) -> RangeProver:
            return RangeProver(consumer, options, self.server(), settings, log)

        stop, codes = threading.Event(), list[int]()
        applier = Applier(self.spark, options, prover=prover)
        self.thread = threading.Thread(target=lambda: codes.append(applier.run(stop)))
        self.thread.start()
        try:
            yield
        finally:
            stop.set()
            self.thread.join(DEADLINE_S)
        assert codes == [0]

    def proof(self, table: str) -> Proof | None:
        return self.control.rows().proofs.get(self.record(table).table_id)

    def until(self, condition: Callable[[], object], change: Callable[[], None]) -> None:
        """Let the server change until a condition is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, self.control.rows().proofs
            assert self.thread is not None
            assert self.thread.is_alive()
            change()
            self.feed_real()
            wait_for(condition, BETWEEN_CHANGES_S)

    def is_proved(self, table: str, since: float) -> bool:
        """True if a round that began at `since` or later has ended without a difference."""
        if not any(r.table == table for r in self.control.records().values()):
            return False
        proof = self.proof(table)
        assert proof is None or proof.difference is None, proof
        return proof is not None and proof.proved is not None and proof.proved >= since

    def repaired(self, table: str) -> int:
        proof = self.proof(table)
        return 0 if proof is None else proof.repaired

    def differs(self, table: str) -> bool:
        proof = self.proof(table)
        return proof is not None and proof.difference is not None


@pytest.fixture
def proved(spark: SparkSession, source: Source, target: Target) -> ProvedMirror:
    add_reader(source.server)
    return ProvedMirror(spark, source, target)


KEYS = {
    "ints": "id INT PRIMARY KEY",
    "pairs": "id INT, id2 BIGINT UNSIGNED AS (id * 3) STORED, PRIMARY KEY (id2, id)",
    "texts": "id INT UNIQUE, k VARCHAR(20) AS (CONCAT('Key ', id)) STORED PRIMARY KEY",
    "hashes": "id INT UNIQUE, k BINARY(16) AS (UNHEX(LPAD(HEX(id * 300), 32, '0'))) STORED PRIMARY KEY",
    "dates": "id INT UNIQUE, k DATE AS ('2000-01-01' + INTERVAL id DAY) STORED PRIMARY KEY",
}
ROWS = 250
ROWS_AFTER = {"lost": 0, "changed": 1, "doubled": 2}


def fill(source: Source, table: str) -> None:
    source.execute(
        f"CREATE TABLE {table} ({KEYS[table]}, a VARCHAR(40), f DOUBLE, n INT NOT NULL)",
        f"INSERT INTO {table} (id, a, f, n) VALUES "
        + ", ".join(f"({i}, 'row {i}', {i}.5, 0)" for i in range(ROWS)),
    )


def change_rows(source: Source, table: str, number: int) -> None:
    at = 7 * number % (ROWS - 3)
    source.execute(
        f"UPDATE {table} SET n = n + 1, f = -f WHERE id BETWEEN {at} AND {at + 20}",
        f"DELETE FROM {table} WHERE id = {at + 1}",
        f"INSERT INTO {table} (id, a, f, n) VALUES ({at + 1}, 'again {number}', NULL, 1)",
        f"UPDATE {table} SET id = {1_000 + number} WHERE id = {at + 2}",
        f"UPDATE {table} SET id = {at + 2} WHERE id = {1_000 + number}",
    )


@pytest.mark.rotate(1, of="proofs")
@pytest.mark.parametrize(
    ("table", "planted"),
    [
        ("ints", "lost"),
        ("pairs", "changed"),
        ("texts", "doubled"),
        ("hashes", "lost"),
        ("dates", "doubled"),
    ],
)
def test_a_table_that_changes_is_proved_and_a_planted_difference_is_found(
    proved: ProvedMirror, table: str, planted: str
) -> None:
    source = proved.source
    fill(source, table)
    numbers = iter(range(1_000_000))

    def change() -> None:
        change_rows(source, table, next(numbers))

    def change_others() -> None:
        source.execute(f"UPDATE {table} SET f = {next(numbers)} WHERE id IN (3, 200)")

    with proved.applier():
        proved.until(lambda: proved.is_proved(table, 0.0), change)
        found = proved.proof(table)
        assert found is not None
        assert found.proved_rows >= ROWS - 1  # a row may be deleted and not inserted again yet
        path = proved.target.of(source, table)
        delta = DeltaTable.forPath(proved.spark, path)
        match planted:
            case "lost":
                delta.delete("id = 77")
            case "changed":
                delta.update("id = 77", {"n": "n + 1"})
            case "doubled":
                delta.toDF().where("id = 77").write.format("delta").mode("append").save(path)
        proved.until(lambda: proved.differs(table), change_others)
    found = proved.proof(table)
    assert found is not None
    assert found.difference is not None
    assert found.difference.keys == 1
    evidence = json.loads(Path(found.difference.evidence).read_text(encoding="utf-8"))
    assert [row["id"] for row in evidence["server"]] == [77]
    assert [row["id"] for row in evidence["mirror"]] == [77] * ROWS_AFTER[planted]
    assert evidence["server"] != evidence["mirror"]
    assert all(entry["before"] and entry["rows"] for entry in evidence["entries"])
    assert evidence["entries"]


def plant(spark: SparkSession, path: str) -> None:
    """Change rows of a Delta table: one is lost, one has another value, one is there twice, one is foreign."""
    delta = DeltaTable.forPath(spark, path)
    foreign = delta.toDF().where("id = 90").selectExpr("id - 100 AS id", "a", "f", "n")
    twice = delta.toDF().where("id = 33").localCheckpoint()
    foreign = foreign.localCheckpoint()
    beside_steps(lambda: delta.delete("id = 77"))
    beside_steps(lambda: delta.update("id = 44", {"a": "'wrong'", "f": "NULL"}))
    for rows in (twice, foreign):
        writer = rows.write.format("delta").mode("append")
        beside_steps(partial(writer.save, path))


def beside_steps(commit: Callable[[], object]) -> None:
    """Make a commit, and repeat it as long as it conflicts with commits of the applier's steps."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            commit()
        except Exception as error:
            if not is_conflict(error) or time.monotonic() > deadline:
                raise
        else:
            return


CHANGES = [
    # What the test changes.
    ("delete", 77), ("insert", -10), ("insert", 33), ("update_postimage", 44), ("update_preimage", 44),
    # How the mirror corrects it.
    ("delete", 33), ("delete", 33), ("delete", -10), ("insert", 33), ("insert", 77), ("update_postimage", 44),
    ("update_preimage", 44),
]  # fmt: skip


@pytest.mark.rotate(2, of="proofs")
@pytest.mark.parametrize("deletes", list(Deletes))
def test_rows_that_differ_are_rewritten_once_and_the_feed_shows_it(
    proved: ProvedMirror, deletes: Deletes
) -> None:
    source, spark = proved.source, proved.spark
    fill(source, "ints")
    numbers = iter(range(1_000_000))

    def change() -> None:
        source.execute(f"UPDATE ints SET f = {next(numbers)} WHERE id IN (3, 200)")

    columns = (MetadataColumn.COMMITTED_AT,)
    proved.policy = TablePolicy(
        deletes=deletes, metadata=columns, feed=True, on_difference=OnDifference.REPAIR
    )
    with proved.applier():
        proved.until(lambda: proved.is_proved("ints", 0.0), change)
        path = proved.target.of(source, "ints")
        begin = delta_version(spark, path)
        plant(spark, path)
        # A repair is counted before the range is compared once more, which ends the difference.
        proved.until(lambda: proved.repaired("ints") == 4 and not proved.differs("ints"), change)
        since = time.time()
        proved.until(lambda: proved.is_proved("ints", since), change)
    feed = spark.read.format("delta").option("readChangeFeed", "true")
    changes = feed.option("startingVersion", begin + 1).load(path)
    marked = [("update_postimage", -10), ("update_preimage", -10)]
    soft = deletes is Deletes.SOFT
    expected = [each for each in CHANGES if not (soft and each == ("delete", -10))]
    rows = changes.where("id NOT IN (3, 200)").selectExpr("_change_type", "id").collect()
    assert sorted(map(tuple, rows)) == sorted([*expected, *(marked if soft else [])])
    if soft:
        deleted = spark.read.format("delta").load(path).where("_deleted").select("id").collect()
        assert [row.id for row in deleted] == [-10]


@pytest.mark.rotate(2, of="proofs")
def test_the_printed_repair_lets_a_stopped_table_go_on(proved: ProvedMirror) -> None:
    source, spark = proved.source, proved.spark
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 2)")
    proved.policy = TablePolicy(on_difference=OnDifference.STOP)
    numbers = iter(range(1_000_000))

    def change() -> None:
        source.execute(f"REPLACE INTO t VALUES (2, {next(numbers)})")

    with proved.applier():
        proved.until(lambda: proved.is_proved("t", 0.0), change)
        delta = DeltaTable.forPath(spark, proved.target.of(source, "t"))
        beside_steps(lambda: delta.delete("id = 1"))
        proved.until(lambda: proved.record("t").word is TableState.STOPPED, change)
        label = proved.record("t").label
        assert f"python -m spark_sink repair {label};" in proved.record("t").reason
        assert request_repair(ControlTable(spark, str(proved.target.path)), [label])
        proved.until(lambda: proved.record("t").word is TableState.COMPLETE, change)
        proved.until(lambda: proved.repaired("t") == 1, change)
    assert delta.toDF().where("id = 1").count() == 1


@pytest.mark.rotate(2, of="proofs")
def test_a_table_whose_columns_differ_is_stopped_if_the_policy_says_so(
    proved: ProvedMirror,
) -> None:
    source = proved.source
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 2)")
    proved.policy = TablePolicy(on_difference=OnDifference.STOP)
    with proved.applier():
        proved.until(lambda: proved.is_proved("t", 0.0), lambda: None)
        alter = f"ALTER TABLE `{source.database}`.t MODIFY a INT NOT NULL"
        source.server.execute("SET SESSION sql_log_bin = 0", alter)
        proved.until(lambda: proved.record("t").word is TableState.STOPPED, lambda: None)
    assert "column 'a' is NULL in the mirror, and NOT NULL" in proved.record("t").reason


@pytest.mark.rotate(2, of="proofs")
def test_a_column_that_differs_is_found_before_rows_are_read(proved: ProvedMirror) -> None:
    source = proved.source
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 2)")
    with proved.applier():
        proved.until(lambda: proved.is_proved("t", 0.0), lambda: None)
        alter = f"ALTER TABLE `{source.database}`.t MODIFY a INT NOT NULL"
        source.server.execute("SET SESSION sql_log_bin = 0", alter)
        proved.until(lambda: proved.differs("t"), lambda: None)
    found = proved.proof("t")
    assert found is not None
    assert found.difference is not None
    assert "column 'a' is NULL in the mirror, and NOT NULL on the server" in str(found.difference)
    assert found.difference.evidence


@pytest.mark.rotate(2, of="proofs")
def test_statements_that_are_followed_cause_no_difference(proved: ProvedMirror) -> None:
    source = proved.source
    fill(source, "ints")
    numbers = iter(range(1_000_000))

    def change() -> None:
        number = next(numbers)
        change_rows(source, "ints", number)
        if number % 5 == 0:
            source.execute(
                f"ALTER TABLE ints ADD COLUMN c{number} INT NOT NULL DEFAULT {number}",
                "RENAME TABLE ints TO other",
                "RENAME TABLE other TO ints",
            )

    proved.policy = TablePolicy(deletes=Deletes.SOFT)
    with proved.applier():
        proved.until(lambda: next(numbers) > 20, change)
        since = time.time()
        proved.until(lambda: proved.is_proved("ints", since), lambda: None)
    assert proved.record("ints").word is TableState.COMPLETE
