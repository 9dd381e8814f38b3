"""The mirror on a real server's log: the Delta tables equal MySQL's, and no step is applied twice."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.batch_apply import Mirror
from tests.spark.conftest import Source, Target, assert_equal, to_end


class Job:
    """The query of one consumer; each run ends at the server's newest position."""

    def __init__(self, source: Source, target: Target, folder: Path, **options: str) -> None:
        self.source, self.target, self.folder = source, target, folder
        self.options = {"retryTimeoutSeconds": "5", "raw": "true"} | options
        self.mirror: Mirror | None = None

    def run(self, checkpoint: str = "c") -> None:
        self.source.feed()
        spark = self.target.spark
        self.mirror = Mirror(spark, "shop", str(self.target.path))
        reader = spark.readStream.format("binlog").option("url", self.source.daemon.url)
        frame = reader.options(consumer="shop", **self.options).load()
        to_end(frame, self.folder / checkpoint, self.mirror)

    def fails(self, checkpoint: str = "c") -> BinlogError:
        with pytest.raises(StreamingQueryException):
            self.run(checkpoint)
        assert self.mirror is not None
        assert isinstance(self.mirror.failure, BinlogError)
        return self.mirror.failure


@pytest.fixture
def job(source: Source, target: Target, tmp_path: Path) -> Job:
    return Job(source, target, tmp_path)


ALL_TYPES = """
CREATE TABLE types (
  id BIGINT UNSIGNED PRIMARY KEY, t TINYINT, ut TINYINT UNSIGNED, s SMALLINT, us SMALLINT UNSIGNED,
  m MEDIUMINT, um MEDIUMINT UNSIGNED, i INT, ui INT UNSIGNED, b BIGINT, d DECIMAL(38,10), d2 DECIMAL(5,0),
  f FLOAT, g DOUBLE, c CHAR(5), v VARCHAR(300), x TEXT, bi BINARY(4), vb VARBINARY(20), bl BLOB, da DATE,
  dt DATETIME, dt6 DATETIME(6), ts TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, e ENUM('small', 'grün')
) CHARACTER SET utf8mb4
"""


def test_every_type_and_every_kind_of_change(job: Job, source: Source, target: Target) -> None:
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
    job.run()
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
    job.run()
    assert_equal(source, target, "types")
    one, two = sorted(target.rows(source, "rare"), key=lambda row: int(row["id"]))
    assert one["p"].asDict() == {
        "srid": 4326,
        "wkb": b"\1\1\0\0\0" + struct.pack("<dd", 2, 1),  # stored as longitude, latitude
    }
    assert (one["v"], one["j"], one["k"]) == ([1.0, -2.5], '{"a": [7, 2.5]}', "中文")
    assert set(two.values()) == {2, None}
    pairs = {(row["a"], row["b,c"]): row["v"] for row in target.rows(source, "pair of")}
    assert pairs == {(row["a"], row["b,c"]): row["v"] for row in source.rows("pair of")}


def test_statements_between_changes_and_a_replay_that_changes_nothing(
    job: Job, source: Source, target: Target
) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO other VALUES (1)",
        "INSERT INTO gone VALUES (1)",
        "TRUNCATE t",
        "INSERT INTO t VALUES (3, 3)",
        "ALTER TABLE t ADD COLUMN w DATETIME(3), ADD INDEX (v)",
        "INSERT INTO t VALUES (4, 4, '2024-02-29 12:00:00.5')",
        "DROP TABLE gone",
        "CREATE TABLE gone (name VARCHAR(10) PRIMARY KEY, id INT)",
        "INSERT INTO gone VALUES ('new', 1)",
    )
    job.run()
    assert_equal(source, target, "t", "gone", "other")
    commits = {name: target.versions(source, name) for name in ("t", "gone", "other")}
    assert commits["other"] == 1
    # The checkpoint is lost, so everything is read from the beginning again, in other batches.
    Job(source, target, job.folder, maxBytesPerTrigger="1500").run("fresh")
    assert_equal(source, target, "t", "gone", "other")
    assert {name: target.versions(source, name) for name in commits} == commits
    source.execute("DROP TABLE other", "DELETE FROM t")
    job.run()
    assert target.rows(source, "other") == []
    assert target.rows(source, "t") == []


def test_changes_that_a_mirror_cannot_follow_stop_it_and_keep_what_it_has(
    job: Job, source: Source, target: Target
) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE empty_yet (id INT PRIMARY KEY, v INT)",
        "ALTER TABLE empty_yet MODIFY v BIGINT NOT NULL",
        "INSERT INTO t VALUES (1, 1)",
        "ALTER TABLE t MODIFY v BIGINT",
        "INSERT INTO t VALUES (2, 2)",
    )
    error = job.fails()
    assert error.kind is ErrorKind.UNSUPPORTED_CHANGE
    assert f"table {source.database}.t: MODIFY v BIGINT cannot be applied" in error.what
    assert "ALTER TABLE t MODIFY v BIGINT" in error.what
    assert "binlog.0" in error.where
    assert [row["id"] for row in target.rows(source, "t")] == [1]
    # Again: it stops at the same place and has not moved.
    assert job.fails().what == error.what
    assert [row["id"] for row in target.rows(source, "t")] == [1]


def test_a_table_without_a_primary_key_is_named(job: Job, source: Source) -> None:
    source.execute("CREATE TABLE heap (id INT)", "INSERT INTO heap VALUES (1)")
    error = job.fails()
    assert f"table {source.database}.heap has no primary key" in error.what
    assert "leave it out" in error.remedy


def test_rows_without_all_columns_are_named(job: Job, source: Source) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)",
        "SET binlog_row_image = MINIMAL",
        "INSERT INTO t (id, a) VALUES (1, 2)",
    )
    with pytest.raises(StreamingQueryException):
        job.run()
    assert job.mirror is not None
    assert f"row image incomplete: rows of table {source.database}.t" in str(job.mirror.failure)


@pytest.mark.kills
def test_a_worker_killed_while_it_decodes_costs_a_retry_only(
    job: Job, source: Source, target: Target, kill_folder: Path
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (0, 0)")
    job.run()
    for run in range(3):
        source.execute(
            f"INSERT INTO t VALUES ({run + 1}, 0)",
            "UPDATE t SET n = n + 1 ORDER BY id DESC",
            f"DELETE FROM t WHERE id = {run - 1}",
        )
        commits = target.versions(source, "t")
        armed = kill_folder / "decoding"
        armed.touch()
        job.run()
        assert not armed.exists()
        assert_equal(source, target, "t")
        assert target.versions(source, "t") == commits + 1
