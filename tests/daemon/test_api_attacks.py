"""A client that attacks the API must not disturb other clients: the daemon continues to deliver to them, `/livez`
answers within a second, and memory stays within limits.

All tests share one daemon with small limits. During each attack, a reader reads its consumer `other`.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any

import pytest

from tests.daemon.harness import PASSWORD, Api, Daemon, Json, Problem, Reader, until
from tests.daemon.watch import Watch, watched
from tests.servers import Server

TOKEN = "token-of-all-the-consumers"
VIEWER = "token-that-only-reads-them"
MIB = 1 << 20
CONNECTIONS_MAX = 150
POLLS_MAX = 10
QUEUE = 8 * MIB
TIMEOUT_S = 3
GROWTH_MAX = 48 * MIB  # of resident memory; each attack sends or requests much more than this


@pytest.fixture(scope="module")
def database(mysql97: Server) -> Iterator[str]:
    name = f"attack_{id(mysql97) % 10**6}"
    mysql97.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (id INT AUTO_INCREMENT PRIMARY KEY, data LONGBLOB)",
        f"CREATE DATABASE {name}_other",
        f"CREATE TABLE {name}_other.t (id INT AUTO_INCREMENT PRIMARY KEY)",
    )
    yield name
    mysql97.execute(f"DROP DATABASE {name}", f"DROP DATABASE {name}_other")


@pytest.fixture(scope="module")
def daemon(
    mysql97: Server, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon]:
    user = f"attack{id(mysql97) % 10**6}"
    mysql97.add_user(user, PASSWORD)
    common = {"mysql": f"{user}@{mysql97.host}:{mysql97.port}", "password": PASSWORD}
    attacked = {**common, "databases": [database], "max_bytes_in_binlog_queue": QUEUE}
    other = {**common, "databases": [f"{database}_other"]}
    limits = {
        "max_connections": CONNECTIONS_MAX,
        "max_polls_per_consumer": POLLS_MAX,
        "header_timeout_seconds": TIMEOUT_S,
        "body_timeout_seconds": TIMEOUT_S,
        "write_timeout_seconds": TIMEOUT_S,
    }
    tokens = [
        {"token": TOKEN, "consumers": "all"},
        {"token": VIEWER, "consumers": "all", "scopes": ["read"]},
    ]
    settings = {
        "consumers": {"attacked": attacked, "other": other},
        "api": {**limits, "tokens": tokens},
    }
    running = Daemon(tmp_path_factory.mktemp("daemon"), settings)
    running.token = TOKEN
    running.start()
    for name in settings["consumers"]:
        running.api.until_state(name, "streaming")
    yield running
    running.stop()
    running.close()
    mysql97.execute(f"DROP USER {user}")


@pytest.fixture
def watch(daemon: Daemon, mysql97: Server, database: str) -> Iterator[Watch]:
    """While the test runs, read the consumer `other` and call `/livez`. At the end, assert that the attack has delayed
    neither."""

    def read(watch: Watch) -> None:
        reader = Reader(daemon, "other").open()
        while not watch.stopping.is_set():
            mysql97.execute(f"INSERT INTO {database}_other.t VALUES ()")
            watch.rows += 1
            until(lambda: reader.step(wait_ms=5000), "the other consumer gets its row")

    with watched(daemon, read, GROWTH_MAX) as seen:
        yield seen


def open_socket(daemon: Daemon) -> socket.socket:
    return socket.create_connection(("127.0.0.1", daemon.port), timeout=20)


def send_until_refused(daemon: Daemon, head: bytes, piece: bytes, pieces: int) -> bytes:
    """Send a request in pieces until all pieces are sent or the daemon closes the connection. Returns the answer."""
    with open_socket(daemon) as connection:
        try:
            connection.sendall(head)
            for _ in range(pieces):
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return received(connection)


def received(connection: socket.socket) -> bytes:
    """Returns the bytes that arrive until the daemon closes the connection."""
    data = b""
    try:
        while more := connection.recv(1 << 16):
            data += more
    except ConnectionResetError:
        pass
    return data


def post(path: str, length: int, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {length}", *headers, "", ""]).encode()


@pytest.mark.parametrize("piece", [b"x", b"[],"], ids=["one text", "empty lists"])
@pytest.mark.parametrize("authorization", [[], [f"Authorization: Bearer {TOKEN}"]])
def test_a_body_of_a_hundred_megabytes_is_refused(
    daemon: Daemon, watch: Watch, piece: bytes, authorization: list[str]
) -> None:
    piece *= MIB // len(piece)
    head = post("/v1/consumers/attacked/session", 100 * len(piece), *authorization)
    answer = send_until_refused(daemon, head, piece, 100)
    assert not answer or answer.split()[1] == (b"413" if authorization else b"401"), answer[:500]


def test_a_header_of_two_hundred_megabytes_is_refused(daemon: Daemon, watch: Watch) -> None:
    answer = send_until_refused(daemon, b"GET /livez HTTP/1.1\r\nX-Long: ", b"x" * MIB, 200)
    assert not answer or answer.split()[1] == b"431", answer[:500]


def test_pipelined_requests_take_no_memory(daemon: Daemon, watch: Watch) -> None:
    with ExitStack() as stack:
        for _ in range(30):
            flooding = stack.enter_context(open_socket(daemon))
            with suppress(BrokenPipeError, ConnectionResetError):  # the daemon disconnects
                flooding.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 7000)
        watch.until_undisturbed()


def test_an_endless_trailer_is_refused(daemon: Daemon, watch: Watch) -> None:
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "
    answer = send_until_refused(daemon, head, b"x" * MIB, 200)
    assert not answer or answer.split()[1] in (b"303", b"404", b"405", b"431"), answer[:500]


def test_too_many_headers_are_refused(daemon: Daemon) -> None:
    head = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 101 + b"\r\n"
    answer = send_until_refused(daemon, head, b"", 0)
    assert answer.startswith(b"HTTP/1.1 431 ") and b'"kind": "REQUEST"' in answer


def test_bytes_that_are_not_http_are_answered_with_a_problem(daemon: Daemon) -> None:
    answer = send_until_refused(daemon, b"\x16\x03\x01 no HTTP\r\n\r\n", b"", 0)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["kind"] == "REQUEST"


def test_half_sent_requests_are_closed_when_connections_run_out(
    daemon: Daemon, watch: Watch
) -> None:
    halves = [
        b"",
        b"GET /livez HTTP/1.1\r\nHost:",
        post("/v1/consumers/attacked/session", 9) + b"{",
    ]
    with ExitStack() as stack:
        half_sent = []
        for n in range(3 * CONNECTIONS_MAX):
            connection = stack.enter_context(open_socket(daemon))
            half_sent.append(connection)
            # The daemon may have to close the connection at once.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(halves[n % 3])
        watch.until_undisturbed()
        until(lambda: all(map(is_closed, half_sent)), "the daemon closes all of them")


def is_closed(connection: socket.socket) -> bool:
    """True if the daemon closes the connection, without an answer or after one."""
    readable, _, _ = select.select([connection], [], [], 0)
    if not readable:
        return False
    try:
        data = connection.recv(1 << 16)
    except ConnectionResetError:
        return True
    return not data or is_closed(connection)


def test_polls_beyond_the_limit_are_asked_to_retry(daemon: Daemon, watch: Watch) -> None:
    api = daemon.api
    opened = api.session("attacked")
    body = {"session": opened["session"], "after": opened["position"], "wait_ms": 4000}

    def poll(_: int) -> tuple[int, str | None]:
        try:
            status, headers, _data = api.request("POST", "/v1/consumers/attacked/poll", body)
        except (ConnectionError, http.client.HTTPException):
            return 0, None
        return status, headers["Retry-After"]

    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(poll, range(300)))
    counts = Counter(status for status, _ in answers)
    assert POLLS_MAX <= counts[200] <= 8 * POLLS_MAX, counts
    assert counts[429] > 100 and set(counts) <= {0, 200, 429, 503}, counts
    assert {after for status, after in answers if status == 429} == {"1"}


def test_a_poll_whose_client_has_gone_makes_room(daemon: Daemon) -> None:
    api = daemon.api
    opened = api.session("attacked")
    body = {"session": opened["session"], "after": opened["position"], "wait_ms": 60_000}
    data = json.dumps(body).encode()
    head = post("/v1/consumers/attacked/poll", len(data), f"Authorization: Bearer {TOKEN}")
    with ExitStack() as stack:
        # The last of these polls takes the slot that is kept for the newest session.
        for _ in range(POLLS_MAX + 1):
            stack.enter_context(open_socket(daemon)).sendall(head + data)
        until(lambda: refused_poll(api, body), "all polls of the session are taken")
    quick = {**body, "wait_ms": 0}
    until(lambda: api.call("attacked", "poll", **quick), "there is room again")


@pytest.mark.parametrize("tokens", [[VIEWER], [VIEWER, TOKEN]], ids=["viewer", "both"])
def test_read_only_polls_leave_one_to_the_reader(daemon: Daemon, tokens: list[str]) -> None:
    opened = daemon.api.session("attacked")
    body = {"session": 0, "after": opened["position"], "wait_ms": 60_000}
    data = json.dumps(body).encode()
    with ExitStack() as stack:
        for token in tokens:
            head = post("/v1/consumers/attacked/poll", len(data), f"Authorization: Bearer {token}")
            for _ in range(POLLS_MAX):
                stack.enter_context(open_socket(daemon)).sendall(head + data)
            viewer = Api(daemon.port, token)
            until(partial(refused_poll, viewer, body), "the token has all the polls it can have")
        daemon.api.poll("attacked", opened["session"], opened["position"], wait_ms=0)


def refused_poll(api: Api, body: Json) -> bool:
    try:
        api.call("attacked", "poll", **{**body, "wait_ms": 0})
    except Problem as problem:
        return problem.status == 429
    return False


def test_unread_answers_are_counted_limited_and_cut(
    daemon: Daemon, watch: Watch, mysql97: Server, database: str
) -> None:
    api = daemon.api
    reader = Reader(daemon, "attacked").open()
    with ExitStack() as stack:
        unread: list[socket.socket] = []

        def answer_and_acknowledge() -> bool:
            """Fetch the answer and acknowledge. Returns False if the daemon refuses the call."""
            mysql97.execute(
                f"INSERT INTO {database}.t (data) VALUES {', '.join(['(REPEAT(0x01, 1000000))'] * 6)}"
            )
            answer = until(lambda: polled(api, reader), "the rows come")
            assert answer is not None
            body = {"session": reader.session, "start": reader.position, "end": answer["end"]}
            connection = stack.enter_context(slow_reader(daemon, body))
            head = connection.recv(200, socket.MSG_PEEK)
            status = int(head.split()[1])
            if status == 429:
                return False
            assert status == 200, head
            unread.append(connection)
            reader.position = answer["end"]
            reader.acknowledge()
            return True

        for _ in range(20):
            if not answer_and_acknowledge():
                break
        else:
            raise AssertionError("it answers without limit")
        assert api.row("attacked")["bytes"] >= QUEUE
        watch.until_undisturbed()
        for connection in unread:
            assert len(received(connection)) < 6_000_000, "it is cut"
    until(lambda: api.row("attacked")["bytes"] < QUEUE, "the memory is given back")
    reader.read_to(mysql97)


def test_unread_answers_of_others_leave_one_to_the_reader(
    daemon: Daemon, mysql97: Server, database: str
) -> None:
    api = daemon.api
    reader = Reader(daemon, "attacked").open()
    row = "(REPEAT(0x01, 1000000))"
    with ExitStack() as stack:
        while True:
            mysql97.execute(f"INSERT INTO {database}.t (data) VALUES {', '.join([row] * 6)}")
            answer = until(lambda: polled(api, reader), "the rows come")
            assert answer is not None
            body = {"session": 0, "start": reader.position, "end": answer["end"]}
            connection = stack.enter_context(slow_reader(daemon, body))
            if connection.recv(200, socket.MSG_PEEK).split()[1] == b"429":
                break
            reader.position = answer["end"]
            reader.acknowledge()
        assert api.binlog("attacked", reader.session, reader.position, answer["end"])
    reader.read_to(mysql97)


def polled(api: Api, reader: Reader) -> Json | None:
    answer = api.poll("attacked", reader.session, reader.position, wait_ms=1000)
    return answer if answer["transactions"] else None


def slow_reader(daemon: Daemon, body: Any) -> socket.socket:
    """Returns a connection that has asked for a range and does not read the answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", daemon.port))
    data = json.dumps(body).encode()
    head = post("/v1/consumers/attacked/binlog", len(data), f"Authorization: Bearer {TOKEN}")
    connection.sendall(head + data)
    return connection


def test_many_table_lookups_share_two_connections(
    daemon: Daemon, watch: Watch, mysql97: Server, database: str
) -> None:
    api = daemon.api
    (base,) = [int(mysql97.execute("SHOW STATUS LIKE 'Threads_connected'")[0][1])]

    def ask(n: int) -> int:
        name = f"{database}.t" if n % 3 else f"{database}.none{n}"
        try:
            return api.request("GET", f"/v1/consumers/attacked/tables/{name}")[0]
        except (ConnectionError, http.client.HTTPException):
            return 0

    most = 0
    with ThreadPoolExecutor(100) as pool:
        asked = [pool.submit(ask, n) for n in range(300)]
        while not all(each.done() for each in asked):
            now = int(mysql97.execute("SHOW STATUS LIKE 'Threads_connected'")[0][1])
            most = max(most, now)
    statuses = Counter(each.result() for each in asked)
    assert statuses[200] >= 100 and set(statuses) <= {0, 200, 404, 429, 503}, statuses
    assert most <= base + 6, "two of the daemon's, and those of this test"


def test_a_web_page_with_dns_rebinding_reaches_nothing(daemon: Daemon) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=20)) as connection:
        headers = {"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}
        connection.request("POST", "/v1/consumers/attacked/session", b"{}", headers)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["kind"]) == (403, "FORBIDDEN")
