"""The source's log changes under the front's clients: RESET, and a failover to another server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from dispatcher.binlog.event.types import EventType
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import PASSWORD, Daemon, until
from tests.front.attacker import Attacker, Refused
from tests.front.fronted import until_greets
from tests.servers import Instance, Kind
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port

KINDS: tuple[Kind, ...] = ("mysql97", "mariadb118")
EMPTY_STATE = "SET @mariadb_slave_capability = 4, @slave_connect_state = ''"
ROW_EVENTS = (EventType.WRITE_ROWS, EventType.WRITE_ROWS_V1)


class Dump:
    """A client that reads on until the front ends its dump. `rows`: the events of rows that it has got."""

    def __init__(self, port: int, consumer: str) -> None:
        self.client = Attacker(port).enter(consumer, "")
        self.rows = 0

    def by_file(self, file: str, offset: int = 4) -> Dump:
        self.client.dump_file(file, offset)
        return self

    def by_gtid(self, mariadb: bool) -> Dump:
        """Ask for all transactions."""
        if mariadb:
            self.client.ask(EMPTY_STATE)
            self.client.dump_file("")
        else:
            self.client.dump_gtids("")
        return self

    def read(self) -> Refused:
        """Read to the end. Returns the error that ends the dump."""
        try:
            for event in self.client.events():
                self.rows += event[4] in ROW_EVENTS
        except Refused as refused:
            return refused
        raise AssertionError("the dump has ended without an error")


@contextmanager
def read_on(*dumps: Dump) -> Iterator[list[Future[Refused]]]:
    with ThreadPoolExecutor(len(dumps)) as pool, ExitStack() as stack:
        for dump in dumps:
            stack.callback(dump.client.drop)
        yield [pool.submit(dump.read) for dump in dumps]


def insert(server: Instance, first: int, count: int) -> None:
    for n in range(first, first + count):
        server.execute(f"INSERT INTO shop.t VALUES ({n})")


def holds_log(daemon: Daemon, consumer: str) -> bool:
    row = daemon.api.row(consumer)
    return bool(row["state"] == "streaming" and row["unacknowledged_bytes"])


@pytest.mark.parametrize("kind", KINDS)
def test_reset(
    kind: Kind, server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    """A client that reads while the log is reset gets error 1236. A client that asks for the new log gets only the new
    log, even if its consumer's queue holds the old log, both before the daemon itself has noticed the RESET and
    afterwards."""
    server = server_factory(kind)
    reset = "RESET BINARY LOGS AND GTIDS" if kind == "mysql97" else "RESET MASTER"
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", reset)
    file, _ = server.binlog_position()
    insert(server, 0, 5)
    port = free_port()
    consumers = {
        name: source(server, "shop", start="earliest")
        for name in ("file", "gtid", "attached-file", "attached-gtid", "again")
    }
    daemon = make_daemon(consumers, front={"listen": f"127.0.0.1:{port}"})
    daemon.start()
    for name in consumers:
        until(partial(holds_log, daemon, name), "the queue has the log")
    until_greets(port)
    attached = [
        Dump(port, "attached-file").by_file(file),
        Dump(port, "attached-gtid").by_gtid(server.mariadb),
    ]
    with read_on(*attached) as ends:
        until(lambda: [dump.rows for dump in attached] == [5, 5], "the old rows")
        server.execute(reset)
        insert(server, 100, 1)
        new = [Dump(port, "file").by_file(file), Dump(port, "gtid").by_gtid(server.mariadb)]
        with read_on(*new):
            until(lambda: [dump.rows for dump in new] == [1, 1], "the new row, and no old one")
        for end in ends:
            assert end.result().number == 1236
            assert "server history differs" in end.result().text
    assert [dump.rows for dump in attached] == [5, 5]
    daemon.api.until_state("again", "failed")
    again = Dump(port, "again").by_gtid(server.mariadb)
    with read_on(again):
        until(lambda: again.rows == 1, "the new row, and no old one")
        insert(server, 101, 1)
        until(lambda: again.rows == 2, "the consumer continues in the new log")


def test_failover(server_factory: ServerFactory, make_daemon: MakeDaemon) -> None:
    """A client that reads by GTID continues with the other server. A client that reads by file gets error 1236, because
    its place is one in the log of the first server."""
    primary = server_factory("mysql97")
    replica = server_factory("mysql97", "--server-id=2")
    primary.add_user("reader", PASSWORD)
    primary.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    file, offset = primary.binlog_position()
    replica.execute(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_USER = 'reader',"
        f' SOURCE_PORT = {primary.port}, SOURCE_PASSWORD = "{PASSWORD}",'
        " SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1",
        "START REPLICA",
    )
    insert(primary, 0, 5)
    until(lambda: replica.execute("SELECT COUNT(*) FROM shop.t") == ((5,),), "the replica has it")
    port = free_port()
    mysql = f"reader@127.0.0.1:{primary.port},127.0.0.1:{replica.port}"
    settings = {"mysql": mysql, "password": PASSWORD, "databases": ["shop"], "start": "earliest"}
    daemon = make_daemon(
        {"file": settings, "gtid": settings}, front={"listen": f"127.0.0.1:{port}"}
    )
    daemon.start()
    until_greets(port)
    by_file, by_gtid = Dump(port, "file").by_file(file, offset), Dump(port, "gtid").by_gtid(False)
    with read_on(by_file, by_gtid) as (file_end, _):
        until(lambda: (by_file.rows, by_gtid.rows) == (5, 5), "the rows of the first server")
        primary.kill()
        replica.execute("STOP REPLICA", "RESET REPLICA ALL")
        insert(replica, 5, 3)
        until(lambda: by_gtid.rows == 8, "the rows of the other server")
        assert file_end.result().number == 1236
        assert "now reads the server" in file_end.result().text
    assert by_file.rows == 5
