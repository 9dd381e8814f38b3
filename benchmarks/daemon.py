"""A daemon that is measured. The benchmark starts it by its command line, with a folder of its own, and reads its CPU
time and memory from the system."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from benchmarks.logs import PASSWORD, USER, GeneratedLog
from benchmarks.processes import (
    TIMEOUT_S,
    CommandFailed,
    cpu_seconds,
    peak_bytes,
    reset_peak,
    resident_bytes,
)
from dispatcher.model.gtid import GtidSet
from tests.servers.ports import free_port

_START_TIMEOUT_S = 300.0  # enough for a busy machine
_STOP_TIMEOUT_S = 30.0
# A daemon is idle when it takes less than this share of a core for `_QUIET_S`.
_IDLE_SHARE, _QUIET_S, _SAMPLE_S = 0.2, 0.3, 0.05
Json = dict[str, Any]


def consumer(server_port: int, databases: Sequence[str], **settings: object) -> Json:
    """The settings of a consumer. They disable TLS, because TLS would add the same cost to all programs that are
    compared."""
    return {
        "mysql": f"{USER}@127.0.0.1:{server_port}",
        "password": PASSWORD,
        "databases": list(databases),
        "start": "latest",
        "tls": {"mode": "disabled"},
        **settings,
    }


class MeasuredDaemon:
    """`with MeasuredDaemon(consumers) as daemon:` runs a daemon. When the block begins, the daemon answers requests."""

    def __init__(self, consumers: Mapping[str, Json], **settings: object) -> None:
        self._settings = {"consumers": consumers, "log": {"level": "warning"}, **settings}
        self.port = free_port()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bd-bench-")))
            settings = {
                **self._settings,
                "api": {"listen": f"127.0.0.1:{self.port}"},
                "state": {"path": str(folder / "state.db")},
            }
            config, self._log = folder / "dispatcher.yaml", folder / "stderr"
            config.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "dispatcher", "run", "--config", str(config)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            stack.callback(self._end)
            self._until(lambda: self._text("/livez") == "ok\n", "answer")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def until_streaming(self, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Wait until the daemon reads the log for each consumer."""
        self._until(
            lambda: all(row["state"] == "streaming" for row in self.rows()), "stream", timeout_s
        )

    def rows(self) -> list[Json]:
        rows: list[Json] = json.loads(self._text("/v1/binlogs"))
        return rows

    @property
    def cpu_s(self) -> float:
        return cpu_seconds(self._process.pid)

    def cpu_s_until_queued(self, seq: int) -> float:
        """Wait until each consumer's queue contains this transaction. Returns the CPU time that the daemon has taken
        for this."""
        deadline = time.monotonic() + TIMEOUT_S
        before, asking = self.cpu_s, 0.0
        while time.monotonic() < deadline:
            quiet_s = self._cpu_s_when_quiet()
            asked = self.cpu_s
            if all(_executed(row) >= seq for row in self.rows()):
                return quiet_s - before - asking
            asking += self.cpu_s - asked
        raise CommandFailed("the daemon did not read the log in time")

    def until_quiet(self) -> None:
        """Wait until the daemon takes little CPU time."""
        self._cpu_s_when_quiet()

    def _cpu_s_when_quiet(self) -> float:
        """Wait until the daemon takes little CPU time. Returns its CPU time up to the beginning of that period."""
        began, cpu_s = time.monotonic(), self.cpu_s
        while time.monotonic() - began < _QUIET_S:
            time.sleep(_SAMPLE_S)
            if self.cpu_s - cpu_s > _IDLE_SHARE * (time.monotonic() - began):
                began, cpu_s = time.monotonic(), self.cpu_s
        return cpu_s

    @property
    def resident_bytes(self) -> int:
        return resident_bytes(self._process.pid)

    @property
    def peak_bytes(self) -> int:
        return peak_bytes(self._process.pid)

    def reset_peak(self) -> None:
        reset_peak(self._process.pid)

    def read(self, jobs: Sequence[Json], last_seq: int) -> dict[str, float]:
        """Let readers read up to this transaction. Returns what they print."""
        with self.readers(jobs) as readers:
            return readers.read(last_seq)

    @contextmanager
    def readers(self, jobs: Sequence[Json]) -> Iterator[Readers]:
        """Start readers in a process of their own. When the block begins, their sessions are open."""
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.reader", str(self.port), str(self._process.pid)]
            + [json.dumps(list(jobs))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            try:
                yield Readers(process)
            finally:
                process.kill()  # does nothing if it has ended

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the daemon's process (SIGSTOP) during the block."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def start_of(self, log: GeneratedLog) -> Json:
        """Returns the position at the beginning of a log. The daemon must have read the log to its end."""
        known = self.rows()[0]["acknowledged"]
        return {
            **known,
            "gtid": log.gtid_before,
            "file": log.file,
            "offset": 4,
            "seq": log.seq_before,
        }

    def _text(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=120) as answer:
            return str(answer.read().decode())

    def _until(
        self, condition: Callable[[], bool], what: str, timeout_s: float = _START_TIMEOUT_S
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise CommandFailed(f"the daemon ended: {self._said()}")
            asked = time.monotonic()
            try:
                if condition():
                    return
            except (urllib.error.URLError, TimeoutError):
                pass  # it does not listen yet, or starts so many consumers that it cannot answer
            # An answer about a thousand consumers takes much of the daemon's time, so wait longer after a slow answer.
            time.sleep(max(0.05, 5 * (time.monotonic() - asked)))
        raise CommandFailed(f"the daemon did not {what} in time: {self._said()}")

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-600:]

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _executed(row: Json) -> int:
    """Returns the number of transactions that this consumer's connection has read."""
    text = row["dispatcher_mysql_binlog_executed_gtid_set"]
    return len(GtidSet.parse(text)) if text else 0


class Readers:
    """A process of `benchmarks.reader`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise CommandFailed(f"the readers ended with {process.wait()}")

    def begin(self) -> None:
        """Let the readers read without an end."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{2**62}\n")
        self._process.stdin.flush()

    def read(self, last_seq: int) -> dict[str, float]:
        """Let the readers read up to this transaction. Returns what they print."""
        timer = threading.Timer(TIMEOUT_S, self._process.kill)
        timer.start()
        printed, _ = self._process.communicate(f"{last_seq}\n")
        timer.cancel()
        if self._process.returncode != 0:
            raise CommandFailed(f"the readers ended with {self._process.returncode}")
        found: dict[str, float] = json.loads(printed)
        return found
