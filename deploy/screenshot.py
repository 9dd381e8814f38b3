"""Draws the pictures of docs/status-page.md from a real run: `python -m deploy.screenshot docs`.

A MySQL server, a daemon and readers run for about a minute. One consumer has a slow reader and is detached, one has
lost its reader, one asks for transactions that the server has purged, and one has a server that is down.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.daemon.harness import PASSWORD, Daemon, Reader, until
from tests.servers import Server, start_server
from tests.support.browser import chromium

DATABASES = ("shop", "billing", "search")
SHOTS = {  # file name: (width, height, colour scheme)
    "status-light.png": (1360, 1500, "light"),
    "status-dark.png": (1360, 1500, "dark"),
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.screenshot", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the run (60)")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        daemon = stack.enter_context(scene())
        until(lambda: _is_ready(daemon), "the run shows what the picture is of", timeout_s=120)
        time.sleep(options.seconds)
        take(daemon, options.folder)
    return 0


def _is_ready(daemon: Daemon) -> bool:
    rows = daemon.api.rows()
    return (
        rows["reports"]["state"] == "failed"
        and rows["audit"]["reader"] == "gone"
        and rows["search"]["detaches"] > 0
        and rows["legacy"]["last_error"] is not None
    )


def take(daemon: Daemon, folder: Path) -> None:
    """Write a picture of the page for each of `SHOTS`."""
    with chromium() as browser:
        for name, (width, height, scheme) in SHOTS.items():
            size: Any = {"width": width, "height": height}
            colours: Any = scheme
            page = browser.new_page(viewport=size, color_scheme=colours, device_scale_factor=1)
            page.goto(f"http://127.0.0.1:{daemon.port}/")
            page.wait_for_selector("[data-live=true]")
            page.wait_for_function("document.querySelectorAll('.plot canvas').length > 6")
            page.wait_for_timeout(3000)  # a few snapshots, and the history of each plot
            page.screenshot(path=folder / name)
            page.close()
            print(folder / name)


@contextmanager
def scene() -> Iterator[Daemon]:
    with ExitStack() as stack:
        server = stack.enter_context(start_server("mysql97"))
        for database in DATABASES:
            server.execute(
                f"CREATE DATABASE {database}",
                f"CREATE TABLE {database}.orders (id INT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(4000))",
            )
        server.execute("FLUSH BINARY LOGS")
        server.execute(f"PURGE BINARY LOGS TO '{server.binlog_position()[0]}'")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="screenshot-")))
        daemon = Daemon(folder, settings(server))
        stack.callback(daemon.close)
        daemon.start()
        stop = threading.Event()
        for work in (*writers(server), *readers(daemon)):
            thread = threading.Thread(target=_again, args=(work, stop), daemon=True)
            thread.start()
            stack.callback(thread.join)
        stack.callback(stop.set)
        _lose_reader(daemon)
        yield daemon


def settings(server: Server) -> dict[str, Any]:
    server.add_user("repl", PASSWORD)
    server.add_user("audit", PASSWORD)
    shared = {
        "mysql": f"repl@{server.host}:{server.port}",
        "password": PASSWORD,
        "start": "earliest",
    }
    small = {"max_bytes_in_binlog_queue": "1MiB", "max_milliseconds_to_wait_in_binlog_queue": 500}
    return {
        "consumers": {
            "shop": {**shared, "databases": ["shop"]},
            "billing": {**shared, "databases": ["billing"]},
            "search": {**shared, **small, "databases": ["shop", "search"]},
            "reports": {**shared, "databases": ["billing"], "start": {"file": "binlog.000001", "offset": 4}},
            "audit": {**shared, "mysql": f"audit@{server.host}:{server.port}", "databases": list(DATABASES)},
            "legacy": {**shared, "mysql": "repl@127.0.0.1:1", "databases": ["shop"]},
        }
    }  # fmt: skip


Work = Callable[[], None]


def writers(server: Server) -> list[Work]:
    def write(database: str) -> Work:
        def insert() -> None:
            wave = 1 + int(time.time() / 20) % 3
            values = ", ".join(["(REPEAT('x', 3000))"] * 10 * wave)
            server.execute(f"INSERT INTO {database}.orders (note) VALUES {values}")
            time.sleep(0.05)

        return insert

    return [write(database) for database in DATABASES]


def readers(daemon: Daemon) -> list[Work]:
    quick = [Reader(daemon, name).open() for name in ("shop", "billing")]
    slow = Reader(daemon, "search").open()

    def read_slowly() -> None:
        slow.step(max_bytes=100_000)
        time.sleep(0.4)

    return [*(_steps(reader) for reader in quick), read_slowly]


def _steps(reader: Reader) -> Work:
    def step() -> None:
        reader.step(max_bytes=1 << 20)
        reader.chunks.clear()
        time.sleep(0.1)

    return step


def _lose_reader(daemon: Daemon) -> None:
    """Read `audit` once, then disconnect while a poll waits."""
    reader = Reader(daemon, "audit").open()
    reader.step(wait_ms=5000)
    body = {
        "session": reader.session,
        "after": reader.position,
        "wait_ms": 60_000,
        "markers": False,
    }
    client = http.client.HTTPConnection("127.0.0.1", daemon.port)
    headers = {"Content-Type": "application/json", "User-Agent": "audit-job/2.1"}
    client.request("POST", "/v1/consumers/audit/poll", json.dumps(body), headers)
    until(lambda: daemon.api.row("audit")["reader_user_agent"] == "audit-job/2.1", "it polls")
    client.close()


def _again(work: Work, stop: threading.Event) -> None:
    while not stop.is_set():
        work()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
