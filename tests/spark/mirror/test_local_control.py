"""The control table is read, and requests are written, without Spark; Spark and other writers see them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake import local_control
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.delta_commit import write_checkpoint
from spark_sink.mirror.lake.local_control import LocalControl, LocalLog
from spark_sink.mirror.rules.states import Live
from spark_sink.mirror.rules.table_record import TableRecord, Wish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def record(name: str) -> TableRecord:
    return TableRecord(f"id-{name}", "shop", "db", name, f"db/{name}", Live())


def local(target: Path) -> LocalControl:
    control = LocalControl.of(f"file://{target}")
    assert control is not None
    return control


@pytest.fixture
def control(spark: SparkSession, tmp_path: Path) -> ControlTable:
    control = ControlTable(spark, str(tmp_path))
    control.write([record("a"), record("b")], ("shop", 7))
    return control


def test_requests_are_seen_by_spark(control: ControlTable, tmp_path: Path) -> None:
    local(tmp_path).request("id-a", Wish.RECOPY)
    local(tmp_path).request_copies([("shop", ("db", "new"))])
    rows = control.rows()
    asked = rows.records["id-a"].request
    assert asked is not None and asked.wish is Wish.RECOPY
    assert list(rows.named) == [("shop", ("db", "new"))]
    control.write([record("c")])
    assert local(tmp_path).rows().records.keys() == {"id-a", "id-b", "id-c"}
    assert local(tmp_path).rows().applied == {"shop": 7}


def test_the_rows_are_those_that_spark_reads(
    spark: SparkSession, control: ControlTable, tmp_path: Path
) -> None:
    for number in range(3):
        control.write([record("a")], ("shop", 10 + number))
    assert control.compact() > 0  # files are removed, and one is added
    write_checkpoint(spark, control.path)
    control.write([record("d")])
    assert LocalLog.read(Path(control.path)).version > 0
    theirs, ours = ControlTable(spark, str(tmp_path)).rows(), local(tmp_path).rows()
    assert (ours.records.keys(), ours.applied, ours.serial) == (
        theirs.records.keys(), theirs.applied, theirs.serial,
    )  # fmt: skip


def test_writers_with_and_without_spark_lose_no_request(
    control: ControlTable, tmp_path: Path
) -> None:
    def with_spark() -> None:
        for number in range(8):
            control.request_copies([("spark", ("db", f"t{number}"))])

    def without(name: str) -> None:
        for number in range(8):
            local(tmp_path).request_copies([(name, ("db", f"t{number}"))])

    threads = [threading.Thread(target=with_spark)]
    threads += [threading.Thread(target=without, args=(name,)) for name in ("x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    wanted = {(c, ("db", f"t{n}")) for c in ("spark", "x", "y") for n in range(8)}
    assert set(local(tmp_path).rows().named) == wanted
    assert set(control.rows().named) == wanted


def test_only_spark_reads_a_table_of_a_later_protocol_or_another_file_system(
    control: ControlTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LocalControl.of("s3a://bucket/lake") is None
    assert LocalControl.of(str(tmp_path / "none")) is None
    assert LocalControl.of(str(tmp_path)) is not None
    monkeypatch.setattr(local_control, "_WRITER_MAX", 1)
    assert LocalControl.of(str(tmp_path)) is None


def test_a_file_that_is_lost_is_an_error_that_names_the_table(
    control: ControlTable, tmp_path: Path
) -> None:
    (file,) = Path(control.path).glob("*.parquet")
    file.unlink()
    with pytest.raises(BinlogError, match="the control table cannot be read") as caught:
        local(tmp_path).rows()
    assert caught.value.kind is ErrorKind.TARGET_FILES
