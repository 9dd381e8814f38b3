"""A daemon that a test starts as a person does."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from tests.cli.program import DEADLINE_S, command, environment


class Daemon:
    """A daemon started by the test."""

    def __init__(self, file: Path, port: int, *arguments: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = file.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command("run", "--config", file, *arguments), env=environment(), stderr=log
            )

    def get(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.get("/v1/binlogs")}

    def until(self, condition: Callable[[dict[str, dict[str, Any]]], bool]) -> dict[str, Any]:
        """Waits until the rows of /v1/binlogs satisfy a condition, and returns them."""
        deadline = monotonic() + DEADLINE_S
        seen: dict[str, Any] = {}
        while monotonic() < deadline:
            try:
                seen = self.rows()
                if condition(seen):
                    return seen
            except (urllib.error.URLError, ConnectionError):
                pass  # not listening yet
            try:
                code = self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"the daemon ended with {code}: {self.log.read_text()}")
        raise AssertionError(f"in vain: {seen}: {self.log.read_text()}")

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(by)
        return self.process.wait(DEADLINE_S)


@contextmanager
def daemon(file: Path, port: int, *arguments: str) -> Iterator[Daemon]:
    running = Daemon(file, port, *arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait(DEADLINE_S)
