"""Rows that are larger than the server's `max_allowed_packet`, which limits what a client sends, not what it reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory
from tests.spark.mirror.copy.conftest import Copying, add_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20


@pytest.mark.parametrize("kind", ["mysql97", "mysql56", "mariadb1011", "mariadb118"])
def test_rows_larger_than_max_allowed_packet_are_copied(
    kind: Kind, spark: SparkSession, server_factory: ServerFactory, tmp_path: Path
) -> None:
    """The table `p` has a key on a part of the large values. If these values were bounds of ranges, a statement would
    be larger than `max_allowed_packet`, and MySQL 9.7 could not sort the rows."""
    server = server_factory(kind, "--max-allowed-packet=64M", "--loose-innodb-log-file-size=512M")
    add_reader(server)
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, b LONGBLOB, c LONGTEXT)",
        "CREATE TABLE d.p (b LONGBLOB NOT NULL, n INT, PRIMARY KEY (b(8)))",
        f"INSERT INTO d.t VALUES (1, REPEAT('x', {20 * MIB}), REPEAT('y', {20 * MIB})), (2, 'z', NULL)",
        *(
            f"INSERT INTO d.p VALUES (CONCAT('{n}', REPEAT('x', {20 * MIB})), {n})"
            for n in range(3)
        ),
        "SET GLOBAL max_allowed_packet = 4194304",
    )
    copying = Copying(spark, server, tmp_path / "target")
    for table, sizes in (
        ("t", [(20 * MIB, 20 * MIB), (1, None)]),
        ("p", [(20 * MIB + 1, n) for n in range(3)]),
    ):
        copying.copy("d", table, max_bytes_in_chunk="1MiB")
        frame = spark.read.format("delta").load(copying.path(table))
        lengths = "length(b) AS b, length(c) AS c" if table == "t" else "length(b) AS b, n"
        found = frame.selectExpr(*lengths.split(", ")).collect()
        assert sorted(map(tuple, found), reverse=table == "t") == sizes
