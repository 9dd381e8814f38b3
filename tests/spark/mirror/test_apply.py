"""The applier on a real server's log: each table equals MySQL's, on its own, and no step is applied twice."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_sink.mirror.control import TableState
from spark_sink.mirror.policies import (
    Deletes,
    MetadataColumn,
    TablePolicy,
    UnfollowedChange,
    UnknownTables,
)
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror
from tests.spark.test_mirror import ALL_TYPES


def test_every_type_and_every_kind_of_change(
    mirror: Mirror, source: Source, target: Target
) -> None:
    row = (
        "(18446744073709551615, -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295,"
        " -9223372036854775808, -1234567890123456789012345678.0123456789, -99999, 1.5, 2.25, 'ä€', '', '😀',"
        " x'00ff', x'', x'ff00', '9999-12-31', '1000-01-01 00:00:00', '9999-12-31 23:59:59.999999',"
        " '1970-01-01 00:00:01', '2038-01-19 03:14:07.999', 'grün')"
    )
    nulls = ", NULL" * 25
    source.execute(
        ALL_TYPES,
        f"INSERT INTO types VALUES {row}, (1{nulls}), (2{nulls})",
        "CREATE TABLE `pair of` (a INT, `b,c` VARCHAR(10) COLLATE utf8mb4_bin, v INT, PRIMARY KEY (`b,c`, a))",
        "INSERT INTO `pair of` VALUES (1, 'x', 1), (1, 'X', 2), (2, 'x', 3)",
        "CREATE TABLE rare (id INT PRIMARY KEY, p POINT, v VECTOR(2), j JSON, k VARCHAR(9) CHARACTER SET gbk)",
        "INSERT INTO rare VALUES (1, ST_GeomFromText('POINT(1 2)', 4326), STRING_TO_VECTOR('[1,-2.5]'),"
        """ '{"a": [1, 2.50]}', '中文'), (2, NULL, NULL, NULL, NULL)""",
        "DELETE FROM types WHERE id = 2",
    )
    assert mirror.run(appends=3) == 0
    source.execute(
        "UPDATE types SET v = 'changed', d = 1 WHERE id = 1",
        "UPDATE types SET id = 5 WHERE id = 1",
        "INSERT INTO types (id) VALUES (1), (3)",
        "REPLACE INTO types (id, t) VALUES (3, 9)",
        "UPDATE `pair of` SET a = a + 10 ORDER BY a DESC",
        "UPDATE `pair of` SET `b,c` = 'y', v = NULL WHERE v = 2",
        "SET binlog_row_value_options = PARTIAL_JSON",
        "UPDATE rare SET j = JSON_SET(j, '$.a[0]', 7) WHERE id = 1",
    )
    assert mirror.run() == 0
    assert_equal(source, target, "types")
    one, two = sorted(target.rows(source, "rare"), key=lambda r: int(r["id"]))
    assert one["p"].asDict() == {
        "srid": 4326,
        "wkb": b"\1\1\0\0\0" + struct.pack("<dd", 2, 1),  # stored as longitude, latitude
    }
    assert (one["v"], one["j"], one["k"]) == ([1.0, -2.5], '{"a": [7, 2.5]}', "中文")
    assert set(two.values()) == {2, None}
    pairs = {(r["a"], r["b,c"]): r["v"] for r in target.rows(source, "pair of")}
    assert pairs == {(r["a"], r["b,c"]): r["v"] for r in source.rows("pair of")}
    # Nothing is left to do, and what is read again changes nothing.
    commits = target.versions(source, "types")
    mirror.control.set_applied("shop", 0)
    assert mirror.apply() == 0
    assert target.versions(source, "types") == commits
