"""The memory that a Python worker needs for its slice of a large transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_sink.mirror.log.append import LogAppender
from spark_sink.source.options import MAX_PARTITION_BYTES, SourceOptions
from tests.daemon.harness import tip_seq, until
from tests.servers import Server
from tests.spark.source.large import MIB, create, daemon_of, insert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 100_000  # 512 MB
TIMEOUT_S = 600


def python_processes(jvm: int) -> list[int]:
    """Returns the pids of the Python processes that a JVM has started, and of the processes that these have forked."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
                parents[int(folder.name)] = int(stat.rpartition(") ")[2].split()[1])
    found = [jvm]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def kilobytes(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition(f"{field}:")[2].split()[0])


class Peaks:
    """The peak resident size of each Python process of a JVM since `forget`, in bytes."""

    def __init__(self, jvm: int) -> None:
        self._jvm = jvm
        self.peaks: dict[int, int] = {}
        self.forget()

    def forget(self) -> None:
        self.peaks.clear()
        for pid in python_processes(self._jvm):
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")

    def sample(self) -> None:
        for pid in python_processes(self._jvm):
            with suppress(OSError, IndexError):
                self.peaks[pid] = max(self.peaks.get(pid, 0), 1024 * kilobytes(pid, "VmHWM"))

    @property
    def largest(self) -> int:
        return max(self.peaks.values())


@pytest.mark.deep
@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("form", ["raw", "json", "typed", "log"])
def test_a_worker_needs_little_more_than_its_slice(
    form: str,
    spark: SparkSession,
    mysql97: Server,
    new_database: Callable[[Server], str],
    tmp_path: Path,
) -> None:
    server, database = mysql97, new_database(mysql97)
    create(server, database, "BLACKHOLE")  # stores no rows: the test needs only the log
    forms = {"raw": {"raw": "true"}, "json": {}, "typed": {"table": f"{database}.t"}}
    options = (forms | {"log": {"raw": "slices"}})[form]
    appender = LogAppender(spark, str(tmp_path / "target"))
    first = appender.claim("shop").append + 1

    with daemon_of(server, database, tmp_path / "daemon", "64MiB") as daemon:
        options |= {"url": f"http://127.0.0.1:{daemon.port}", "consumer": "shop"}

        def each(batch: DataFrame, number: int) -> None:
            if form == "log":
                source = SourceOptions.parse(options)
                appender.append(batch, source, "shop", first + number)
            else:
                batch.write.format("noop").mode("append").save()

        frame = spark.readStream.format("binlog").options(**options).load()
        query = (
            frame.writeStream.foreachBatch(each)
            .option("checkpointLocation", str(tmp_path / "c"))
            .start()
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        peaks = Peaks(gateway.proc.pid)

        def read() -> bool:
            """Returns True if everything that the server has written is acknowledged."""
            peaks.sample()
            assert query.isActive, query.exception()
            return bool(daemon.api.row("shop")["acknowledged"]["seq"] >= tip_seq(server))

        try:
            # The first batch compiles the kernels, or loads them from their cache.
            server.execute(insert(400), database=database)
            until(read, "the small transaction is read", timeout_s=TIMEOUT_S)
            idle = peaks.largest
            peaks.forget()
            server.execute(insert(ROWS), database=database)
            until(read, "the large transaction is read", timeout_s=TIMEOUT_S)
        finally:
            query.stop()
    slice_bytes = MAX_PARTITION_BYTES
    print(
        f"\n{form}: slices of {slice_bytes // MIB} MiB, idle {idle / MIB:.0f} MiB,"
        f" peak {peaks.largest / MIB:.0f} MiB: {(peaks.largest - idle) / slice_bytes:.2f} slices"
    )
    assert peaks.largest - idle < 1.3 * slice_bytes
