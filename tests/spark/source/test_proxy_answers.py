"""A proxy before the daemon answers in place of it: 502 and 504, and 503 without a problem document. The readers ask
again, as after a lost connection."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.source.http.client import ConsumerClient
from spark_sink.source.http.endpoint import DaemonEndpoint
from tests.daemon.harness import until
from tests.support.fake_daemon import (
    Answer,
    FakeDaemon,
    Listener,
    fake_daemon,
    listening,
    position,
    problem,
)

PAGE = b"<html><body>Bad Gateway</body></html>"
STATUSES = (502, 503, 504)
READER = Path(__file__).parents[3] / "examples/reader.py"


class Asking:
    """A client whose clock advances only when it sleeps."""

    def __init__(self, *urls: str, retry_timeout_s: float = 60.0) -> None:
        self.slept: list[float] = []
        self.client = ConsumerClient(
            DaemonEndpoint(",".join(urls), retry_timeout_s=retry_timeout_s),
            "shop",
            sleep=self.slept.append,
            clock=lambda: sum(self.slept),
            jitter=lambda: 1.0,
        )


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with fake_daemon() as daemon:
        yield daemon


@pytest.fixture
def asking(daemon: FakeDaemon) -> Iterator[Asking]:
    asking = Asking(daemon.url)
    yield asking
    asking.client.close()


@pytest.mark.parametrize("status", STATUSES)
def test_the_client_asks_again(daemon: FakeDaemon, asking: Asking, status: int) -> None:
    daemon.faults["session"] = [Answer(status, PAGE)] * 2
    daemon.faults["poll"] = [Answer(status)]
    assert asking.client.open_session(None).number == 1
    asking.client.poll(1, position(0), max_bytes=None, wait_ms=0)
    assert asking.slept == [0.1, 0.2, 0.1]


def test_the_client_waits_as_long_as_the_proxy_says(daemon: FakeDaemon, asking: Asking) -> None:
    daemon.faults["session"] = [Answer(502, PAGE, {"Retry-After": "7"})]
    assert asking.client.open_session(None).number == 1
    assert asking.slept == [7.0]


def test_a_problem_document_of_a_proxy_is_no_answer_of_the_daemon(
    daemon: FakeDaemon, asking: Asking
) -> None:
    daemon.faults["session"] = [problem(504, ErrorKind.INTERNAL, "upstream request timeout")]
    assert asking.client.open_session(None).number == 1


@pytest.mark.parametrize("status", STATUSES)
def test_the_client_gives_up_after_the_retry_timeout(
    daemon: FakeDaemon, asking: Asking, status: int
) -> None:
    daemon.faults["session"] = [Answer(status, PAGE)] * 100
    with pytest.raises(BinlogError) as caught:
        asking.client.open_session(None)
    assert caught.value.kind is ErrorKind.CONNECT_FAILED
    assert f"a proxy answered with HTTP status {status} in place of the daemon" in str(caught.value)
    assert daemon.url in str(caught.value)
    assert "check that the proxy reaches binlog-dispatcher" in str(caught.value)
    assert 50 < sum(asking.slept) <= 60


@pytest.mark.parametrize("status", STATUSES)
def test_the_next_address_is_asked_at_once(daemon: FakeDaemon, status: int) -> None:
    with listening(FakeDaemon()) as proxy:
        proxy.standby = Answer(status, PAGE)
        asking = Asking(proxy.url, daemon.url)
        session = asking.client.open_session(None).number
        asking.client.poll(session, position(0), max_bytes=None, wait_ms=0)
        asking.client.close()
        assert [call for call, _ in proxy.received] == ["session"]
    assert (asking.slept, [call for call, _ in daemon.calls]) == ([], ["session", "poll"])


def test_the_error_names_what_each_address_has_answered(daemon: FakeDaemon) -> None:
    daemon.faults["session"] = [problem(503, ErrorKind.RANGE_UNAVAILABLE, "still reading")] * 100
    with listening(FakeDaemon()) as proxy:
        proxy.standby = Answer(502, PAGE)
        asking = Asking(proxy.url, daemon.url, retry_timeout_s=5)
        with pytest.raises(BinlogError) as caught:
            asking.client.open_session(None)
        asking.client.close()
    assert caught.value.kind is ErrorKind.RANGE_UNAVAILABLE
    assert f"{proxy.url}: a proxy answered with HTTP status 502" in str(caught.value)
    assert f"{daemon.url}: still reading" in str(caught.value)


def run_reader(listener: Listener, answers: int, folder: Path) -> tuple[int | None, str]:
    """Run the example until the listener has received so many requests. Returns its exit code, None if it still runs,
    and what it has said."""
    command = [sys.executable, str(READER), listener.url, "shop", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(
            lambda: len(listener.received) >= answers or process.poll() is not None,
            "the example has asked so often",
        )
        code = process.poll()
        process.kill()
        _, said = process.communicate()
    return code, said


@pytest.mark.parametrize(
    "answer", [Answer(502, PAGE), Answer(504), Answer(503, PAGE), Answer(cut=True)]
)
def test_the_example_asks_again(tmp_path: Path, answer: Answer) -> None:
    daemon = FakeDaemon()
    daemon.faults["session"] = [answer]
    with listening(daemon) as listener:
        code, said = run_reader(listener, 2, tmp_path)
    assert code is None, said
    assert said.startswith(f"waiting 1 s: {listener.url}: ")
    assert "Traceback" not in said.split("waiting")[1]


def test_the_example_ends_at_a_final_answer_that_is_not_the_daemon_s(tmp_path: Path) -> None:
    daemon = FakeDaemon()
    daemon.faults["session"] = [Answer(404, PAGE)]
    with listening(daemon) as listener:
        code, said = run_reader(listener, 2, tmp_path)
    assert (code, said) == (1, "HTTP status 404 of another program than the daemon\n")
