"""By the server's thread list, the daemon has one connection per connection key. A consumer without a reader uses a
limited amount of memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Reader, dumps, tip_seq, until
from tests.servers import Server
from tests.servers.plugin import ServerFactory

MIB = 1 << 20
BIG_ROWS, BIG_ROW_BYTES, BIG_STATEMENT = 300, 1_000_000, 10
BASE_BYTES_MAX = 250 * MIB


@contextmanager
def measured(daemon: Daemon) -> Iterator[list[int]]:
    """Record samples of the daemon's resident size during the block."""
    sizes = [daemon.resident_bytes]
    ended = threading.Event()

    def measure() -> None:
        while not ended.wait(0.02):
            sizes.append(daemon.resident_bytes)

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


def write_big(server: Server) -> None:
    for first in range(0, BIG_ROWS, BIG_STATEMENT):
        values = ", ".join(
            f"({n}, REPEAT('x', {BIG_ROW_BYTES}))" for n in range(first, first + BIG_STATEMENT)
        )
        server.execute(f"INSERT INTO big.t VALUES {values}")


def test_consumers_of_a_key_share_one_connection_in_bounded_memory(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    server = server_factory("mysql97")
    server.execute(
        *(f"CREATE DATABASE {name}" for name in ("big", "small")),
        "CREATE TABLE big.t (id INT PRIMARY KEY, b LONGBLOB)",
        "CREATE TABLE small.t (id INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(20))",
    )
    queue = 16 * MIB
    limit = {"max_bytes_in_binlog_queue": "16MiB"}
    consumers = {
        "one": source(server, "small", **limit),
        "two": source(server, "small", **limit),
        "other_user": source(server, "small", user="audit", **limit),
        "unshared": source(server, "big", use_binlog_client=False, **limit),
    }
    daemon = make_daemon(consumers)
    api = daemon.start()
    users = {name: settings["mysql"].split("@")[0] for name, settings in consumers.items()}
    assert users["one"] == users["two"] == users["unshared"] != users["other_user"]

    def shared_and_other(shared: int, other: int) -> bool:
        return (len(dumps(server, users["one"])), len(dumps(server, users["other_user"]))) == (
            shared,
            other,
        )

    until(lambda: shared_and_other(2, 1), "one dump per key, and one for the unshared consumer")
    readers = [Reader(daemon, name).open() for name in ("one", "two", "other_user")]
    unread = Reader(daemon, "unshared").open()
    with measured(daemon) as sizes:
        write_big(server)
        server.execute("INSERT INTO small.t (b) VALUES ('behind 300 MB')")
        for reader in readers:
            reader.read_to(server)
            assert len(reader.transactions) == 1
            assert reader.daemon.api.row(reader.consumer)["state"] == "streaming"
        paused = api.until_state("unshared", "closed")
        assert paused["bytes"] <= queue + 2 * BIG_STATEMENT * BIG_ROW_BYTES
        until(lambda: shared_and_other(1, 1), "a consumer that is closed has no dump")
        server.execute("INSERT INTO small.t (b) VALUES ('while one is closed')")
        for reader in readers:
            reader.read_to(server)
            assert len(reader.transactions) == 2

        # Now a reader reads from the consumer: it gets all transactions in order, and the daemon's memory stays within
        # its limit.
        found = 0
        while unread.position["seq"] < tip_seq(server):
            unread.step(wait_ms=5000)
            found += sum(len(t.data) > BIG_ROW_BYTES for t in unread.transactions)
            unread.chunks.clear()
        assert found == BIG_ROWS // BIG_STATEMENT
        unread.acknowledge()
    until(lambda: shared_and_other(2, 1), "it has a dump again")
    held = sum(row["max_bytes"] for row in api.rows().values())
    assert held == 4 * queue
    assert max(sizes) < held + BASE_BYTES_MAX, f"{max(sizes) / MIB:.0f} MiB"
    assert api.row("unshared")["bytes"] <= MIB
    daemon.stop()
    until(lambda: shared_and_other(0, 0), "a daemon that has ended has no dumps")


def test_consumers_at_different_positions_share_one_connection(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    """After a restart, one dump serves three consumers: a new consumer, a consumer that was read before, and a consumer
    that was not."""
    server = server_factory("mysql97")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    first = source(server, "d")
    daemon = make_daemon({"first": first, "lazy": first})
    daemon.start()
    reader, lazy = (Reader(daemon, name).open() for name in ("first", "lazy"))
    for _ in range(5):
        server.execute("INSERT INTO d.t VALUES ()")
    reader.read_to(server)
    daemon.stop()
    server.execute("FLUSH BINARY LOGS", "INSERT INTO d.t VALUES ()")
    daemon.settings["consumers"]["new"] = {**first, "start": "earliest"}
    daemon.start()
    fresh = Reader(daemon, "new").open()
    for each in (reader, lazy, fresh):
        each.read_to(server)
    assert len(dumps(server)) == 1
    rows = [t for t in fresh.transactions if b"CREATE" not in t.data and len(t.data) > 100]
    assert [t.seq for t in lazy.transactions] == [t.seq for t in reader.transactions]
    assert [t.seq for t in rows][-6:] == [t.seq for t in reader.transactions]
    assert len(reader.transactions) == 6
