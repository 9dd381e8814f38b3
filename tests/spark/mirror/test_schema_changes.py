"""Schema changes on Delta tables, by metadata or by a rewrite. Each change is made only once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from dispatcher.binlog.sql.lexer import STRICT_TRANS_TABLES
from dispatcher.binlog.table_map.column_types import InvalidDates
from spark_sink.mirror.lake import delta_commit, delta_log
from spark_sink.mirror.lake.table_features import COLUMN_MAPPING, NTZ_FEATURE, TYPE_WIDENING
from spark_sink.mirror.schema.columns import ColumnSignature
from spark_sink.mirror.schema.signature import (
    Recopy,
    SchemaChange,
    Signature,
    change_of,
    new_columns,
)
from spark_sink.mirror.schema.statements import AlterTable, effects_of
from spark_sink.mirror.tables import schema_changes
from spark_sink.mirror.tables.delta import MirroredTable
from tests.support.statements import UTF8, as_logged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APP = "binlog-dispatcher/table/t1"
EVOLVING = ", ".join(
    f"'{name}'='{value}'" for name, value in (COLUMN_MAPPING | TYPE_WIDENING | NTZ_FEATURE).items()
)


def signature(**columns: str) -> Signature:
    return Signature(
        tuple(
            ColumnSignature.of_definition(
                name,
                text,
                "utf8mb4" if text.startswith(("varchar", "enum", "text")) else "",
                name != "id",
                InvalidDates.NULL,
            )
            for name, text in columns.items()
        ),
        ("id",),
    )


def following(old: Signature, clauses: str) -> SchemaChange:
    (effect,) = effects_of(as_logged(f"ALTER TABLE t {clauses}", "db", STRICT_TRANS_TABLES, **UTF8))
    assert isinstance(effect, AlterTable)
    change = change_of(old, effect, InvalidDates.NULL, ())
    assert not isinstance(change, Recopy), change
    return change


@dataclass
class Mirror:
    """A Delta table, its signature, and the version of its last change."""

    spark: SparkSession
    path: str
    signature: Signature
    version: int = 0

    def fill(self, *rows: str) -> None:
        """Add rows, each as values of Spark SQL."""
        columns = ", ".join(f"`{c.name}` {c.spark_type}" for c in self.signature.columns)
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{self.path}` ({columns}) USING delta"
            f" TBLPROPERTIES ({EVOLVING}, 'delta.enableDeletionVectors'='true')"
        )
        if rows:
            self.spark.sql(f"INSERT INTO delta.`{self.path}` VALUES {', '.join(rows)}")

    def alter(self, clauses: str) -> str:
        return self.execute(following(self.signature, clauses))

    def execute(self, change: SchemaChange) -> str:
        self.version += 1
        refused = schema_changes.execute(self.spark, self.path, APP, self.version, change)
        if not refused:
            self.signature = change.signature
        return refused

    @property
    def frame(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.path)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.frame.collect())

    @contextmanager
    def by_metadata(self) -> Iterator[None]:
        """Asserts that the block makes one commit, and writes no file."""
        before, commits = self.files(), delta_log.delta_version(self.spark, self.path)
        yield
        assert self.files() == before
        assert delta_log.delta_version(self.spark, self.path) == commits + 1
        assert delta_log.txn_version(self.spark, self.path, APP) == self.version

    def files(self) -> list[str]:
        return sorted(str(path) for path in Path(self.path).rglob("*.parquet"))


@pytest.fixture
def mirror(spark: SparkSession, tmp_path: Path) -> Mirror:
    table = Mirror(spark, str(tmp_path / "t"), signature(id="int", a="int", b="varchar(20)"))
    table.fill("(1, 10, 'x')", "(2, NULL, 'y')")
    return table


def test_columns_are_added_dropped_renamed_and_moved_in_one_commit(mirror: Mirror) -> None:
    with mirror.by_metadata():
        assert mirror.alter("ADD n DATETIME(3) AFTER id, DROP a, CHANGE b `c d` TEXT FIRST") == ""
    assert mirror.frame.columns == ["c d", "id", "n"]
    assert mirror.rows() == [("x", 1, None), ("y", 2, None)]
    mirror.fill("('z', 3, TIMESTAMP_NTZ'2024-01-01 10:00:00.5')")
    assert mirror.rows()[-1] == ("z", 3, datetime.fromisoformat("2024-01-01 10:00:00.5"))


@pytest.mark.deep
def test_two_columns_exchange_their_names(mirror: Mirror) -> None:
    with mirror.by_metadata():
        mirror.alter("RENAME COLUMN a TO id, RENAME COLUMN id TO a")
    assert mirror.frame.columns == ["a", "id", "b"]
    assert mirror.rows() == [(1, 10, "x"), (2, None, "y")]


@pytest.mark.deep
def test_a_column_that_is_dropped_and_added_again_is_empty(mirror: Mirror) -> None:
    with mirror.by_metadata():
        mirror.alter("DROP a, ADD a INT AFTER id")
    assert mirror.rows() == [(1, None, "x"), (2, None, "y")]
    with mirror.by_metadata():
        mirror.alter("DROP b")
    with mirror.by_metadata():
        mirror.alter("ADD b VARCHAR(9)")
    assert mirror.rows() == [(1, None, None), (2, None, None)]


# (type, value, type after the change, value after the change). All lines are columns of one table, because a table per
# line would take seconds.
WIDENED = [
    ("tinyint", "-5", "smallint", -5),
    ("tinyint", "-5", "int", -5),
    ("smallint", "-500", "bigint", -500),
    ("int", "2147483647", "bigint", 2147483647),
    ("int unsigned", "4294967295", "bigint unsigned", Decimal(4294967295)),
    ("bigint", "-9223372036854775808", "decimal(25,2)", Decimal("-9223372036854775808.00")),
    ("int", "7", "decimal(10,0)", Decimal(7)),
    ("int", "7", "double", 7.0),
    ("float", "0.1", "double", 0.10000000149011612),
    ("decimal(10,2)", "1.50", "decimal(12,4)", Decimal("1.5000")),
    ("date", "DATE'2024-02-29'", "datetime", datetime.fromisoformat("2024-02-29")),
]
REWRITTEN = [
    ("bigint", "5", "int", 5),
    ("int", "5", "int unsigned", 5),
    ("smallint", "5", "float", 5.0),
    ("bigint", "5", "double", 5.0),
    ("decimal(12,2)", "5.00", "int", 5),
    ("double", "0.5", "float", 0.5),
    ("datetime", "TIMESTAMP_NTZ'2024-02-29 00:00:00'", "date", date(2024, 2, 29)),
]
Cases = list[tuple[str, str, str, Any]]


def table_of(cases: Cases, spark: SparkSession, path: Path) -> Mirror:
    """Creates a table with a column v0, v1, ... for each case, a row with the cases' values, and a row with NULL in all
    columns."""
    columns = {f"v{number}": before for number, (before, *_) in enumerate(cases)}
    table = Mirror(spark, str(path), signature(id="int", **columns))
    values = ", ".join(value for _, value, *_ in cases)
    table.fill(f"(1, {values})", f"(2, {', '.join(['NULL'] * len(cases))})")
    return table


def modified(cases: Cases) -> str:
    return ", ".join(f"MODIFY v{number} {after}" for number, (_, _, after, _) in enumerate(cases))


def test_types_that_delta_widens(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(WIDENED, spark, tmp_path / "t")
    before = [column.spark_type for column in table.signature.columns[1:]]
    with table.by_metadata():
        assert table.alter(modified(WIDENED)) == ""
    expected = tuple(case[3] for case in WIDENED)
    nulls = (None,) * len(WIDENED)
    assert table.rows() == [(1, *expected), (2, *nulls)]
    after = [column.spark_type for column in table.signature.columns[1:]]
    assert [field.dataType.simpleString() for field in table.frame.schema][1:] == after
    assert all(old != new for old, new in zip(before, after, strict=True))
    # Rows of both types are in one file after an update, and a deletion vector marks the old ones.
    values = (
        f"CAST(CAST({value} AS {old}) AS {new})"
        for (_, value, *_), old, new in zip(WIDENED, before, after, strict=True)
    )
    table.fill(f"(3, {', '.join(values)})")
    spark.sql(f"UPDATE delta.`{table.path}` SET id = id + 10 WHERE id = 1")
    assert table.rows() == [(2, *nulls), (3, *expected), (11, *expected)]


def test_types_that_a_rewrite_changes(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(REWRITTEN, spark, tmp_path / "t")
    assert table.alter(modified(REWRITTEN)) == ""
    nulls = (None,) * len(REWRITTEN)
    assert table.rows() == [(1, *(case[3] for case in REWRITTEN)), (2, *nulls)]
    assert delta_log.txn_version(spark, table.path, APP) == 1


def test_an_added_column_has_its_default_in_existing_rows(mirror: Mirror) -> None:
    mirror.alter(
        "ADD n INT NOT NULL DEFAULT 7 AFTER id, ADD s VARCHAR(9) DEFAULT 'it''s', ADD d DECIMAL(5,2) NOT NULL,"
        " ADD t DATETIME(1) DEFAULT '2024-01-01 10:00:00.5', ADD x VARBINARY(3) DEFAULT x'00ff', ADD e INT"
    )
    assert mirror.frame.columns == ["id", "n", "a", "b", "s", "d", "t", "x", "e"]
    stamp = datetime.fromisoformat("2024-01-01 10:00:00.5")
    rest = ("it's", Decimal("0.00"), stamp, bytearray(b"\0\xff"), None)
    assert mirror.rows() == [(1, 7, 10, "x", *rest), (2, 7, None, "y", *rest)]
    with mirror.by_metadata():  # also after a rewrite, which renames the columns in the files
        mirror.alter("RENAME COLUMN n TO m, DROP s")


def test_a_repeated_change_is_skipped(mirror: Mirror) -> None:
    first = following(mirror.signature, "ADD n INT DEFAULT 7")
    mirror.execute(first)
    commits = delta_log.delta_version(mirror.spark, mirror.path)
    for _ in range(2):
        assert schema_changes.execute(mirror.spark, mirror.path, APP, mirror.version, first) == ""
    older = following(mirror.signature, "DROP a")
    assert schema_changes.execute(mirror.spark, mirror.path, APP, mirror.version, older) == ""
    assert delta_log.delta_version(mirror.spark, mirror.path) == commits


@pytest.mark.deep
def test_a_change_of_nothing_records_its_version(mirror: Mirror) -> None:
    with mirror.by_metadata():
        mirror.alter("MODIFY b VARCHAR(200) NOT NULL COMMENT 'x'")
    assert mirror.rows() == [(1, 10, "x"), (2, None, "y")]


@pytest.mark.parametrize(
    ("clause", "reason"),
    [
        ("MODIFY b VARCHAR(3)", "column b: a value is longer than 3"),
        ("MODIFY b CHAR(20)", "column b: a value ends with a space, which CHAR does not keep"),
        ("MODIFY b VARCHAR(3), DROP a", "column b: a value is longer than 3"),
    ],
)
def test_rows_that_do_not_follow_leave_the_table_as_it_is(
    mirror: Mirror, clause: str, reason: str
) -> None:
    assert mirror.alter(clause) == ""
    mirror.signature = signature(id="int", a="int", b="varchar(20)")
    other = Mirror(mirror.spark, mirror.path + "2", mirror.signature)
    other.fill("(1, 10, 'long ')")
    commits = delta_log.delta_version(other.spark, other.path)
    assert other.alter(clause) == reason
    assert delta_log.delta_version(other.spark, other.path) == commits


@pytest.mark.deep
def test_new_column_keeps_the_old_one_beside_it(mirror: Mirror) -> None:
    new = signature(id="int", a="varchar(9)", c="int")
    with mirror.by_metadata():
        mirror.execute(new_columns(mirror.signature, new, 4711))
    assert mirror.frame.columns == ["id", "a", "c", "a__4711", "b__4711"]
    assert mirror.rows() == [(1, None, None, 10, "x"), (2, None, None, None, "y")]


@pytest.mark.deep
def test_columns_of_the_mirror_itself_stay_behind(mirror: Mirror) -> None:
    mirror.spark.sql(f"ALTER TABLE delta.`{mirror.path}` ADD COLUMNS (_seq BIGINT)")
    mirror.spark.sql(f"UPDATE delta.`{mirror.path}` SET _seq = 5")
    mirror.alter("ADD n INT, MODIFY a BIGINT")
    assert mirror.rows() == [(1, 10, "x", None, 5), (2, None, "y", None, 5)]
    mirror.alter("ADD m INT NOT NULL")
    assert mirror.frame.columns == ["id", "a", "b", "n", "m", "_seq"]
    assert mirror.rows() == [(1, 10, "x", None, 0, 5), (2, None, "y", None, 0, 5)]


@pytest.mark.deep
def test_a_table_that_was_created_without_column_mapping(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, v INT) USING delta")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 2)")
    table = Mirror(spark, path, signature(id="int", v="int"))
    table.alter("CHANGE v w BIGINT, ADD x INT")
    assert table.rows() == [(1, 2, None)]


def test_a_change_switches_on_the_features_that_it_needs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Mirror(spark, str(tmp_path / "t"), signature(id="int", v="int", w="int"))
    columns = StructType([StructField(c, IntegerType()) for c in ("id", "v", "w")])
    MirroredTable("t1", table.path, "shop.t").create(spark, columns)

    def requires() -> set[str]:
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{table.path}`").first()
        assert detail is not None
        features = set(detail["tableFeatures"]) & {"columnMapping", "timestampNtz", "typeWidening"}
        assert detail["minReaderVersion"] == (3 if features else 1)
        return features

    table.fill("(1, 2, 3)")
    assert requires() == set()
    with table.by_metadata():
        table.alter("ADD x INT, MODIFY w INT FIRST")
    table.alter("ADD y INT NOT NULL DEFAULT 3, DROP x")  # by a rewrite
    assert requires() == set()
    table.alter("ADD moment DATETIME")
    assert requires() == {"timestampNtz"}
    table.alter("MODIFY v BIGINT")
    assert requires() == {"timestampNtz", "typeWidening"}
    with monkeypatch.context() as patched:
        patched.setattr(delta_commit, "commit_schema", _killed)
        with pytest.raises(InterruptedError):
            table.alter("RENAME COLUMN v TO u, DROP y, ADD v INT")
    table.version -= 1
    assert table.frame.columns == ["w", "id", "v", "y", "moment"]
    with table.by_metadata():  # the killed attempt has switched on column mapping
        table.alter("RENAME COLUMN v TO u, DROP y, ADD v INT")
    assert requires() == {"columnMapping", "timestampNtz", "typeWidening"}
    assert table.frame.columns == ["w", "id", "u", "moment", "v"]
    assert table.rows() == [(3, 1, 2, None, None)]


def _killed(*_: object) -> None:
    raise InterruptedError


@pytest.mark.deep
def test_properties_of_a_table_stay(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id INT, v INT) USING delta"
        f" TBLPROPERTIES ({EVOLVING}, 'binlog.table_id'='t1')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 2)")
    table = Mirror(spark, path, signature(id="int", v="int"))
    table.alter("RENAME COLUMN id TO k")
    table.alter("ADD x INT DEFAULT 3, MODIFY v TINYINT")
    assert table.rows() == [(1, 2, 3)]
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").first()
    assert detail is not None
    assert detail["properties"]["binlog.table_id"] == "t1"
