"""Draws the picture of Spark's page of a stream from a real run: `python -m deploy.spark_ui docs/spark-ui.png`.

A MySQL server, a daemon and Spark run while rows are written at a changing rate. Spark runs the mirror, and a stream
`orders` with the typed rows of a table. After `BATCHES` batches, the program takes a picture of the stream's page in
Spark's "Structured Streaming": rates, times of the batches and their phases. Spark serves its pages on the loopback
address only.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_sink.mirror.assembly import make_applier
from spark_sink.mirror.job import Job
from spark_sink.mirror.session import spark_session
from spark_sink.mirror.values.settings import MirrorSettings
from tests.daemon.harness import PASSWORD, Daemon, until
from tests.servers import Server, start_server
from tests.servers.ports import free_port
from tests.support.browser import chromium

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SIZE: Any = {"width": 1180, "height": 1330}
SHOWN = 25  # batches on the page, without the first batches, in which Python processes start
BATCHES = 30
ROWS = 2000  # of a transaction, at most
RUN_S = 900.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.spark_ui", description=__doc__)
    parser.add_argument("picture", type=Path, help="the file to write")
    picture: Path = parser.parse_args(arguments).picture
    port = free_port()
    with scene() as (daemon, home):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings = _settings(daemon, home, port)
        spark = spark_session(settings)
        source = {"url": settings.url, "consumer": "orders", "table": "shop.orders"}
        rows = spark.readStream.format("binlog").options(**source).load()
        stream = rows.writeStream.format("noop").queryName("orders")
        stream = stream.option("checkpointLocation", str(home / "checkpoint"))
        query = stream.trigger(processingTime="1 second").start()
        artist = _Artist(query, f"http://127.0.0.1:{port}", picture)
        artist.start()
        code = Job(settings, make_applier).run()  # until `_Artist` ends it
        artist.join()
    if code or artist.fault is not None:
        raise SystemExit(f"no picture: the mirror ended with {code}: {artist.fault}")
    print(picture)
    return 0


class _Artist(threading.Thread):
    """Takes the picture after `BATCHES` batches, and then ends the mirror."""

    def __init__(self, query: StreamingQuery, url: str, picture: Path) -> None:
        super().__init__()
        self.fault: BaseException | None = None
        self._query, self._url, self._picture = query, url, picture

    def run(self) -> None:
        try:
            until(self._is_time, f"the stream has had {BATCHES} batches", timeout_s=RUN_S)
            take(self._url, self._picture)
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self.fault = error
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _is_time(self) -> bool:
        if (fault := self._query.exception()) is not None:
            raise RuntimeError(f"the stream has failed: {fault}")
        last = self._query.lastProgress
        return last is not None and last.batchId >= BATCHES


@contextmanager
def scene() -> Iterator[tuple[Daemon, Path]]:
    """A server that gets rows, and a daemon with the consumers `orders` and `shop`."""
    with ExitStack() as stack:
        server = stack.enter_context(start_server("mysql97"))
        columns = "id INT AUTO_INCREMENT PRIMARY KEY, item VARCHAR(40), price DECIMAL(8,2)"
        server.execute("CREATE DATABASE shop", f"CREATE TABLE shop.orders ({columns})")
        server.add_user("repl", PASSWORD)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-ui-")))
        consumer = {
            "mysql": f"repl@{server.host}:{server.port}",
            "password": PASSWORD,
            "databases": ["shop"],
            "start": "earliest",
        }
        daemon = Daemon(home / "daemon", {"consumers": {"orders": consumer, "shop": consumer}})
        stack.callback(daemon.close)
        daemon.start()
        stop = threading.Event()
        writer = threading.Thread(target=_write, args=(server, stop), daemon=True)
        writer.start()
        stack.callback(writer.join)
        stack.callback(stop.set)
        yield daemon, home


def _settings(daemon: Daemon, home: Path, port: int) -> MirrorSettings:
    conf = {
        "spark.app.name": "shop",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.sql.streaming.ui.retainedProgressUpdates": str(SHOWN),
    }
    return MirrorSettings.model_validate(
        {
            "url": f"http://127.0.0.1:{daemon.port}",
            "consumers": ["shop"],
            "target": str(home / "lake"),
            "spark": {"conf": conf},
        }
    )


def _write(server: Server, stop: threading.Event) -> None:
    """Write transactions whose size goes up and down, as under real load."""
    began = time.monotonic()
    with server.connect("shop") as connection, connection.cursor() as cursor:
        while not stop.wait(0.1):
            wave = math.sin((time.monotonic() - began) / 5) + 1.2
            rows = ", ".join(["('a thing', 12.50)"] * max(1, int(ROWS * wave / 2.2)))
            cursor.execute(f"INSERT INTO orders (item, price) VALUES {rows}")
            cursor.execute("UPDATE orders SET price = price + 1 ORDER BY id DESC LIMIT 20")


def take(url: str, picture: Path) -> None:
    """Write a picture of the page of the query `orders`."""
    with chromium() as browser:
        page = browser.new_page(viewport=SIZE, device_scale_factor=1)
        page.goto(f"{url}/StreamingQuery/")
        page.click("tr:has-text('orders') a[href*='statistics/?id=']")
        page.wait_for_selector("svg")
        page.wait_for_timeout(2000)  # the plots are drawn
        page.screenshot(path=picture)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
