"""`format("binlog")` in a real Spark, with transactions from a real server's log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from dispatcher.model.errors import ErrorKind
from spark_sink.source.listener import BinlogListener
from tests.daemon.harness import until
from tests.spark.conftest import Source, to_end
from tests.support.fake_daemon import listening, problem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.rotate(5, of="the source")


def stream(spark: SparkSession, source: Source, **options: str) -> DataFrame:
    given = {"url": source.daemon.url, "consumer": "shop", "retryTimeoutSeconds": "5"} | options
    return spark.readStream.format("binlog").options(**given).load()


class Batches:
    """Collects the batches that Spark passes to `foreachBatch`."""

    def __init__(self) -> None:
        self.rows: list[list[dict[str, Any]]] = []

    def __call__(self, batch: DataFrame, _number: int) -> None:
        self.rows.append([row.asDict(recursive=True) for row in batch.collect()])

    def all(self) -> list[dict[str, Any]]:
        return [row for batch in self.rows for row in batch]


def some_history(source: Source) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2))",
        "CREATE TABLE u (id BIGINT UNSIGNED PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'é', 1.50), (2, NULL, NULL)",
        "UPDATE t, u SET t.name = 'x' WHERE t.id = 99",
        "INSERT INTO u VALUES (18446744073709551615)",
        "UPDATE t SET price = 2 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )
    source.feed()


def test_changes_as_json_then_more_from_the_checkpoint(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    some_history(source)
    batches = Batches()
    to_end(stream(spark, source), tmp_path / "c", batches)
    rows = sorted(batches.all(), key=lambda row: (row["epoch"], row["seq"], row["ordinal"]))
    assert len({(row["epoch"], row["seq"], row["ordinal"]) for row in rows}) == len(rows)
    assert [row["op"] for row in rows] == [*["ddl"] * 3, *["insert"] * 3, "update", "delete"]
    first = json.loads(rows[0]["after"])
    assert first["query"].startswith("CREATE DATABASE") and first["sql_mode"] > 0
    assert rows[0]["tables"] == [] and rows[3]["tables"] is None
    assert [rows[n]["tables"] for n in (1, 2)] == [
        [{"database": source.database, "table": table}] for table in ("t", "u")
    ]
    assert [(row["table"], row["before"], row["after"]) for row in rows[3:]] == [
        ("t", None, '{"id":1,"name":"é","price":"1.50"}'),
        ("t", None, '{"id":2,"name":null,"price":null}'),
        ("u", None, '{"id":18446744073709551615}'),
        ("t", '{"id":1,"name":"é","price":"1.50"}', '{"id":1,"name":"é","price":"2.00"}'),
        ("t", '{"id":2,"name":null,"price":null}', None),
    ]
    assert {row["database"] for row in rows} == {source.database}
    assert all(row["gtid"] and row["file"] and row["pos"] and row["committed_at"] for row in rows)

    source.execute("INSERT INTO t VALUES (7, 'later', NULL)")
    source.feed()
    more = Batches()
    to_end(stream(spark, source), tmp_path / "c", more)
    assert [row["after"] for row in more.all()] == ['{"id":7,"name":"later","price":null}']
    # Without new transactions there is no batch, and no second acknowledgement.
    none = Batches()
    to_end(stream(spark, source), tmp_path / "c", none)
    assert none.all() == []


def test_batches_are_bounded_in_bytes_and_read_in_slices(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, b BLOB)")
    for i in range(6):
        source.execute(f"INSERT INTO t VALUES ({i}, REPEAT('x', 20000))")
    source.feed()
    batches = Batches()
    to_end(stream(spark, source, maxBytesPerTrigger="45000"), tmp_path / "c", batches)
    data = [[row["seq"] for row in rows if row["op"] == "insert"] for rows in batches.rows]
    assert [len(seqs) for seqs in data] == [2, 2, 2]
    assert data == sorted(data)


def test_a_query_begins_at_a_place_and_then_at_its_checkpoint(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    some_history(source)
    first, more, earliest = Batches(), Batches(), Batches()
    latest = stream(spark, source, startingOffsets="latest")
    to_end(latest, tmp_path / "c", first)
    assert first.all() == []
    source.execute("INSERT INTO t VALUES (7, 'later', NULL)")
    source.feed()
    to_end(latest, tmp_path / "c", more)
    assert [row["after"] for row in more.all()] == ['{"id":7,"name":"later","price":null}']
    to_end(stream(spark, source, startingOffsets="earliest"), tmp_path / "other", earliest)
    assert len(earliest.all()) == 9


def test_batches_are_bounded_in_transactions(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    some_history(source)
    batches = Batches()
    bounds = {
        "maxTransactionsPerTrigger": "3",
        "minBytesPerTrigger": "1MB",
        "maxTriggerDelay": "1h",
    }
    to_end(stream(spark, source, **bounds), tmp_path / "c", batches)
    assert [len({row["seq"] for row in rows}) for rows in batches.rows] == [3, 3, 1]


def test_a_listener_sees_each_batch(
    spark: SparkSession, source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spark_sink.streams")
    some_history(source)
    listener = BinlogListener()
    spark.streams.addListener(listener)
    try:
        to_end(stream(spark, source, maxTransactionsPerTrigger="3"), tmp_path / "c", Batches())
        until(lambda: len(caplog.records) == 3, "three batches")
        until(lambda: not listener.totals(), "the query has ended")
    finally:
        spark.streams.removeListener(listener)
    lines: list[dict[str, Any]] = [vars(record)["fields"] for record in caplog.records]
    assert [(line["consumer"], line["batch"], line["transactions"]) for line in lines] == [
        ("shop", 0, 3),
        ("shop", 1, 3),
        ("shop", 2, 1),
    ]
    assert sum(line["rows"] for line in lines) == 8
    assert [line["lag_transactions"] for line in lines] == [4, 1, 0]
    assert all(line["bytes"] > 0 for line in lines)
    assert {"latestOffset_s", "addBatch_s", "walCommit_s", "commitOffsets_s"} <= lines[0].keys()


def test_a_batch_is_read_beside_a_stream(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    some_history(source)
    streamed = Batches()
    to_end(stream(spark, source), tmp_path / "c", streamed)
    source.daemon.acknowledged = source.daemon.base
    session = source.daemon.session

    def batch(**options: str) -> DataFrame:
        reader = spark.read.format("binlog").option("url", source.daemon.url)
        return reader.options(consumer="shop", maxBytesPerPartition="300B", **options).load()

    everything = batch()
    assert everything.rdd.getNumPartitions() > 1
    found = [row.asDict(recursive=True) for row in everything.collect()]
    assert sorted(found, key=str) == sorted(streamed.all(), key=str)
    end = source.daemon.transactions[-2].position
    assert batch(endingOffsets=end.to_json()).where("op = 'delete'").count() == 0
    assert (source.daemon.session, source.daemon.acknowledged) == (session, source.daemon.base)
    source.daemon.acknowledge_as_another_reader(end)
    assert batch(endingOffsets=end.to_json()).count() == 0
    with pytest.raises(
        PySparkException, match=r"changes after .* were acknowledged.*failOnDataLoss"
    ):
        batch(startingOffsets=source.daemon.base.to_json()).count()


def test_a_list_of_tables(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    some_history(source)
    source.execute("CREATE TABLE v (id INT)", "RENAME TABLE v TO u2", "INSERT INTO u2 VALUES (3)")
    source.feed()
    # The source asks the server only about exact names, not about patterns.
    batches = Batches()
    frame = stream(spark, source, tables=f"{source.database}.u*, other.t")
    to_end(frame, tmp_path / "c", batches)
    rows = sorted(batches.all(), key=lambda row: (row["seq"], row["ordinal"]))
    assert [(row["table"], row["after"]) for row in rows if row["op"] != "ddl"] == [
        ("u", '{"id":18446744073709551615}'),
        ("u2", '{"id":3}'),
    ]
    statements = [
        json.loads(row["after"])["query"].split("(")[0] for row in rows if row["op"] == "ddl"
    ]
    assert [text.split()[0:2] for text in statements] == [
        ["CREATE", "DATABASE"],
        ["CREATE", "TABLE"],
        ["RENAME", "TABLE"],
    ]
    assert "TABLE u " in statements[1]


def test_a_batch_waits_for_its_bytes(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    some_history(source)
    batches = Batches()
    frame = stream(spark, source, minBytesPerTrigger="4kB", maxTriggerDelay="1h")
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "c"))
    query = writer.foreachBatch(batches).start()
    try:
        until(lambda: batches.rows, "the first batch, which does not wait")
        source.execute("INSERT INTO t VALUES (7, 'small', NULL)")
        source.feed()
        source.daemon.calls.clear()

        def polls() -> list[int]:
            return [body["min_bytes"] for name, body in source.daemon.calls if name == "poll"]

        until(lambda: len(polls()) >= 2, "it was asked again with what is there")
        assert set(polls()) == {4000} and len(batches.rows) == 1
        values = ", ".join(f"({n}, 'more', NULL)" for n in range(100, 500))
        source.execute(f"INSERT INTO t VALUES {values}")
        source.feed()
        until(lambda: len(batches.rows) == 2, "the second batch")
        assert len(batches.rows[1]) == 401
    finally:
        query.stop()


def test_a_query_goes_on_through_takeovers(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """The first address refuses connections when the query begins, the second address refuses them later."""
    some_history(source)
    batches = Batches()
    with listening(source.daemon) as dead, listening(source.daemon) as b:
        dead.end()
        c = source.daemon.url
        frame = stream(spark, source, url=f"{dead.url},{b.url},{c}", retryTimeoutSeconds="60")
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "c"))
        query = writer.foreachBatch(batches).start()
        try:
            until(lambda: batches.rows, "the first batch, from the second address")
            session = source.daemon.session
            b.end()
            source.execute("INSERT INTO t VALUES (7, 'later', NULL)")
            source.feed()
            until(lambda: len(batches.rows) == 2, "the next batch, from the third address")
        finally:
            query.stop()
    assert query.exception() is None
    assert [json.loads(row["after"])["id"] for row in batches.rows[1]] == [7]
    assert source.daemon.session == session, "no session was opened again"


@pytest.mark.deep
def test_a_restart_whose_first_call_is_partitions(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    some_history(source)
    once, again = Batches(), Batches()
    to_end(stream(spark, source), tmp_path / "c", once)
    # The state after a crash between the write of the offset log and the commit: the batch is planned but not
    # committed.
    for path in (tmp_path / "c" / "commits").iterdir():
        path.unlink()
    source.daemon.calls.clear()
    to_end(stream(spark, source, maxPartitions="3"), tmp_path / "c", again)
    assert sorted(map(str, again.all())) == sorted(map(str, once.all()))
    called = [name for name, body in source.daemon.calls if not body.get("read_only")]
    assert called[:2] == ["session", "slices"]
    assert called.count("binlog") == 3


def test_a_table_in_its_own_types(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    some_history(source)
    name = f"{source.database}.t"
    source.daemon.tables[name] = {
        "database": source.database,
        "table": "t",
        "columns": [
            {"name": "id", "mysql_type": "int", "nullable": False, "charset": None},
            {"name": "name", "mysql_type": "varchar(20)", "nullable": True, "charset": "utf8mb4"},
            {"name": "price", "mysql_type": "decimal(10,2)", "nullable": True, "charset": None},
        ],
        "key": ["id"],
    }
    frame = stream(spark, source, table=name)
    prices = Batches()
    to_end(frame.select("seq", "op", "after.price", "before.id"), tmp_path / "c", prices)
    rows = sorted(prices.all(), key=lambda row: row["seq"])
    assert [(row["op"], row["price"] and str(row["price"]), row["id"]) for row in rows] == [
        ("insert", "1.50", None),
        ("insert", None, None),
        ("update", "2.00", 1),
        ("delete", None, 2),
    ]
    source.execute(
        "ALTER TABLE t ADD COLUMN extra INT, MODIFY id BIGINT",
        "INSERT INTO t VALUES (3, 'x', 1, 2)",
    )
    source.feed()
    with pytest.raises(StreamingQueryException) as caught:
        to_end(stream(spark, source, table=name), tmp_path / "c", Batches())
    fault = "column 'extra' is not in the stream; column 'id' is bigint, which does not fit int in all cases (epoch 1"
    assert fault in str(caught.value)


def test_chosen_columns_metadata_and_layouts_of_batches(
    spark: SparkSession, source: Source
) -> None:
    some_history(source)
    source.execute(
        "ALTER TABLE t ADD COLUMN extra INT, MODIFY id BIGINT",
        "INSERT INTO t VALUES (3, 'x', 1, 2)",
    )
    source.feed()
    name = f"{source.database}.t"
    source.daemon.tables[name] = {
        "database": source.database,
        "table": "t",
        "columns": [
            {"name": "id", "mysql_type": "bigint", "nullable": False, "charset": None},
            {"name": "name", "mysql_type": "varchar(20)", "nullable": True, "charset": "utf8mb4"},
            {"name": "extra", "mysql_type": "int", "nullable": True, "charset": None},
        ],
        "key": ["id"],
    }

    def batch(**options: str) -> list[dict[str, Any]]:
        reader = spark.read.format("binlog").option("url", source.daemon.url)
        frame = reader.options(consumer="shop", **options).load()
        found = [row.asDict(recursive=True) for row in frame.collect()]
        return sorted(found, key=lambda row: (row["seq"], row["ordinal"]))

    metadata = "server_id, query, key, changed, transaction_rows, transaction_end"
    typed = batch(table=name, schemaChanges="project", columns="id, EXTRA", metadata=metadata)
    assert [(row["op"], row["before"], row["after"], row["key"]) for row in typed] == [
        ("insert", None, {"id": 1, "extra": None}, {"id": 1}),
        ("insert", None, {"id": 2, "extra": None}, {"id": 2}),
        ("update", {"id": 1, "extra": None}, {"id": 1, "extra": None}, {"id": 1}),
        ("delete", {"id": 2, "extra": None}, None, {"id": 2}),
        ("insert", None, {"id": 3, "extra": 2}, {"id": 3}),
    ]
    assert [row["changed"] for row in typed] == [None, None, ["price"], None, None]
    assert [row["transaction_rows"] for row in typed] == [2, 2, 1, 1, 1]
    assert [row["transaction_end"] for row in typed] == [False, True, True, True, True]
    assert len({row["server_id"] for row in typed}) == 1

    rows = batch(columns=f"{name}.name", tables=f"{source.database}.t", metadata=metadata)
    alter = next(row for row in rows if row["query"] and row["query"].startswith("ALTER"))
    assert alter["tables"] == [{"database": source.database, "table": "t"}]
    assert (alter["table"], alter["key"], alter["transaction_rows"]) == ("t", None, 1)
    assert (rows[-1]["after"], rows[-1]["key"]) == ('{"name":"x"}', '{"id":3}')
    selected = batch(
        table=name, schemaChanges="project", columns="extra", select="seq, ordinal, after"
    )
    assert list(selected[0]) == ["seq", "ordinal", "after"]
    assert [row["after"] for row in selected] == [
        row and {"extra": row["extra"]} for row in (row["after"] for row in typed)
    ]
    with pytest.raises(
        PySparkException, match="fit the stream: column 'price' is not in the stream"
    ):
        batch(table=name)


def test_wrong_options_and_unknown_consumers_are_reported(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisException, match=r"unknown option .*maxbytespertriger"):
        assert not stream(spark, source, maxBytesPerTriger="1").schema
    source.daemon.faults["session"] = [problem(404, ErrorKind.UNKNOWN_CONSUMER, "no consumer shop")]
    with pytest.raises(StreamingQueryException, match="unknown consumer: no consumer shop"):
        to_end(stream(spark, source), tmp_path / "c", Batches())


def test_sql_knows_the_source_without_register(spark: SparkSession, source: Source) -> None:
    """A session does not know a source that was registered with another session."""
    some_history(source)
    fresh = spark.newSession()
    options = f"(url '{source.daemon.url}', consumer 'shop', retryTimeoutSeconds '5')"
    fresh.sql(f"CREATE TEMPORARY VIEW seen USING binlog OPTIONS {options}")
    counted = fresh.sql("SELECT op, count(*) AS n FROM seen GROUP BY op").collect()
    assert {row["op"]: row["n"] for row in counted} == {
        "ddl": 3,
        "insert": 3,
        "update": 1,
        "delete": 1,
    }


@pytest.mark.deep
def test_a_table_takes_its_options_from_the_query(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """With Spark's own session catalog. With Delta Lake's, a query cannot read a table of a source in Python."""
    some_history(source)
    options = f"(url '{source.daemon.url}', consumer 'shop', retryTimeoutSeconds '5')"
    updates = f"SELECT after FROM changes WITH {options} WHERE op = 'update'"
    own = spark.newSession()
    own.sql("SET spark.sql.catalog.spark_catalog=builtin")
    own.sql(f"CREATE TABLE changes USING binlog OPTIONS {options}")
    try:
        with pytest.raises(AnalysisException, match="not a valid Spark SQL Data Source"):
            spark.sql(updates).collect()
        (row,) = own.sql(updates).collect()
        assert json.loads(row["after"])["price"] == "2.00"
        with pytest.raises(AnalysisException, match=r"FROM the_table WITH \(url"):
            own.sql("SELECT * FROM changes").collect()
        batches = Batches()
        to_end(own.sql(f"SELECT op FROM STREAM changes WITH {options}"), tmp_path / "c", batches)
        assert len(batches.all()) == 8
    finally:
        own.sql("DROP TABLE changes")


@pytest.mark.deep
def test_a_view_has_its_options_with_each_catalog(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    some_history(source)
    session = spark.newSession()
    options = f"(url '{source.daemon.url}', consumer 'shop', retryTimeoutSeconds '5')"
    session.sql(f"CREATE TEMPORARY VIEW changes USING binlog OPTIONS {options}")
    for name in ("changes", "changes WITH (url 'http://127.0.0.1:1')"):
        (row,) = session.sql(f"SELECT after FROM {name} WHERE op = 'update'").collect()
        assert json.loads(row["after"])["price"] == "2.00"
    stream(session, source).createOrReplaceTempView("new_changes")
    batches = Batches()
    to_end(session.sql("SELECT op FROM new_changes"), tmp_path / "c", batches)
    assert len(batches.all()) == 8
