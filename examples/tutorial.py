"""From an empty MySQL database to a Delta table that follows it; docs/tutorial.md explains each step.

    python -m examples.tutorial                                      # in a clone: starts a MySQL server for it
    MYSQL_PASSWORD=secret python examples/tutorial.py user@host:3306   # on your server

It creates the database `tutorial` and drops it at the end. Before it ends, it ends all processes that it has started,
and removes its files.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from urllib.request import urlopen

import pymysql
from pymysql.cursors import Cursor
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_sink.jars import delta_settings


@contextmanager
def mysql_server() -> Iterator[str]:
    """A MySQL server for the tutorial. The first run downloads it. Yields the address of an account."""
    from tests.servers import start_server  # noqa: PLC0415 - only a clone of the repository has it

    with start_server("mysql97") as server:
        server.add_user("tutorial", os.environ["MYSQL_PASSWORD"], "ALL ON *.*")
        yield f"tutorial@{server.host}:{server.port}"


@contextmanager
def tutorial_database(account: str) -> Iterator[Cursor]:
    """Create the database, and drop it at the end of the block. Yields a cursor of the account."""
    user, _, address = account.rpartition("@")
    host, _, port = address.rpartition(":")
    password = os.environ["MYSQL_PASSWORD"]
    connection = pymysql.connect(
        host=host, port=int(port), user=user, password=password, autocommit=True
    )
    with closing(connection), connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE tutorial")
        try:
            yield cursor
        finally:
            cursor.execute("DROP DATABASE tutorial")


SETTINGS = """\
consumers:
  raw: {mysql: "ACCOUNT", password: "${MYSQL_PASSWORD}", databases: [tutorial]}
  json: {mysql: "ACCOUNT", password: "${MYSQL_PASSWORD}", databases: [tutorial]}
  typed: {mysql: "ACCOUNT", password: "${MYSQL_PASSWORD}", databases: [tutorial]}
  mirror: {mysql: "ACCOUNT", password: "${MYSQL_PASSWORD}", databases: [tutorial]}
api: {listen: "127.0.0.1:PORT"}
state: {path: state.db}
"""


@contextmanager
def daemon(account: str, folder: Path) -> Iterator[str]:
    """Run the daemon until the end of the block. Yields its address when the daemon reads the server's log."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    settings, log = folder / "dispatcher.yaml", folder / "daemon.log"
    settings.write_text(SETTINGS.replace("ACCOUNT", account).replace("PORT", str(port)))
    command = [sys.executable, "-m", "dispatcher", "run", "--config", settings.name]
    url = f"http://127.0.0.1:{port}"
    with log.open("w") as stderr, subprocess.Popen(command, stderr=stderr, cwd=folder) as process:
        try:
            while not is_streaming(url):
                if process.poll() is not None:
                    sys.exit(f"the daemon has ended:\n{log.read_text()}")
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()


def is_streaming(url: str) -> bool:
    """True if the daemon reads the log for all consumers."""
    try:
        with urlopen(f"{url}/v1/binlogs") as answer:  # noqa: S310
            return all(consumer["state"] == "streaming" for consumer in json.load(answer))
    except OSError:  # the daemon does not listen yet
        return False


def spark_session() -> SparkSession:
    """A local Spark that knows Delta tables. Its Python processes run this Python, which has the source "binlog"."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
    settings = delta_settings() | quiet | {"spark.ui.enabled": "false"}
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


def create_orders(mysql: Cursor) -> None:
    mysql.execute(
        "CREATE TABLE tutorial.orders (id INT PRIMARY KEY, item VARCHAR(20), price DECIMAL(6,2))"
    )
    mysql.execute("INSERT INTO tutorial.orders VALUES (1, 'tea', 3.50), (2, 'cake', 4.20)")
    mysql.execute("UPDATE tutorial.orders SET price = 4.50 WHERE id = 2")


def read(spark: SparkSession, url: str, consumer: str, **options: str) -> None:
    """Read all changes that the consumer has now into a view with the consumer's name."""
    changes = spark.readStream.format("binlog").options(url=url, consumer=consumer, **options)
    query = changes.load().writeStream.format("memory").queryName(consumer)
    query.trigger(availableNow=True).start().awaitTermination()


def show_changes(spark: SparkSession, url: str) -> None:
    read(spark, url, "raw", raw="true")
    spark.sql("SELECT kind, `table`, rows, query FROM raw ORDER BY entry").show(truncate=False)

    read(spark, url, "json")
    rows = "SELECT op, before, after FROM json WHERE op <> 'ddl' ORDER BY seq, ordinal"
    spark.sql(rows).show(truncate=False)

    read(spark, url, "typed", table="tutorial.orders")
    spark.sql("SELECT op, before.price AS was, after.* FROM typed ORDER BY seq, ordinal").show()


@contextmanager
def mirror(url: str, lake: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the mirror until the end of the block. It keeps the Delta tables in `lake` equal to the server's tables."""
    command = [sys.executable, "-m", "spark_sink", "run", "--url", url, "--consumer", "mirror"]
    with subprocess.Popen([*command, "--target", str(lake)]) as job:
        try:
            yield job
        finally:
            job.terminate()


def show_orders(
    spark: SparkSession, lake: Path, job: subprocess.Popen[bytes], newest: dict[str, object]
) -> None:
    """Wait until the Delta table has a row with the values `newest`, and show the table."""
    table = str(lake / "tutorial" / "orders")
    while not has_row(spark, table, newest):
        if job.poll() is not None:
            sys.exit("the mirror has ended")
        time.sleep(0.5)
    spark.sql(f"SELECT * FROM delta.`{table}` ORDER BY id").show()


def has_row(spark: SparkSession, table: str, values: dict[str, object]) -> bool:
    """True if there is a Delta table that has a row with these values."""
    try:
        rows = spark.read.format("delta").load(table).collect()
    except AnalysisException as error:
        if error.getCondition() not in {"PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND"}:
            raise
        return False  # the mirror has not committed it yet
    return any(values.items() <= row.asDict().items() for row in rows)


def change_orders(mysql: Cursor) -> None:
    mysql.execute("INSERT INTO tutorial.orders VALUES (3, 'milk', 1.10)")
    mysql.execute("DELETE FROM tutorial.orders WHERE id = 1")
    mysql.execute("ALTER TABLE tutorial.orders ADD COLUMN paid BOOLEAN NOT NULL DEFAULT FALSE")
    mysql.execute("UPDATE tutorial.orders SET paid = TRUE WHERE id = 2")


def main(account: str) -> None:
    with tempfile.TemporaryDirectory(prefix="tutorial-") as name:
        folder = Path(name)
        lake = folder / "lake"
        with (
            tutorial_database(account) as mysql,
            daemon(account, folder) as url,
            spark_session() as spark,
        ):
            create_orders(mysql)
            show_changes(spark, url)
            with mirror(url, lake) as job:
                show_orders(spark, lake, job, {"price": Decimal("4.50")})
                change_orders(mysql)
                show_orders(spark, lake, job, {"paid": 1})


if __name__ == "__main__":
    # SIGTERM ends the blocks above as Ctrl-C does, so the processes that they have started end, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        os.environ["MYSQL_PASSWORD"] = secrets.token_hex(16)
        with mysql_server() as own:
            main(own)
