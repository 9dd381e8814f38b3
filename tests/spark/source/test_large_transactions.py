"""A transaction that is read in many slices: no row is lost, doubled or out of order, and slices can be read again."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from dispatcher.binlog.decode import delivered
from spark_sink.mirror.log.append import LogAppender
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.values.policies import ApplyOptions
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from spark_sink.source.schemas import RAW_SCHEMA
from spark_sink.source.slices import Slice
from tests.daemon.harness import Daemon
from tests.servers import Server
from tests.spark.conftest import to_end
from tests.spark.source.large import create, daemon_of, insert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.rotate(2, of="large transactions")

ROWS = 4000  # 20 MB
Table = dict[int, tuple[int, str]]
# (epoch, seq, ordinal), table, operation, id before, id after, row after.
Change = tuple[tuple[int, int, int], str, str, int | None, int | None, tuple[int, str] | None]


@pytest.fixture
def server(request: pytest.FixtureRequest, kind: str) -> Server:
    found: Server = request.getfixturevalue(kind)
    return found


@pytest.fixture
def database(server: Server, new_database: Callable[[Server], str]) -> str:
    return new_database(server)


@pytest.fixture
def daemon(server: Server, database: str, queue: str, tmp_path: Path) -> Iterator[Daemon]:
    with daemon_of(server, database, tmp_path / "daemon", queue) as running:
        yield running


def write(server: Server, database: str) -> None:
    """Write one transaction of several statements on two tables, some of whose rows are undone, and a small transaction
    before and after it."""
    create(server, database)
    server.execute(
        "BEGIN",
        insert(ROWS),
        "SAVEPOINT s",
        "UPDATE t SET n = n + 7 WHERE id % 3 = 0",
        "ROLLBACK TO s",
        "UPDATE t JOIN u ON t.id % 10 = u.id SET t.n = t.id, u.n = u.n + 1",
        "DELETE FROM t WHERE id % 4 = 1",
        "UPDATE t SET id = id + 100000 WHERE id < 50",
        "COMMIT",
        "INSERT INTO t VALUES (-2, 0, 'after')",
        database=database,
    )


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def selected(server: Server, database: str) -> dict[str, Table]:
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, n, SHA2(b, 256) FROM t")
        t = {row[0]: (row[1], row[2]) for row in cursor.fetchall()}
        cursor.execute("SELECT id, n FROM u")
        return {"t": t, "u": {row[0]: (row[1], digest("")) for row in cursor.fetchall()}}


def change_of(row: dict[str, Any]) -> Change:
    before, after = (
        json.loads(row[key]) if isinstance(row[key], str) else row[key]
        for key in ("before", "after")
    )
    return (
        (row["epoch"], row["seq"], row["ordinal"]),
        row["table"],
        row["op"],
        before and before["id"],
        after and after["id"],
        after and (after["n"], digest(after.get("b") or "")),
    )


def check_order(changes: list[Change]) -> None:
    """Assert that slices, and the entries of a slice, have the changes of each table in order."""
    for table in "tu":
        order = [change[0] for change in changes if change[1] == table]
        assert order == sorted(set(order))


def replayed(changes: Iterable[Change]) -> dict[str, Table]:
    """Applies the changes in their order. Returns the resulting tables."""
    tables: dict[str, Table] = {"t": {}, "u": {}}
    for _, table, _, before, after, row in changes:
        if before is not None:
            del tables[table][before]
        if after is not None and row is not None:
            assert after not in tables[table]
            tables[table][after] = row
    return tables


# A queue of 1 MiB spills the transaction to disk.
@pytest.mark.parametrize(("kind", "queue"), [("mysql97", "1MiB"), ("mariadb118", "64MiB")])
def test_a_transaction_in_many_slices_is_equal_to_select(
    spark: SparkSession, server: Server, database: str, daemon: Daemon, tmp_path: Path
) -> None:
    write(server, database)
    changes: list[Change] = []
    slices: list[int] = []

    def collect(batch: DataFrame, _number: int) -> None:
        slices.append(batch.rdd.getNumPartitions())
        found = [change_of(row) for row in batch.where("op <> 'ddl'").toArrow().to_pylist()]
        check_order(found)
        changes.extend(sorted(found))

    reader = spark.readStream.format("binlog").option("url", f"http://127.0.0.1:{daemon.port}")
    frame = reader.options(consumer="shop", maxBytesPerPartition="2MiB").load()
    to_end(frame, tmp_path / "c", collect)
    check_order(changes)
    assert replayed(changes) == selected(server, database)
    assert max(slices) >= 10


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "queue"), [("mysql97", "1MiB")])
def test_a_transaction_in_many_slices_is_mirrored(
    spark: SparkSession, server: Server, database: str, daemon: Daemon, tmp_path: Path
) -> None:
    write(server, database)
    target = str(tmp_path / "target")
    appender = LogAppender(spark, target)
    claimed = appender.claim("shop").append
    options = {
        "url": f"http://127.0.0.1:{daemon.port}",
        "consumer": "shop",
        "raw": "slices",
        "maxBytesPerPartition": "2MiB",
    }
    source = SourceOptions.parse(options)
    to_end(
        spark.readStream.format("binlog").options(**options).load(),
        tmp_path / "c",
        lambda batch, number: appender.append(batch, source, "shop", claimed + 1 + number),
    )
    entries = appender.log.entries("shop", 0, appends_max=100)
    of_one = Counter((entry.append, entry.table, entry.first_seq) for entry in entries)
    assert max(of_one.values()) >= 10
    applied = ApplyOptions(target, ["shop"], step_bytes_max=8 << 20, watermark_s=0.0, poll_s=0.02)
    assert Applier(spark, applied).run(threading.Event(), drain=True) == 0
    tables: dict[str, Table] = {}
    for table, text in (("t", "sha2(b, 256)"), ("u", "sha2('', 256)")):
        frame = spark.read.format("delta").load(f"{target}/{database}/{table}")
        rows = frame.selectExpr("id", "n", f"{text} AS b").collect()
        tables[table] = {row["id"]: (row["n"], row["b"]) for row in rows}
        assert len(tables[table]) == len(rows)
    assert tables == selected(server, database)


def raw_reader(daemon: Daemon) -> BinlogStreamReader:
    options = {
        "url": f"http://127.0.0.1:{daemon.port}",
        "consumer": "shop",
        "raw": "true",
        "maxBytesPerPartition": "1MiB",
    }
    return BinlogStreamReader(SourceOptions.parse(options), RAW_SCHEMA)


def decoded(batches: Iterable[pa.RecordBatch]) -> Iterator[Change]:
    for batch in batches:
        (entry,) = batch.to_pylist()
        if entry["kind"] == "rows":
            for rows in delivered.decode_table(entry["payload"]):
                yield from map(change_of, rows.to_pylist())


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
@pytest.mark.parametrize("queue", ["1MiB", "64MiB"])
def test_slices_can_be_read_again_after_a_restart_of_the_daemon(
    server: Server, database: str, daemon: Daemon
) -> None:
    reader = raw_reader(daemon)
    start = reader.initialOffset()
    write(server, database)
    changes: list[Change] = []
    restarts = 0
    while -2 not in replayed(changes)["t"]:  # the row after the large transaction
        end = reader.latestOffset(start, ReadAllAvailable())
        slices = [part for part in reader.partitions(start, end) if isinstance(part, Slice)]
        read = [list(reader.read(part)) for part in slices]
        batches = [batch for batches in read for batch in batches]
        entries = [batch["entry"][0].as_py() for batch in batches]
        assert entries == sorted(set(entries))
        assert all(batch.nbytes < delivered.MAX_PAYLOAD_BYTES + (1 << 16) for batch in batches)
        of_batch = list(decoded(batches))
        check_order(of_batch)
        changes += sorted(of_batch)
        if sum(part.start.inside is not None for part in slices) >= 15:
            daemon.stop()
            daemon.start()
            restarts += 1
            # Read each slice separately, the last slice first.
            again = [list(raw_reader(daemon).read(part)) for part in reversed(slices)]
            assert again == read[::-1]
        start = end
    reader.stop()
    assert replayed(changes) == selected(server, database)
    assert restarts == 1
