"""If a server's log is another log than before, readers get a typed error, and no data of the new log."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import pytest

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Api, Daemon, Json, Problem, Reader, dumps, tip_seq, until
from tests.servers import Instance
from tests.servers.plugin import ServerFactory

WITHOUT_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
each_mode = pytest.mark.parametrize(
    "kind_and_options",
    [("mysql97",), ("mysql97", *WITHOUT_GTIDS), ("mariadb1011",)],
    ids=["gtids", "files", "mariadb"],
)


def prepare(
    server: Instance, make_daemon: MakeDaemon, source: Source
) -> tuple[Daemon, dict[str, Reader]]:
    """Let one consumer read and acknowledge three transactions. The other consumer has no reader."""
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    daemon = make_daemon({"d": source(server, "d"), "unread": source(server, "d")})
    daemon.start()
    readers = {name: Reader(daemon, name).open() for name in ("d", "unread")}
    for _ in range(3):
        server.execute("INSERT INTO d.t VALUES ()")
    readers["d"].read_to(server)
    return daemon, readers


def reset(server: Instance) -> None:
    """Begin a new history on the server. The new log is soon longer than the old log."""
    # The daemon distinguishes logs by the second in which they were created.
    born = (server.folder / "pid").stat().st_mtime
    until(lambda: time.time() > born + 1.1, "the log's second is over")
    server.execute("RESET MASTER" if server.mariadb else "RESET BINARY LOGS AND GTIDS")
    for _ in range(40):
        server.execute("INSERT INTO d.t VALUES ()")


def purge(server: Instance) -> None:
    """Remove all logs except the newest log."""
    purge_to(server, server.binlog_position()[0])


def purge_to(server: Instance, oldest: str) -> None:
    """Remove all logs before `oldest`. MariaDB may remove a log only after some time."""

    def purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{oldest}'")
        return server.binlogs()[0][0] == oldest

    until(purged, "the older logs are gone")


def refused(api: Api, consumer: str, session: int, position: Json) -> Problem:
    """Returns the problem that a poll raises. Asserts that the reader gets no data before the problem."""
    try:
        while True:
            answer = api.poll(consumer, session, position, wait_ms=2000, markers=True)
            assert answer["transactions"] == 0
            position = answer["end"]
    except Problem as problem:
        return problem


def check_failed(api: Api, consumer: str, kind: str, text: str) -> Problem:
    row = api.until_state(consumer, "failed")
    assert text in row["last_error"]
    with pytest.raises(Problem) as caught:
        api.session(consumer)
    assert (caught.value.status, caught.value.kind) == (410, kind), caught.value.body
    assert text in caught.value.body["detail"]
    assert caught.value.body["hint"]
    assert f"{consumer}: failed: {text}" in api.text("/readyz?verbose")
    return caught.value


@pytest.mark.rotate(1)
@each_mode
def test_a_reset_while_the_daemon_is_down_fails_the_consumers(
    kind_and_options: tuple[str, ...],
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    server = server_factory(*kind_and_options)  # type: ignore[arg-type]
    daemon, readers = prepare(server, make_daemon, source)
    daemon.stop()
    reset(server)
    api = daemon.start()
    for name, reader in readers.items():
        check_failed(api, name, "HISTORY_DIFFERS", "server history differs")
        problem = refused(api, name, reader.session, reader.position)
        assert (problem.status, problem.kind) == (410, "HISTORY_DIFFERS")
        with pytest.raises(Problem) as caught:
            api.session(name, reader.position)
        assert caught.value.kind == "HISTORY_DIFFERS"
    until(lambda: not dumps(server), "no dump is open")
    assert api.text("/readyz").startswith("ok")
    # The failure is stored: the daemon reports it again after the next start.
    api = daemon.restart()
    check_failed(api, "d", "HISTORY_DIFFERS", "server history differs")


@pytest.mark.rotate(1)
@each_mode
def test_a_reset_while_the_log_streams_fails_the_consumers(
    kind_and_options: tuple[str, ...],
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    server = server_factory(*kind_and_options)  # type: ignore[arg-type]
    daemon, readers = prepare(server, make_daemon, source)
    api = daemon.api
    reader = readers["d"]
    reset(server)
    row = api.until_state("d", "failed")
    assert "server history differs" in row["last_error"]
    problem = refused(api, "d", reader.session, reader.position)
    assert (problem.status, problem.kind) == (410, "HISTORY_DIFFERS")
    # The other consumer still delivers the transactions of the old history in its queue, and then the same error.
    unread = readers["unread"]
    assert unread.step() == 3
    assert [t.data for t in unread.transactions] == [t.data for t in reader.transactions]
    problem = refused(api, "unread", unread.session, unread.position)
    assert problem.kind == "HISTORY_DIFFERS"


def insert(server: Instance, count: int) -> None:
    for _ in range(count):
        server.execute("INSERT INTO d.t VALUES ()")


def copied(server: Instance) -> Callable[[], None]:
    """Stop a server, copy its data directory, and start it. Returns a function that restores the copy."""
    copy = server.folder / "copy"
    server.stop()
    shutil.copytree(server.datadir, copy)
    server.start()

    def restore() -> None:
        server.stop()
        shutil.rmtree(server.datadir)
        copy.rename(server.datadir)
        server.start()

    return restore


def test_a_restored_server_that_has_purged_other_transactions_fails_the_consumer(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source
) -> None:
    """The server uuid and the GTIDs are the same. Only the purged set shows that the GTIDs denote other
    transactions."""
    server = server_factory("mysql97")
    daemon, readers = prepare(server, make_daemon, source)
    restore = copied(server)
    insert(server, 6)
    for reader in readers.values():
        reader.read_to(server)
    seq = readers["d"].position["seq"]
    daemon.stop()
    restore()
    server.execute("FLUSH BINARY LOGS")
    insert(server, 10)
    purge_to(server, server.binlog_position()[0])
    assert tip_seq(server) > seq
    api = daemon.start()
    for name, reader in readers.items():
        check_failed(api, name, "HISTORY_DIFFERS", "server history differs")
        problem = refused(api, name, reader.session, reader.position)
        assert (problem.status, problem.kind) == (410, "HISTORY_DIFFERS")


@pytest.mark.rotate(1)
@each_mode
def test_a_purge_past_a_stopped_consumer_fails_that_consumer_only(
    kind_and_options: tuple[str, ...],
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    server = server_factory(*kind_and_options)  # type: ignore[arg-type]
    daemon, readers = prepare(server, make_daemon, source)
    daemon.stop()
    server.execute("INSERT INTO d.t VALUES ()", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES ()")
    purge(server)
    # The other consumer is not affected.
    daemon.settings["consumers"]["new"] = source(server, "d", start="earliest")
    api = daemon.start()
    fresh = Reader(daemon, "new").open().read_to(server)
    assert len(fresh.transactions) == 1
    for name, reader in readers.items():
        check_failed(api, name, "POSITION_PURGED", "position purged")
        problem = refused(api, name, reader.session, reader.position)
        assert (problem.status, problem.kind) == (410, "POSITION_PURGED")
    assert api.row("new")["state"] == "streaming"


@pytest.mark.rotate(1)
@each_mode
def test_a_purge_of_logs_that_a_quiet_consumer_has_passed_harms_no_consumer(
    kind_and_options: tuple[str, ...],
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
) -> None:
    """The purged log has no transaction of this consumer, and the consumer's position has moved past it."""
    server = server_factory(*kind_and_options)  # type: ignore[arg-type]
    server.execute("CREATE DATABASE other", "CREATE TABLE other.t (id INT PRIMARY KEY)")
    daemon, readers = prepare(server, make_daemon, source)
    readers["unread"].read_to(server)
    server.execute("INSERT INTO other.t VALUES (1)", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    tip = tip_seq(server)
    for name in readers:
        until(
            lambda name=name: daemon.stored(name)["covered"]["seq"] >= tip,  # type: ignore[misc]
            "the stored place is at the tip",
        )
    daemon.stop()
    purge(server)
    server.execute("INSERT INTO d.t VALUES ()")
    daemon.start()
    for reader in readers.values():
        reader.read_to(server)
        assert len(reader.transactions) == 4
