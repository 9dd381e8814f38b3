"""Operators add and recreate consumers, with other limits, wrong passwords and wrong ports, while other sessions change
all rows of tables and alter tables. In the end, all readers have the server's tables, and the daemon has one
connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Problem, Reader, dumps, tip_seq, until
from tests.faults import judge
from tests.faults.churn import Copy, check_all, churn, create, read_all, reading
from tests.servers import Instance
from tests.servers.plugin import ServerFactory
from tests.support.proxy import Proxy

pytestmark = pytest.mark.rotate(3, of="scenarios")

ROWS = 3000


@pytest.fixture(scope="module")
def started(module_server_factory: ServerFactory) -> Instance:
    return module_server_factory("mysql97")


@pytest.fixture
def server(started: Instance) -> Iterator[Instance]:
    until(lambda: not dumps(started), "the dumps of the test before are gone")
    create(started, ["a", "b"])
    yield started
    started.execute("DROP DATABASE a", "DROP DATABASE b", "FLUSH BINARY LOGS")
    newest = started.binlog_position()[0]
    started.execute(f"PURGE BINARY LOGS TO '{newest}'")


def insert(server: Instance, first: int, count: int, database: str = "a") -> None:
    """Insert `count` rows, 500 rows per statement."""
    for start in range(first, first + count, 500):
        ids = range(start, min(start + 500, first + count))
        values = ", ".join(f"({n}, 0, 'row {n}')" for n in ids)
        server.execute(f"INSERT INTO `{database}`.churn VALUES {values}")


def open_copies(daemon: Daemon, *names: str) -> list[Copy]:
    consumers = daemon.settings["consumers"]
    return [Copy(Reader(daemon, n).open(), consumers[n]["databases"]) for n in names]


def one_dispatcher(daemon: Daemon, server: Instance) -> None:
    """All consumers are attached to one dispatcher, with empty queues, and the server sends its log once."""

    def merged() -> bool:
        rows = daemon.api.rows().values()
        return (
            len({row["dispatcher_name"] for row in rows}) == 1
            and all(row["size"] == 0 and row["state"] == "streaming" for row in rows)
            and len(dumps(server)) == 1
        )

    until(merged, "all are attached to one dispatcher")


def test_consumers_are_added_and_recreated_with_tiny_queues(
    server: Instance, make_daemon: MakeDaemon, source: Source
) -> None:
    insert(server, 0, ROWS)
    daemon = make_daemon({"one": source(server, "a", start="earliest")})
    daemon.start()
    copies = open_copies(daemon, "one")
    with reading(copies):
        insert(server, ROWS, ROWS)
        daemon.settings["consumers"]["two"] = source(server, "a", start="earliest")
        daemon.reload()
        insert(server, 2 * ROWS, ROWS)
    copies += open_copies(daemon, "two")
    assert check_all(server, copies) == 2 * 3 * ROWS
    one_dispatcher(daemon, server)
    # Remove both consumers, and add two others with queues of ten bytes.
    tiny = source(server, "a", start="earliest", max_bytes_in_binlog_queue=10)
    daemon.settings["consumers"] = {"three": tiny, "four": tiny}
    daemon.reload()
    assert set(daemon.api.rows()) == {"three", "four"}
    copies = open_copies(daemon, "three", "four")
    with reading(copies):
        insert(server, 3 * ROWS, ROWS)
    check_all(server, copies)
    daemon.settings["consumers"]["five"] = source(server, "a", start="earliest")
    daemon.reload()
    copies += open_copies(daemon, "five")
    with reading(copies):
        server.execute("UPDATE a.churn SET n = n + 1")
    assert check_all(server, copies) == 3 * 4 * ROWS
    one_dispatcher(daemon, server)
    del daemon.settings["consumers"]["three"]
    daemon.reload()
    assert set(daemon.api.rows()) == {"four", "five"}


def test_detaching_and_waiting_lose_nothing(
    server: Instance, make_daemon: MakeDaemon, source: Source
) -> None:
    """The daemon detaches some consumers with full queues repeatedly, and one consumer never. Two consumers are
    declared again."""
    insert(server, 0, ROWS)
    limits = {
        "large": (10**8, 60_000),
        "patient": (10, 10_000),
        "hasty": (10, 100),
        "rash": (10, 10),
    }
    daemon = make_daemon(
        {
            name: source(
                server,
                "a",
                start="earliest",
                max_bytes_in_binlog_queue=size,
                max_milliseconds_to_wait_in_binlog_queue=wait,
            )
            for name, (size, wait) in limits.items()
        }
    )
    api = daemon.start()
    shown = {n: (r["max_bytes"], r["max_waiting_ms"]) for n, r in api.rows().items()}
    assert shown == limits
    copies = open_copies(daemon, *limits)
    read_all(copies, tip_seq(server))
    with reading(copies):
        for round_ in range(3):
            insert(server, (1 + round_) * ROWS, ROWS)
            server.execute("UPDATE a.churn SET n = n + 1")
            if round_ == 0:
                for name, wait in (("hasty", 10), ("rash", 50)):
                    key = "max_milliseconds_to_wait_in_binlog_queue"
                    daemon.settings["consumers"][name][key] = wait
                daemon.reload()
    assert check_all(server, copies) == 4 * 4 * ROWS
    one_dispatcher(daemon, server)
    rows = api.rows()
    assert rows["rash"]["max_waiting_ms"] == 50
    assert all(row["last_error"] is None for row in rows.values())
    print(f"detached: { ({name: row['detaches'] for name, row in rows.items()}) }")


@pytest.mark.parametrize("wrong", ["password", "port"])
def test_a_wrong_setting_is_reported_and_corrected_without_a_restart(
    wrong: str, server: Instance, make_daemon: MakeDaemon, source: Source
) -> None:
    right = source(server, "a")
    bad = {**right, "password": "not it"}
    if wrong == "port":
        with Proxy(server.port) as gone:
            port = gone.port
        bad = {**right, "mysql": right["mysql"].replace(str(server.port), str(port))}
    daemon = make_daemon({"bad": bad, "good": source(server, "b", user="good")})
    api = daemon.start()
    row = until(
        lambda: r if (r := api.row("bad"))["last_error"] else None, "the consumer has an error"
    )
    assert row is not None
    assert ("access denied" if wrong == "password" else "refused") in row["last_error"].lower()
    with pytest.raises(Problem) as caught:
        api.session("bad")
    assert caught.value.status == 503
    copies = open_copies(daemon, "good")
    insert(server, 0, 100, "b")
    assert check_all(server, copies) == 100
    daemon.settings["consumers"]["bad"] = right
    daemon.reload()
    api.until_state("bad", "streaming")
    copies += open_copies(daemon, "bad")
    insert(server, 0, 100)
    assert check_all(server, copies) == 200
    assert api.row("bad")["binlog_client_name"] == right["mysql"]


def test_a_server_may_start_after_the_daemon(
    server: Instance, make_daemon: MakeDaemon, source: Source
) -> None:
    with Proxy(server.port) as proxy:
        proxy.refuse()
        late = source(server, "a")
        late["mysql"] = late["mysql"].replace(str(server.port), str(proxy.port))
        daemon = make_daemon({"late": late, "there": source(server, "b")})
        api = daemon.start()
        until(lambda: api.row("late")["last_error"], "the consumer has an error")
        assert api.text("/readyz").startswith("ok")
        copies = open_copies(daemon, "there")
        insert(server, 0, 100, "b")
        assert check_all(server, copies) == 100
        proxy.accept()
        copies += open_copies(daemon, "late")
        insert(server, 0, 100)
        assert check_all(server, copies) == 200
        daemon.stop()


@pytest.mark.parametrize(
    ("size", "flush_ms"),
    [(1, 1), (1000, 1000), (10**8, 1000)],
    ids=["unbuffered", "small", "large"],
)
def test_a_dispatcher_works_with_any_buffer_size(
    size: int, flush_ms: int, server: Instance, make_daemon: MakeDaemon, source: Source
) -> None:
    buffer = {
        "max_bytes_in_binlog_dispatcher_buffer": size,
        "max_flush_milliseconds_in_binlog_dispatcher": flush_ms,
    }
    daemon = make_daemon({name: source(server, "a", "b", **buffer) for name in ("one", "two")})
    api = daemon.start()
    copies = open_copies(daemon, "one", "two")
    with reading(copies), churn(server, ["a", "b"]) as writing:
        writing.until_written(300)
        until(
            lambda: api.row("one")["dispatcher_events_read_per_sec"] > 0,
            "the log says how much was read",
        )
    assert check_all(server, copies) > 100


def test_consumers_catch_up_over_a_hundred_alterations_of_a_table(
    server: Instance, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> None:
    names = ["one", "two", "three", "four"]
    settings = {name: source(server, "a", max_bytes_to_merge=1000) for name in names}
    daemon = make_daemon(dict(settings))
    daemon.start()
    readers = [Reader(daemon, name).open() for name in names]
    start = str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")
    insert(server, 0, 500)
    for reader in readers:
        reader.read_to(server)
    for name in names[2:]:
        del daemon.settings["consumers"][name]
    daemon.reload()
    for n in range(100):
        server.execute(f"ALTER TABLE a.churn ADD COLUMN e{n} INT DEFAULT {n}")
        server.execute(f"INSERT INTO a.churn (id, n, t) VALUES ({1000 + n}, {n}, 'altered')")
        if n % 20 == 0:
            readers[0].step(wait_ms=0)
    daemon.stop()
    daemon.settings["consumers"] = settings
    daemon.start()
    for reader in readers:
        reader.read_to(server)
    one_dispatcher(daemon, server)
    wanted = judge.expected(judge.executed(server, start), ["a"])
    assert len(wanted) == 201
    for reader in readers:
        found = judge.got(judge.delivered(server, reader.chunks, tmp_path))
        if parting := judge.difference(wanted, found):
            pytest.fail(f"{reader.consumer}:\n{parting}")
