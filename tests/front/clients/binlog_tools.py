"""mysqlbinlog 9.7 and mariadb-binlog 11.8 as clients.

Options that a user needs, with a server and with the front:

* `--protocol=tcp`, because the tools use the socket file for the host `localhost`;
* mysqlbinlog: TLS is used if the server offers it (`--ssl-mode=PREFERRED`). Without TLS, an account with
  caching_sha2_password needs `--get-server-public-key`;
* mariadb-binlog 11.8 verifies the server's certificate. `--skip-ssl-verify-server-cert` or `--ssl-ca` for a certificate
  of an own authority; `--skip-ssl` without TLS;
* mariadb-binlog by GTID: `--skip-gtid-strict-mode`, if the dump continues in another file. Without this option, the
  tool treats the GTID list of the first file that it reads from the beginning as the state at its start, and ends with
  "missing data for domain 0";
* `--connection-server-id` (MariaDB: `--stop-never-slave-server-id`) with `--stop-never`, if two tools read at the same
  time, because a server ends the older of two dumps with the same server id.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from tests.front.clients.lines import DEADLINE_S, ClientFailed, collect, running
from tests.front.clients.printed import Printed
from tests.front.clients.readings import Collector, Endpoint, Reading, Start, Until
from tests.servers.installs import Kind, installation

_POLL_S = 0.2
_TEXT = ("--verbose", "--base64-output=decode-rows")


class How(Enum):
    """How the tool reads. `TEXT`: it prints rows as text, without end. `RAW`: it writes files up to the end of the log.
    `RAW_WITHOUT_END`: it writes files that grow. The same tool decodes the files."""

    TEXT = auto()
    RAW = auto()
    RAW_WITHOUT_END = auto()


@dataclass
class BinlogTool:
    """`mysqlbinlog`, or `mariadb-binlog` for an endpoint with MariaDB. The tool reads by GTID if the start has a GTID
    set.

    A user restarts the tool at the end of the last printed transaction: `--start-position`, or `--exclude-gtids`
    (MariaDB: a GTID list as `--start-position`).
    """

    folder: Path
    how: How = How.TEXT
    server_id: int = 7001
    stored: Start = field(default_factory=lambda: Start(""))
    _runs: int = 0

    @property
    def name(self) -> str:
        return f"the binlog tool ({self.how.name.lower()})"

    def begin(self, _at: Endpoint, start: Start) -> None:
        self.stored = start

    def read(self, at: Endpoint, until: Until) -> Reading:
        self._runs += 1
        folder = self.folder / str(self._runs)
        kind: Kind = "mariadb118" if at.mariadb else "mysql97"
        tool = installation(kind).mysqlbinlog
        environment = {"MYSQL_PWD": at.password, "LC_ALL": "C", "TMPDIR": str(folder)}
        *remote, file = [*tool, *_connection(at), *self._place(at)]
        if self.how is not How.RAW:
            remote += ["--stop-never", self._number(at)]
        else:
            remote += ["--to-last-log"]
        remote += _TEXT if self.how is How.TEXT else ["--raw", f"--result-file={folder}/raw-"]
        with running([*remote, file], folder, environment=environment) as program:
            if self.how is How.TEXT:
                collector = self._new(at, until)
                collect(program, collector, Printed(self.stored.file).line, folder)
            elif self.how is How.RAW:
                program.output.read()  # read to the end of the output
                collector = self._decoded(tool, folder, self._new(at, until))
            else:
                collector = self._grown(tool, folder, lambda: self._new(at, until))
        if not collector.done:
            errors = (folder / "stderr").read_text("utf-8", "replace")
            raise ClientFailed(f"{self.name} did not read {until}: {collector.place} {errors}")
        self.stored = collector.place
        return collector.reading

    def _new(self, at: Endpoint, until: Until) -> Collector:
        return Collector(until, self.stored, at.mariadb)

    def _grown(self, tool: Sequence[str], folder: Path, new: Callable[[], Collector]) -> Collector:
        """Decode the files whenever they have stopped growing for a moment, until they contain the end."""
        deadline = time.monotonic() + DEADLINE_S
        sizes: list[int] = []
        while True:
            collector = new()
            before, sizes = sizes, [file.stat().st_size for file in sorted(folder.glob("raw-*"))]
            if sizes and sizes == before:
                self._decoded(tool, folder, collector)
            if collector.done or time.monotonic() > deadline:
                return collector
            time.sleep(_POLL_S)

    def _decoded(self, tool: Sequence[str], folder: Path, collector: Collector) -> Collector:
        printed = Printed(self.stored.file)
        for file in sorted(folder.glob("raw-*")):
            printed.file = file.name.removeprefix("raw-")
            done = subprocess.run(
                [*tool, "--verify-binlog-checksum", *_TEXT, str(file)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
            for raw in done.stdout.splitlines():
                printed.line(collector, raw.decode("utf-8", "surrogateescape"))
                if collector.done:
                    return collector
        return collector

    def _number(self, at: Endpoint) -> str:
        option = "--stop-never-slave-server-id" if at.mariadb else "--connection-server-id"
        return f"{option}={self.server_id}"

    def _place(self, at: Endpoint) -> list[str]:
        """Returns the options for the place at which the tool begins; the last item is the file."""
        gtids = self.stored.gtids
        if gtids is None:
            way = ["--read-from-remote-server", f"--start-position={self.stored.offset}"]
        elif at.mariadb:
            way = [
                "--read-from-remote-server",
                f"--start-position={gtids}",
                "--skip-gtid-strict-mode",
            ]
        else:
            # The tool sends the file's name, but the server ignores it.
            way = ["--read-from-remote-source=BINLOG-DUMP-GTIDS", f"--exclude-gtids={gtids}"]
        return [*way, self.stored.file]


def _connection(at: Endpoint) -> list[str]:
    options = ["--protocol=tcp", f"--host={at.host}", f"--port={at.port}", f"--user={at.user}"]
    if at.mariadb:
        return [*options, "--skip-ssl-verify-server-cert" if at.tls else "--skip-ssl"]
    if at.tls:
        return [*options, "--ssl-mode=REQUIRED"]
    return [*options, "--ssl-mode=DISABLED", "--get-server-public-key"]
