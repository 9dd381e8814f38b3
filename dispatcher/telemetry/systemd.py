"""Reports to the service manager that the daemon is ready, reloads or stops, and that its event loop runs. Also sends
its status in one line.

The protocol is that of sd_notify(3): one datagram per message to the socket whose name is in `NOTIFY_SOCKET`. Without
that variable nothing is sent. If the service manager cannot be reached, the daemon logs this once, and continues.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping

import structlog

from dispatcher.model.printable import printable

STATUS_EVERY_S = 5.0
_NAMED_MAX = 5  # how many failed consumers the status lists by name


class ServiceManager:
    """The service manager that started the process, or none."""

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        """Read the variables of the service manager, and remove them, so that no child process uses them."""
        variables = os.environ if environment is None else environment
        address = variables.pop("NOTIFY_SOCKET", "")
        watchdog_us = variables.pop("WATCHDOG_USEC", "")
        watched_pid = variables.pop("WATCHDOG_PID", str(os.getpid()))
        # A name that begins with @ belongs to the abstract namespace of Linux.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        watched = bool(address) and watchdog_us.isdigit() and watched_pid == str(os.getpid())
        self.watchdog_s = int(watchdog_us) / 1e6 if watched else 0.0  # 0: there is no watchdog
        self._status = ""
        self._reported = False

    def status(self, text: str) -> None:
        """Show a line of text in `systemctl status`. Line feeds are escaped, because the protocol reads each line as an
        assignment of its own."""
        text = printable(text)
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def ready(self) -> None:
        """Report that the daemon has started, or has finished a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        self._send(
            f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"
        )

    def stopping(self) -> None:
        self._send("STOPPING=1")

    async def keep_informed(self, status: Callable[[], str]) -> None:
        """Send the status, and feed the watchdog, for as long as the event loop runs this task.

        Nothing else feeds the watchdog: if the loop is stuck, the manager ends and restarts the daemon.
        """
        if not self._address:
            return
        every_s = min(STATUS_EVERY_S, self.watchdog_s / 2 or STATUS_EVERY_S)
        while True:
            self.status(status())
            if self.watchdog_s:
                self._send("WATCHDOG=1")
            await asyncio.sleep(every_s)

    def _send(self, message: str) -> None:
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, kind) as sender:
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            if not self._reported:
                self._reported = True
                log = structlog.get_logger("dispatcher")
                log.warning("service manager not reached", error=str(error))


def states_in_words(states: Iterable[tuple[str, str]]) -> str:
    """Returns a text such as `3 consumers: 2 streaming, 1 failed (shop)`. `states`: pairs of consumer and state."""
    states = list(states)
    counts = Counter(state for _, state in states)
    failed = [name for name, state in states if state == "failed"]
    named = ", ".join(failed[:_NAMED_MAX]) + (", …" if len(failed) > _NAMED_MAX else "")
    parts = [
        f"{count} {state}" + (f" ({named})" if state == "failed" else "")
        for state, count in counts.most_common()
    ]
    return f"{len(states)} consumer{'' if len(states) == 1 else 's'}: {', '.join(parts)}"
