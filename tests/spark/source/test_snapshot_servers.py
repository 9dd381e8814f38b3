"""Snapshots of real servers with a real daemon. The batches are planned and read in the test's process, without Spark's
engine.

A `Query` calls a reader in the same way as Spark. It stores the ends of batches, lets the reader plan an uncommitted
batch again after a kill, and passes pickled copies of the reader and its partitions to its tasks.
"""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.source.data_source import BinlogDataSource
from spark_sink.source.http.connections import PROCESS_POOL
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from tests.servers import Kind, Server
from tests.servers.plugin import ServerFactory
from tests.spark.source.snapshots import READER_PASSWORD, Folded, changing, existing, fill, served
from tests.support.commit_seed import commit_seed

pytestmark = [pytest.mark.rotate(3, of="snapshots of servers"), pytest.mark.timeout(600)]


class Query:
    """`offsets`: the initial offset, then the ends of all planned batches; `kept`: the rows of the batches that a sink
    has received; `commits`: the number of committed batches."""

    def __init__(self, options: dict[str, str], folder: Path) -> None:
        secret = folder / "secret"
        secret.write_text(READER_PASSWORD, encoding="utf-8")
        self.options = options | {"mysqlPasswordFile": str(secret)}
        self.offsets: list[str] = []
        self.kept: dict[int, pa.Table] = {}
        self.commits = 0
        self.reader: BinlogStreamReader | None = None
        self.begin()

    def begin(self) -> None:
        """Start a new process of the query."""
        self.close()
        source = BinlogDataSource(self.options)
        self.schema = source.schema()
        reader = source.streamReader(self.schema)  # type: ignore[arg-type]
        assert isinstance(reader, BinlogStreamReader)
        self.reader = reader
        self.begun = False

    def close(self) -> None:
        if self.reader is not None:
            self.reader.stop()
        self.reader = None

    def step(self, kill: str = "") -> bool:
        """Plan and read a batch, or end the process before one of these steps. Returns False if there is no batch."""
        assert self.reader is not None
        if not self.begun:
            self.reader.prepareForTriggerAvailableNow()
            self.begun = True
        if not self.offsets:
            self.offsets = [json.dumps(self.reader.initialOffset())]
        start = json.loads(self.offsets[self.commits])
        if len(self.offsets) == self.commits + 1:
            # Batches without a limit come later, because the first such batch has all remaining rows.
            unlimited = self.commits % 5 == 4 and self.is_behind_a_chunk()
            # Two tasks read at least 1,000 rows each, so a table of `killed_under_load` has two chunks.
            limit = ReadAllAvailable() if unlimited else ReadMaxBytes(20_000)
            end = json.dumps(self.reader.latestOffset(start, limit))
            if end == json.dumps(start):
                return False
            if kill == "before the plan is kept":
                return self._killed()
            self.offsets.append(end)
        if kill == "planned":
            return self._killed()
        table = self._read(start, json.loads(self.offsets[self.commits + 1]))
        if kill == "read":
            return self._killed()
        if table is not None:
            self.kept.setdefault(self.commits, table)
        if kill == "kept":
            return self._killed()
        self.commits += 1
        if kill == "committed":
            return self._killed()
        return True

    def _killed(self) -> bool:
        self.begin()
        return True

    def _read(self, start: dict[str, Any], end: dict[str, Any]) -> pa.Table | None:
        assert self.reader is not None
        batches = []
        for part in self.reader.partitions(start, end):
            reader = pickle.loads(pickle.dumps(self.reader))
            batches += list(reader.read(pickle.loads(pickle.dumps(part))))
        return pa.Table.from_batches(batches) if batches else None

    def run(self) -> Folded:
        """Run a query up to the server's newest change."""
        self.begin()
        while self.step():
            pass
        return self.folded()

    def is_behind_a_chunk(self) -> bool:
        """True if the query has planned rows of a table of which it had read rows before."""
        states = [json.loads(text).get("snapshot") for text in self.offsets]
        return any(state and state.get("rows") and state.get("after") for state in states)

    def folded(self) -> Folded:
        result = Folded()
        for number in sorted(self.kept):
            result.add(self.kept[number], "id")
        return result


MakeQuery = Callable[[dict[str, str]], Query]


@pytest.fixture
def make_query(tmp_path: Path) -> Iterator[MakeQuery]:
    made: list[Query] = []

    def make(options: dict[str, str]) -> Query:
        made.append(Query(options, tmp_path))
        return made[-1]

    yield make
    for query in made:
        query.close()
    PROCESS_POOL.clear()


KILLS = ("before the plan is kept", "planned", "read", "kept", "committed")


@pytest.fixture
def seed() -> int:
    return commit_seed()


def killed_under_load(
    server: Server, database: str, folder: Path, make_query: MakeQuery, kind: str, seed: int
) -> Query:
    """Returns a query that was killed repeatedly while the table changed, and has read all rows and changes."""
    chosen, rows = random.Random(seed), 3000
    fill(server, database, "t", rows, kind)
    fill(server, database, "u", 10)
    options = {"tables": f"{database}.t, {database}.u", "maxPartitions": "2"}
    with served(server, database, folder, options, queue=1 << 20) as given:
        query = make_query(given)
        with changing(server, database, "t", rows, seed):
            for _ in range(24):
                query.step(chosen.choice(("", "", *KILLS)))
        result = query.run()
    assert result.rows["t"] == existing(server, database, "t"), f"seed {seed}"
    assert result.rows["u"] == existing(server, database, "u"), f"seed {seed}"
    return query


@pytest.mark.parametrize("kind", ["BIGINT UNSIGNED", "INT", "VARCHAR(40)", "DOUBLE"])
def test_a_query_that_is_killed_anywhere_delivers_each_version_in_order(
    mysql97: Server,
    new_database: Callable[[Server], str],
    tmp_path: Path,
    make_query: MakeQuery,
    kind: str,
    seed: int,
) -> None:
    query = killed_under_load(mysql97, new_database(mysql97), tmp_path, make_query, kind, seed)
    assert query.is_behind_a_chunk()
    assert "snapshot" not in json.loads(query.offsets[-1]), "the snapshot is over"
    assert len(max(query.offsets, key=len)) < 2000


OPTIONS_OF_SERVERS = {
    "": [],
    "without GTIDs": ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"],
    "without duplicates": ["--binlog-row-image=FULL_NODUP"],
}


@pytest.mark.parametrize(
    "kind",
    [
        *("mariadb118", "mariadb1011", "mysql56", "mysql97 without GTIDs"),
        "mariadb118 without duplicates",
    ],
)
def test_other_servers(
    server_factory: ServerFactory,
    new_database: Callable[[Server], str],
    tmp_path: Path,
    make_query: MakeQuery,
    kind: str,
    seed: int,
) -> None:
    name, _, more = kind.partition(" ")
    server = server_factory(name, *OPTIONS_OF_SERVERS[more])  # type: ignore[arg-type]
    killed_under_load(server, new_database(server), tmp_path, make_query, "BIGINT", seed)


@pytest.fixture
def database(mysql97: Server, new_database: Callable[[Server], str]) -> str:
    return new_database(mysql97)


def test_typed_rows_have_the_columns_of_the_stream(
    mysql97: Server, database: str, tmp_path: Path, make_query: MakeQuery
) -> None:
    fill(mysql97, database, "t", 100)
    options = {"table": f"{database}.t", "columns": "id, v", "select": "seq, ordinal, op, after"}
    with served(mysql97, database, tmp_path, options | {"metadata": "key"}) as given:
        query = make_query(given)
        while query.step():
            pass
        mysql97.execute("UPDATE t SET v = 7 WHERE id = 4", database=database)
        query.begin()
        while query.step():
            pass
    rows = [row for table in query.kept.values() for row in table.to_pylist()]
    reads = [row for row in rows if row["op"] == "read"]
    assert sorted(row["after"]["id"] for row in reads) == list(range(0, 200, 2))
    assert all(row["key"] == {"id": row["after"]["id"]} for row in reads)
    assert all(row["after"] == {"id": row["key"]["id"], "v": 0} for row in reads)
    assert [(row["op"], row["after"]) for row in rows[100:]] == [("update", {"id": 4, "v": 7})]
    assert rows[100]["seq"] > reads[0]["seq"]


def test_an_alter_is_followed_and_a_rename_ends_the_snapshot(
    mysql97: Server, database: str, tmp_path: Path, make_query: MakeQuery
) -> None:
    fill(mysql97, database, "t", 12_000)
    options = {"tables": f"{database}.t", "maxPartitions": "1"}
    with served(mysql97, database, tmp_path, options) as given:
        query = make_query(given)
        while not query.kept:
            query.step()
        mysql97.execute("ALTER TABLE t ADD COLUMN more INT DEFAULT 5", database=database)
        for _ in range(2):  # the rows of two chunks, or the statement and the rows of one chunk
            assert query.step()
        rows = [row for table in query.kept.values() for row in table.to_pylist()]
        assert {'"more":5' in row["after"] for row in rows if row["op"] == "read"} == {False, True}
        mysql97.execute("RENAME TABLE t TO s", database=database)
        with pytest.raises(BinlogError, match="the snapshot cannot continue at table") as caught:
            query.run()
        assert caught.value.kind is ErrorKind.UNSUPPORTED_CHANGE


def test_tables_without_a_key_and_partial_images_are_refused_at_the_start(
    mysql97: Server, database: str, tmp_path: Path, make_query: MakeQuery
) -> None:
    mysql97.execute(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE b (id INT, UNIQUE (id))",
        "CREATE TABLE c (id INT NOT NULL, n INT NOT NULL, UNIQUE (id, n))",
        database=database,
    )
    with served(mysql97, database, tmp_path, {"tables": f"{database}.*"}) as given:
        query = make_query(given)
        with pytest.raises(BinlogError, match=rf"{database}\.b has no primary key") as caught:
            query.step()
        assert caught.value.kind is ErrorKind.UNSUPPORTED_CHANGE
        mysql97.execute("DROP TABLE b", database=database)
        mysql97.execute("SET GLOBAL binlog_row_image = 'MINIMAL'")
        try:
            with pytest.raises(BinlogError, match="binlog_row_image=MINIMAL"):
                query.step()
        finally:
            mysql97.execute("SET GLOBAL binlog_row_image = 'FULL'")
        assert query.step()


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
@pytest.mark.parametrize(
    "options",
    [{"table": "SHOP.Orders", "schemaChanges": "project"}, {"tables": "Shop.ORD*, Shop.None*"}],
)
def test_options_name_tables_in_any_case_of_a_server_that_folds_names(
    server_factory: ServerFactory,
    tmp_path: Path,
    make_query: MakeQuery,
    kind: Kind,
    options: dict[str, str],
) -> None:
    server = server_factory(kind, "--lower-case-table-names=1")
    server.execute("CREATE DATABASE Shop")
    fill(server, "Shop", "Orders", 10)
    fill(server, "Shop", "Other", 10)
    changes = (
        "INSERT INTO ORDERS VALUES (99, 1, 'new')",
        "TRUNCATE TABLE oRDERS",
        "ALTER TABLE Orders ADD k INT",
        "INSERT INTO orders VALUES (1, 1, 'last', 2)",
        "INSERT INTO other VALUES (99, 1, 'new')",
    )
    with served(server, "Shop", tmp_path, options) as given:
        query = make_query(given)
        while query.step():
            pass
        server.execute(*changes, database="shop")
        query.begin()
        while query.step():
            pass
    rows = [row for table in query.kept.values() for row in table.to_pylist()]
    ops = ["insert", "insert"] if "table" in options else ["insert", "ddl", "ddl", "insert"]
    assert [row["op"] for row in rows] == ["read"] * 10 + ops
    assert {(row["database"], row["table"]) for row in rows} == {("shop", "orders")}
