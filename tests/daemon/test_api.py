"""The calls of a reader, and the problem documents with which the daemon refuses wrong calls."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dispatcher.api.answers.models import POLL_MAX_MS
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import PASSWORD, Api, Daemon, Json, Problem, Reader, tip_seq, until
from tests.servers import Server
from tests.servers.plugin import ServerFactory

COLUMNS = [
    "binlog_client_name",
    "name",
    "mysql_binlog_name",
    "mysql_binlog_pos",
    "mysql_binlog_timestamp",
    "mysql_binlog_executed_gtid_set",
    "dispatcher_name",
    "dispatcher_mysql_binlog_name",
    "dispatcher_mysql_binlog_pos",
    "dispatcher_mysql_binlog_timestamp",
    "dispatcher_mysql_binlog_executed_gtid_set",
    "size",
    "bytes",
    "max_bytes",
    "max_waiting_ms",
    "dispatcher_events_read_per_sec",
    "dispatcher_bytes_read_per_sec",
    "dispatcher_events_flush_per_sec",
    "dispatcher_bytes_flush_per_sec",
]
EXTRAS = [
    "state",
    "lag_seconds",
    "lag_bytes",
    "unacknowledged_bytes",
    "acknowledged",
    "covered",
    "runway_seconds",
    "detaches",
    "gaps",
    "spilled_bytes",
    "last_error",
    "last_error_kind",
    "last_error_remedy",
    "state_store_error",
    "state_store_remedy",
    "declared_by",
    "warnings",
    "reader",
    "reader_address",
    "reader_user_agent",
    "session",
    "session_age_seconds",
    "poll_age_seconds",
    "acknowledgement_age_seconds",
    "delivered_transactions",
    "delivered_bytes",
    "delivered_transactions_per_sec",
    "delivered_bytes_per_sec",
]
KEYS = ["server", "gtid", "file", "offset", "seq", "epoch"]


@pytest.fixture(scope="module")
def database(mysql97: Server) -> Iterator[str]:
    name = f"api_{id(mysql97) % 10**6}"
    mysql97.execute(
        f"CREATE DATABASE {name}",
        f"CREATE DATABASE {name}_quiet",
        f"CREATE TABLE {name}.t (id INT UNSIGNED AUTO_INCREMENT, v VARCHAR(9) NOT NULL, k BIGINT,"
        " e ENUM('a','b'), PRIMARY KEY (v, id), KEY (id)) CHARACTER SET latin1",
        f"CREATE TABLE {name}_quiet.t (id INT PRIMARY KEY)",
    )
    yield name
    mysql97.execute(f"DROP DATABASE {name}", f"DROP DATABASE {name}_quiet")


@pytest.fixture(scope="module")
def daemon(
    mysql97: Server, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    user = f"api{id(mysql97) % 10**6}"
    mysql97.add_user(user, PASSWORD)
    address = f"{user}@{mysql97.host}:{mysql97.port}"
    common = {"mysql": address, "password": PASSWORD}
    busy = {**common, "databases": [database]}
    quiet = {**common, "databases": [f"{database}_quiet"]}
    consumers = {
        "busy": busy,
        "other": busy,
        "quiet": {**quiet, "max_seconds_between_markers": 3600},
        "told": {**quiet, "max_seconds_between_markers": 1},
    }
    running = Daemon(tmp_path_factory.mktemp("daemon"), {"consumers": consumers})
    running.start()
    yield running
    running.stop()
    running.close()
    mysql97.execute(f"DROP USER {user}")


@pytest.fixture
def insert(mysql97: Server, database: str) -> Any:
    def write(times: int = 1) -> None:
        for _ in range(times):
            mysql97.execute(f"INSERT INTO {database}.t (v) VALUES ('v')")

    return write


@dataclass
class Refused:
    """Contains the problem that a call has raised."""

    problem: Problem | None = None


@contextmanager
def refused(status: int, kind: str) -> Iterator[Refused]:
    """A context in which a call must raise this problem."""
    found = Refused()
    try:
        yield found
    except Problem as problem:
        found.problem = problem
    seen = found.problem
    assert seen is not None, "nothing was refused"
    assert (seen.status, seen.kind) == (status, kind), seen.body
    assert sorted(seen.body) == ["detail", "hint", "kind", "status", "title", "type"]
    assert seen.body["hint"] and seen.body["detail"] and seen.body["status"] == status
    assert seen.headers["Content-Type"] == "application/problem+json"
    assert seen.headers["Retry-After"] == ("1" if status == 503 else None)


def test_a_newer_session_fences_the_older_one(daemon: Daemon, mysql97: Server, insert: Any) -> None:
    api = daemon.api
    old = Reader(daemon, "busy").open()
    insert()
    old.read_to(mysql97)
    fenced: list[Problem] = []

    def wait() -> None:
        try:
            api.poll("busy", old.session, old.position, wait_ms=30_000)
        except Problem as problem:
            fenced.append(problem)

    waiting = threading.Thread(target=wait)
    waiting.start()
    new = Reader(daemon, "busy").open()
    assert new.session > old.session
    assert new.position["seq"] >= old.position["seq"]
    waiting.join(10)  # the daemon answers a waiting poll at once
    assert [problem.kind for problem in fenced] == ["SESSION_FENCED"]
    for name, more in (
        ("poll", {"after": old.position}),
        ("ack", {"position": old.position}),
        ("binlog", {"start": old.position, "end": old.position}),
        ("slices", {"start": old.position, "end": old.position, "n": 2}),
    ):
        with refused(409, "SESSION_FENCED"):
            api.call("busy", name, session=old.session, **more)
    with refused(409, "SESSION_FENCED"):
        api.poll("busy", new.session + 1, new.position)
    insert()
    new.read_to(mysql97)
    assert len(new.transactions) == 1


def test_a_read_only_session_fences_no_session_and_acknowledges_nothing(
    daemon: Daemon, mysql97: Server, insert: Any
) -> None:
    api = daemon.api
    reader = Reader(daemon, "busy").open().read_to(mysql97)
    insert(3)
    looking = api.session("busy", read_only=True)
    assert looking["session"] == 0
    position = looking["position"]
    while position["seq"] < tip_seq(mysql97):
        position = api.poll("busy", 0, position, max_bytes=1, wait_ms=5000)["end"]
    assert api.row("busy")["acknowledged"]["seq"] == reader.position["seq"]
    with refused(409, "SESSION_FENCED"):
        api.call("busy", "ack", session=0, position=position)
    assert api.binlog("busy", 0, looking["position"], position)
    reader.read_to(mysql97)
    assert len(reader.transactions) == 3


def test_positions_are_checked(daemon: Daemon, mysql97: Server, insert: Any) -> None:
    api = daemon.api
    reader = Reader(daemon, "busy").open()
    insert(4)
    reader.read_to(mysql97)
    position = dict(reader.position)
    assert list(position) == KEYS
    uuid = position["server"]
    wrong = [
        {**position, "epoch": position["epoch"] + 1},
        {**position, "seq": position["seq"] - 1},
        {**position, "gtid": f"{uuid}:1-{position['seq'] + 5}"},
        {**position, "gtid": f"11111111-1111-1111-1111-111111111111:1-{position['seq']}"},
        {**position, "gtid": ""},
    ]
    for bad in wrong:
        with refused(409, "POSITION_UNKNOWN"):
            api.poll("busy", reader.session, bad)
        with refused(409, "POSITION_UNKNOWN"):
            api.call("busy", "ack", session=reader.session, position=bad)
    older = {**position, "gtid": f"{uuid}:1-{position['seq'] - 1}", "seq": position["seq"] - 1}
    with refused(409, "POSITION_UNKNOWN"):
        api.binlog("busy", reader.session, older, position)
    with refused(409, "POSITION_UNKNOWN"):
        api.session("busy", wrong[0])
    malformed: list[Any] = [
        {**position, "gtid": "nonsense"},
        {**position, "more": 1},
        {key: position[key] for key in KEYS[:-1]},
        {**position, "seq": str(position["seq"])},
        {**position, "seq": -1},
        {**position, "offset": True},
        None,
        "latest",
    ]
    for bad in malformed:
        with refused(422, "REQUEST"):
            api.poll("busy", reader.session, bad)
    with refused(400, "REQUEST"):
        api.raw("POST", "/v1/consumers/busy/poll", b"{not json")
    with refused(422, "REQUEST"):
        api.poll("busy", reader.session, position, wait_ms=10**9)
    # Nothing has changed, and no session was fenced.
    insert()
    reader.read_to(mysql97)
    assert api.row("busy")["acknowledged"] == reader.position


def answered_early(api: Api, reader: Reader, then: Callable[[], object]) -> Json:
    """Begin a poll that may wait for `POLL_MAX_MS`, and then call `then`. Returns the answer, which must come before
    that time is over."""
    with ThreadPoolExecutor(1) as pool:
        poll = partial(api.poll, reader.consumer, reader.session, reader.position)
        answer = pool.submit(poll, wait_ms=POLL_MAX_MS)
        then()
        until(answer.done, "the poll is answered", timeout_s=POLL_MAX_MS / 1000 - 10)
        return answer.result()


def test_a_long_poll_wakes_when_data_comes(daemon: Daemon, mysql97: Server, insert: Any) -> None:
    api = daemon.api
    reader = Reader(daemon, "busy").open().read_to(mysql97)
    for _ in range(5):
        answer = answered_early(api, reader, then=insert)
        assert answer["transactions"] == 1
        assert answer["bytes"] > 0
        assert answer["head"]["seq"] >= answer["end"]["seq"]
        reader.position = answer["end"]


def test_a_stop_waits_for_no_long_poll(
    mysql97: Server, database: str, make_daemon: MakeDaemon, source: Source
) -> None:
    daemon = make_daemon({"d": source(mysql97, database)})
    daemon.start()
    reader = Reader(daemon, "d").open()
    poll = {"session": reader.session, "after": reader.position, "wait_ms": 60_000}
    with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=70)) as connection:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/consumers/d/poll", json.dumps(poll), headers)
        for _ in range(3):  # until the daemon has handled everything that was logged before
            assert daemon.api.text("/livez") == "ok\n"
        daemon.stop()
        assert "the shutdown took more than" not in daemon.log
        assert json.loads(connection.getresponse().read())["end"] == reader.position


def test_a_quiet_consumer_moves_on_and_its_reader_gets_few_markers(
    daemon: Daemon, mysql97: Server, insert: Any
) -> None:
    api = daemon.api
    reader = Reader(daemon, "quiet").open()
    began = dict(reader.position)
    insert(3)
    tip = tip_seq(mysql97)
    row = until(lambda: (r := api.row("quiet"))["covered"]["seq"] >= tip and r, "it is covered")
    assert isinstance(row, dict)
    assert row["acknowledged"]["seq"] <= began["seq"]
    until(lambda: daemon.stored("quiet")["covered"]["seq"] >= tip, "that is stored")
    answer = api.poll("quiet", reader.session, reader.position, wait_ms=300)
    assert (answer["end"], answer["transactions"], answer["bytes"]) == (reader.position, 0, 0)
    answer = api.poll("quiet", reader.session, reader.position, wait_ms=5000, markers=True)
    assert answer["end"]["seq"] >= tip
    assert (answer["transactions"], answer["bytes"]) == (0, 0)
    assert api.call("quiet", "ack", session=reader.session, position=answer["end"])
    assert daemon.stored("quiet")["acknowledged"] == answer["end"]
    # Between the two positions there are only markers, so a reader that continues at its old position gets the same
    # end.
    assert api.session("quiet", read_only=True)["head"]["seq"] >= tip

    told = Reader(daemon, "told").open()
    answer = answered_early(api, told, then=insert)
    assert answer["end"]["seq"] > told.position["seq"]
    assert answer["transactions"] == 0
    insert()
    started = time.monotonic()
    answer = api.poll("told", told.session, answer["end"], wait_ms=20_000)
    assert answer["transactions"] == 0
    assert time.monotonic() - started > 0.5


def test_the_head_is_the_servers_tip(daemon: Daemon, mysql97: Server, insert: Any) -> None:
    insert(2)
    for name in ("busy", "quiet"):
        head = daemon.api.session(name, read_only=True)["head"]
        assert head["seq"] == tip_seq(mysql97)
        assert (head["file"], head["offset"]) == mysql97.binlog_position()


def test_binlogs_lists_every_consumer(daemon: Daemon, mysql97: Server, insert: Any) -> None:
    api = daemon.api
    reader = Reader(daemon, "busy").open().read_to(mysql97)
    insert(2)
    tip = tip_seq(mysql97)
    row = until(
        lambda: (r := api.row("busy")) and r["size"] and r["covered"] and r, "data is queued"
    )
    assert isinstance(row, dict)
    assert sorted(row) == sorted(COLUMNS + EXTRAS)
    assert list(row)[:19] == COLUMNS
    assert row["binlog_client_name"].endswith(f":{mysql97.port}")
    assert PASSWORD not in api.text("/v1/binlogs")
    assert (row["state"], row["last_error"]) == ("streaming", None)
    assert 0 < row["unacknowledged_bytes"] <= row["bytes"] <= row["max_bytes"] == 64 << 20
    assert 0 <= row["lag_seconds"] < 60
    until(lambda: api.row("busy")["size"] >= 10, "both are queued")
    reader.read_to(mysql97)
    row = api.row("busy")
    assert (row["size"], row["unacknowledged_bytes"], row["lag_seconds"]) == (0, 0, 0)
    assert row["acknowledged"]["seq"] == tip
    file, offset = mysql97.binlog_position()
    assert (row["mysql_binlog_name"], row["mysql_binlog_pos"]) == (file, offset)
    assert (row["dispatcher_mysql_binlog_name"], row["dispatcher_mysql_binlog_pos"]) == (
        file,
        offset,
    )


def test_tables_tell_columns_and_key(daemon: Daemon, database: str) -> None:
    api = daemon.api
    assert api.get(f"/v1/consumers/busy/tables/{database}.t") == {
        "database": database,
        "table": "t",
        "columns": [
            {"name": "id", "mysql_type": "int unsigned", "nullable": False, "charset": None},
            {"name": "v", "mysql_type": "varchar(9)", "nullable": False, "charset": "latin1"},
            {"name": "k", "mysql_type": "bigint", "nullable": True, "charset": None},
            {"name": "e", "mysql_type": "enum('a','b')", "nullable": True, "charset": "latin1"},
        ],
        "key": ["v", "id"],
    }
    with refused(422, "REQUEST"):
        api.get("/v1/consumers/busy/tables/t")
    for unknown in ("mysql.user", f"{database}.none"):
        with refused(404, "UNKNOWN_TABLE"):
            api.get(f"/v1/consumers/busy/tables/{unknown}")


def test_an_unknown_consumer_is_404(daemon: Daemon) -> None:
    with refused(404, "UNKNOWN_CONSUMER"):
        daemon.api.session("unknown")
    with refused(404, "UNKNOWN_CONSUMER"):
        daemon.api.get("/v1/consumers/unknown/tables/a.b")


def test_tokens_open_their_consumers_only(
    mysql97: Server, database: str, make_daemon: MakeDaemon, source: Source
) -> None:
    one, everything = "token-of-consumer-one", "token-of-everything"
    consumers = {"one": source(mysql97, database), "two": source(mysql97, database)}
    tokens = [
        {"token": one, "consumers": ["one"]},
        {"token": everything, "consumers": "all"},
    ]
    daemon = make_daemon(consumers, api={"tokens": tokens})
    port = daemon.start().port
    anonymous, scoped, full = Api(port), Api(port, one), Api(port, everything)
    with refused(401, "UNAUTHORIZED") as seen:
        anonymous.session("one")
    assert seen.problem and seen.problem.headers["WWW-Authenticate"] == "Bearer"
    for api in (anonymous, Api(port, "wrong"), Api(port, one + "x")):
        with refused(401, "UNAUTHORIZED"):
            api.rows()
        with refused(401, "UNAUTHORIZED"):
            api.session("unknown")
    assert scoped.session("one")["session"]
    with refused(404, "UNKNOWN_CONSUMER"):
        scoped.session("two")
    assert sorted(scoped.rows()) == ["one"]
    assert full.session("two")["session"]
    assert sorted(full.rows()) == ["one", "two"]
    assert anonymous.text("/livez") == "ok\n"
    assert one not in daemon.log


def test_a_server_that_is_down_delays_no_other_consumer(
    mysql97: Server,
    database: str,
    server_factory: ServerFactory,
    make_daemon: MakeDaemon,
    source: Source,
    insert: Any,
    tmp_path: Path,
) -> None:
    server = server_factory("mariadb1011")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    late = source(server, "d")
    server.stop()
    daemon = make_daemon({"up": source(mysql97, database), "late": late})
    api = daemon.start()
    reader = Reader(daemon, "up").open()
    insert()
    assert len(reader.read_to(mysql97).transactions) == 1
    row = api.until_state("late", "connecting")
    until(lambda: api.row("late")["last_error"], "the consumer has an error")
    row = api.row("late")
    assert "cannot connect" in row["last_error"]
    assert row["acknowledged"] is None
    assert api.text("/livez") == "ok\n"
    assert api.text("/readyz") == "ok\n"
    verbose = api.text("/readyz?verbose")
    assert "late: connecting: cannot connect" in verbose
    assert "up" not in verbose.replace("late", "").split("connect")[0]
    assert 'consumer="late"' in api.text("/metrics")
    # The server starts, and the daemon connects to it by itself.
    server.start()
    api.until_state("late", "streaming")
    second = Reader(daemon, "late").open()
    server.execute("INSERT INTO d.t VALUES (1)")
    assert len(second.read_to(server).transactions) == 1
    until(lambda: api.row("late")["lag_seconds"] == 0, "all is acknowledged")
    # When the server stops, its consumer's reader waits, and then gets the reason. The reader of the other server is
    # not affected.
    server.stop()
    api.until_state("late", "connecting")
    until(lambda: api.row("late")["lag_seconds"] > 1, "the lag grows without the server")
    answer = api.poll("late", second.session, second.position, wait_ms=100)
    assert answer["end"] == second.position
    insert()
    assert len(reader.read_to(mysql97).transactions) == 2
    assert api.text("/readyz") == "ok\n"
    server.start()
    api.until_state("late", "streaming")
    until(lambda: api.row("late")["lag_seconds"] == 0, "the end of the log is reached")
