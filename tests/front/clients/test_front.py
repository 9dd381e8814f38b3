"""Each client reads one database through the front as it reads it from the server, and moves between the two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon.harness import until
from tests.front.clients.binlog_tools import BinlogTool, How
from tests.front.clients.debezium import Debezium
from tests.front.clients.front_judging import judge_front
from tests.front.clients.java_clients import canal, java_connector
from tests.front.clients.judging import (
    DATABASES,
    PASSWORD,
    SERVER_OPTIONS,
    USER,
    MakeClient,
    Recorded,
    record,
)
from tests.front.clients.python_clients import asyncmy, python_mysql_replication
from tests.front.clients.readings import MARKS, Endpoint, Key, Reading, Start, Until
from tests.front.clients.replicas import Replica, tables_of
from tests.front.clients.zongji import zongji
from tests.servers import Kind, Server
from tests.servers.plugin import ServerFactory

MINE, OTHERS = DATABASES
FrontOf = Callable[[Server], Endpoint]
BY = pytest.mark.parametrize("gtids", [False, True], ids=["file", "gtid"])


def binlog_tool(folder: Path) -> BinlogTool:
    return BinlogTool(folder, How.TEXT)


def raw_binlog_tool(folder: Path) -> BinlogTool:
    return BinlogTool(folder, How.RAW)


def read_by(
    make: MakeClient, recorded: Recorded, front_of: FrontOf, folder: Path, *, gtids: bool
) -> list[Key]:
    start, front = recorded.start(gtids=gtids), front_of(recorded.server)
    return judge_front(make, folder, start, recorded.endpoint(), front, recorded.marks).keys


@pytest.mark.rotate(3)
@BY
@pytest.mark.parametrize("make", [binlog_tool, raw_binlog_tool, python_mysql_replication])
def test_tools_and_libraries(
    recorded: Recorded, front_of: FrontOf, make: MakeClient, gtids: bool, tmp_path: Path
) -> None:
    keys = read_by(make, recorded, front_of, tmp_path, gtids=gtids)
    assert keys == recorded.history.keys_of(MINE)


@pytest.mark.deep
@pytest.mark.timeout(600)
@BY
def test_the_connector_of_debezium(
    recorded: Recorded, front_of: FrontOf, gtids: bool, tmp_path: Path
) -> None:
    keys = read_by(java_connector, recorded, front_of, tmp_path, gtids=gtids)
    assert keys == recorded.history.keys_of(MINE)


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("make", "kind", "gtids"),
    [
        (asyncmy, "mysql97", False),
        (asyncmy, "mysql97", True),
        (asyncmy, "mariadb118", False),
        (lambda folder: zongji(folder, MINE), "mysql97", False),
        (lambda folder: zongji(folder, MINE), "mariadb118", False),
        (lambda folder: canal(folder, MINE), "mysql97", False),
        (lambda folder: canal(folder, MINE), "mysql97", True),
    ],
    ids=[
        "asyncmy-mysql-file", "asyncmy-mysql-gtid", "asyncmy-mariadb-file", "zongji-mysql", "zongji-mariadb",
        "canal-file", "canal-gtid",
    ],
)  # fmt: skip
def test_clients_that_ask_for_the_tables_of_today(
    recorded_of: Callable[[Kind], Recorded],
    front_of: FrontOf,
    make: MakeClient,
    kind: Kind,
    gtids: bool,
    tmp_path: Path,
) -> None:
    recorded = recorded_of(kind)
    keys = read_by(make, recorded, front_of, tmp_path, gtids=gtids)
    assert keys == [key for key in recorded.history.expected_of_present_tables if key[0] == MINE]


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_debezium(server_factory: ServerFactory, front_of: FrontOf, tmp_path: Path) -> None:
    server = server_factory("mysql97", *SERVER_OPTIONS)
    server.add_user(USER, PASSWORD)
    server.execute(f"CREATE DATABASE {MINE}", f"CREATE TABLE {MINE}.seed (id INT PRIMARY KEY)")
    prepared = Debezium(tmp_path / "prepared")
    prepared.prepare(
        Endpoint(server.host, server.port, USER, PASSWORD),
        lambda: server.execute(f"INSERT INTO {MINE}.seed VALUES (1)"),
    )
    recorded = record(server)

    def make(folder: Path) -> Debezium:
        return Debezium(folder, tmp_path / "prepared")

    keys = read_by(make, recorded, front_of, tmp_path, gtids=False)
    assert keys == recorded.history.keys_of(MINE)


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ends", [(0, 1), (1, 0)], ids=["server-front", "front-server"])
def test_debezium_moves_within_a_transaction(
    server_factory: ServerFactory, front_of: FrontOf, tmp_path: Path, ends: tuple[int, int]
) -> None:
    server = server_factory("mysql97", *SERVER_OPTIONS)
    server.add_user(USER, PASSWORD)
    server.execute(*(f"CREATE DATABASE {database}" for database in DATABASES))
    tables = (f"{MINE}.seed", f"{MINE}.{MARKS}", f"{MINE}.t", f"{OTHERS}.t")
    server.execute(*(f"CREATE TABLE {table} (id INT PRIMARY KEY)" for table in tables))
    endpoints = Endpoint(server.host, server.port, USER, PASSWORD), front_of(server)
    prepared = Debezium(tmp_path / "prepared")
    prepared.prepare(endpoints[0], lambda: server.execute(f"INSERT INTO {MINE}.seed VALUES (1)"))
    start = Start(*server.binlog_position())
    rows = [f"INSERT INTO {database}.t VALUES ({n})" for n in range(20) for database in DATABASES]
    server.execute("BEGIN", *rows, "COMMIT", f"INSERT INTO {MINE}.{MARKS} VALUES (1)")
    one_by_one: dict[str, object] = {"max.batch.size": 1, "max.queue.size": 2}
    client = Debezium(tmp_path / "moved", prepared.folder, more=one_by_one)
    client.begin(endpoints[0], start)
    reading = client.read(endpoints[ends[0]], Until(MINE, rows=7))
    assert "event" in client.offset()
    reading = reading.then(client.read(endpoints[ends[1]], Until(MINE, mark=1)))
    assert [key[3] for key in reading.only(MINE).keys if key[1] == "t"] == list(range(20))


def databases_of(server: Server) -> list[str]:
    return [str(row[0]) for row in server.execute("SHOW DATABASES")]


# -- replicas -------------------------------------------------------------------------------------------------


@pytest.fixture
def replica_of() -> Iterator[Callable[[Kind], Replica]]:
    with ExitStack() as stack:

        def of(kind: Kind) -> Replica:
            replica = Replica(kind)
            stack.callback(replica.close)
            return replica

        yield of


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "gtids"),
    [("mysql97", True), ("mariadb118", True)],
    ids=["mysql-gtid", "mariadb-gtid"],
)
def test_a_replica_holds_the_consumer_s_database(
    recorded_of: Callable[[Kind], Recorded],
    front_of: FrontOf,
    kind: Kind,
    gtids: bool,
    replica_of: Callable[[Kind], Replica],
) -> None:
    recorded = recorded_of(kind)
    start, front = recorded.start(gtids=gtids), front_of(recorded.server)
    replica = replica_of(kind)
    replica.begin(front, start)
    reading = Reading([], start)
    for end in (Until(MINE, rows=30), *recorded.marks):
        reading = reading.then(replica.read(front, end))
    assert reading.only(MINE).keys == recorded.history.keys_of(MINE)
    assert replica.applied(MINE).tables == tables_of(recorded.server, MINE)
    assert OTHERS not in databases_of(replica.server)


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_a_replica_that_reads_by_file_is_refused(
    recorded_of: Callable[[Kind], Recorded],
    front_of: FrontOf,
    kind: Kind,
    replica_of: Callable[[Kind], Replica],
) -> None:
    recorded = recorded_of(kind)
    replica, front = replica_of(kind), front_of(recorded.server)
    replica.begin(front, recorded.start(gtids=False))
    with pytest.raises(AssertionError, match="cannot read by file and offset here"):
        replica.read(front, recorded.marks[0])


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_a_replica_of_mysql_moves_to_its_server_and_back(
    recorded_of: Callable[[Kind], Recorded],
    front_of: FrontOf,
    replica_of: Callable[[Kind], Replica],
) -> None:
    """The front sends the GTIDs of others, so at the server the replica continues after them."""
    recorded = recorded_of("mysql97")
    start, front = recorded.start(gtids=True), front_of(recorded.server)
    replica = replica_of("mysql97")
    replica.begin(front, start)
    reading = Reading([], start)
    for mark in recorded.marks:
        reading = reading.then(replica.read(front, mark))
    end = recorded.history.here(gtids=True).gtids
    replica.server.execute("START REPLICA")
    until(lambda: replica.applied(MINE).gtids == end, "the replica has all GTIDs")
    replica.server.execute("STOP REPLICA")
    replica.read(recorded.endpoint(), recorded.marks[-1])
    assert replica.applied(MINE).tables == tables_of(recorded.server, MINE)
    assert OTHERS not in databases_of(replica.server)
