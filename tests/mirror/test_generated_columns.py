"""MariaDB 11.8 leaves generated columns out of the images of updates. The table stops, and the test follows the
remedy."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import delta
from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import PASSWORD
from tests.mirror.harness import COPY_GRANTS, COPY_USER, MirrorJob
from tests.mirror.lake import table_states
from tests.servers.plugin import ServerFactory

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture
def mirrored(
    server_factory: ServerFactory, make_daemon: MakeDaemon, source: Source, tmp_path: Path
) -> Iterator[MirrorJob]:
    """A job of the database `shop` of MariaDB 11.8. Its tables have generated columns, and one table has no key."""
    server = server_factory("mariadb118")
    server.execute("CREATE DATABASE shop")
    server.add_user(COPY_USER, PASSWORD, *COPY_GRANTS)
    daemon = make_daemon({"shop": source(server, "shop", start="earliest")})
    daemon.start()
    daemon.api.until_state("shop", "streaming")
    kills = tmp_path / "kills"
    kills.mkdir()
    server.execute(
        "CREATE TABLE t (g INT AS (a + 1) STORED, id INT PRIMARY KEY, a INT, V INT AS (a + 2) VIRTUAL)",
        "CREATE TABLE keyless (a INT, g INT AS (a + 1) STORED)",
        "CREATE TABLE live (id INT PRIMARY KEY, g INT AS (id + 1) STORED)",
        "INSERT INTO t (id, a) VALUES (1, 10), (2, 20), (3, 30)",
        "INSERT INTO live (id) VALUES (1)",
        "INSERT INTO keyless (a) VALUES (1), (1), (2)",
        database="shop",
    )
    with ExitStack() as stack:
        yield MirrorJob(server, daemon, tmp_path, kills, stack)


def rows(job: MirrorJob, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = delta.read(job.target / "shop" / table).to_pylist()
    return sorted(found, key=lambda row: sorted(row.items()))


@pytest.mark.deep
def test_a_table_with_generated_columns_is_mirrored_without_them_as_the_message_says(
    mirrored: MirrorJob,
) -> None:
    mirrored.settings = "tables: {shop.keyless: {omit_columns: [g]}}\n"
    assert mirrored.run("shop") == 0, mirrored.log
    assert rows(mirrored, "keyless") == [{"a": 1}, {"a": 1}, {"a": 2}]

    mirrored.server.execute(
        "UPDATE t SET a = 11 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "UPDATE keyless SET a = 3 LIMIT 1",
        "DELETE FROM keyless WHERE a = 2",
        database="shop",
    )
    mirrored.run("shop")
    assert rows(mirrored, "keyless") == [{"a": 1}, {"a": 3}]
    stopped = table_states(mirrored.target, "shop")["shop.t"]
    assert stopped["state"] == "stopped"
    assert "rows of table shop.t do not hold the columns g, V" in stopped["reason"]
    assert "name them in omit_columns of the table's policy" in stopped["reason"]

    mirrored.settings = (
        'tables: {"shop.[kl]*": {omit_columns: [g]}, shop.t: {omit_columns: [G, v]}}\n'
    )
    command = re.search(r"python -m spark_sink (resolve shop\.t --as recopy)", stopped["reason"])
    assert command is not None
    name, *arguments = shlex.split(command[1])
    done = subprocess.run(
        mirrored.command(name, *arguments, consumers=("shop",)), cwd=mirrored.home, check=False
    )
    assert done.returncode == 0
    assert mirrored.run("shop") == 0, mirrored.log
    assert rows(mirrored, "t") == [{"id": 1, "a": 11}, {"id": 3, "a": 30}]

    mirrored.server.execute(
        "UPDATE t SET id = 4, a = 40 WHERE id = 3",
        "INSERT INTO t (id, a) VALUES (5, 50)",
        "INSERT INTO live (id) VALUES (2)",
        "UPDATE t SET a = 51 WHERE id = 5",
        "DELETE FROM t WHERE id = 1",
        database="shop",
    )
    assert mirrored.run("shop") == 0, mirrored.log
    assert rows(mirrored, "t") == [{"id": 4, "a": 40}, {"id": 5, "a": 51}]
    assert rows(mirrored, "live") == [{"id": 1}, {"id": 2}]
    assert mirrored.verify("shop").count(": equal") == 3
