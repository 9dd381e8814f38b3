"""The servers' own tools: `mysqlbinlog` and `mariadb-binlog`, each with the options that make it fastest."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.logs import PASSWORD, USER, GeneratedLog
from benchmarks.processes import CommandFailed, Usage, run
from tests.servers.installs import installation

# Print rows as text, without their events in base64.
ROWS_AS_TEXT = ("--verbose", "--base64-output=DECODE-ROWS")


def raw(host: str, port: int, log: GeneratedLog, user: str = USER) -> Usage:
    """`mysqlbinlog --raw`: copies a log file of a server, or of a consumer through the front."""
    # Write into memory if possible; otherwise the disk would be measured, too.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        usage, _ = run(
            [*_remote(host, port, user), "--raw", f"--result-file={folder}/", log.file],
            env={"MYSQL_PWD": PASSWORD},
        )
        size = (Path(folder) / log.file).stat().st_size
    if size < log.bytes * 0.9:
        raise CommandFailed(f"mysqlbinlog read {size} of {log.bytes} bytes of {log.name}")
    return usage


def text(file: Path) -> Usage:
    """`mysqlbinlog -v`: decodes the rows of a file to text."""
    tool = installation("mysql97").mysqlbinlog
    usage, _ = run([*tool, *ROWS_AS_TEXT, file], stdout=Path("/dev/null"))
    return usage


def mariadb_text(file: Path) -> Usage:
    """`mariadb-binlog -v`: decodes the rows of a file to text by MariaDB's tool, with the same options."""
    tool = installation("mariadb118").mysqlbinlog
    usage, _ = run([*tool, *ROWS_AS_TEXT, file], stdout=Path("/dev/null"))
    return usage


def _remote(host: str, port: int, user: str) -> list[str]:
    return [
        *installation("mysql97").mysqlbinlog,
        "--read-from-remote-server",
        f"--host={host}",
        f"--port={port}",
        "--protocol=tcp",
        f"--user={user}",
        "--ssl-mode=DISABLED",
        "--get-server-public-key",
    ]
