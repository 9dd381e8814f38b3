"""The messages to the service manager, as sd_notify(3) describes them. Only the event loop feeds the watchdog."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from dispatcher.telemetry.systemd import ServiceManager, states_in_words
from tests.support.hostile_text import HOSTILE, SHOWN


class Receiver:
    """The socket that a service manager listens on."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(10)

    def next(self) -> str:
        return self.socket.recv(4096).decode()

    def waiting(self) -> list[str]:
        """All messages that were sent already."""
        found = []
        self.socket.setblocking(False)
        try:
            while True:
                found.append(self.next())
        except BlockingIOError:
            return found
        finally:
            self.socket.settimeout(10)


@pytest.fixture(params=["path", "abstract"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Receiver]]:
    name = f"@binlog-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    made = Receiver(name.replace("@", "\0") if request.param == "abstract" else name)
    yield name, made
    made.socket.close()


def test_each_message(receiver: tuple[str, Receiver]) -> None:
    name, received = receiver
    environment = {"NOTIFY_SOCKET": name, "OTHER": "stays"}
    manager = ServiceManager(environment)
    assert environment == {"OTHER": "stays"} and manager.watchdog_s == 0
    manager.status("loading")
    manager.status("loading")
    manager.ready()
    before_us = time.monotonic_ns() // 1000
    manager.reloading()
    manager.stopping()
    assert [received.next(), received.next()] == ["STATUS=loading", "READY=1"]
    reloading, _, at_us = received.next().partition("\nMONOTONIC_USEC=")
    assert reloading == "RELOADING=1"
    assert before_us <= int(at_us) <= time.monotonic_ns() // 1000
    assert received.next() == "STOPPING=1"


async def test_without_a_manager_nothing_is_sent() -> None:
    manager = ServiceManager({})
    manager.ready()
    await asyncio.wait_for(manager.keep_informed(lambda: "never asked"), 5)


def test_a_manager_that_is_gone_is_said_once(tmp_path: Path) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    structlog.reset_defaults()
    with capture_logs() as lines:
        manager.ready()
        manager.stopping()
    (line,) = lines
    assert line["event"] == "service manager not reached" and "No such file" in line["error"]


@pytest.mark.parametrize(
    ("variables", "watchdog_s"),
    [
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "1"}, 0),  # for another process
        ({"WATCHDOG_USEC": "soon"}, 0),
    ],
)
def test_the_watchdogs_time(variables: dict[str, str], watchdog_s: float) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "/x", **variables}).watchdog_s == watchdog_s


async def test_a_stuck_loop_feeds_no_watchdog(tmp_path: Path) -> None:
    """A call blocks the loop for five times the watchdog's interval."""
    received = Receiver(str(tmp_path / "notify"))
    received.socket.setblocking(False)
    variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000"}
    manager, loop = ServiceManager(variables), asyncio.get_running_loop()

    async def fed() -> None:
        async with asyncio.timeout(10):
            while await loop.sock_recv(received.socket, 4096) != b"WATCHDOG=1":
                pass

    feeding = loop.create_task(manager.keep_informed(lambda: "1 consumer"))
    for _ in range(3):
        await fed()
    received.waiting()
    time.sleep(0.5)  # noqa: ASYNC251 - this is the defect that a watchdog is for
    assert received.waiting() == []
    received.socket.setblocking(False)
    await fed()
    feeding.cancel()
    received.socket.close()


def test_states_in_words() -> None:
    assert states_in_words([("shop", "streaming")]) == "1 consumer: 1 streaming"
    states = [("a", "streaming"), ("b", "failed"), ("c", "streaming"), ("d", "failed")]
    assert states_in_words(states) == "4 consumers: 2 streaming, 2 failed (b, d)"
    many = [(str(n), "failed") for n in range(7)]
    assert states_in_words(many) == "7 consumers: 7 failed (0, 1, 2, 3, 4, …)"


def test_a_status_is_one_line_whatever_its_text(receiver: tuple[str, Receiver]) -> None:
    """A second line would be another message, such as READY=1."""
    address, manager = receiver
    ServiceManager({"NOTIFY_SOCKET": address}).status(f"{HOSTILE}\nREADY=1")
    assert manager.next() == rf"STATUS={SHOWN}\nREADY=1"
