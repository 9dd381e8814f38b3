"""Real replicas and mysqlbinlog read the packets of the front: empty transactions extend their GTID sets.

A replica logs in to a real server through a proxy, which answers its dump command with the front's packets.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dispatcher.front.dump.options import AfterGtids, Checksum, RelayOptions
from dispatcher.front.dump.relay import Relay
from dispatcher.front.dump.request import parse_dump
from dispatcher.front.wire import packets
from dispatcher.model.gtid import GtidSet, MariadbGtids
from tests.front.dump.delivered_bytes import Delivered, delivered
from tests.front.dump.dump_proxy import Command, DumpProxy
from tests.front.dump.raw_dump import CRC32, FLAG_2, MARIADB, NON_BLOCKING, by_file, raw_dump
from tests.servers import Server
from tests.servers.installs import installation
from tests.servers.plugin import ServerFactory

_DEADLINE_S = 60
PASSWORD = "replica's secret"


def until(done: Callable[[], bool], shown: Callable[[], Any]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.05)


class Source:
    """A server whose log contains transactions of two databases. The consumer gets the transactions of `a`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.mariadb = server.mariadb
        server.add_user("replica", PASSWORD)
        self.reset()
        server.execute("CREATE DATABASE a", "CREATE DATABASE b")
        server.execute(
            "CREATE TABLE a.t (i INT PRIMARY KEY)", "CREATE TABLE b.t (i INT PRIMARY KEY)"
        )
        for n in range(30):
            server.execute(f"INSERT INTO {'a' if n % 3 == 0 else 'b'}.t VALUES ({n})")
            if n == 15:
                server.execute("FLUSH BINARY LOGS")
        if server.kind == "mysql97":
            for n, number in enumerate((5, 63, 64, 65, 8191, 8192, 10**12)):
                server.execute(f"SET gtid_next = '11111111-2222-3333-4444-555555555555:tag_x:{number}'",
                               f"INSERT INTO b.t VALUES ({3000 + n})")  # fmt: skip
            server.execute("SET gtid_next = AUTOMATIC")
        if server.mariadb:
            server.execute(
                "SET gtid_domain_id = 7, server_id = 99", "INSERT INTO b.t VALUES (1000)"
            )
        # The range ends in a file of which the consumer has no transaction.
        server.execute(
            "INSERT INTO a.t VALUES (1000)", "FLUSH BINARY LOGS", "INSERT INTO b.t VALUES (2000)"
        )
        self.file = server.binlogs()[0][0]
        self.end = server.binlog_position()
        flags = NON_BLOCKING | (FLAG_2 if self.mariadb else 0)
        settings = (*CRC32, *(MARIADB if self.mariadb else ()))
        self.dump = raw_dump(server, by_file(self.file, 4, flags), settings)
        self.nothing: GtidSet | MariadbGtids = MariadbGtids() if self.mariadb else GtidSet()
        self.consumer = delivered(self.dump, "a", executed=self.nothing)

    def reset(self) -> None:
        new = self.server.kind == "mysql97"
        self.server.execute("RESET BINARY LOGS AND GTIDS" if new else "RESET MASTER")

    @property
    def executed(self) -> str:
        name = "@@global.gtid_binlog_pos" if self.mariadb else "@@global.gtid_executed"
        return str(self.server.execute(f"SELECT {name}")[0][0])

    def answer(self, command: Command) -> Iterator[bytes | memoryview]:
        """Yields the front's answer: a range, empty transactions for the transactions that the range omits, and a
        heartbeat."""
        held = self.nothing
        v2 = False
        if command.code == packets.Command.BINLOG_DUMP_GTID:
            request = parse_dump(command.code, command.payload)
            assert request.gtids is not None
            held, v2 = request.gtids, request.heartbeat_v2
        options = RelayOptions(
            1, Checksum.CRC32, heartbeat_v2=v2, mariadb=self.mariadb, mariadb_capability=4
        )
        relay = Relay(options, AfterGtids(held))
        yield from answered(relay, self.consumer, self.end)


def answered(relay: Relay, log: Delivered, end: tuple[str, int]) -> Iterator[bytes | memoryview]:
    yield from relay.packets(log.parts())
    yield from relay.fill(log.executed, *end, timestamp=int(time.time()))
    assert str(relay.gtids) == str(log.executed)
    yield relay.heartbeat(*end)


@pytest.fixture(scope="module")
def source(module_server_factory: ServerFactory, request: pytest.FixtureRequest) -> Source:
    return Source(module_server_factory(request.param))


@pytest.mark.parametrize("source", ["mysql97", "mysql56"], indirect=True)
def test_mysqlbinlog_reads_empty_transactions(source: Source, tmp_path_factory: Any) -> None:
    """The tool reads by GTID with --read-from-remote-source, through the proxy, and verifies checksums."""

    def answer(command: Command) -> Iterator[bytes | memoryview]:
        relay = Relay(RelayOptions(1, Checksum.NONE), AfterGtids(GtidSet()))
        yield from answered(relay, source.consumer, source.end)
        yield relay.end()

    with DumpProxy((source.server.host, source.server.port), answer) as proxy:
        tool = installation("mysql97").mysqlbinlog
        assert tool is not None
        done = subprocess.run(
            [*tool, "--read-from-remote-source=BINLOG-DUMP-GTIDS", "--host=127.0.0.1", f"--port={proxy.port}",
             "--user=replica", f"--password={PASSWORD}", "--verify-binlog-checksum", "--ssl-mode=DISABLED",
             "--get-server-public-key", "--to-last-log", source.file],
            capture_output=True, encoding="utf-8", check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = GtidSet()
    for text in re.findall(r"GTID_NEXT= '([0-9a-f-]{36}:[^']+)'", done.stdout):
        found = found.union(GtidSet.parse(text))
    assert str(found) == source.executed.replace("\n", "")


@pytest.mark.parametrize("source", ["mysql97"], indirect=True)
def test_a_mysql_replica_gets_the_whole_set(source: Source, server_factory: ServerFactory) -> None:
    replica = server_factory("mysql97", "--server-id=2", "--replica-parallel-workers=4")
    replica.execute("RESET BINARY LOGS AND GTIDS")
    with DumpProxy((source.server.host, source.server.port), source.answer) as proxy:
        replica.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {proxy.port},"
            f" SOURCE_USER = 'replica', SOURCE_PASSWORD = \"{PASSWORD}\", SOURCE_AUTO_POSITION = 1,"
            " GET_SOURCE_PUBLIC_KEY = 1, SOURCE_SSL = 0, SOURCE_HEARTBEAT_PERIOD = 5",
            "START REPLICA",
        )

        def executed() -> str:
            return str(replica.execute("SELECT @@global.gtid_executed")[0][0])

        expected = source.executed
        until(lambda: executed() == expected, lambda: replica.execute("SHOW REPLICA STATUS"))
        status = replica.execute("SHOW REPLICA STATUS")[0]
        assert status[10] == "Yes" and status[11] == "Yes", "|".join(map(str, status))
        assert len(proxy.commands) == 1
        replica.execute("STOP REPLICA")
    assert replica.execute("SELECT i FROM a.t ORDER BY i") == source.server.execute(
        "SELECT i FROM a.t ORDER BY i"
    )
    # The replica returns to the server and continues, without requesting the transactions that the front did not send.
    replica.execute(
        f"CHANGE REPLICATION SOURCE TO SOURCE_PORT = {source.server.port}", "START REPLICA"
    )
    source.server.execute("CREATE DATABASE c")
    until(lambda: executed() == source.executed, lambda: replica.execute("SHOW REPLICA STATUS"))


@pytest.mark.parametrize("source", ["mariadb118"], indirect=True)
def test_a_mariadb_replica_moves_its_position(
    source: Source, server_factory: ServerFactory
) -> None:
    replica = server_factory("mariadb118", "--server-id=2")
    replica.execute("RESET MASTER", "SET GLOBAL gtid_slave_pos = ''")
    with DumpProxy((source.server.host, source.server.port), source.answer) as proxy:
        replica.execute(
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {proxy.port}, MASTER_USER = 'replica',"
            f' MASTER_PASSWORD = "{PASSWORD}", MASTER_USE_GTID = slave_pos, MASTER_SSL = 0',
            "START SLAVE",
        )

        def position() -> set[str]:
            return set(str(replica.execute("SELECT @@global.gtid_slave_pos")[0][0]).split(","))

        expected = set(source.executed.split(","))
        until(lambda: position() == expected, lambda: replica.execute("SHOW SLAVE STATUS"))
        status = replica.execute("SHOW SLAVE STATUS")[0]
        assert status[10] == "Yes" and status[11] == "Yes", "|".join(map(str, status))
        replica.execute("STOP SLAVE")
    assert replica.execute("SELECT i FROM a.t ORDER BY i") == source.server.execute(
        "SELECT i FROM a.t ORDER BY i"
    )
    replica.execute(f"CHANGE MASTER TO MASTER_PORT = {source.server.port}", "START SLAVE")
    source.server.execute("CREATE DATABASE c")
    until(
        lambda: position() == set(source.executed.split(",")),
        lambda: replica.execute("SHOW SLAVE STATUS"),
    )
