"""Checks with the server's thread list and general log which consumers share a connection.

`max_bytes_to_merge` decides which positions are far apart; here it is small. Connections go through a proxy that a test
can make slow, so that the test can observe states that otherwise last only milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.conftest import MakeDaemon
from tests.daemon.harness import PASSWORD, Daemon, Json, Reader, dumps, tip_seq, until
from tests.faults import judge
from tests.faults.churn import Copy, check_all, churn, create, read_all
from tests.faults.watch import watch
from tests.servers import Instance
from tests.servers.plugin import ServerFactory
from tests.support.proxy import NORMAL, Conditions, Proxy

pytestmark = pytest.mark.rotate(1, of="examples of sharing")

NEAR = 20_000
SLOW = Conditions(bytes_per_s=60_000)


@pytest.fixture(scope="module")
def server(module_server_factory: ServerFactory) -> Instance:
    server = module_server_factory("mysql97")
    for user in ("user", "user1"):
        server.add_user(user, PASSWORD)
    return server


@pytest.fixture
def proxy(server: Instance) -> Iterator[Proxy]:
    """A proxy before a server that has a purged log, the databases, and no dump of an earlier test."""
    until(lambda: not dumps(server), "the dumps of the test before are gone")
    server.execute("DROP DATABASE IF EXISTS a", "DROP DATABASE IF EXISTS b")
    server.execute("RESET BINARY LOGS AND GTIDS")
    create(server, ["a", "b"])
    with Proxy(server.port) as proxy:
        yield proxy


def consumer(port: int, *databases: str, user: str = "user", **more: Any) -> Json:
    return {
        "mysql": f"{user}@127.0.0.1:{port}",
        "password": PASSWORD,
        "databases": list(databases),
        "max_bytes_to_merge": NEAR,
        "start": "earliest",
        **more,
    }


def write(server: Instance, transactions: int, **more: Any) -> str:
    """Write `transactions` further transactions. Returns the executed set."""
    with churn(server, ["a", "b"], **more) as writing:
        writing.until_written(transactions)
    return str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0])


def open_copies(daemon: Daemon, *names: str) -> list[Copy]:
    consumers = daemon.settings["consumers"]
    return [Copy(Reader(daemon, n).open(), consumers[n]["databases"]) for n in names]


def test_six_databases_give_the_documented_clients_and_dispatchers(
    server: Instance, proxy: Proxy, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> None:
    """Three consumers of one client begin at three positions far apart: they have three connections, later one
    connection. Three more consumers have separate connections: one consumer of another server, and two consumers of
    another account, of which one never merges."""
    other = server_factory("mysql97")
    other.add_user("user", PASSWORD)
    create(other, ["a"])
    # For a GTID set alone, the daemon does not know file and offset. Then a distance of more than 1000 transactions is
    # far.
    create(server, ["filler"])
    places = []
    for part in range(3):
        with churn(server, ["filler"], seed=part) as writing:
            writing.until_written(1050)
        places.append(write(server, 50, seed=part))
    consumers = {
        "db1_client1": consumer(proxy.port, "a", max_bytes_in_binlog_queue=1024),
        "db2_client1": consumer(proxy.port, "a", start={"gtid": places[0]}),
        "db3_client1": consumer(proxy.port, "b", start={"gtid": places[1]}),
        "db4_client2": consumer(other.port, "a"),
        "db5_client3": consumer(server.port, "a", user="user1"),
        "db6_old": consumer(server.port, "a", user="user1", use_binlog_client=False),
    }
    proxy.set(SLOW)
    daemon = make_daemon(consumers)
    with watch(server) as watching:
        api = daemon.start()
        until(lambda: len(dumps(server, "user")) == 3, "three far places take three connections")
        until(lambda: len(dumps(server, "user1")) == 2, "one that shares, and one that does not")
        until(lambda: len(dumps(other, "user")) == 1, "the other server sends its log once")
        rows = api.rows()
        clients = {name: row["binlog_client_name"] for name, row in rows.items()}
        user, on_other = f"user@127.0.0.1:{proxy.port}", f"user@127.0.0.1:{other.port}"
        assert list(clients.values())[:5] == [user] * 3 + [
            on_other,
            f"user1@127.0.0.1:{server.port}",
        ]
        named = {name: (clients[name], row["dispatcher_name"]) for name, row in rows.items()}
        assert len(set(named.values())) == 6, named
        proxy.set(NORMAL)
        (everything,) = open_copies(daemon, "db1_client1")
        parts = {name: Reader(daemon, name).open().read_to(server) for name in list(consumers)[1:3]}
        everything.read_to(tip_seq(server))
        until(lambda: len(dumps(server, "user")) == 1, "one connection serves the three")
        assert watching.most["user"] == 3
        assert watching.most["user1"] == 2
        print(
            f"dumps of three consumers of one client, over time: {[n['user'] for n in watching.seen]}"
        )
    rows = api.rows()
    shared = {rows[name]["dispatcher_name"] for name in list(consumers)[:3]}
    assert len(shared) == 1
    assert (len(dumps(server, "user1")), len(dumps(other))) == (2, 1)
    write(server, 50, seed=1)
    assert check_all(server, [everything]) > 50
    for place, (name, reader) in zip(places[:2], parts.items(), strict=True):
        reader.read_to(server)
        wanted = judge.expected(judge.executed(server, place), consumers[name]["databases"])
        found = judge.got(judge.delivered(server, reader.chunks, daemon.folder))
        assert not judge.difference(wanted, found)
    assert rows["db1_client1"]["last_error"] is None


def test_a_consumer_far_behind_has_a_connection_of_its_own_until_it_is_near(
    server: Instance, proxy: Proxy, make_daemon: MakeDaemon
) -> None:
    consumers = {name: consumer(proxy.port, "a", "b") for name in ("one", "two")}
    daemon = make_daemon(consumers)
    daemon.start()
    copies = open_copies(daemon, "one", "two")
    write(server, 400)
    read_all(copies, tip_seq(server))
    proxy.set(SLOW)  # slow for the transactions that follow
    proxy.set(NORMAL, *proxy.open_links)
    daemon.settings["consumers"]["behind"] = consumer(proxy.port, "a", "b")
    daemon.reload()
    with churn(server, ["a", "b"]) as writing:
        until(lambda: len(dumps(server, "user")) == 2, "the one behind has its own dump")
        copies += open_copies(daemon, "behind")
        for copy in copies[:2]:  # the readers of the other consumers continue
            writing.until_written(20)
            seq = tip_seq(server)
            copy.read_to(seq)
        assert len(dumps(server, "user")) == 2
        rows = daemon.api.rows()
        assert rows["one"]["dispatcher_name"] == rows["two"]["dispatcher_name"]
        assert rows["behind"]["dispatcher_name"] != rows["one"]["dispatcher_name"]
        proxy.set(NORMAL)
        # The dump never pauses, but the dispatchers merge nevertheless.
        until(
            lambda: len(dumps(server, "user")) == 1, "it is near, and shares the others' connection"
        )
    assert check_all(server, copies) > 300


def test_fifty_consumers_restarted_near_each_other_take_at_most_two_connections(
    server: Instance, proxy: Proxy, make_daemon: MakeDaemon
) -> None:
    names = [f"c{n}" for n in range(50)]
    settings = {name: consumer(proxy.port, "a", max_bytes_to_merge="1MiB") for name in names}
    daemon = make_daemon(settings)
    daemon.start()
    copies = open_copies(daemon, *names)
    write(server, 600, rows=8)
    # Each consumer continues from its own position, which the first consumer has passed. All positions are close.
    first, *others = copies
    first.step(max_bytes=1)
    for copy in others:
        before = first.reader.position["seq"]
        while first.reader.position["seq"] < before + 8:
            first.step(max_bytes=2000)
        copy.reader.open(first.reader.position)
        copy.reader.acknowledge()
        copy.tables = {name: dict(rows) for name, rows in first.tables.items()}
    first.reader.acknowledge()
    places = {copy.reader.position["seq"] for copy in copies}
    assert len(places) == 49
    offsets = [copy.reader.position["offset"] for copy in copies]
    assert max(offsets) - min(offsets) < 1 << 20
    daemon.kill()
    until(lambda: not dumps(server), "the dumps are gone")
    with watch(server) as watching:
        daemon.start()
        write(server, 50, seed=1)
        rows = check_all(server, copies)
        print(
            f"50 consumers at {len(places)} places within {(max(offsets) - min(offsets)) >> 10} KiB:"
            f" at most {watching.most['user']} dumps at a time, {watching.begun('user')} ever, {rows} rows equal"
        )
        assert watching.most["user"] <= 2
        assert watching.begun("user") <= 2
    assert len(dumps(server)) == 1
