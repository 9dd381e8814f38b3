"""The demo's child processes. Each has a log file. When the demo ends a process, it also ends all processes that this
process has started.

Each process leads its own session. So Ctrl-C in a terminal reaches only the demo, and the demo finds all descendants
(Spark's JVM, its Python workers) by their session, whatever their process group is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

POLL_S = 0.05
TAIL_LINES = 25


class DemoFailed(Exception):
    """The demo cannot continue, or a rule was violated. The demo prints the text."""


class Interrupts:
    """Turns the signals that end the demo into KeyboardInterrupt. Between the start of a process and the recording of
    its pid, the class delays the exception, because otherwise the process would keep running."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._held = 0
        self._pending = False

    def install(self) -> None:
        for number in self.SIGNALS:
            signal.signal(number, self._arrived)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay the KeyboardInterrupt of a signal until the end of the block."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self._pending and not self._held:
            self._pending = False
            raise KeyboardInterrupt

    def _arrived(self, *_: object) -> None:
        # A second Ctrl-C must not interrupt the shutdown.
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if self._held:
            self._pending = True
        else:
            raise KeyboardInterrupt


INTERRUPTS = Interrupts()


class DemoProcess:
    """A running process. `name`: for messages, at the beginning of a sentence; `log` is a file in `folder`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.name = name
        self.log = folder / f"{self.label.replace(' ', '-')}.log"
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def label(self) -> str:
        """The name without an article, in small letters."""
        return self.name.lower().removeprefix("the ")

    @property
    def pid(self) -> int:
        return self.process.pid

    def check(self) -> None:
        """Raises DemoFailed if the process has ended."""
        code = self.process.poll()
        if code is not None:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise self.failed(how)

    def failed(self, what: str) -> DemoFailed:
        """The error, with the end of the process's log."""
        return DemoFailed(f"{self.name} {what}\nThe end of its log:\n{tail(self.log)}")

    def kill(self) -> None:
        """Send SIGKILL to the process, as in a crash, and wait until it has ended."""
        self.process.kill()
        self.process.wait()

    def end(self, patience_s: float) -> None:
        """Send SIGTERM to the process. If processes of its session still run after `patience_s`, send them SIGKILL."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and (self.process.poll() is None or of_session(self.pid)):
            time.sleep(POLL_S)
        while left := of_session(self.pid):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.process.poll()
            time.sleep(POLL_S)
        self.process.wait()


def tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(f"  | {line}" for line in lines) or "  | (nothing)"


def of_session(session: int) -> list[int]:
    """The pids of a session's running processes."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # has ended
        # pid (name) state ppid pgrp session ...; the name may contain any character, also brackets. proc(5)
        state, _, _, entry_session = stat.rpartition(")")[2].split()[:4]
        if int(entry_session) == session and state != "Z":
            pids.append(int(entry.name))
    return pids


def resident_bytes(pid: int) -> tuple[int, int]:
    """Resident memory of a process: current and peak. proc(5), VmRSS and VmHWM."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    values = dict(line.split(":", 1) for line in status.splitlines())
    current, peak = (int(values[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))
    return current, peak
