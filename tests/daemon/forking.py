"""Forks daemons from a process that has imported the daemon. Each test worker has one such process.

Importing the daemon and loading its kernels takes two seconds of a core, and the tests start hundreds of daemons. After
the fork, the process does what the console script does. The tests of the command line and the demo start the console
script itself.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path


@cache
def _context() -> ForkServerContext:
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.daemon.loaded"])
    return context


class Forked:
    """A forked daemon, with those methods of `subprocess.Popen` that tests use."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        assert process.pid is not None
        self.pid: int = process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("the daemon", timeout or 0.0)
        return code

    def send_signal(self, what: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, what)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(arguments: list[str], environment: Mapping[str, str], folder: Path, log: Path) -> Forked:
    """Run the command line with these arguments in a forked process. Its output is appended to `log`."""
    process = _context().Process(
        target=_run, args=(arguments, dict(environment), str(folder), str(log))
    )
    process.start()
    return Forked(process)


def _run(arguments: list[str], environment: dict[str, str], folder: str, log: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(old, new)
    os.close(said)
    os.close(nothing)
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115 - until the process ends
    faulthandler.enable()
    sys.argv = ["binlog-dispatcher", *arguments]

    from dispatcher.cli import main  # noqa: PLC0415 - in the other process

    main()
