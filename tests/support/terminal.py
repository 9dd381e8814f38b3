"""Runs a program on a pseudo terminal. A test reads the terminal's screen."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyte
from pyte.screens import Char

INTERRUPT = b"\x03"  # Ctrl-C


@dataclass
class Terminal:
    """A terminal. `process`: the program whose controlling terminal this is."""

    process: subprocess.Popen[bytes]
    main: int
    screen: pyte.Screen
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self) -> None:
        """Draw the program's output on the screen, until the program has closed the terminal."""
        stream = pyte.ByteStream(self.screen)
        while True:
            try:
                data = os.read(self.main, 1 << 16)
            except OSError:  # on Linux, this means that the last process has closed the terminal
                return
            with self._lock:
                stream.feed(data)

    def lines(self) -> list[str]:
        """Returns the lines of the screen, without spaces at their ends."""
        with self._lock:
            return [line.rstrip() for line in self.screen.display]

    def cells(self) -> list[list[Char]]:
        """Returns the characters of each line with their colours, without what was never written at the ends."""
        with self._lock:
            rows = [self.screen.buffer[number] for number in range(self.screen.lines)]
            lines = [[row[column] for column in range(max(row, default=-1) + 1)] for row in rows]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def colour(self, text: str) -> str:
        """Returns the colour of the first letter of a text, where the text first occurs on the screen; "" if it does
        not occur."""
        with self._lock:
            for row, line in enumerate(self.screen.display):
                if (column := line.find(text)) >= 0:
                    return str(self.screen.buffer[row][column].fg)
        return ""

    def type(self, keys: bytes) -> None:
        os.write(self.main, keys)


@contextmanager
def on_terminal(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    columns: int = 120,
    lines: int = 24,
) -> Iterator[Terminal]:
    """Run a command on a terminal of this size. At the end, the command is killed if it still runs."""
    main, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (lines, columns))
    environment = {**environment, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(
        ["setsid", "--ctty", *command],  # so that keys such as Ctrl-C send signals to the program
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
        cwd=folder,
    )
    os.close(terminal)
    shown = Terminal(process, main, pyte.Screen(columns, lines))
    reader = threading.Thread(target=shown.follow)
    reader.start()
    try:
        yield shown
    finally:
        with suppress(ProcessLookupError):  # the program and all its child processes have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        reader.join()
        os.close(main)
