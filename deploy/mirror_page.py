"""Draws the pictures of docs/mirror-page.md from a real run: `python -m deploy.mirror_page docs`.

A MySQL server, a daemon and a mirror job run for some minutes. One table is being copied, one was stopped by a row that
the server logged in part, and one differs because a row was changed without the log.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.daemon.harness import PASSWORD, Daemon, until
from tests.mirror.harness import mirror_job
from tests.servers import Server, start_server
from tests.servers.ports import free_port
from tests.support.browser import chromium

READY_S = 600.0
SHOTS = {  # file name: (width, height, colour scheme)
    "mirror-light.png": (1280, 1180, "light"),
    "mirror-dark.png": (1280, 1180, "dark"),
    "mirror-phone.png": (390, 1500, "light"),
}
TABLES = ("orders", "items", "customers", "prices", "stock", "invoices")
READY = (
    "[data-problem='shop.invoices']", "[data-problem='shop.stock']", "[data-copying='shop.archive'] .fill",
    "[data-table='shop.orders'] [data-label='proof'] span",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.mirror_page", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder: Path = parser.parse_args(arguments).folder
    with scene() as address, chromium() as browser:
        for name, (width, height, scheme) in SHOTS.items():
            size: Any = {"width": width, "height": height}
            colours: Any = scheme
            page = browser.new_page(viewport=size, color_scheme=colours, device_scale_factor=1)
            page.set_default_timeout(1000 * READY_S)
            page.goto(address)
            for selector in READY:
                page.wait_for_selector(selector)
            page.wait_for_timeout(5000)  # two answers, between which the page computes rates
            page.screenshot(path=folder / name)
            page.close()
            print(folder / name)
    return 0


@contextmanager
def scene() -> Iterator[str]:
    """Yields the address of the page of a job whose tables are in several states."""
    with ExitStack() as stack:
        server = stack.enter_context(start_server("mysql97"))
        prepare(server)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mirror-page-")))
        consumer = {
            "mysql": f"repl@{server.host}:{server.port}",
            "password": PASSWORD,
            "databases": ["shop"],
        }
        daemon = Daemon(home / "daemon", {"consumers": {"shop": consumer}})
        stack.callback(daemon.close)
        daemon.start()
        daemon.api.until_state("shop", "streaming")
        job = stack.enter_context(mirror_job(server, daemon, home))
        port = free_port()
        prove = "prove: {every_seconds: 5, rows_per_second: 100000, share_of_time: 0.5}"
        job.settings = f"metrics: 127.0.0.1:{port}\n{prove}\n"
        job.copy_settings = ", max_rows_per_second: 400"
        job.start("shop", now=False)
        stop = threading.Event()
        writer = threading.Thread(target=_write, args=(server, stop), daemon=True)
        writer.start()
        stack.callback(writer.join)
        stack.callback(stop.set)
        until(lambda: "page and metrics are at" in job.log, "the page is served", timeout_s=READY_S)
        job.until_copied("shop", *TABLES)
        silent = "UPDATE shop.stock SET note = 'counted again' WHERE id IN (3, 4)"
        server.execute("SET SESSION sql_log_bin = 0", silent)
        server.execute(
            "SET SESSION binlog_row_image = MINIMAL", "UPDATE shop.invoices SET note = 'paid'"
        )
        server.execute("INSERT INTO shop.archive (note) VALUES ('new')")
        yield f"http://127.0.0.1:{port}/"


def prepare(server: Server) -> None:
    columns = (
        "id INT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(200), amount DECIMAL(9,2) DEFAULT 12.50"
    )
    rows = "SELECT CONCAT('row ', n) FROM (WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t"
    server.add_user("repl", PASSWORD)
    server.execute("CREATE DATABASE shop")
    for table in (*TABLES, "archive"):
        count = 200_000 if table == "archive" else 500
        server.execute(
            f"CREATE TABLE shop.{table} ({columns})",
            f"SET SESSION cte_max_recursion_depth = {count}",
            f"INSERT INTO shop.{table} (note) {rows} WHERE n < {count}) SELECT n FROM t) AS numbers",
        )


def _write(server: Server, stop: threading.Event) -> None:
    number = 0
    while not stop.wait(0.2):
        number += 1
        for table in TABLES[: 1 + number % 4]:
            server.execute(
                f"INSERT INTO shop.{table} (note) VALUES ('order {number}'), ('a thing')"
            )
        if number == 1:  # a row of each table, so that the mirror copies it
            for table in TABLES:
                server.execute(f"INSERT INTO shop.{table} (note) VALUES ('first')")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
