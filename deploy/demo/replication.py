"""A replication client of the demo: mysqlbinlog reads a consumer through the daemon's front, into files of binlogs.

If the client loses its connection because the daemon was killed, the demo starts the client again, at the front of the
daemon that leads. The client then begins with the last transaction that it has received. At the end, mysqlbinlog reads
the server's own log, and the demo compares the number, the order and each value of the rows of the consumer's
databases.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.demo.processes import DemoFailed, DemoProcess
from tests.servers import Instance
from tests.servers.installs import installation

STARTS_MAX = 5  # of the client, if the daemon that it reads from was killed
ARRIVE_S = 60.0
POLL_S = 0.5
_ROWS = ("--verbose", "--base64-output=decode-rows")
_HEADER = re.compile(
    r"#\d{6} +\d+:\d\d:\d\d server id \d+ +end_log_pos (\d+) (?:CRC32 0x[0-9a-f]+ )?\s*(\S+)"
)
_OF_FILE = ("Start:", "Previous-GTIDs", "Rotate", "Stop")
_ROW = re.compile(r"### (?:INSERT INTO|UPDATE|DELETE FROM) `(.+?)`\.`")


@dataclass(frozen=True, slots=True)
class Place:
    """A point between two transactions of the server's log."""

    file: str
    offset: int = 4


class PrintedRows:
    """The rows of some databases, from what mysqlbinlog prints. The rows of a transaction are counted when the next
    transaction has begun, or when `end` is called. `place`: where the last transaction begins, None until a second
    transaction has begun."""

    def __init__(self, databases: Collection[str]) -> None:
        self.count = 0
        self.place: Place | None = None
        self._databases = databases
        self._digest = hashlib.sha256()
        self._lines: list[str] = []  # of the last transaction's rows
        self._rows = 0
        self._end: int | None = None  # of the last event that is a transaction's
        self._wanted = False  # True while the lines are those of a row of the databases

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def read(self, file: str, lines: Iterable[str]) -> None:
        """Read what is printed of a file of the log, or of a part of it."""
        self._end = None
        for line in lines:
            if line.startswith("###"):
                self._read_row(line)
            elif line.startswith("#") and (header := _HEADER.match(line)):
                if header[2] == "GTID":
                    self.end()
                    self.place = self.place if self._end is None else Place(file, self._end)
                if header[2] not in _OF_FILE:
                    self._end = int(header[1])

    def end(self) -> None:
        """Count the rows of the last transaction, which is complete."""
        self.count += self._rows
        self._digest.update("".join(self._lines).encode("utf-8", "surrogateescape"))
        self.drop()

    def drop(self) -> None:
        """Forget the rows of the last transaction. Called before this transaction is read again."""
        self._lines, self._rows = [], 0

    def _read_row(self, line: str) -> None:
        if row := _ROW.match(line):
            self._wanted = row[1] in self._databases
            self._rows += self._wanted
        if self._wanted:
            self._lines.append(f"{line}\n")


StartProcess = Callable[[str, Sequence[str | Path]], DemoProcess]  # of a name and a command


class ReplicationClient:
    """mysqlbinlog as the reader of a consumer. `starts`: how often it was started."""

    def __init__(
        self,
        server: Instance,
        consumer: str,
        databases: Collection[str],
        folder: Path,
        start_process: StartProcess,
    ) -> None:
        self._tool = installation(server.kind).mysqlbinlog
        self._server = server
        self._consumer = consumer
        self._databases = databases
        self._folder = folder
        self._start_process = start_process
        self._first = Place(server.binlogs()[0][0])
        self._process: DemoProcess | None = None
        self.starts = 0

    def keep_reading(self, front_port: int, starts_max: int) -> None:
        """Start the client at the front if it does not run. Raises DemoFailed after `starts_max` starts."""
        if self._process is not None and self._process.process.poll() is None:
            return
        if self._process is not None and self.starts >= starts_max:
            self._process.check()
        place = self._printed().place or self._first
        self.starts += 1
        folder = self._folder / str(self.starts)
        folder.mkdir(parents=True)
        command = [
            *self._tool,
            "--read-from-remote-server",
            "--stop-never",
            "--raw",
            f"--result-file={folder}/",
            "--protocol=tcp",
            "--ssl-mode=DISABLED",
            "--host=127.0.0.1",
            f"--port={front_port}",
            f"--user={self._consumer}",
            f"--start-position={place.offset}",
            place.file,
        ]
        self._process = self._start_process(f"mysqlbinlog {self.starts}", command)

    def compared(self) -> ReplicationResult:
        """Compare the client's rows with the rows of the server's log, which no longer grows. Raises DemoFailed if the
        client has received fewer rows than the log contains after a minute."""
        expected = PrintedRows(self._databases)
        expected.read(self._first.file, self._log_of_server())
        expected.end()
        deadline = time.monotonic() + ARRIVE_S
        while True:
            found = self._printed()
            found.end()
            if found.count >= expected.count or time.monotonic() > deadline:
                same = found.digest == expected.digest
                return ReplicationResult(self._databases, found.count, expected.count, same)
            time.sleep(POLL_S)

    def _printed(self) -> PrintedRows:
        """The rows that the client has received in all its runs."""
        rows = PrintedRows(self._databases)
        for start in range(1, self.starts + 1):
            rows.drop()  # the next start begins with this transaction
            for file in sorted((self._folder / str(start)).iterdir()):
                lines = _printed_lines([*self._tool, *_ROWS, str(file)], whole=False)
                rows.read(file.name, lines)
        return rows

    def _log_of_server(self) -> Iterator[str]:
        remote = ["--read-from-remote-server", f"--socket={self._server.socket}", "--user=root"]
        command = [*self._tool, *_ROWS, *remote, "--to-last-log", self._first.file]
        return _printed_lines(command, whole=True)


@dataclass(frozen=True, slots=True)
class ReplicationResult:
    """`rows`: of the client; `expected`: of the server's log; `same`: all values and their order are equal."""

    databases: Collection[str]
    rows: int
    expected: int
    same: bool

    def __str__(self) -> str:
        of = f"{self.rows} rows of {' and '.join(self.databases)}"
        if self.same:
            return (
                f"mysqlbinlog read {of} through the front, equal to the rows in the server's log; the server had no"
                " dump thread for it."
            )
        return f"[red]mysqlbinlog read {of} through the front, and {self.expected} in the server's log: they differ.[/]"


def _printed_lines(command: Sequence[str], *, whole: bool) -> Iterator[str]:
    """Yields the lines that mysqlbinlog prints. `whole`: raise DemoFailed if it ends with an error."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        errors="surrogateescape",
        env={**os.environ, "LC_ALL": "C"},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield line.removesuffix("\n")
    if whole and process.returncode:
        raise DemoFailed(f"mysqlbinlog ended with exit code {process.returncode}")
