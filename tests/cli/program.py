"""The installed program as a person runs it, settings for it, and a server that answers in the daemon's place."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.servers.server import Server

PROGRAM = Path(sys.executable).with_name("binlog-dispatcher")
PASSWORD = "sehr-geheim"
DEADLINE_S = 60.0


def command(*arguments: str | Path, env: Mapping[str, str] | None = None) -> list[str]:
    return [str(PROGRAM), *(str(argument) for argument in arguments)]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    ours = {k: v for k, v in os.environ.items() if not k.startswith("DISPATCHER")}
    return {**ours, "COLUMNS": "200", "NO_COLOR": "1", **(more or {})}


def call(
    *arguments: str | Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*arguments),
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return done


def consumer(server: Server | int, user: str, databases: str = "shop", more: str = "") -> str:
    port = server if isinstance(server, int) else server.port
    return f"{{mysql: '{user}@127.0.0.1:{port}', password: {PASSWORD}, databases: [{databases}]{more}}}"


def write(
    folder: Path,
    *consumers: tuple[str, str],
    port: int = 0,
    state: str = "{path: state.db, max_bytes_in_spill: 1MiB}",
    name: str = "dispatcher.yaml",
) -> Path:
    file = folder / name
    lines = [f"  {name}: {text}\n" for name, text in consumers]
    rest = f"api: {{listen: '127.0.0.1:{port}'}}\nstate: {state}\n"
    file.write_text("consumers:\n" + "".join(lines) + rest)
    return file


@contextmanager
def answering(
    status: int, body: bytes, *, token: str = "", port: int = 0, not_ready: bytes = b""
) -> Iterator[str]:
    """`not_ready`: the answer to GET /readyz, with status 503; b"" to answer that as any other call."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = not token or self.headers["Authorization"] == f"Bearer {token}"
            problem = b'{"detail": "no token", "hint": "send one"}'
            waits = bool(not_ready) and self.path == "/readyz"
            self.send_response(503 if waits else status if allowed else 401)
            self.end_headers()
            self.wfile.write(not_ready if waits else body if allowed else problem)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


ROW: dict[str, Any] = {
    "name": "shop[eu]",
    "declared_by": None,
    "binlog_client_name": "repl@db1:3306",
    "dispatcher_name": "shop:2",
    "state": "paused",
    "bytes": 1536,
    "max_bytes": 64 * 2**20,
    "unacknowledged_bytes": 12,
    "lag_seconds": 3.21,
    "runway_seconds": 4.2 * 86_400,
    "dispatcher_events_read_per_sec": 1234.5,
    "dispatcher_bytes_read_per_sec": 2.0**20,
    "dispatcher_mysql_binlog_name": "binlog.000007",
    "dispatcher_mysql_binlog_pos": 5000,
    "mysql_binlog_executed_gtid_set": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5",
    "reader": "gone",
    "delivered_bytes_per_sec": 1024.0,
    "warnings": [],
    "detaches": 0,
    "spilled_bytes": 0,
    "acknowledged": {"file": "binlog.000007", "offset": 4711, "seq": 5, "epoch": 1},
    "last_error": None,
    "state_store_error": None,
}
