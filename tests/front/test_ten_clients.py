"""Ten clients of different programs read ten consumers of one server at the same time. The test kills and restarts each
client at random.

Each client gets exactly the rows of its consumer's databases, in order. The daemon reads the log over one connection.
Further connections may exist while consumers catch up.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.daemon.harness import PASSWORD, Daemon, dumps, until
from tests.front.clients.binlog_tools import BinlogTool, How
from tests.front.clients.java_clients import canal, java_connector
from tests.front.clients.python_clients import asyncmy, python_mysql_replication
from tests.front.clients.readings import MARKS, Client, Endpoint, Key, Reading, Start, Until
from tests.front.clients.zongji import zongji
from tests.front.fronted import until_greets
from tests.servers import Instance
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port

SECONDS = float(os.environ.get("TEN_CLIENTS_SECONDS", "60"))
ROWS_UNTIL_KILLED = (30, 400)
BURST, PAUSE_S = 40, 0.8  # transactions per burst; a raw copy of the log is decoded in the pauses
END = 1  # the row of `marks` that ends each reading
DUMPS_MAX = 11  # one dump, and one for each consumer that catches up
USER = "ten"
MakeClient = Callable[[Path, tuple[str, ...]], Client]


@dataclass(frozen=True)
class Case:
    """A consumer and the client that reads it."""

    name: str
    databases: tuple[str, ...]
    gtids: bool
    make: MakeClient


def _tool(how: How) -> MakeClient:
    return lambda folder, _: BinlogTool(folder, how)


CASES = (
    Case("text", ("s0",), False, _tool(How.TEXT)),
    Case("text_gtid", ("s1", "s10"), True, _tool(How.TEXT)),
    Case("raw", ("s2",), False, _tool(How.RAW_WITHOUT_END)),
    Case("raw_gtid", ("s3",), True, _tool(How.RAW_WITHOUT_END)),
    Case("python", ("s4", "s11"), False, lambda folder, _: python_mysql_replication(folder)),
    Case("python_gtid", ("s5",), True, lambda folder, _: python_mysql_replication(folder)),
    Case("java", ("s6",), True, lambda folder, _: java_connector(folder)),
    Case("asyncmy", ("s7",), False, lambda folder, _: asyncmy(folder)),
    Case("zongji", ("s8", "s10"), False, lambda folder, databases: zongji(folder, *databases)),
    Case("canal", ("s9",), True, lambda folder, databases: canal(folder, *databases)),
)
DATABASES = sorted({database for case in CASES for database in case.databases})


@dataclass
class Load:
    """Writes transactions in one or several databases until it is stopped. `keys`: the keys of all rows, in the log's
    order."""

    server: Instance
    keys: list[Key] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        chance, next_key = random.Random(1), 1
        live: dict[str, list[int]] = {database: [] for database in DATABASES}
        with closing(self.server.connect(autocommit=False)) as connection:
            cursor = connection.cursor()
            while not self.stopping.wait(PAUSE_S):
                for _ in range(BURST):
                    for database in chance.sample(DATABASES, chance.choice([1, 1, 1, 2, 4])):
                        op = chance.choice(["insert", "insert", "update", "delete"])
                        held = live[database]
                        if op == "insert" or not held:
                            keys = list(range(next_key, next_key + chance.randint(1, 6)))
                            next_key += len(keys)
                            held += keys
                            values = ", ".join(f"({key}, 'new {key}', {key})" for key in keys)
                            cursor.execute(f"INSERT INTO {database}.orders VALUES {values}")
                            self._written(database, "insert", keys)
                        elif op == "update":
                            key, next_key = chance.choice(held), next_key + 1
                            cursor.execute(
                                f"UPDATE {database}.orders SET n = {next_key} WHERE id = {key}"
                            )
                            self._written(database, "update", [key])
                        else:
                            key = held.pop(chance.randrange(len(held)))
                            cursor.execute(f"DELETE FROM {database}.orders WHERE id = {key}")
                            self._written(database, "delete", [key])
                    connection.commit()
                if chance.random() < 0.05:
                    cursor.execute("FLUSH BINARY LOGS")
            for database in DATABASES:
                cursor.execute(f"INSERT INTO {database}.{MARKS} VALUES ({END})")
                self._written(database, "insert", [END], MARKS)
                connection.commit()

    def _written(self, database: str, op: str, keys: list[int], table: str = "orders") -> None:
        self.keys += [(database, table, op, key) for key in keys]

    def of(self, databases: tuple[str, ...]) -> list[Key]:
        return [key for key in self.keys if key[0] in databases]


@pytest.fixture
def server(server_factory: ServerFactory) -> Instance:
    server = server_factory("mysql97")
    for database in DATABASES:
        server.execute(
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.orders (id INT PRIMARY KEY, name VARCHAR(100), n INT)",
            f"CREATE TABLE {database}.{MARKS} (id INT PRIMARY KEY)",
        )
    server.add_user(USER, PASSWORD)
    return server


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def daemon(server: Instance, port: int, tmp_path: Path) -> Iterator[Daemon]:
    source = {"mysql": f"{USER}@{server.host}:{server.port}", "password": PASSWORD}
    consumers = {case.name: {**source, "databases": list(case.databases)} for case in CASES}
    settings = {"consumers": consumers, "front": {"listen": f"127.0.0.1:{port}"}}
    with closing(Daemon(tmp_path / "daemon", settings)) as daemon:
        daemon.start()
        for case in CASES:
            daemon.api.until_state(case.name, "streaming")
        until_greets(port)
        yield daemon
        daemon.stop()


def read_with_kills(
    case: Case, number: int, client: Client, port: int, start: Start, load: Load
) -> tuple[Reading, int]:
    """Read with kills until the load has ended, then read to the end of the log. Returns the reading, and the number of
    kills."""
    chance = random.Random(number)
    at = Endpoint("127.0.0.1", port, case.name, "")
    client.begin(at, start)
    reading, kills = Reading([], start), 0
    last = max(case.databases, key=DATABASES.index)  # the database whose mark is written last
    while not load.stopping.is_set():
        until_killed = Until(last, END, chance.randint(*ROWS_UNTIL_KILLED))
        reading = reading.then(client.read(at, until_killed))
        kills += 1
    ended = any(key == (last, MARKS, "insert", END) for key in reading.keys)
    return (reading if ended else reading.then(client.read(at, Until(last, END)))), kills


@pytest.mark.deep
@pytest.mark.timeout(SECONDS + 600)
def test_ten_clients_together(server: Instance, daemon: Daemon, port: int, tmp_path: Path) -> None:
    clients = [case.make(tmp_path / case.name, case.databases) for case in CASES]
    for number, client in enumerate(clients):
        client.server_id = 7100 + number  # type: ignore[attr-defined]
    file, offset = server.binlog_position()
    gtids = str(server.execute("SELECT @@gtid_executed")[0][0]).replace("\n", "")
    load, seen, ended = Load(server), [], threading.Event()

    def count_dumps() -> None:
        while not ended.wait(0.25):
            seen.append(len(dumps(server, USER)))

    def read(number: int) -> tuple[Reading, int]:
        case = CASES[number]
        start = Start(file, offset, gtids if case.gtids else None)
        return read_with_kills(case, number, clients[number], port, start, load)

    with ThreadPoolExecutor(len(CASES) + 2) as pool:
        counting, writing = pool.submit(count_dumps), pool.submit(load.run)
        reading = [pool.submit(read, number) for number in range(len(CASES))]
        try:
            wait(reading, SECONDS, FIRST_EXCEPTION)
            load.stopping.set()
            results = [each.result() for each in reading]
        finally:
            load.stopping.set()
            ended.set()
        writing.result()
        counting.result()
    for case, (read_rows, kills) in zip(CASES, results, strict=True):
        print(f"{case.name}: {len(read_rows.keys)} rows, {kills} kills")
        assert read_rows.keys == load.of(case.databases), case.name
    print(f"dumps at the server: at most {max(seen)}, {seen.count(1)} of {len(seen)} samples one")
    assert max(seen) <= DUMPS_MAX
    until(lambda: len(dumps(server, USER)) == 1, "one connection reads the log")
