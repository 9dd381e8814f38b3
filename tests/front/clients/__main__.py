"""`python -m tests.front.clients`: prints what each client asks a server, as Markdown."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.front.clients.binlog_tools import BinlogTool, How
from tests.front.clients.debezium import Debezium
from tests.front.clients.history import SERVER_OPTIONS, History
from tests.front.clients.java_clients import canal, java_connector
from tests.front.clients.judging import DATABASES, PASSWORD, USER
from tests.front.clients.python_clients import asyncmy, python_mysql_replication
from tests.front.clients.questions import asked, markdown
from tests.front.clients.readings import Client, Endpoint
from tests.front.clients.replicas import Replica
from tests.front.clients.zongji import zongji
from tests.servers import Instance, Kind, start_server

_KINDS: tuple[Kind, ...] = ("mysql97", "mariadb118")
_Named = tuple[str, Callable[[Path], Client], bool]


def clients(kind: Kind) -> Iterator[_Named]:
    """Yields a name, a function that makes the client in a folder, and whether it reads by GTID."""
    mysql = kind == "mysql97"
    for gtids in (False, True):
        how = "GTID" if gtids else "file"
        yield f"the binlog tool, by {how}", BinlogTool, gtids
        yield f"the binlog tool --raw, by {how}", lambda folder: BinlogTool(folder, How.RAW), gtids
        yield f"python-mysql-replication, by {how}", python_mysql_replication, gtids
        yield f"mysql-binlog-connector-java, by {how}", java_connector, gtids
        yield f"a replica, by {how}", lambda _: Replica(kind), gtids
        if mysql or not gtids:
            yield f"asyncmy, by {how}", asyncmy, gtids
        if mysql:
            yield f"Canal, by {how}", lambda folder: canal(folder, *DATABASES), gtids
    yield "zongji", lambda folder: zongji(folder, *DATABASES), False


def _questions(server: Instance) -> Iterator[str]:
    server.add_user(USER, PASSWORD)
    history = History(server, *DATABASES)
    starts = {gtids: history.here(gtids=gtids) for gtids in (False, True)}
    history.create()
    history.write(20)
    mark = history.mark()
    at = Endpoint(server.host, server.port, USER, PASSWORD, server.mariadb)
    for name, make, gtids in clients(server.kind):
        with tempfile.TemporaryDirectory() as folder:
            client = make(Path(folder))
            client.begin(at, starts[gtids])
            with asked(server, USER) as questions:
                client.read(at, mark)
            if isinstance(client, Replica):
                client.close()
        yield markdown(f"{name} ({server.kind})", questions)


def _questions_of_debezium(server: Instance) -> Iterator[str]:
    server.add_user(USER, PASSWORD)
    database = DATABASES[0]
    server.execute(
        f"CREATE DATABASE {database}", f"CREATE TABLE {database}.seed (id INT PRIMARY KEY)"
    )
    at = Endpoint(server.host, server.port, USER, PASSWORD)
    insert = f"INSERT INTO {database}.seed VALUES (1)"
    with tempfile.TemporaryDirectory() as folder:
        first = Debezium(Path(folder, "first"))
        with asked(server, USER) as questions:
            first.prepare(at, lambda: server.execute(insert))
        yield markdown("Debezium, its first start", questions)
        history = History(server, *DATABASES)
        start = history.here()
        history.create()
        mark = history.mark()
        later = Debezium(Path(folder, "later"), first.folder)
        later.begin(at, start)
        with asked(server, USER) as questions:
            later.read(at, mark)
        yield markdown("Debezium, from its stored offset", questions)


def main() -> None:
    for kind in _KINDS:
        with start_server(kind, *SERVER_OPTIONS) as server:
            for table in _questions(server):
                print(table, flush=True)
    with start_server("mysql97", *SERVER_OPTIONS) as server:
        for table in _questions_of_debezium(server):
            print(table, flush=True)


if __name__ == "__main__":
    main()
