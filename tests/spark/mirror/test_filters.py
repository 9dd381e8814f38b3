"""Which tables each consumer mirrors: only the consumer's own `include` and `exclude` decide this."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from dispatcher.model.errors import UserError
from spark_sink.mirror.assembly import apply_options
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.request_commands import request_resolution
from spark_sink.mirror.rules.chosen_tables import mirrored_names
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import Wish
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.values.settings import MirrorSettings
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def apply_with(spark: SparkSession, target: Target, consumers: dict[str, object]) -> int:
    """Apply the log as a job with these consumers does. Returns the exit code."""
    settings = MirrorSettings.model_validate(
        {"url": "http://127.0.0.1:8085", "target": str(target.path), "consumers": consumers}
    )
    return Applier(spark, apply_options(settings)).run(threading.Event(), drain=True)


@pytest.mark.rotate(1, of="filters")
def test_a_consumer_leaves_out_a_table_that_another_consumer_does_not_leave_out(
    spark: SparkSession, mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY)",
        "CREATE TABLE tmp_x (id INT PRIMARY KEY)",
        "INSERT INTO orders VALUES (1)",
        "INSERT INTO tmp_x VALUES (1)",
    )
    mirror.feed()
    exclude = [f"{source.database}.tmp_*"]
    assert apply_with(spark, target, {"shop": {"exclude": exclude}, "billing": {}}) == 0
    assert {record.table for record in mirror.control.records().values()} == {"orders"}
    assert_equal(source, target, "orders")


@pytest.mark.rotate(1, of="filters")
def test_a_table_that_is_left_out_later_is_no_longer_complete(
    spark: SparkSession, mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.feed()
    assert apply_with(spark, target, {"shop": {}}) == 0
    source.execute("INSERT INTO t VALUES (2)")
    mirror.feed()
    assert apply_with(spark, target, {"shop": {"exclude": [f"{source.database}.t"]}}) == 0
    record = mirror.record("t")
    assert record.word is TableState.PARTIAL
    assert record.reason.startswith("the settings of the consumer leave this table out since lsn ")
    assert target.rows(source, "t") == [{"id": 1}]


@pytest.mark.deep
def test_a_table_that_is_taken_in_again_needs_a_copy(
    spark: SparkSession, mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.feed()
    assert apply_with(spark, target, {"shop": {"exclude": [f"{source.database}.*"]}}) == 0
    assert apply_with(spark, target, {"shop": {}}) == 0
    assert (
        mirror.control.records() == {}
    )  # the entries are handled, and the excluded table has no record
    source.execute("CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    mirror.feed()
    assert apply_with(spark, target, {"shop": {}}) == 0
    assert apply_with(spark, target, {"shop": {"exclude": [f"{source.database}.u"]}}) == 0
    assert apply_with(spark, target, {"shop": {}}) == 1
    record = mirror.record("u")
    assert record.word is TableState.STOPPED
    assert f"python -m spark_sink copy {source.database}.u;" in record.reason


@pytest.mark.deep
def test_a_gap_does_not_copy_a_table_that_is_left_out(
    spark: SparkSession, mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.feed()
    assert apply_with(spark, target, {"shop": {}}) == 0
    source.execute("INSERT INTO t VALUES (2)")
    mirror.feed(gap=True)
    assert apply_with(spark, target, {"shop": {"include": ["other.*"]}}) == 0
    assert mirror.record("t").reason.startswith("the settings of the consumer leave this table out")


@pytest.mark.rotate(1, of="filters")
def test_a_request_for_a_table_that_is_left_out_is_refused(
    spark: SparkSession, mirror: Mirror, source: Source, target: Target
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    mirror.feed()
    apply_with(spark, target, {"shop": {}})
    apply_with(spark, target, {"shop": {"exclude": [f"{source.database}.t"]}})
    label = f"{source.database}.t"
    with pytest.raises(UserError, match="the settings leave out") as refused:
        request_resolution(ControlTable(spark, str(target.path)), [label], Wish.RECOPY)
    assert "change include or exclude" in refused.value.remedy


# -- which tables `copy` chooses ------------------------------------------------------------------------------


def filtered() -> MirrorSettings:
    consumers = {"shop": {"include": ["shop.*"], "exclude": ["shop.tmp_*"]}, "billing": {}}
    values = {"url": "http://127.0.0.1:8085", "target": "/t", "consumers": consumers}
    return MirrorSettings.model_validate(values)


ORDERS, TEMPORARY = ("shop", "orders"), ("shop", "tmp_x")


def test_a_pattern_chooses_no_table_that_the_consumer_leaves_out() -> None:
    names = [ORDERS, TEMPORARY]
    assert mirrored_names(filtered(), names, ["shop.*"], {}, "shop") == [ORDERS]


def test_a_table_belongs_to_the_consumer_that_has_it() -> None:
    names = [ORDERS, TEMPORARY]
    owners = {TEMPORARY: "billing"}
    assert mirrored_names(filtered(), names, ["shop.*"], owners, "shop") == names


@pytest.mark.parametrize("names", [[TEMPORARY], [ORDERS, TEMPORARY]])
def test_a_name_that_the_consumer_leaves_out_is_refused(names: list[tuple[str, str]]) -> None:
    with pytest.raises(UserError, match=r"the settings leave out shop\.tmp_x"):
        mirrored_names(filtered(), names, ["shop.tmp_x"], {}, "shop")
