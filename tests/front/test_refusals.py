"""The front refuses the dumps that its server refuses, in the server's own words, and serves the others. It makes no
difference whether the consumer's queue holds the place or the log must be read for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pymysql
import pytest

from dispatcher.binlog.event.types import EventType
from dispatcher.model.gtid import GtidSet
from tests.daemon.harness import PASSWORD, Daemon, Json
from tests.front.dump.raw_dump import CRC32, MARIADB, by_file, by_gtids, events, payloads, raw_dump
from tests.front.fronted import until_greets
from tests.servers import Instance, Kind
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port

KINDS: tuple[Kind, ...] = ("mysql97", "mysql56", "mariadb118")
OTHER = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
Request = tuple[bytes, tuple[str, ...]]
"""The command of a dump, and the statements before it."""

# Whether the servers serve each request. The log has two files; the files before them are purged.
BY_FILE = {
    "the last file": True,
    "the first file": True,
    "no name": True,
    "an offset below 4": False,
    "inside of the head": False,
    "behind the head": True,
    "an event inside of a transaction": True,
    "inside of an event": False,
    "inside of another's event": False,
    "inside of the last event": False,
    "the end": True,
    "behind the end": False,
    "far behind the end": False,
    "the end of a closed file": True,
    "behind the end of a closed file": False,
    "a purged file": False,
    "inside of a purged file": False,
    "a future file": False,
    "another log": False,
}
BY_GTIDS = {
    "no GTIDs, where some are purged": False,
    "purged GTIDs": False,
    "present GTIDs": True,
    "all GTIDs": True,
    "all GTIDs and those of another server": True,
    "GTIDs of another server only": False,
    "future GTIDs": False,
    "a hole before future GTIDs": False,
}
BY_STATE = {
    "no state, where some is purged": False,
    "a purged state": False,
    "a present state": True,
    "the whole state": True,
    "the whole state and another domain": True,
    "another domain only": False,
    "a future state": False,
    "a number of another server": False,
    "a malformed state": False,
}


class Endpoint:
    """A user of a front."""

    def __init__(self, port: int, user: str) -> None:
        self._port, self._user = port, user

    def connect(self) -> pymysql.connections.Connection:
        return pymysql.connect(host="127.0.0.1", port=self._port, user=self._user, password="")


@dataclass
class Compared:
    """A server, and a daemon with a front. The consumer `all` holds the whole log. For each request there is a consumer
    that began at the end of the log."""

    server: Instance
    port: int
    requests: dict[str, Request]


def _insert(server: Instance, first: int) -> None:
    for n in range(first, first + 3):
        for database in ("shop", "other"):
            server.execute(f"INSERT INTO {database}.t VALUES ({n}, 'v{n}')")


def _by_file(server: Instance) -> dict[str, tuple[str, int]]:
    (first, first_size), (last, size) = server.binlogs()
    rows = server.execute(f"SHOW BINLOG EVENTS IN '{last}'")
    mine, others = [row[1] for row in rows if row[2].startswith("Write_rows")][:2]
    base = last.rpartition(".")[0]
    places = (
        (last, 4), (first, 4), ("", 4), (last, 3), (last, 50), (last, rows[1][1]), (last, mine), (last, mine + 5),
        (last, others + 5), (last, size - 3), (last, size), (last, size + 1), (last, size + 1000),
        (first, first_size), (first, first_size + 1), (f"{base}.000001", 4), (f"{base}.000001", 157),
        (f"{base}.000099", 4), ("abc.000001", 4),
    )  # fmt: skip
    return dict(zip(BY_FILE, places, strict=True))


def _by_gtids(server: Instance) -> dict[str, str]:
    executed = str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")
    uuid, _, numbers = executed.rpartition(":")
    last = numbers.rpartition("-")[2]
    purged = GtidSet.parse(str(server.execute("SELECT @@GLOBAL.gtid_purged")[0][0]))
    sets = (
        "", f"{uuid}:1", str(purged), executed, f"{executed},{OTHER}:1-10", f"{OTHER}:1-1000",
        f"{uuid}:1-{int(last) + 1000}", f"{uuid}:1-{int(last) - 3}:{int(last) + 5}",
    )  # fmt: skip
    return dict(zip(BY_GTIDS, sets, strict=True))


def _by_state(server: Instance) -> dict[str, str]:
    whole = str(server.execute("SELECT @@gtid_binlog_pos")[0][0])
    number = int(whole.rpartition("-")[2])
    states = (
        "", "0-1-1", f"0-1-{number - 2}", whole, f"{whole},5-1-7", "5-1-7", f"0-1-{number + 1000}",
        f"0-9-{number - 2}", "x-1",
    )  # fmt: skip
    return dict(zip(BY_STATE, states, strict=True))


def _requests(server: Instance) -> dict[str, Request]:
    settings = (*CRC32, *(MARIADB if server.mariadb else ()))
    requests: dict[str, Request] = {
        name: (by_file(*place), settings) for name, place in _by_file(server).items()
    }
    if not server.mariadb:
        return requests | {
            name: (by_gtids(GtidSet.parse(text)), settings)
            for name, text in _by_gtids(server).items()
        }
    for name, state in _by_state(server).items():
        more = f"SET @slave_connect_state = '{state}'"
        requests[name] = by_file("", 4), (*settings, more)
        strict = f"{more}, @slave_gtid_strict_mode = 1"
        requests[f"{name}, strict"] = by_file("", 4), (*settings, strict)
    return requests


@pytest.fixture(scope="module", params=KINDS)
def compared(
    request: pytest.FixtureRequest,
    module_server_factory: ServerFactory,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Compared]:
    server = module_server_factory(request.param)
    server.add_user("reader", PASSWORD)
    for database in ("shop", "other"):
        server.execute(f"CREATE DATABASE {database}")
        server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(100))")
    for first in (0, 3):
        server.execute("FLUSH BINARY LOGS")
        _insert(server, first)
    server.execute(f"PURGE BINARY LOGS TO '{server.binlogs()[-2][0]}'")
    requests = _requests(server)

    def consumer(start: str) -> Json:
        address = f"reader@{server.host}:{server.port}"
        return {"mysql": address, "password": PASSWORD, "databases": ["shop"], "start": start}

    port = free_port()
    consumers = {"all": consumer("earliest")}
    consumers |= {f"late{n}": consumer("latest") for n in range(len(requests))}
    settings = {"consumers": consumers, "front": {"listen": f"127.0.0.1:{port}"}}
    with closing(Daemon(tmp_path_factory.mktemp("daemon"), settings)) as daemon:
        daemon.start()
        for name in consumers:
            daemon.api.until_state(name, "streaming")
        until_greets(port)
        yield Compared(server, port, requests)


def answer(endpoint: Instance | Endpoint, request: Request) -> tuple[str, list[bytes]]:
    """Returns the number and the text of the error that ends the dump, "" if none does, and the events of rows."""
    stream = raw_dump(endpoint, *request)
    last = payloads(stream)[-1]
    rows = [e for e in events(stream) if e[4] in (EventType.WRITE_ROWS, EventType.WRITE_ROWS_V1)]
    if last[:1] != b"\xff":
        return "", rows
    return f"{int.from_bytes(last[1:3], 'little')} {last[9:].decode()}", rows


def test_the_front_answers_as_the_server(compared: Compared) -> None:
    served = BY_FILE | BY_GTIDS | BY_STATE
    for n, (name, request) in enumerate(compared.requests.items()):
        said, _ = answer(compared.server, request)
        print(f"{name}: {said or 'served'}")
        assert (said == "") is served[name.removesuffix(", strict")], name
        queue, from_queue = answer(Endpoint(compared.port, "all"), request)
        log, from_log = answer(Endpoint(compared.port, f"late{n}"), request)
        # A message of the front has at most 500 bytes.
        assert queue[:500] == log[:500] == said[:500], name
        assert from_queue == from_log, name
