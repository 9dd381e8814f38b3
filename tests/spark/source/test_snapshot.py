"""Streams that begin with the existing rows of the tables, with real servers, real daemons and a Spark that the test
kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dispatcher.model.position import Position
from tests.daemon.harness import until
from tests.servers import Server
from tests.spark.conftest import NO_WORKER
from tests.spark.source.snapshots import (
    READER_PASSWORD,
    TOKEN,
    Folded,
    changing,
    existing,
    fill,
    served,
)
from tests.support.java import QUICK_JAVA

pytestmark = [
    pytest.mark.rotate(2, of="streams with a snapshot"),
    pytest.mark.timeout(900),
    pytest.mark.spark,
]

ROOT = Path(__file__).parents[3]


@dataclass
class Snapshotting:
    """A query in a separate process. `folder`: contains the query's checkpoint and batches."""

    folder: Path
    options: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    runs: int = 0

    def start(self, trigger: str = "available") -> None:
        environment = os.environ | {
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
            "SNAPSHOT_SECRET": READER_PASSWORD,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        }
        self.runs += 1
        with (self.folder / f"log{self.runs}").open("wb") as log:
            arguments = [json.dumps(self.options), str(self.folder), trigger]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.source.snapshot_job", *arguments],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return (self.folder / f"log{self.runs}").read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def run(self) -> None:
        """Run the query up to the server's newest change."""
        self.start()
        assert self.process is not None
        assert self.process.wait(600) == 0, self.log[-6000:]

    def planned(self) -> int:
        """Returns the number of batches that Spark has written to its offset log."""
        folder = self.folder / "c" / "offsets"
        return sum(path.name.isdigit() for path in folder.iterdir()) if folder.exists() else 0

    def until_planned(self, count: int) -> None:
        def reached() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                assert NO_WORKER in self.log, self.log[-6000:]
                self.start("continuous")
            return self.planned() >= count

        until(reached, f"{count} batches are planned", timeout_s=300)

    def offsets(self) -> list[dict[str, Any]]:
        folder = self.folder / "c" / "offsets"
        paths = sorted((p for p in folder.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        found: list[dict[str, Any]] = [
            json.loads(path.read_text().split("\n")[2]) for path in paths
        ]
        return found

    def batches(self) -> list[pa.Table]:
        paths = sorted((self.folder / "batches").glob("*.arrow"))
        return [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in paths]


def folded(snapshot: Snapshotting, key: str = "id") -> Folded:
    result = Folded()
    for batch in snapshot.batches():
        result.add(batch, key)
    return result


@contextmanager
def job(folder: Path, options: dict[str, str]) -> Iterator[Snapshotting]:
    snapshot = Snapshotting(folder, options | {"mysqlPasswordVariable": "SNAPSHOT_SECRET"})
    try:
        yield snapshot
    finally:
        if snapshot.process is not None and snapshot.process.poll() is None:
            snapshot.kill()


@pytest.fixture
def database(mysql97: Server, new_database: Callable[[Server], str]) -> str:
    return new_database(mysql97)


def test_a_stream_delivers_the_rows_and_then_the_changes(
    mysql97: Server, database: str, tmp_path: Path
) -> None:
    fill(mysql97, database, "t", 5000)
    fill(mysql97, database, "u", 10)
    options = {"tables": f"{database}.t, {database}.u", "maxBytesPerTrigger": "256KiB"}
    with served(mysql97, database, tmp_path, options) as given, job(tmp_path, given) as snapshot:
        snapshot.run()
        first = folded(snapshot)
        assert first.rows["t"] == existing(mysql97, database, "t")
        assert first.rows["u"] == existing(mysql97, database, "u")
        assert set(first.reads.values()) == {1}
        assert first.changes == 0
        reads = [batch for batch in snapshot.batches() if batch.num_rows]
        assert len(reads) > 2, "the table is read in several batches"
        assert all(len(json.dumps(offset)) < 2000 for offset in snapshot.offsets())
        last = snapshot.offsets()[-1]
        assert Position.from_dict(last).as_dict() == last, "the snapshot is over"
        mysql97.execute("UPDATE t SET v = 1 WHERE id < 20", "DELETE FROM u", database=database)
        snapshot.run()
        second = folded(snapshot)
        assert second.rows["t"] == existing(mysql97, database, "t")
        assert second.rows["u"] == {}
        assert second.changes == 20
    for path in (tmp_path / "c").rglob("*"):
        assert path.is_dir() or READER_PASSWORD.encode() not in path.read_bytes()


@pytest.mark.deep  # starts another Spark in addition to the session's Spark
@pytest.mark.timeout(3600)
def test_a_query_that_is_killed_under_load_delivers_each_version_in_order(
    mysql97: Server, database: str, tmp_path: Path
) -> None:
    fill(mysql97, database, "t", 40_000)
    options = {"tables": f"{database}.t", "maxBytesPerTrigger": "1MiB"}
    with served(mysql97, database, tmp_path, options) as given, job(tmp_path, given) as snapshot:
        with changing(mysql97, database, "t", 40_000, seed=1):
            for kills in range(3):
                snapshot.start("continuous")
                snapshot.until_planned(4 * (kills + 1))
                snapshot.kill()
        snapshot.run()
        result = folded(snapshot)
        assert result.rows["t"] == existing(mysql97, database, "t")
        assert result.changes > 0
        assert len(result.reads) > 20_000


@pytest.mark.deep  # also starts another Spark
@pytest.mark.timeout(1200)
def test_the_example_shows_the_present_rows(mysql97: Server, database: str, tmp_path: Path) -> None:
    fill(mysql97, database, "t", 5)
    with served(mysql97, database, tmp_path, {"tables": f"{database}.t"}) as given:
        environment = os.environ | {
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
            "MYSQL_PASSWORD": READER_PASSWORD,
            "DISPATCHER_TOKEN": TOKEN,
            "PYTHONPATH": str(ROOT),
        }
        arguments = [given["url"], "shop", f"{database}.t", given["mysql"], str(tmp_path / "log")]

        def shown() -> list[list[str]]:
            done = subprocess.run(
                [sys.executable, str(ROOT / "examples/snapshot.py"), *arguments],
                capture_output=True,
                text=True,
                check=False,
                env=environment,
            )
            assert done.returncode == 0, done.stderr[-6000:]
            lines = [line.split("|") for line in done.stdout.splitlines() if line.startswith("|")]
            return sorted([cells[1].strip(), cells[2].strip()] for cells in lines[1:])

        assert shown() == [["0", "0"], ["2", "0"], ["4", "0"], ["6", "0"], ["8", "0"]]
        mysql97.execute(
            "UPDATE t SET v = 1 WHERE id = 2",
            "DELETE FROM t WHERE id = 4",
            "UPDATE t SET id = 7, v = 2 WHERE id = 6",
            database=database,
        )
        assert shown() == [["0", "0"], ["2", "1"], ["7", "2"], ["8", "0"]]


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_millions_of_rows_under_load_through_ten_kills(
    mysql97: Server, database: str, tmp_path: Path
) -> None:
    """The environment variable `SNAPSHOT_ROWS` is the number of the table's rows."""
    rows = int(os.environ.get("SNAPSHOT_ROWS", "5000000"))
    fill(mysql97, database, "t", rows)
    # About 50 batches of rows, so that each run plans several batches.
    size = max(1 << 20, rows * 250 // 50)
    options = {"tables": f"{database}.t", "maxBytesPerTrigger": str(size)}
    with (
        served(mysql97, database, tmp_path, options, queue=64 << 20) as given,
        job(tmp_path, given) as snapshot,
    ):
        with changing(mysql97, database, "t", rows, seed=5):
            for kills in range(10):
                snapshot.start("continuous")
                snapshot.until_planned(7 * (kills + 1))
                snapshot.kill()
        snapshot.run()
        result = folded(snapshot)
    assert len(result.reads) > rows // 2
    assert result.changes > 0
    assert result.rows["t"] == existing(mysql97, database, "t")
