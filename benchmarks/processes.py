"""Child processes with their wall time, CPU time and largest resident memory.

CPU time hardly depends on other load of the machine, so ratios of CPU time vary less than ratios of wall time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

TIMEOUT_S = 900.0
_READ_EVERY_S = 0.25


class CommandFailed(Exception):
    """A measured program ended with an error. The text holds the last lines that it wrote."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The times that a process took, from its start to its end. `peak_bytes`: its largest resident memory."""

    wall_s: float
    user_s: float
    system_s: float
    peak_bytes: int

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[Usage, str]:
    """Run a program to its end. Returns its usage, and what it wrote to stdout if stdout is no file.

    Raises CommandFailed if it fails or takes too long.
    """
    arguments = [str(part) for part in command]
    environment = {**os.environ, "LC_ALL": "C", **(env or {})}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        target = open(stdout, "wb") if stdout is not None else output  # noqa: SIM115, PTH123
        try:
            started = time.perf_counter()
            process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=target, stderr=errors,
                env=environment, cwd=cwd,
            )  # fmt: skip
            timer = threading.Timer(timeout_s, process.kill)
            timer.start()
            # wait4 also returns the CPU time of the child and of its own children.
            _, status, used = os.wait4(process.pid, 0)
            wall_s = time.perf_counter() - started
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if stdout is not None:
                target.close()
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
        output.seek(0)
        written = output.read().decode("utf-8", "replace")
    if process.returncode != 0:
        lines = [line for line in (said.strip() or written.strip()).splitlines() if line][-4:]
        took = f"within {timeout_s:.0f} s" if wall_s >= timeout_s else f"({process.returncode})"
        raise CommandFailed(f"{Path(arguments[0]).name} failed {took}: {' | '.join(lines)}")
    return Usage(wall_s, used.ru_utime, used.ru_stime, used.ru_maxrss * 1024), written


def run_module(module: str, *arguments: object, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Run a program of this package that prints JSON, in a process of its own. Returns what it printed."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    _, printed = run(command, timeout_s=timeout_s)
    value: dict[str, Any] = json.loads(printed)
    return value


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time that a process has taken so far, all of its threads together."""
    # Compute the id of the clock that counts the CPU time of another process, as clock_getcpuclockid(3) does. Python
    # does not have this function.
    return time.clock_gettime((~pid << 3) | 2)


def cpu_seconds_of_process(pid: int, *, ended_children: bool = True) -> float:
    """Returns the CPU time that a process has taken so far. `ended_children`: add the time of its children that have
    ended."""
    used = _stat(pid)[11:15] if ended_children else _stat(pid)[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


class DescendantsMeter:
    """Counts the CPU time of all descendants of a process while the block runs, including those that end.

    The kernel drops the time of an ended child if its parent ignores SIGCHLD, as Spark's daemon of Python workers does.
    So a thread reads the times of all descendants often, and the meter keeps the last time of each.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seconds: dict[tuple[int, str], float] = {}  # by process id and start
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def cpu_s(self) -> float:
        """Returns the CPU time so far, without the time that a process used between the last read and its end."""
        with self._lock:
            for child in _descendants(self._pid):
                try:
                    fields = _stat(child)
                except OSError:
                    continue  # has ended
                ticks = sum(map(int, fields[11:13]))
                self._seconds[child, fields[19]] = ticks / os.sysconf("SC_CLK_TCK")
            return sum(self._seconds.values())

    def _follow(self) -> None:
        while not self._ended.wait(_READ_EVERY_S):
            self.cpu_s()


def _stat(pid: int) -> list[str]:
    """Returns the fields of proc(5)'s stat after the name: state, ppid, ..."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
            except OSError:
                continue  # has ended
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(pid: int) -> int:
    """Returns the largest resident memory since `reset_peak`, or since the start."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise CommandFailed(f"process {pid} has ended")


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
