"""The relay counts the offset as a replica counts it, so that no heartbeat contains a lower offset.

A replica logs in to a real server through a proxy, which answers its dump command with the front's packets. After each
kind of event, the test reads the replica's own count.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from pymysql.cursors import DictCursor

from dispatcher.front.dump.options import AfterGtids, Checksum, RelayOptions
from dispatcher.front.dump.relay import Relay
from dispatcher.front.dump.request import parse_dump
from dispatcher.front.wire import packets
from dispatcher.model.gtid import GtidSet, MariadbGtids
from tests.daemon.harness import until
from tests.front.dump.delivered_bytes import delivered
from tests.front.dump.dump_proxy import Command, DumpProxy
from tests.front.dump.raw_dump import CRC32, FLAG_2, MARIADB, NON_BLOCKING, by_file, raw_dump
from tests.servers import Kind, Server
from tests.servers.plugin import ServerFactory

PASSWORD = "replica's secret"
DEADLINE_S = 60.0

_XA = ("XA START 'x'", "INSERT INTO a.t (s) VALUES (REPEAT('x', 3000))", "XA END 'x'", "XA PREPARE 'x'")  # fmt: skip
STEPS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "a row": ("INSERT INTO a.t (s) VALUES ('one')",),
    "a row of others": ("INSERT INTO b.t (s) VALUES ('one')",),
    "rows of both": (
        "BEGIN", "INSERT INTO a.t (s) VALUES ('one')", "INSERT INTO b.t (s) VALUES (REPEAT('b', 9000))",
        "INSERT INTO a.t (s) VALUES ('two')", "COMMIT",
    ),
    "DDL": ("CREATE TABLE a.made (id INT PRIMARY KEY)", "CREATE TABLE b.made (id INT PRIMARY KEY)"),
    "XA PREPARE": _XA,
    "rows during XA": ("INSERT INTO a.t (s) VALUES ('one')", "INSERT INTO b.t (s) VALUES ('one')"),
    "XA COMMIT": ("XA COMMIT 'x'",),
    "XA ROLLBACK": (*_XA, "XA ROLLBACK 'x'"),
    "XA of one phase": (*_XA[:3], "XA COMMIT 'x' ONE PHASE"),
    "compressed": (
        "{compress}", "INSERT INTO a.t (s) VALUES (REPEAT('c', 5000))", "INSERT INTO b.t (s) VALUES (REPEAT('c', 500))",
        "CREATE TABLE a.long (id INT COMMENT '{long}')", "{uncompress}",
    ),
    "another file": ("FLUSH BINARY LOGS",),
    "a row of another file": ("INSERT INTO a.t (s) VALUES ('one')",),
    "an event of several packets": ("INSERT INTO a.t (s) VALUES (REPEAT('l', 17000000))",),
    "XA PREPARE of a large event": (
        "XA START 'y'", "INSERT INTO a.t (s) VALUES (REPEAT('x', 300000))", "XA END 'y'", "XA PREPARE 'y'",
    ),
    "XA COMMIT of a large event": ("XA COMMIT 'y'",),
    "a row again": ("INSERT INTO a.t (s) VALUES ('one')",),
}  # fmt: skip
OWN_STEPS: dict[Kind, dict[str, tuple[str, ...]]] = {
    "mysql97": {
        "a tag": ("SET gtid_next = 'AUTOMATIC:tag'", "INSERT INTO b.t (s) VALUES ('one')",
                  "INSERT INTO a.t (s) VALUES ('one')", "SET gtid_next = AUTOMATIC"),
    },
    "mariadb1011": {
        "a domain": ("SET gtid_domain_id = 7, server_id = 99", "INSERT INTO b.t (s) VALUES ('one')",
                     "INSERT INTO a.t (s) VALUES ('one')"),
        "a sequence": ("CREATE SEQUENCE a.s", "SELECT NEXTVAL(a.s)"),
    },
}  # fmt: skip
OWN_STEPS["mariadb118"] = OWN_STEPS["mariadb1011"]
COMPRESS = {
    False: ("SET binlog_transaction_compression = ON", "SET binlog_transaction_compression = OFF"),
    True: ("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress = OFF"),
}


@dataclass
class Dump:
    """Answers the dump of one replica. For each `step`, it sends what the source has logged since the last one, and a
    heartbeat. `beats`: the number of heartbeats that were sent."""

    source: Server
    relay: Relay | None = None
    beats: int = 0
    _steps: queue.Queue[bool] = field(default_factory=queue.Queue)
    _sent: int = 0

    def __post_init__(self) -> None:
        self._settings = (*CRC32, *(MARIADB if self.source.mariadb else ()))
        self._flags = NON_BLOCKING | (FLAG_2 if self.source.mariadb else 0)
        self._file = self.source.binlogs()[0][0]

    def step(self) -> None:
        before = self.beats
        self._steps.put(True)
        until(lambda: self.beats > before, "a heartbeat was sent", timeout_s=DEADLINE_S)

    def close(self) -> None:
        self._steps.put(False)

    def answer(self, command: Command) -> Iterator[bytes | memoryview]:
        nothing: GtidSet | MariadbGtids = MariadbGtids() if self.source.mariadb else GtidSet()
        v2 = False
        if not self.source.mariadb:
            request = parse_dump(command.code, command.payload)
            v2 = request.heartbeat_v2
        options = RelayOptions(
            1, Checksum.CRC32, v2, mariadb=self.source.mariadb, mariadb_capability=4
        )
        self.relay = relay = Relay(options, AfterGtids(nothing))
        while self._steps.get():
            dump = raw_dump(self.source, by_file(self._file, 4, self._flags), self._settings)
            log = delivered(dump, "a", executed=nothing)
            place = log.file, log.offset
            yield from relay.packets(log.parts(self._sent))
            yield from relay.fill(log.executed, *place, timestamp=int(time.time()))
            yield relay.heartbeat(*place)
            self._sent = log.log.committed
            self.beats += 1


class Replica:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.server.execute("RESET MASTER" if server.mariadb else "RESET BINARY LOGS AND GTIDS")

    def begin(self, port: int) -> None:
        address = "{0}_HOST = '127.0.0.1', {0}_PORT = %d, {0}_USER = 'replica', {0}_PASSWORD = \"%s\", {0}_SSL = 0"
        change = address % (port, PASSWORD)
        if self.server.mariadb:
            own = "MASTER_USE_GTID = slave_pos"
            self.server.execute(f"CHANGE MASTER TO {change.format('MASTER')}, {own}", "START SLAVE")
        else:
            own = "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
            self.server.execute(
                f"CHANGE REPLICATION SOURCE TO {change.format('SOURCE')}, {own}", "START REPLICA"
            )

    def end(self) -> None:
        self.server.execute("STOP SLAVE" if self.server.mariadb else "STOP REPLICA")

    def status(self) -> dict[str, Any]:
        """Return the names of MySQL's status and their values."""
        statement = "SHOW SLAVE STATUS" if self.server.mariadb else "SHOW REPLICA STATUS"
        with (
            closing(self.server.connect(cursorclass=DictCursor)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            row: Any = cursor.fetchone()
        return {
            name.replace("Master", "Source").replace("Slave", "Replica"): value
            for name, value in row.items()
        }

    def has(self, beats: int, file: str, offset: int) -> bool:
        """True if the replica has received this number of heartbeats. MySQL without performance_schema does not count
        them; there, a heartbeat moves the replica's own count."""
        status = self.status()
        assert not status["Last_IO_Error"] and not status["Last_SQL_Error"], status
        if self.server.mariadb:
            received = "SHOW GLOBAL STATUS LIKE 'Slave_received_heartbeats'"
            return int(self.server.execute(received)[0][1]) >= beats
        return (status["Source_Log_File"], status["Read_Source_Log_Pos"]) == (file, offset)


@pytest.mark.parametrize("kind", ["mysql97", "mariadb1011", "mariadb118"])
def test_the_relay_counts_as_a_replica_counts(kind: Kind, server_factory: ServerFactory) -> None:
    source, replica = replicated(kind, server_factory)
    dump = Dump(source)
    with DumpProxy((source.host, source.port), dump.answer) as proxy, closing(dump):
        replica.begin(proxy.port)
        until(lambda: proxy.commands, "the replica asks for a dump", timeout_s=DEADLINE_S)
        compress, uncompress = COMPRESS[source.mariadb]
        for name, statements in (STEPS | OWN_STEPS[kind]).items():
            values = {"compress": compress, "uncompress": uncompress, "long": "x" * 900}
            source.execute(*(statement.format(**values) for statement in statements))
            dump.step()
            relay = dump.relay
            assert relay is not None
            place = relay.file, relay.counted
            until(lambda: replica.has(dump.beats, *place), name, timeout_s=DEADLINE_S)  # noqa: B023
            status = replica.status()
            assert (status["Source_Log_File"], status["Read_Source_Log_Pos"]) == place, name
            assert status["Replica_IO_Running"] == "Yes", name
        assert len(proxy.commands) == 1
        expected = source.execute("SELECT COUNT(*), SUM(LENGTH(s)) FROM a.t")
        until(
            lambda: replica.server.execute("SELECT COUNT(*), SUM(LENGTH(s)) FROM a.t") == expected,
            "the replica has all rows",
        )
        replica.end()


def replicated(kind: Kind, server_factory: ServerFactory) -> tuple[Server, Replica]:
    options = () if kind == "mysql97" else ("--log-bin-compress-min-len=20",)
    source = server_factory(kind, "--max-allowed-packet=64M", *options)
    source.add_user("replica", PASSWORD)
    source.execute("RESET MASTER" if source.mariadb else "RESET BINARY LOGS AND GTIDS")
    for database in ("a", "b"):
        source.execute(
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t (id INT AUTO_INCREMENT PRIMARY KEY, s LONGTEXT)",
        )
    return source, Replica(server_factory(kind, "--server-id=2", "--max-allowed-packet=64M"))


@pytest.mark.parametrize("kind", ["mysql97", "mariadb1011", "mariadb118"])
def test_a_heartbeat_behind_4_gib(kind: Kind, server_factory: ServerFactory) -> None:
    source, replica = replicated(kind, server_factory)
    far = (5 << 30) + 123
    file = source.binlogs()[0][0]
    ended = threading.Event()

    def answer(command: Command) -> Iterator[bytes | memoryview]:
        v2 = command.code == packets.Command.BINLOG_DUMP_GTID
        options = RelayOptions(1, Checksum.CRC32, v2, mariadb=source.mariadb, mariadb_capability=4)
        nothing: GtidSet | MariadbGtids = MariadbGtids() if source.mariadb else GtidSet()
        relay = Relay(options, AfterGtids(nothing))
        dump = raw_dump(source, by_file(file), (*CRC32, *(MARIADB if source.mariadb else ())))
        yield from relay.packets(delivered(dump, "none").parts())
        yield relay.arrive("binlog.000009", far)
        yield relay.heartbeat("binlog.000009", far)
        yield relay.heartbeat("binlog.000009", far + 1000)
        ended.wait(DEADLINE_S)

    with DumpProxy((source.host, source.port), answer) as proxy:
        replica.begin(proxy.port)
        offset = far if source.mariadb else far + 1000
        until(lambda: replica.has(2, "binlog.000009", offset), "heartbeats", timeout_s=DEADLINE_S)
        assert replica.status()["Replica_IO_Running"] == "Yes"
        replica.end()
        ended.set()
