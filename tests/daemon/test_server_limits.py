"""Limits of a server that a dump meets: write timeouts and the size of packets; and a daemon that is killed before its
first marker."""

from __future__ import annotations

import os
import signal

import pytest

from dispatcher.binlog.decode.delivered import TableChanges
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Reader, until
from tests.servers import Server
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory

MIB = 1 << 20


def dumps(server: Server) -> int:
    """Returns the number of dump threads that the server has."""
    return str(server.execute("SHOW PROCESSLIST")).count("Binlog Dump")


def read_ids(reader: Reader) -> list[int]:
    changes = [change for change in reader.changes("d.t") if isinstance(change, TableChanges)]
    return [row["after"]["id"] for change in changes for row in change.batch.to_pylist()]


def ids(daemon: Daemon, server: Server) -> list[int]:
    return read_ids(Reader(daemon, "c").open().read_to(server))


@pytest.mark.parametrize("kind", ["mysql97", "mariadb1011", "mariadb118"])
def test_a_consumer_at_latest_gets_what_follows_its_first_connection_after_a_kill(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source, kind: Kind
) -> None:
    server = server_factory(kind)
    server.execute(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)"
    )
    daemon = make_daemon({"c": source(server, "d", start="latest")})
    daemon.start().until_state("c", "streaming")
    daemon.kill()
    server.execute("INSERT INTO d.t VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (3)")
    daemon.start().until_state("c", "streaming")
    assert ids(daemon, server) == [2, 3]


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_a_daemon_that_stands_still_in_an_event_of_100_mb(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source, kind: Kind
) -> None:
    """The server ends the dump after `net_write_timeout`, and the daemon reads the event again."""
    server = server_factory(kind, "--net-write-timeout=5", "--max-allowed-packet=256M")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, b LONGBLOB)")
    daemon = make_daemon({"c": source(server, "d")})
    daemon.start().until_state("c", "streaming")
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        server.execute(f"INSERT INTO d.t VALUES (1, REPEAT('x', {100 * MIB}))")
        until(lambda: dumps(server) == 0, "the server ends the dump", timeout_s=120)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    server.execute("INSERT INTO d.t VALUES (2, '')")
    assert ids(daemon, server) == [1, 2]


@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb1011", "mariadb118"])
def test_a_row_that_is_larger_than_max_allowed_packet_is_read(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source, kind: Kind
) -> None:
    """Servers do not apply `max_allowed_packet` to a dump."""
    server = server_factory(kind, "--max-allowed-packet=64M", "--loose-innodb-log-file-size=512M")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, b LONGBLOB)")
    daemon = make_daemon({"c": source(server, "d", assume_current_schema=True)})
    daemon.start().until_state("c", "streaming")
    daemon.stop()
    server.execute(
        f"INSERT INTO d.t VALUES (1, REPEAT('x', {20 * MIB}))",
        "SET GLOBAL max_allowed_packet = 4194304",
    )
    server.execute("INSERT INTO d.t VALUES (2, '')")
    daemon.start().until_state("c", "streaming")
    assert ids(daemon, server) == [1, 2]
