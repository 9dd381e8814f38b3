"""The option `metadata` over real servers: what the log says, also of transactions that are read in many slices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from dispatcher.model.position import Position
from spark_sink.source import schemas
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from spark_sink.source.slices import Slice
from tests.daemon.harness import tip_seq
from tests.servers import Server
from tests.spark.conftest import mysql_rows
from tests.spark.source.large import create, daemon_of, insert

ROWS = 300  # 1.5 MB


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_metadata_of_a_transaction_in_many_slices(
    kind: str,
    request: pytest.FixtureRequest,
    new_database: Callable[[Server], str],
    tmp_path: Path,
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = new_database(server)
    texts = "binlog_annotate_row_events" if kind == "mariadb118" else "binlog_rows_query_log_events"
    statements = [
        insert(ROWS),
        "UPDATE t SET n = n + 1 WHERE id % 10 = 0",
        "DELETE FROM t WHERE id = 7",
    ]
    with daemon_of(server, database, tmp_path / "daemon", "64MiB") as daemon:
        given = {
            "url": f"http://127.0.0.1:{daemon.port}",
            "consumer": "shop",
            "maxBytesPerPartition": "128KiB",
            "metadata": "server_id, query, key, changed, transaction_rows, transaction_end",
        }
        options = SourceOptions.parse(given)
        schema = schemas.stream_schema(options, None)
        reader = BinlogStreamReader(options, schema)
        start = reader.initialOffset()
        create(server, database)
        server.execute(
            f"SET SESSION {texts} = ON", "BEGIN", *statements, "COMMIT",
            f"SET SESSION {texts} = OFF", "INSERT INTO t VALUES (-2, 0, 'after')",
            database=database,
        )  # fmt: skip
        found: list[dict[str, Any]] = []
        parts = 0
        while Position.from_dict(start).seq < tip_seq(server):
            end = reader.latestOffset(start, ReadAllAvailable())
            slices = [part for part in reader.partitions(start, end) if isinstance(part, Slice)]
            parts += sum(part.start.inside is not None for part in slices)
            for part in slices:
                found += [row for batch in reader.read(part) for row in batch.to_pylist()]
            start = end
        reader.stop()
    assert parts > 5
    ((_, server_id),) = mysql_rows(server, database, "SELECT @@server_id")[0].items()
    assert {row["server_id"] for row in found} == {server_id}
    transactions: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(found, key=lambda row: (row["seq"], row["ordinal"])):
        transactions.setdefault(row["seq"], []).append(row)
    for of_one in transactions.values():
        assert {row["transaction_rows"] for row in of_one} == {len(of_one)}
        assert [row["transaction_end"] for row in of_one] == [False] * (len(of_one) - 1) + [True]
    (large,) = (of_one for of_one in transactions.values() if len(of_one) > ROWS)
    of_operation = dict(zip(("insert", "update", "delete"), statements, strict=True))
    assert all(row["query"] == of_operation[row["op"]] for row in large)
    for row in large:
        image = json.loads(row["before"] or row["after"])
        assert json.loads(row["key"]) == {"id": image["id"]}
        assert row["changed"] == (["n"] if row["op"] == "update" else None)
    (after,) = (of_one for of_one in transactions.values() if of_one[0]["key"] == '{"id":-2}')
    assert after[0]["query"] is None
