"""Replicas read from the front of a daemon, through idle times and lost connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import until
from tests.front.cut_proxy import CutProxy
from tests.front.fronted import Fronted, until_greets
from tests.servers import Instance, Kind
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port

KINDS: tuple[Kind, ...] = ("mysql97", "mariadb1011", "mariadb118")
DEADLINE_S = 60.0
BEATS = 30


class Replica:
    """A replica of its own server kind, which reads the consumer `shop` by GTID."""

    def __init__(self, server: Instance) -> None:
        self.server = server
        self.mariadb = server.mariadb
        self._verb = "SLAVE" if self.mariadb else "REPLICA"
        server.execute("RESET MASTER" if self.mariadb else "RESET BINARY LOGS AND GTIDS")

    def begin(self, port: int, heartbeat_s: float = 0.2, delay_s: int = 0) -> None:
        prefix = "MASTER" if self.mariadb else "SOURCE"
        settings = {
            "HOST": "'127.0.0.1'", "PORT": port, "USER": "'shop'", "PASSWORD": "''", "SSL": 0, "CONNECT_RETRY": 1,
            "HEARTBEAT_PERIOD": heartbeat_s, "DELAY": delay_s,
        } | ({"USE_GTID": "slave_pos"} if self.mariadb else {"AUTO_POSITION": 1})  # fmt: skip
        chosen = ", ".join(f"{prefix}_{name} = {value}" for name, value in settings.items())
        change = "MASTER" if self.mariadb else "REPLICATION SOURCE"
        more = "" if self.mariadb else ", GET_SOURCE_PUBLIC_KEY = 1"
        self.server.execute(f"CHANGE {change} TO {chosen}{more}", f"START {self._verb}")

    def end(self) -> None:
        self.server.execute(f"STOP {self._verb}")

    def require_running(self) -> None:
        process = self.server.process
        assert process is not None and process.poll() is None, self.server.error_log.read_text()
        status = self.server.execute(f"SHOW {self._verb} STATUS")[0]
        assert status[10:12] == ("Yes", "Yes"), status

    def heartbeats(self) -> int:
        if self.mariadb:
            shown = self.server.execute("SHOW GLOBAL STATUS LIKE 'Slave_received_heartbeats'")
            return int(shown[0][1])
        received = (
            "SELECT count_received_heartbeats FROM performance_schema.replication_connection_status"
        )
        return int(self.server.execute(received)[0][0])

    def until_rows(self, count: int) -> None:
        until(lambda: self.has(count), f"the replica has {count} rows", timeout_s=DEADLINE_S)

    def has(self, count: int) -> bool:
        process = self.server.process
        assert process is not None and process.poll() is None, self.server.error_log.read_text()
        return self.server.execute("SELECT COUNT(*) FROM shop.t") == ((count,),)


@pytest.fixture(params=KINDS)
def read(
    request: pytest.FixtureRequest,
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
) -> Iterator[tuple[Fronted, Replica]]:
    """A daemon with a front, and a replica of the server's kind. The table maps of MariaDB have no metadata, so the
    daemon adds it to the events."""
    kind: Kind = request.param
    options = ("--binlog-row-metadata=NO_LOG",) if kind.startswith("mariadb") else ()
    server = server_factory(kind, *options)
    for database in ("shop", "other"):
        server.execute(f"CREATE DATABASE {database}")
        server.execute(f"CREATE TABLE {database}.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT)")
    front = free_port()
    daemon = make_daemon(
        {"shop": source(server, "shop", start="earliest")},
        front={"listen": f"127.0.0.1:{front}"},
    )
    daemon.start()
    daemon.api.until_state("shop", "streaming")
    until_greets(front)
    own = (
        ()
        if kind.startswith("mariadb")
        else ("--performance-schema=ON", "--replica-parallel-workers=4")
    )
    replica = Replica(server_factory(kind, "--server-id=2", *own))
    with closing(Fronted(server, daemon, front)) as fronted:
        yield fronted, replica


def test_a_replica_runs_through_idle_times(read: tuple[Fronted, Replica]) -> None:
    """Each heartbeat has an offset that the replica's own count does not exceed."""
    fronted, replica = read
    server = fronted.server
    insert = "INSERT INTO {}.t (v) VALUES (REPEAT('x', 2000))"

    def idle(beats: int) -> None:
        first = replica.heartbeats()
        until(lambda: replica.heartbeats() >= first + beats, "heartbeats", timeout_s=DEADLINE_S)
        replica.require_running()

    replica.begin(fronted.port)
    idle(BEATS)
    xa = ("XA START 'x'", insert.format("shop"), "XA END 'x'", "XA PREPARE 'x'")
    for n, statements in enumerate(
        (
            (insert.format("shop"),),
            (insert.format("other"),),
            xa,
            (insert.format("shop"), insert.format("other")),
            ("XA COMMIT 'x'",),
            ("FLUSH BINARY LOGS",),
            ("BEGIN", insert.format("other"), insert.format("shop"), "COMMIT"),
        )
    ):
        server.execute(*statements)
        idle(3 if n else BEATS)
    replica.until_rows(4)
    idle(BEATS)
    replica.end()


def test_a_replica_continues_a_transaction_after_a_cut(
    read: tuple[Fronted, Replica], tmp_path: Path
) -> None:
    """The connection ends after the replica has applied a part of a transaction. The replica gets the whole
    transaction again, and applies it once."""
    fronted, replica = read
    server = fronted.server
    server.execute("INSERT INTO shop.t (v) VALUES ('a')")
    if not replica.mariadb:
        # A MySQL 9.7 with GTIDs of other sources crashes if it reads the transaction again before it has rolled the
        # part back.
        for n in range(1, 4):
            gtid = f"{n}0000000-0000-0000-0000-000000000000:1"
            replica.server.execute(f"SET gtid_next = '{gtid}'", f"CREATE DATABASE d{n}")
    large = "INSERT INTO shop.t (v) VALUES (REPEAT('x', 1000000))"
    # Not innodb_trx: while it is queried more often than every 0.1 s, the server does not renew its rows.
    active = "SELECT COUNT(*) FROM performance_schema.data_locks WHERE OBJECT_NAME = 't'"
    with CutProxy(fronted.port) as proxy:
        replica.begin(proxy.port)
        replica.until_rows(1)
        for n in range(3):
            proxy.arm(2_500_000)
            server.execute("BEGIN", *[large] * 5, "COMMIT")
            assert proxy.held.wait(DEADLINE_S)
            if not replica.mariadb:
                until(lambda: replica.server.execute(active) != ((0,),), "a part is applied")
            proxy.cut()
            replica.until_rows(1 + 5 * (n + 1))
        replica.require_running()
        replica.end()


@pytest.mark.deep
def test_a_replica_that_applies_late_gets_what_follows_a_rotation(
    read: tuple[Fronted, Replica],
) -> None:
    """The front is idle for a minute, then the log rotates, and the replica applies each transaction a minute late."""
    fronted, replica = read
    replica.begin(fronted.port, heartbeat_s=1, delay_s=60)
    until(lambda: replica.heartbeats() >= 60, "a minute of heartbeats", timeout_s=3 * DEADLINE_S)
    fronted.server.execute(
        "INSERT INTO shop.t (v) VALUES ('a')", "FLUSH BINARY LOGS", "INSERT INTO other.t (v) VALUES ('b')",
        "FLUSH BINARY LOGS", "INSERT INTO shop.t (v) VALUES ('c')",
    )  # fmt: skip
    before = replica.heartbeats()
    until(lambda: replica.has(2), "the replica has both rows", timeout_s=4 * DEADLINE_S)
    assert replica.heartbeats() > before
    replica.require_running()
    replica.end()
