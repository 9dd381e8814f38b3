"""Streams that begin at places of the log, and batches, with a real server and a real daemon."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from dispatcher.binlog.decode import delivered
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers import batch
from spark_sink.source.readers.batch import BinlogBatchReader
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from spark_sink.source.schemas import RAW_SCHEMA
from tests.daemon.harness import PASSWORD, Daemon, until
from tests.servers import Server
from tests.servers.plugin import ServerFactory
from tests.spark.conftest import mysql_rows, to_end
from tests.support.certificates import make_certificate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.rotate(1, of="the source on a real daemon")

FULL, READ = "token-of-the-stream", "token-of-the-batch"
QUEUE_BYTES = 1 << 20


@pytest.fixture
def database(mysql97: Server, new_database: Callable[[Server], str]) -> str:
    return new_database(mysql97)


@pytest.fixture
def daemon(mysql97: Server, database: str, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose consumer `shop` reads the database, beginning at the server's present position. One of its tokens
    may only read."""
    user = f"places{os.getpid() % 10**6}"
    mysql97.add_user(user, PASSWORD)
    consumer = {
        "mysql": f"{user}@{mysql97.host}:{mysql97.port}",
        "password": PASSWORD,
        "databases": [database],
        "max_bytes_in_binlog_queue": QUEUE_BYTES,
    }
    tokens = [
        {"token": FULL, "consumers": "all", "scopes": ["read", "acknowledge", "metrics"]},
        {"token": READ, "consumers": ["shop"], "scopes": ["read"]},
    ]
    running = Daemon(
        tmp_path / "daemon", {"consumers": {"shop": consumer}, "api": {"tokens": tokens}}
    )
    running.token = FULL
    try:
        running.start()
        running.api.until_state("shop", "streaming")
        yield running
    finally:
        running.close()
        mysql97.execute(f"DROP USER '{user}'@'%'")


def options(daemon: Daemon, token: str, **more: str) -> dict[str, str]:
    given = {"url": daemon.url, "consumer": "shop", "token": token, "retryTimeoutSeconds": "30"}
    return given | more


def stream(spark: SparkSession, given: dict[str, str], checkpoint: Path) -> list[dict[str, Any]]:
    """Run a stream of JSON rows to the end of the log. Returns the images of the inserts."""
    found: list[dict[str, Any]] = []

    def collect(rows: DataFrame, _number: int) -> None:
        inserts = rows.where("op = 'insert'").orderBy("seq", "ordinal").collect()
        found.extend(json.loads(row["after"]) for row in inserts)

    to_end(spark.readStream.format("binlog").options(**given).load(), checkpoint, collect)
    return found


def test_a_query_begins_at_places_of_a_real_log(
    spark: SparkSession, mysql97: Server, database: str, daemon: Daemon, tmp_path: Path
) -> None:
    mysql97.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database
    )
    ((_, executed),) = mysql_rows(mysql97, database, "SELECT @@GLOBAL.gtid_executed")[0].items()
    file, offset = mysql97.binlog_position()
    before = datetime.now(UTC)
    mysql97.execute("INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)", database=database)

    def ids(**places: str) -> list[int]:
        checkpoint = tmp_path / str(len(list(tmp_path.iterdir())))
        return [row["id"] for row in stream(spark, options(daemon, FULL, **places), checkpoint)]

    assert ids(startingTimestamp=str(int(before.timestamp() * 1000))) == [2, 3]
    position = json.dumps(daemon.stored("shop")["acknowledged"])
    assert ids(startingOffsets=executed) == [2, 3]
    assert ids(startingOffsets=f"{file}:{offset}") == [2, 3]
    assert ids(startingOffsets="latest") == []
    assert ids(startingOffsets=position) == [2, 3]
    assert ids(startingOffsets="latest") == []
    mysql97.execute("INSERT INTO t VALUES (4)", database=database)
    reader = spark.read.format("binlog").options(**options(daemon, READ)).load()
    assert [json.loads(row["after"]) for row in reader.collect()] == [{"id": 4}]
    assert ids() == [4], "the batch has acknowledged nothing"


class TypedStream:
    """A query with the option `table` whose runs use the same checkpoint. `rows`: the images of all inserts that the
    query has read."""

    def __init__(self, spark: SparkSession, given: dict[str, str], checkpoint: Path) -> None:
        self._spark, self._given, self._checkpoint = spark, given, checkpoint
        self.rows: list[dict[str, Any]] = []

    def load(self, **more: str) -> DataFrame:
        return self._spark.readStream.format("binlog").options(**self._given, **more).load()

    def run(self, changes: DataFrame) -> None:
        def collect(rows: DataFrame, _number: int) -> None:
            inserts = rows.where("op = 'insert'").orderBy("seq", "ordinal").collect()
            found = [row["after"] for row in inserts]
            self.rows += [
                json.loads(image) if isinstance(image, str) else image.asDict() for image in found
            ]

        to_end(changes, self._checkpoint, collect)


@pytest.fixture
def typed(
    spark: SparkSession, mysql97: Server, database: str, daemon: Daemon, tmp_path: Path
) -> TypedStream:
    """Returns a stream of `t` that has read the row 1."""
    mysql97.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
        "INSERT INTO t VALUES (1, 1)",
        database=database,
    )
    daemon.api.until_state("shop", "streaming")
    query = TypedStream(spark, options(daemon, FULL), tmp_path / "typed")
    query.run(query.load(table=f"{database}.t"))
    assert query.rows == [{"id": 1, "a": 1}]
    return query


def remedy_of(query: TypedStream, changes: DataFrame) -> str:
    """Returns the remedy of the error with which a run ends."""
    with pytest.raises(StreamingQueryException) as caught:
        query.run(changes)
    line = next(line for line in str(caught.value).splitlines() if "do not fit the stream" in line)
    return line.partition("; ")[2]


def test_a_query_that_stopped_at_a_new_column_goes_on_when_it_is_started_again(
    mysql97: Server, database: str, typed: TypedStream
) -> None:
    before = typed.load(table=f"{database}.t")
    mysql97.execute(
        "INSERT INTO t VALUES (2, 2)",
        "ALTER TABLE t ADD b INT, MODIFY a BIGINT",
        "INSERT INTO t VALUES (3, 3, 3)",
        database=database,
    )
    assert "start the query again" in remedy_of(typed, before)
    del typed.rows[1:]
    typed.run(typed.load(table=f"{database}.t"))
    assert typed.rows[1:] == [{"id": 2, "a": 2, "b": None}, {"id": 3, "a": 3, "b": 3}]


def test_rows_with_a_dropped_column_are_read_with_the_option_that_the_message_names(
    mysql97: Server, database: str, typed: TypedStream
) -> None:
    mysql97.execute("INSERT INTO t VALUES (2, 2)", "ALTER TABLE t DROP COLUMN a", database=database)
    remedy = remedy_of(typed, typed.load(table=f"{database}.t"))
    assert "else set the option schemaChanges to project" in remedy
    typed.run(typed.load(table=f"{database}.t", schemaChanges="project"))
    assert typed.rows[1:] == [{"id": 2}]


def test_rows_of_a_wider_type_are_read_as_json_as_the_message_says(
    mysql97: Server, database: str, typed: TypedStream
) -> None:
    mysql97.execute(
        "ALTER TABLE t MODIFY a BIGINT",
        "INSERT INTO t VALUES (2, 2)",
        "ALTER TABLE t MODIFY a INT",
        "INSERT INTO t VALUES (3, 3)",
        database=database,
    )
    remedy = remedy_of(typed, typed.load(table=f"{database}.t", schemaChanges="project"))
    assert "else read these rows as JSON, with the option tables in place of table" in remedy
    typed.run(typed.load(tables=f"{database}.t"))
    assert typed.rows[1:] == [{"id": 2, "a": 2}, {"id": 3, "a": 3}]


def rows_of(reader: BinlogBatchReader) -> tuple[int, Position | None]:
    """Returns the number of rows of a batch, and the position at which the batch ends."""
    count, end = 0, None
    for part in reader.partitions():
        for entry in reader.read(part):
            (row,) = entry.to_pylist()
            if row["kind"] == "rows":
                count += sum(rows.num_rows for rows in delivered.decode_table(row["payload"]))
            elif row["kind"] == "end":
                end = Position.from_json(row["position"])
    return count, end


def test_a_batch_of_a_full_queue_disturbs_no_stream(
    mysql97: Server,
    database: str,
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(batch, "FULL_AFTER_S", 0.3)
    monkeypatch.setattr(batch, "WAIT_MS", 100)
    given: dict[str, Any] = {"raw": "true", "maxBytesPerPartition": "256KiB"}
    stream = BinlogStreamReader(SourceOptions.parse(options(daemon, FULL, **given)), RAW_SCHEMA)
    begin = stream.initialOffset()
    mysql97.execute("CREATE TABLE t (id INT PRIMARY KEY, b MEDIUMTEXT)", database=database)
    inserts = [f"INSERT INTO t VALUES ({n}, REPEAT('x', 100000))" for n in range(30)]
    mysql97.execute(*inserts, database=database)
    until(lambda: daemon.api.row("shop")["bytes"] > QUEUE_BYTES // 2, "the queue is filled")

    def reader(**more: str) -> BinlogBatchReader:
        parsed = SourceOptions.parse(options(daemon, READ, **given, **more))
        return BinlogBatchReader(parsed, RAW_SCHEMA)

    count, end = rows_of(reader())
    assert 5 <= count < 30 and end is not None
    assert "the queue is full, so the batch ends at" in caplog.text
    assert rows_of(reader(endingOffsets=end.to_json())) == (count, end)

    # The stream's session is not fenced, and its position has not moved.
    assert daemon.stored("shop")["acknowledged"] == begin
    middle = stream.latestOffset(begin, ReadAllAvailable())
    planned = reader(failOnDataLoss="false").partitions()
    stream.latestOffset(middle, ReadAllAvailable())
    with pytest.raises(BinlogError) as caught:
        reader(startingOffsets=json.dumps(begin)).partitions()
    assert caught.value.kind is ErrorKind.POSITION_PURGED
    with pytest.raises(BinlogError, match="were acknowledged, or the server has purged them"):
        list(reader().read(planned[0]))
    assert list(reader(failOnDataLoss="false").read(planned[0])) == []
    stream.stop()


def test_invalid_dates_are_what_the_option_says(
    spark: SparkSession, mysql97: Server, database: str, daemon: Daemon, tmp_path: Path
) -> None:
    mysql97.execute(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "CREATE TABLE t (id INT PRIMARY KEY, day DATE)",
        "INSERT INTO t VALUES (1, '2026-02-30'), (2, '2026-02-28')",
        database=database,
    )
    as_text = stream(spark, options(daemon, FULL, invalidDates="text"), tmp_path / "text")
    assert [row["day"] for row in as_text] == ["2026-02-30", "2026-02-28"]
    mysql97.execute(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "INSERT INTO t VALUES (3, '2026-02-31')",
        database=database,
    )
    with pytest.raises(StreamingQueryException, match="column 'day': an invalid date"):
        stream(spark, options(daemon, FULL, invalidDates="error"), tmp_path / "error")
    # A stream acknowledges its last batch only when Spark requests the next batch, so all three rows are delivered
    # again.
    as_null = stream(spark, options(daemon, FULL), tmp_path / "null")
    assert [row["day"] for row in as_null] == [None, "2026-02-28", None]


def purge(server: Server, statement: str) -> None:
    """Execute a statement, and purge the log file that contains it."""
    server.execute(statement, "FLUSH BINARY LOGS")
    newest = server.binlogs()[-1][0]

    def purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return bool(server.binlogs()[0][0] == newest)

    until(purged, "the older logs are gone")


def test_starting_offsets_revive_a_purged_consumer_in_a_run_to_the_end_of_the_log(
    spark: SparkSession, server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = server_factory("mysql97")
    server.add_user("shop", PASSWORD)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    consumer = {
        "mysql": f"shop@{server.host}:{server.port}",
        "password": PASSWORD,
        "databases": ["d"],
    }
    daemon = Daemon(tmp_path / "daemon", {"consumers": {"shop": consumer}})
    given = {"url": daemon.url, "consumer": "shop", "retryTimeoutSeconds": "30"}
    try:
        daemon.start()
        daemon.api.until_state("shop", "streaming")
        daemon.stop()
        purge(server, "INSERT INTO d.t VALUES (1)")
        server.execute("INSERT INTO d.t VALUES (2)")
        daemon.start()
        daemon.api.until_state("shop", "failed")
        begins = given | {"startingOffsets": "earliest"}
        assert stream(spark, begins, tmp_path / "c") == [{"id": 2}]
        assert daemon.api.row("shop")["state"] == "streaming"
    finally:
        daemon.close()


def test_a_stream_with_tls_goes_on_behind_purged_changes(
    spark: SparkSession, server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = server_factory("mysql97")
    server.add_user("shop", PASSWORD)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    folder = tmp_path / "daemon"
    folder.mkdir()
    make_certificate(folder)
    (tmp_path / "token").write_text(FULL + "\n", encoding="ascii")
    consumer: dict[str, Any] = {
        "mysql": f"shop@{server.host}:{server.port}",
        "password": PASSWORD,
        "databases": ["d"],
        "on_purged": "latest",
    }
    api = {
        "tls": {"cert": str(folder / "ca.pem"), "key": str(folder / "key.pem")},
        "tokens": [{"token": FULL, "consumers": "all", "scopes": ["read", "acknowledge"]}],
    }
    daemon = Daemon(folder, {"consumers": {"shop": consumer}, "api": api})
    daemon.ca, daemon.token = folder / "ca.pem", FULL
    given = {"url": daemon.url, "consumer": "shop", "tokenFile": str(tmp_path / "token")}
    trusting = given | {"caFile": str(daemon.ca), "retryTimeoutSeconds": "30"}
    try:
        daemon.start()
        daemon.api.until_state("shop", "streaming")
        server.execute("INSERT INTO d.t VALUES (1)")
        assert stream(spark, trusting, tmp_path / "c") == [{"id": 1}]
        with pytest.raises(StreamingQueryException, match="certificate"):
            stream(spark, given | {"retryTimeoutSeconds": "1"}, tmp_path / "distrustful")

        daemon.stop()
        purge(server, "INSERT INTO d.t VALUES (2)")
        daemon.start()
        daemon.api.until_state("shop", "streaming")
        server.execute("INSERT INTO d.t VALUES (3)")
        with pytest.raises(StreamingQueryException, match=r"purged.*failOnDataLoss"):
            stream(spark, trusting, tmp_path / "c")
        assert stream(spark, trusting | {"failOnDataLoss": "false"}, tmp_path / "c") == [{"id": 3}]
    finally:
        daemon.close()
