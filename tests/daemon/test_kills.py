"""A reader with its own checkpoint gets each change exactly once, whichever process is killed at whatever moment.

For each named point there are three runs, with kills at different moments and with different kinds of positions: GTIDs,
files and offsets, MariaDB.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable

import pymysql
import pytest
from pymysql.constants import ER

from dispatcher.model.position import Position
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import (
    Daemon,
    Problem,
    Reader,
    dumps,
    inserted_ids,
    load,
    tip_seq,
    transactions,
    until,
)
from tests.servers import Instance
from tests.servers.plugin import ServerFactory

pytestmark = pytest.mark.kills

RUNS = [0, 1, 2]
BIG_ROWS = 20_000  # about 4 MB, which is several receive buffers


NewServer = Callable[[int], Instance]


@pytest.fixture(scope="module")
def servers(module_server_factory: ServerFactory) -> Callable[[int], Instance]:
    """Returns a function that returns the server of a run. A server is started at its first use."""
    without_gtids = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
    start: list[Callable[[], Instance]] = [
        lambda: module_server_factory("mysql97"),
        lambda: module_server_factory("mysql97", *without_gtids),
        lambda: module_server_factory("mariadb118"),
    ]
    return functools.cache(lambda run: start[run]())


@pytest.fixture
def new_server(servers: Callable[[int], Instance]) -> NewServer:
    """`new_server(run)` waits until all dumps of the previous test have ended, and returns the server of that run with
    an empty database."""

    def prepare(run: int) -> Instance:
        server = servers(run)
        server.execute("DROP DATABASE IF EXISTS d", "CREATE DATABASE d", "FLUSH BINARY LOGS")
        until(lambda: not dumps(server), "the dumps of killed daemons are gone")
        return server

    return prepare


def new_daemon(make_daemon: MakeDaemon, source: Source, server: Instance) -> Daemon:
    # `unread` is read at the end of a test only. So after each kill one connection continues for two consumers with
    # different positions. The queues have room for all transactions.
    consumer = source(server, "d", max_bytes_in_binlog_queue="1GiB")
    return make_daemon({"d": consumer, "unread": consumer})


def read_until_killed(reader: Reader, *, max_bytes: int | None = None) -> None:
    """Read until the daemon is killed."""

    def read() -> bool:
        try:
            reader.step(max_bytes=max_bytes, wait_ms=100)
        except (ConnectionError, TimeoutError):
            return True
        return False

    until(read, "the daemon is killed")
    reader.daemon.until_killed()


def kill(server: Instance, threads: list[int]) -> None:
    """Kill these server threads. A thread may have ended already, because a dump ends when its client is killed."""
    for thread in threads:
        try:
            server.execute(f"KILL {thread}")
        except pymysql.OperationalError as error:
            if error.args[0] != ER.NO_SUCH_THREAD:
                raise


def until_gone(server: Instance, threads: set[int]) -> None:
    until(lambda: not threads & set(dumps(server)), "the dump is gone")


def check_complete(reader: Reader, server: Instance, ids: list[int]) -> None:
    reader.read_to(server)
    seqs = [transaction.seq for transaction in reader.transactions]
    assert seqs == sorted(set(seqs))
    assert inserted_ids(reader) == ids
    # A consumer that was not read since the first start delivers the same transactions.
    unread = Reader(reader.daemon, "unread").open().read_to(server)
    assert [transaction.seq for transaction in unread.transactions][-len(seqs) :] == seqs


@pytest.mark.rotate(1)
@pytest.mark.parametrize("run", RUNS)
def test_killed_after_bytes_are_read_and_before_they_are_routed(
    run: int, new_server: NewServer, make_daemon: MakeDaemon, source: Source
) -> None:
    server = new_server(run)
    daemon = new_daemon(make_daemon, source, server)
    daemon.start()
    reader = Reader(daemon, "d").open()
    with load(server, "d") as writing:
        writing.until_written(10)
        daemon.stop()
        daemon.start(kill_at="read", kill_after=1 + 7 * run)
        read_until_killed(reader)
        daemon.start()
        reader.step()
    check_complete(reader, server, writing.ids())


@pytest.mark.rotate(1)
@pytest.mark.parametrize("run", RUNS)
def test_killed_between_the_stored_acknowledgement_and_its_answer(
    run: int, new_server: NewServer, make_daemon: MakeDaemon, source: Source
) -> None:
    server = new_server(run)
    daemon = new_daemon(make_daemon, source, server)
    daemon.start(kill_at="committed", kill_after=3 * run)
    reader = Reader(daemon, "d").open()
    with load(server, "d") as writing:
        read_until_killed(reader)
        daemon.start()
        row = until(lambda: daemon.api.row("d")["acknowledged"], "it has its place again")
        assert row["seq"] == reader.position["seq"]  # the stored position is the reader's position
        reader.step()
    check_complete(reader, server, writing.ids())


@pytest.mark.rotate(1)
@pytest.mark.parametrize("run", RUNS)
def test_killed_in_the_middle_of_a_large_transaction(
    run: int, new_server: NewServer, make_daemon: MakeDaemon, source: Source
) -> None:
    server = new_server(run)
    daemon = new_daemon(make_daemon, source, server)
    daemon.start(kill_at="routed", kill_after=run)
    reader = Reader(daemon, "d").open()
    with load(server, "d") as writing:
        writing.until_written(3)
    with load(server, "d", rows=BIG_ROWS) as big:
        big.until_written(1)
        read_until_killed(reader)
    with load(server, "d") as writing:
        writing.until_written(3)
        daemon.start()
        # The connection also breaks several times within the transaction.
        for _ in range(3):
            kill(server, dumps(server))
            reader.step()
    check_complete(reader, server, writing.ids())
    assert max(len(t.data) for t in reader.transactions) > BIG_ROWS * 200


@pytest.mark.rotate(1)
@pytest.mark.parametrize("run", RUNS)
def test_the_connection_is_cut_in_the_middle_of_large_transactions(
    run: int, new_server: NewServer, make_daemon: MakeDaemon, source: Source
) -> None:
    server = new_server(run)
    daemon = new_daemon(make_daemon, source, server)
    api = daemon.start()
    reader = Reader(daemon, "d").open()
    with load(server, "d", rows=BIG_ROWS) as big:
        for _ in range(4):
            threads = until(lambda: dumps(server), "there is a dump")
            big.until_written(big.written + 1)
            kill(server, threads)
            until_gone(server, set(threads))
    check_complete(reader, server, big.ids())
    assert api.row("d")["state"] == "streaming"


@pytest.mark.rotate(1)
@pytest.mark.parametrize("run", RUNS)
def test_the_server_is_killed_while_it_is_written_to(
    run: int, new_server: NewServer, make_daemon: MakeDaemon, source: Source
) -> None:
    server = new_server(run)
    daemon = new_daemon(make_daemon, source, server)
    daemon.start()
    reader = Reader(daemon, "d").open()
    for _ in range(2):
        with load(server, "d") as writing:
            writing.until_written(20)
            reader.step()
            server.kill()
        server.start()
    with load(server, "d") as writing:
        writing.until_written(5)
    check_complete(reader, server, writing.ids())


def test_a_session_that_was_stored_but_not_answered_fences_the_older_one(
    new_server: NewServer, make_daemon: MakeDaemon, source: Source
) -> None:
    server = new_server(0)
    daemon = new_daemon(make_daemon, source, server)
    daemon.start()
    old = Reader(daemon, "d").open()
    daemon.stop()
    daemon.start(kill_at="begun")
    with pytest.raises((ConnectionError, TimeoutError)):
        Reader(daemon, "d").open()
    daemon.until_killed()
    daemon.start()
    until(lambda: daemon.api.row("d")["state"] == "streaming", "it streams")
    with pytest.raises(Problem) as caught:
        old.step()
    assert (caught.value.status, caught.value.kind) == (409, "SESSION_FENCED")
    assert Reader(daemon, "d").open().session > old.session + 1


def test_a_seek_that_was_killed_before_its_position_was_stored_is_repeated(
    new_server: NewServer, make_daemon: MakeDaemon, source: Source
) -> None:
    """The number of the session, which fences the reader, is stored before the position."""
    server = new_server(0)
    daemon = new_daemon(make_daemon, source, server)
    daemon.start()
    reader = Reader(daemon, "d").open()
    with load(server, "d") as writing:
        writing.until_written(5)
    reader.read_to(server)
    reader.acknowledge()
    former = daemon.api.row("d")["acknowledged"]
    daemon.stop()
    daemon.start(kill_at="begun")
    daemon.api.until_state("d", "streaming")
    with pytest.raises((ConnectionError, TimeoutError)):
        daemon.api.call("d", "seek", to="earliest")
    daemon.until_killed()
    daemon.start()
    daemon.api.until_state("d", "streaming")
    assert daemon.api.row("d")["acknowledged"] == former
    with pytest.raises(Problem) as caught:
        reader.step()
    assert (caught.value.status, caught.value.kind) == (409, "SESSION_FENCED")
    moved = daemon.api.call("d", "seek", to="earliest")["position"]
    assert moved["epoch"] > former["epoch"] and moved["seq"] < former["seq"]
    assert inserted_ids(Reader(daemon, "d").open().read_to(server)) == writing.ids()


def test_an_unacknowledged_range_is_the_same_after_a_restart(
    new_server: NewServer, make_daemon: MakeDaemon, source: Source
) -> None:
    server = new_server(0)
    daemon = new_daemon(make_daemon, source, server)
    api = daemon.start()
    reader = Reader(daemon, "d").open()
    with load(server, "d") as writing:
        writing.until_written(30)
    start, end = reader.position, reader.position
    edges = [start]
    while end["seq"] < tip_seq(server):
        end = api.poll("d", 0, end, max_bytes=2000, wait_ms=5000, markers=True)["end"]
        edges.append(end)
    before = [api.binlog("d", reader.session, start, edge) for edge in edges]
    server.execute("FLUSH BINARY LOGS")
    daemon.restart(kill=True)
    # This call follows the restart at once. The range is not in the queue yet, so the daemon waits until it is.
    assert api.binlog("d", reader.session, start, end) == before[-1]
    assert [api.binlog("d", reader.session, start, edge) for edge in edges] == before
    middle = edges[len(edges) // 2]
    acknowledged = api.call("d", "ack", session=reader.session, position=middle)["acknowledged"]
    assert acknowledged == middle
    daemon.restart(kill=True)
    rest = api.binlog("d", reader.session, middle, end)
    assert transactions(rest) == [t for t in transactions(before[-1]) if t.seq > middle["seq"]]
    with pytest.raises(Problem) as caught:
        api.binlog("d", reader.session, start, middle)
    assert (caught.value.status, caught.value.kind) == (409, "POSITION_UNKNOWN")
    # Ranges after stored positions have the same bytes as before.
    again = [middle]
    while again[-1]["seq"] < end["seq"]:
        answer = api.poll("d", 0, again[-1], max_bytes=2000, wait_ms=5000, markers=True)
        again.append(answer["end"])
    handed_out = {Position.from_dict(edge).to_json() for edge in edges}
    assert {Position.from_dict(edge).to_json() for edge in again[:-1]} <= handed_out


def test_a_reader_goes_on_when_the_stored_state_is_older_or_newer_than_its_checkpoint(
    new_server: NewServer, make_daemon: MakeDaemon, source: Source
) -> None:
    server = new_server(0)
    daemon = new_daemon(make_daemon, source, server)
    daemon.start()
    reader = Reader(daemon, "d").open()
    with load(server, "d") as writing:
        writing.until_written(5)
        reader.read_to(server)
        first = dict(reader.position)
        daemon.stop()
        saved = daemon.folder / "older.db"
        shutil.copy(daemon.folder / "state.db", saved)
        daemon.start()
        writing.until_written(writing.written + 5)
    reader.read_to(server)
    ids = writing.ids()
    assert inserted_ids(reader) == ids
    last = dict(reader.position)

    # The daemon's state is older than the reader's checkpoint.
    daemon.stop()
    shutil.copy(saved, daemon.folder / "state.db")
    daemon.start()
    reader.open(last)
    with load(server, "d") as writing:
        writing.until_written(5)
    reader.read_to(server)
    assert inserted_ids(reader) == writing.ids()

    # The reader's checkpoint is older than the daemon's state: the daemon delivers everything after the checkpoint
    # again.
    again = Reader(daemon, "d").open(first)
    again.read_to(server)
    seqs = [t.seq for t in reader.transactions if t.seq > first["seq"]]
    assert [t.seq for t in again.transactions] == seqs
    check_complete(again, server, inserted_ids(again))
