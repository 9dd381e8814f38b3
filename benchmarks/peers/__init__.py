"""Readers of other projects. The client of its package registry installs each reader once, into the cache folder.

A *peer* is a program in this folder that uses the library of another project as the library's documentation shows. Its
arguments are HOST PORT USER PASSWORD FILE ROWS; the environment variable GTID_BEFORE is the executed set at the
beginning of FILE. The program reads ROWS rows of the server's log, beginning with FILE, and prints one line of JSON:
`rows`, and the `seconds` and `cpu_seconds` of the process from the first row to the last.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.logs import PASSWORD, USER, GeneratedLog
from benchmarks.processes import CommandFailed, run
from spark_sink.cache import cache_dir, cached_folder
from tests.servers import Instance

_HERE = Path(__file__).parent
_INSTALL_TIMEOUT_S = 600.0
_READ_TIMEOUT_S = 300.0
PYTHON_MYSQL_REPLICATION = "python-mysql-replication"


class PeerFailed(Exception):
    """A peer could not be installed, or did not read the log. The text says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer. `install` fills its folder in the cache; `command` is the command that reads, given that folder.

    `slow`: the peer reads thousands of rows per second, not millions, so it gets fewer rows, and at most three rounds.
    """

    name: str
    version: str
    install: Callable[[Path], None]
    command: Callable[[Path], list[str]]
    slow: bool = False
    full_only: bool = False

    def rows(self, *, full: bool) -> int:
        if self.slow:
            return 50_000 if full else 10_000
        return 1_000_000

    def rounds(self, rounds: int) -> int:
        return min(rounds, 3) if self.slow else rounds

    @property
    def folder(self) -> Path:
        """The peer's folder in the cache. Its name changes if the versions to install change."""
        named = f"{self.name} {self.version} {sys.version_info[:2]}"
        programs = sorted(path for path in _HERE.rglob("*") if path.suffix in (".java", ".xml"))
        content = b"".join(path.read_bytes() for path in programs)
        digest = hashlib.blake2b(named.encode() + content, digest_size=4).hexdigest()
        return cache_dir() / "peers" / f"{self.name.replace(' ', '-').lower()}-{digest}"


def read(peer: Peer, server: Instance, log: GeneratedLog, rows: int) -> dict[str, float]:
    """Install the peer if it is not in the cache, and run it. Returns what it printed. Raises PeerFailed."""
    try:
        folder = cached_folder(peer.folder, peer.install)
        arguments = [server.host, str(server.port), USER, PASSWORD, log.file, str(rows)]
        _, printed = run(
            [*peer.command(folder), *arguments],
            env={"GTID_BEFORE": log.gtid_before},
            timeout_s=_READ_TIMEOUT_S,
        )
        found: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    except (CommandFailed, OSError, ValueError, IndexError) as error:
        raise PeerFailed(str(error)) from error
    if found["rows"] < rows:
        raise PeerFailed(f"it read {found['rows']:,} of {rows:,} rows")
    return found


def _client(command: list[str], *, cwd: Path | None = None) -> None:
    """Run the client of a registry. Raises CommandFailed with the last lines that it wrote."""
    if shutil.which(command[0]) is None:
        raise CommandFailed(f"{Path(command[0]).name} is not installed")
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            cwd=cwd, timeout=_INSTALL_TIMEOUT_S, env={**os.environ, "npm_config_loglevel": "error"},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(
            f"{Path(command[0]).name} took longer than {error.timeout:.0f} s"
        ) from error
    if done.returncode != 0:
        raise CommandFailed(f"{Path(command[0]).name}: {_reason(done.stdout + done.stderr)}")


def _reason(printed: str) -> str:
    """Returns the first line that looks like an error, or the last line."""
    lines = [line for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines[-1:] or ["it said nothing"])[0]


# -- Python -----------------------------------------------------------------------------------------------------


def _python(
    program: str, *requirements: str
) -> tuple[Callable[[Path], None], Callable[[Path], list[str]]]:
    """A peer in Python, in a virtual environment of its own."""

    def install(folder: Path) -> None:
        _client([sys.executable, "-m", "venv", str(folder / "venv")])
        python = str(folder / "venv/bin/python")
        _client([python, "-m", "pip", "install", "-q", *requirements])

    def command(folder: Path) -> list[str]:
        return [str(folder / "venv/bin/python"), str(_HERE / program)]

    return install, command


# -- Node -------------------------------------------------------------------------------------------------------


def _node(program: str, package: str) -> tuple[Callable[[Path], None], Callable[[Path], list[str]]]:
    def install(folder: Path) -> None:
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        _client(["npm", "install", *options, "--prefix", str(folder), package])

    def command(folder: Path) -> list[str]:
        return ["env", f"NODE_PATH={folder / 'node_modules'}", "node", str(_HERE / program)]

    return install, command


# -- Java -------------------------------------------------------------------------------------------------------


def _java(project: str) -> tuple[Callable[[Path], None], Callable[[Path], list[str]]]:
    """A peer in Java, with a pom.xml and Main.java. Its jars come from Maven Central, and it is compiled in the
    cache."""
    source = _HERE / "java" / project

    def install(folder: Path) -> None:
        jars, classes = folder / "jars", folder / "classes"
        shutil.copy(source / "pom.xml", folder)
        _client(
            ["mvn", "-B", "-q", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
            + ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        )
        _client(
            ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source / "Main.java")]
        )

    def command(folder: Path) -> list[str]:
        return ["java", "-Xmx2g", "-cp", f"{folder / 'classes'}:{folder / 'jars'}/*", "Main"]

    return install, command


_REPLICATION_VERSION, _ASYNCMY_VERSION = "1.0.17", "0.2.18"
_ZONGJI_VERSION, _CONNECTOR_VERSION = "0.6.2", "0.30.1"
_CANAL_VERSION, _DEBEZIUM_VERSION = "1.1.7", "3.5.0.Final"

PEERS = (
    Peer(
        PYTHON_MYSQL_REPLICATION,
        _REPLICATION_VERSION,
        *_python(
            "python_mysql_replication.py",
            f"mysql-replication=={_REPLICATION_VERSION}",
            "cryptography",
        ),
        slow=True,
    ),
    Peer(
        "asyncmy",
        _ASYNCMY_VERSION,
        *_python("asyncmy_reader.py", f"asyncmy=={_ASYNCMY_VERSION}", "cryptography"),
        slow=True,
    ),
    Peer(
        "zongji",
        _ZONGJI_VERSION,
        *_node("zongji.js", f"@powersync/mysql-zongji@{_ZONGJI_VERSION}"),
        slow=True,
        full_only=True,
    ),
    Peer(
        "mysql-binlog-connector-java",
        _CONNECTOR_VERSION,
        *_java("binlog_connector"),
        full_only=True,
    ),
    Peer("Canal's parser", _CANAL_VERSION, *_java("canal"), full_only=True),
    Peer("Debezium embedded", _DEBEZIUM_VERSION, *_java("debezium"), full_only=True),
)
