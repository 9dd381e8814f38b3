"""Runs the program of a client, collects the changes that the program prints, and then kills it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.front.clients.readings import Collector, Row

DEADLINE_S = 120.0
_ROOT = Path(__file__).parents[3]


class ClientFailed(AssertionError):
    """A client ended by itself, or did not reach the end of the history in time. The message contains its last
    output."""


@dataclass(frozen=True, slots=True)
class Program:
    """A running program. `output`: its standard output."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]

    def tell(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()


@contextmanager
def running(
    command: Sequence[str], folder: Path, *, given: bytes = b"", more_input: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Program]:  # fmt: skip
    """Runs a command. At the end of the block, or at the deadline, the command is killed.

    `given`: bytes for the command's standard input, which is then closed if `more_input` is False.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    assert process.stdin is not None and process.stdout is not None
    watch = threading.Timer(DEADLINE_S, process.kill)
    watch.start()
    try:
        process.stdin.write(given)
        process.stdin.flush()
        if not more_input:
            process.stdin.close()
        yield Program(process, process.stdout)
    finally:
        watch.cancel()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def collect(
    program: Program, collector: Collector, take: Callable[[Collector, str], None], folder: Path
) -> None:
    """Call `take` with each line until the collector is done. Raises ClientFailed if the output ends before."""
    last: list[str] = []
    for raw in program.output:
        line = raw.decode("utf-8", "surrogateescape").rstrip("\n")
        last = [*last[-4:], line[:200]]
        take(collector, line)
        if collector.done:
            return
    said = (folder / "stderr").read_text("utf-8", "replace")[-3000:]
    raise ClientFailed(
        f"the client ended before {collector.until}, at {collector.place};"
        f" it printed {last} and {said}"
    )


def take_json(collector: Collector, line: str) -> None:
    """Add one line of a program to the collector. A line is `["row", database, table, op, key, before, after, offset]`,
    `["ddl", database, text, offset]`, `["end", file, offset, gtid, gtids]` or `["rollback"]`."""
    kind, *fields = json.loads(line)
    if kind == "row":
        collector.row(Row(*fields))
    elif kind == "ddl":
        database, text, offset = fields
        collector.row(Row(database, "", "ddl", None, None, text, offset))
    elif kind == "end":
        collector.end(*fields)
    elif kind == "rollback":
        collector.rollback()
    else:
        raise ClientFailed(f"an unknown line: {line[:200]}")


def read_json(command: Sequence[str], folder: Path, given: Any, collector: Collector) -> None:
    """Run a program that prints the lines of `take_json`, until the collector is done."""
    root = {"PYTHONPATH": str(_ROOT)}  # for programs that run outside of the tests' environment
    with running(command, folder, given=json.dumps(given).encode(), environment=root) as program:
        collect(program, collector, take_json, folder)
