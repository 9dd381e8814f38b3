"""The servers' own tools: `mysqlbinlog` and `mariadb-binlog`, each with the options that make it fastest."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.logs import PASSWORD, USER
from benchmarks.processes import Usage, run
from tests.servers import Instance
from tests.servers.installs import installation

# Print rows as text, without their events in base64.
ROWS_AS_TEXT = ("--verbose", "--base64-output=DECODE-ROWS")


def raw(server: Instance, file: str) -> Usage:
    """`mysqlbinlog --raw`: copies the server's log file."""
    # Write into memory if possible; otherwise the disk would be measured, too.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        usage, _ = run(
            [*_remote(server), "--raw", f"--result-file={folder}/", file],
            env={"MYSQL_PWD": PASSWORD},
        )
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


def _remote(server: Instance) -> list[str]:
    return [
        *installation("mysql97").mysqlbinlog,
        "--read-from-remote-server",
        f"--host={server.host}",
        f"--port={server.port}",
        "--protocol=tcp",
        f"--user={USER}",
        "--ssl-mode=DISABLED",
        "--get-server-public-key",
    ]
