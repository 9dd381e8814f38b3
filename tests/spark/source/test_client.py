"""The daemon's HTTP client: retries, final answers, messages, and the secrecy of the token."""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.position import EventPoint
from spark_sink.source.http.client import ConsumerClient, DeliveredRange, DividedRange, SliceCut
from spark_sink.source.http.endpoint import DaemonEndpoint
from tests.servers.ports import free_port
from tests.support.fake_daemon import Answer, FakeDaemon, fake_daemon, position, problem


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with fake_daemon() as daemon:
        yield daemon


class Clock:
    """A clock that advances only when the client sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


_opened: list[ConsumerClient] = []


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def client_of(
    url: str, clock: Clock, *, retry_timeout_s: float = 600.0, token: str = ""
) -> ConsumerClient:
    return connect(DaemonEndpoint(url, token=token, retry_timeout_s=retry_timeout_s), clock)


def connect(address: DaemonEndpoint, clock: Clock) -> ConsumerClient:
    _opened.append(
        ConsumerClient(address, "shop", sleep=clock.sleep, clock=clock, jitter=lambda: 1.0)
    )
    return _opened[-1]


def test_all_calls_over_one_connection(daemon: FakeDaemon) -> None:
    daemon.preamble = b"head"
    ends = [daemon.add(bytes(10)) for _ in range(4)]
    daemon.tables["shop.orders"] = {"columns": []}
    client = client_of(daemon.url, Clock())
    session = client.open_session(None)
    assert (session.number, session.position, session.head) == (1, position(0), ends[-1])
    polled = client.poll(session.number, position(0), max_bytes=25, wait_ms=0)
    assert (polled.end, polled.bytes, polled.transactions) == (ends[1], 20, 2)
    assert client.slices(1, position(0), ends[3], 2) == DividedRange([SliceCut(ends[1])], 40)
    assert client.binlog(1, SliceCut(ends[0]), SliceCut(ends[3])) == DeliveredRange(
        memoryview(b"head" + bytes(30)), gap=False
    )
    assert client.acknowledge(1, ends[1]) == ends[1]
    assert client.table("shop.orders") == {"columns": []}
    assert client._connection is not None
    client.close()


def test_503_is_retried_after_the_daemons_retry_after(daemon: FakeDaemon) -> None:
    busy = problem(503, ErrorKind.RANGE_UNAVAILABLE, "still reading", Retry_After="7")
    daemon.faults["session"] = [busy, busy]
    clock = Clock()
    assert client_of(daemon.url, clock).open_session(None).number == 1
    assert clock.slept == [7.0, 7.0]


def test_a_long_failure_is_said_and_so_is_its_end(
    daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.faults["session"] = [problem(503, ErrorKind.RANGE_UNAVAILABLE, "still reading")] * 8
    assert client_of(daemon.url, Clock()).open_session(None).number == 1
    began, ended = (record.getMessage() for record in caplog.records)
    assert began.startswith("consumer shop: ") and "still reading" in began
    assert began.endswith("; trying again for 594 s")
    assert ended == "consumer shop: the daemon answers again after 23 s"


def test_a_failure_that_lasts_is_said_every_half_minute(
    daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.faults["session"] = [problem(503, ErrorKind.RANGE_UNAVAILABLE, "still reading")] * 15
    client_of(daemon.url, Clock()).open_session(None)
    lines = [record.getMessage().rpartition("; ")[2] for record in caplog.records]
    assert lines[:-1] == [f"trying again for {rest} s" for rest in (594, 557, 527)]


def test_a_daemon_that_is_gone_is_named_with_a_remedy_of_its_own() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(BinlogError) as caught:
        client_of(url, Clock(), retry_timeout_s=60).open_session(None)
    assert str(caught.value).startswith("cannot connect: the daemon does not answer: Connection r")
    assert caught.value.remedy == "check that the daemon runs, and that url is its address"
    assert f"consumer shop at {url}" in str(caught.value)


def test_backoff_doubles_up_to_ten_seconds_then_gives_up_at_the_deadline(
    daemon: FakeDaemon,
) -> None:
    daemon.faults["session"] = [problem(503, ErrorKind.RANGE_UNAVAILABLE, "still reading")] * 50
    clock = Clock()
    with pytest.raises(BinlogError) as caught:
        client_of(daemon.url, clock, retry_timeout_s=60).open_session(None)
    assert clock.slept[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]
    assert clock.now <= 60
    assert caught.value.kind is ErrorKind.RANGE_UNAVAILABLE
    assert "still reading; gave up after" in str(caught.value)


@pytest.mark.parametrize(
    "fault", [Answer(cut=True), Answer(body=b'{"session": 1', cut=True)], ids=["before", "within"]
)
def test_a_broken_connection_is_retried(daemon: FakeDaemon, fault: Answer) -> None:
    daemon.faults["session"] = [fault, fault]
    assert client_of(daemon.url, Clock()).open_session(None).number == 1


def test_an_idle_connection_that_was_closed_costs_no_wait(daemon: FakeDaemon) -> None:
    clock = Clock()
    client = client_of(daemon.url, clock)
    client.open_session(None)
    daemon.faults["poll"] = [Answer(cut=True)]
    client.poll(1, position(0), max_bytes=None, wait_ms=0)
    assert clock.slept == []


def test_a_refused_connection_is_retried_then_reported() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        clock = Clock()
        with pytest.raises(BinlogError) as caught:
            client_of(url, clock, retry_timeout_s=5).open_session(None)
    assert caught.value.kind is ErrorKind.CONNECT_FAILED
    assert f"consumer shop at {url}" in str(caught.value)
    assert len(clock.slept) > 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ErrorKind.UNAUTHORIZED),
        (404, ErrorKind.UNKNOWN_CONSUMER),
        (409, ErrorKind.SESSION_FENCED),
        (409, ErrorKind.POSITION_UNKNOWN),
        (410, ErrorKind.POSITION_PURGED),
    ],
)
def test_final_answers_raise_at_once_with_the_daemons_message(
    daemon: FakeDaemon, status: int, kind: ErrorKind
) -> None:
    daemon.faults["session"] = [problem(status, kind, "what happened", "what to do")]
    clock = Clock()
    with pytest.raises(BinlogError) as caught:
        client_of(daemon.url, clock).open_session(None)
    assert (caught.value.kind, caught.value.what, caught.value.remedy) == (
        kind,
        "what happened",
        "what to do",
    )
    assert clock.slept == []


def test_a_malformed_request_is_the_users_error(daemon: FakeDaemon) -> None:
    daemon.faults["session"] = [problem(422, ErrorKind.SETTINGS, "after: key 'seq' is missing")]
    with pytest.raises(UserError, match="key 'seq' is missing"):
        client_of(daemon.url, Clock()).open_session(None)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(500, b"<html>"), "HTTP status 500 without a problem document"),
        (Answer(302, b"", {"Location": "http://elsewhere"}), "HTTP status 302"),
        (Answer(200, b"[]"), "is not a JSON object"),
        (Answer(200, b'{"session": "1"}'), "'session' is missing or of the wrong type"),
    ],
)
def test_answers_of_another_program_are_refused(
    daemon: FakeDaemon, answer: Answer, words: str
) -> None:
    daemon.faults["session"] = [answer]
    with pytest.raises(BinlogError, match=words):
        client_of(daemon.url, Clock()).open_session(None)


def test_the_token_is_sent_and_never_shown(daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.token = "secret-1"
    assert client_of(daemon.url, Clock(), token="secret-1").open_session(None).number == 1
    file = tmp_path / "token"
    file.write_text("secret-1\n")
    address = DaemonEndpoint(daemon.url, token_file=str(file))
    assert connect(address, Clock()).open_session(None).number == 2
    file.write_text("secret-2\n")  # a rotated token, which the client reads at its next call
    with pytest.raises(BinlogError) as caught:
        connect(address, Clock()).open_session(None)
    assert "secret" not in str(caught.value)
    shown = DaemonEndpoint(daemon.url, token="secret-1")
    assert "secret" not in repr(shown)
    assert pickle.loads(pickle.dumps(shown)) == shown


@pytest.mark.parametrize(
    "url", ["daemon:8085", "ftp://x", "http://", "http://h/?a=1", "http://user:pw@h:1"]
)
def test_wrong_addresses_are_refused(url: str) -> None:
    with pytest.raises(UserError) as caught:
        DaemonEndpoint(url)
    assert "pw@" not in str(caught.value)


def test_a_missing_token_file_is_reported(tmp_path: Path) -> None:
    address = DaemonEndpoint("http://127.0.0.1:1", token_file=str(tmp_path / "none"))
    with pytest.raises(UserError, match="cannot read the token file"):
        connect(address, Clock()).open_session(None)


def test_importing_the_source_loads_nothing_heavy() -> None:
    code = (
        "import sys, spark_sink.source.data_source; "
        "heavy = {'pydantic', 'pymysql', 'uvicorn', 'asyncio', 'numba', 'pyarrow', 'starlette', 'rich'}; "
        "sys.exit(','.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_range_may_begin_and_end_inside_of_transactions(daemon: FakeDaemon) -> None:
    end = daemon.add(bytes(10))
    client = client_of(daemon.url, Clock())
    session = client.open_session(None).number
    start = SliceCut(position(0), EventPoint(7, 900))
    client.binlog(session, start, SliceCut(end))
    sent = daemon.calls[-1][1]
    assert (sent["start_event"], sent["end_event"]) == ({"index": 7, "offset": 900}, None)
    body = {
        "cuts": [end.as_dict(), end.as_dict()],
        "events": [{"index": 7, "offset": 900}, None],
        "bytes": 10,
    }
    daemon.faults["slices"] = [Answer(body=json.dumps(body).encode())]
    divided = client.slices(session, position(0), end, 3)
    assert divided == DividedRange([SliceCut(end, EventPoint(7, 900)), SliceCut(end)], 10)
    assert daemon.calls[-1][1]["inside"] is True


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "different lengths"),
        ([{"index": 7}], "keys index, offset"),
        ([{"index": 7, "offset": -1}], "keys index, offset"),
        ([{"index": 7, "offset": True}], "keys index, offset"),
        (None, "'events' is missing"),
    ],
)
def test_cuts_that_are_malformed_are_refused(
    daemon: FakeDaemon, events: object, message: str
) -> None:
    end = daemon.add(bytes(10))
    client = client_of(daemon.url, Clock())
    session = client.open_session(None).number
    body = json.dumps({"cuts": [end.as_dict()], "events": events, "bytes": 10})
    daemon.faults["slices"] = [Answer(body=body.encode())]
    with pytest.raises(BinlogError, match=message):
        client.slices(session, position(0), end, 3)
