"""The tests use the server's thread list to check which consumers share a connection. Cases: consumers far apart in the
log, a consumer without a reader, and settings that change while the daemon runs.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Json, Problem, Reader, dumps, until
from tests.servers import Server

NewDatabase = Callable[[Server], str]
KIB = 1 << 10
ROW_BYTES = 4 * KIB
# Consumers are far apart if this many bytes lie between them, and queues are small.
NEAR = {"max_bytes_to_merge": "16KiB", "max_bytes_in_binlog_dispatcher_buffer": "16KiB"}


@pytest.fixture
def database(mysql97: Server, new_database: NewDatabase) -> str:
    name = new_database(mysql97)
    table = "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(5000))"
    mysql97.execute(table, database=name)
    return name


@pytest.fixture
def insert(mysql97: Server, database: str) -> Callable[[int], None]:
    def write(count: int) -> None:
        row = f"INSERT INTO t (b) VALUES (REPEAT('x', {ROW_BYTES}))"
        mysql97.execute(*[row] * count, database=database)

    return write


def user_of(settings: Json) -> str:
    return str(settings["mysql"]).split("@")[0]


def start_here(server: Server) -> Json:
    file, offset = server.binlog_position()
    return {"file": file, "offset": offset}


def test_consumers_far_apart_begin_on_three_connections_and_end_on_one(
    mysql97: Server,
    database: str,
    insert: Callable[[int], None],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    # A full queue keeps the consumer at its start until its reader reads.
    one = source(mysql97, database, max_bytes_in_binlog_queue="32KiB", **NEAR)
    begin = start_here(mysql97)
    insert(40)
    middle = start_here(mysql97)
    insert(40)
    daemon = make_daemon(
        {
            "far": {**one, "start": begin},
            "half": {**one, "start": middle},
            "tip": {**one, "start": "latest"},
        }
    )
    api = daemon.start()
    user = user_of(one)
    until(lambda: len(dumps(mysql97, user)) == 3, "three connections")
    assert len({row["dispatcher_name"] for row in api.rows().values()}) == 3
    assert f'side_dispatchers{{connection="{one["mysql"]}"}} 2' in api.text("/metrics")
    found = {name: Reader(daemon, name).open().read_to(mysql97) for name in ("far", "half", "tip")}
    assert {name: len(reader.transactions) for name, reader in found.items()} == {
        "far": 80,
        "half": 40,
        "tip": 0,
    }
    until(lambda: len(dumps(mysql97, user)) == 1, "one connection in the end")
    insert(2)
    for reader in found.values():
        reader.read_to(mysql97)
    assert [t.seq for t in found["tip"].transactions] == [t.seq for t in found["far"].transactions][
        -2:
    ]
    assert len(dumps(mysql97, user)) == 1
    rows = api.rows()
    assert len({row["dispatcher_name"] for row in rows.values()}) == 1
    # The daemon has asked the server how long it keeps its log.
    assert all(row["runway_seconds"] is None or row["runway_seconds"] > 0 for row in rows.values())


def test_a_consumer_that_is_not_read_is_detached_and_attaches_again(
    mysql97: Server,
    database: str,
    insert: Callable[[int], None],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    one = source(mysql97, database, max_milliseconds_to_wait_in_binlog_queue=200, **NEAR)
    daemon = make_daemon({"live": one, "stuck": {**one, "max_bytes_in_binlog_queue": "32KiB"}})
    api = daemon.start()
    user = user_of(one)
    live, stuck = (Reader(daemon, name).open() for name in ("live", "stuck"))
    until(lambda: len(dumps(mysql97, user)) == 1, "they share one connection")
    thread = dumps(mysql97, user)
    insert(60)
    live.read_to(mysql97)
    row = api.row("stuck")
    assert (row["state"], row["detaches"], row["last_error"]) == ("detached", 1, None)
    assert row["dispatcher_name"] == "" and row["bytes"] < 256 * KIB
    assert api.row("live")["state"] == "streaming"
    assert dumps(mysql97, user) == thread, "the others' connection is as it was"
    # A reader reads `stuck` again. It gets all transactions without an error, and in the end both consumers share one
    # connection.
    stuck.read_to(mysql97)
    assert [t.seq for t in stuck.transactions] == [t.seq for t in live.transactions]
    assert [t.data for t in stuck.transactions] == [t.data for t in live.transactions]
    until(lambda: len(dumps(mysql97, user)) == 1, "one connection in the end")
    until(lambda: api.row("stuck")["state"] == "streaming", "it streams")


def test_a_reload_of_settings_does_not_disturb_other_consumers(
    mysql97: Server,
    database: str,
    insert: Callable[[int], None],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    one = source(mysql97, database)
    other = source(mysql97, database, user="other")
    daemon = make_daemon(
        {"stays": one, "goes": one, "changes": {**one, "tables": [f"{database}.t"]}}
    )
    api = daemon.start()
    readers = {name: Reader(daemon, name).open() for name in ("stays", "goes", "changes")}
    insert(3)
    for reader in readers.values():
        reader.read_to(mysql97)
    threads = dumps(mysql97, user_of(one))
    assert len(threads) == 1
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(readers["stays"].step(wait_ms=30_000)))
    waiting.start()

    consumers = daemon.settings["consumers"]
    del consumers["goes"]
    consumers["changes"] = {**one, "max_bytes_in_binlog_queue": "1MiB"}
    consumers |= {"comes": one, "elsewhere": other}
    said = daemon.reload()
    assert (said["added"], said["removed"], said["changed"]) == (
        ["comes", "elsewhere"],
        ["goes"],
        ["changes"],
    )
    with pytest.raises(Problem) as caught:
        readers["goes"].step()
    assert (caught.value.status, caught.value.kind) == (404, "UNKNOWN_CONSUMER")
    new = {name: Reader(daemon, name).open() for name in ("comes", "elsewhere")}
    until(lambda: dumps(mysql97, user_of(one)) == threads, "the connection is as it was")
    until(lambda: len(dumps(mysql97, user_of(other))) == 1, "the other user has one")
    insert(2)
    waiting.join(30)
    assert answers and answers[0] > 0
    for reader in (readers["stays"], readers["changes"], *new.values()):
        reader.read_to(mysql97)
    expected = [t.seq for t in readers["stays"].transactions]
    assert len(expected) == 5
    assert [t.seq for t in readers["changes"].transactions] == expected
    assert [t.seq for t in new["comes"].transactions] == expected[-2:]
    assert api.row("changes")["max_bytes"] == 1 << 20

    # Invalid settings change nothing, and the daemon reports them in one line.
    good = dict(consumers)
    consumers["stays"] = {**one, "databases": []}
    line = daemon.hang_up("settings not reloaded")
    assert "consumers.stays.databases" in line["error"]
    assert sorted(api.rows()) == sorted(good)
    assert dumps(mysql97, user_of(one)) == threads
    # The daemon also reports a setting that cannot change at a reload in one line.
    daemon.settings["consumers"] = {name: good[name] for name in good if name != "elsewhere"}
    daemon.settings["state"] = {"max_bytes_in_spill": "1GiB"}
    assert daemon.reload()["removed"] == ["elsewhere"]
    assert '"settings": ["state"]' in daemon.log
    until(lambda: not dumps(mysql97, user_of(other)), "the other connection is closed")
    assert dumps(mysql97, user_of(one)) == threads


def test_a_second_signal_ends_the_daemon_at_once(
    mysql97: Server,
    database: str,
    insert: Callable[[int], None],
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    daemon = make_daemon({"d": source(mysql97, database)})
    api = daemon.start()
    session = api.session("d")
    insert(1)
    mysql97.execute(*["INSERT INTO t (b) SELECT b FROM t"] * 11, database=database)
    place = mysql97.binlog_position()

    def queued() -> bool:
        row = api.row("d")
        return place == (row["dispatcher_mysql_binlog_name"], row["dispatcher_mysql_binlog_pos"])

    until(queued, "it is queued")
    end = api.poll("d", session["session"], session["position"], wait_ms=5000)["end"]
    # A reader that asks for much data and reads slowly delays the end of the daemon.
    with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)) as slow:
        slow.connect()
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        body = {"session": session["session"], "start": session["position"], "end": end}
        slow.request(
            "POST",
            "/v1/consumers/d/binlog",
            json.dumps(body),
            {"Content-Type": "application/json"},
        )
        assert slow.getresponse().status == 200
        assert daemon.stop_at_once("Waiting for connections to close") == 1
    assert "second signal" in daemon.log
