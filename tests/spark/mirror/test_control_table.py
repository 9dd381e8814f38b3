"""The control table is a Delta table that several processes may write."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_sink.mirror.lake import control_table
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.delta_commit import append_file
from spark_sink.mirror.lake.delta_log import delta_version
from spark_sink.mirror.rules.control_rows import ClaimedStage
from spark_sink.mirror.rules.states import Creating, Live, Stopped
from spark_sink.mirror.rules.table_record import Request, TableRecord, Wish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_table_that_another_process_makes_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (ControlTable(spark, str(tmp_path / "target")) for _ in range(2))
    create = other._create

    def create_late() -> None:
        # This runs in another thread, because another process would not hold the locks of this one.
        with ThreadPoolExecutor() as another:
            another.submit(one.write, [TableRecord("a", "shop", "db", "first")]).result()
        create()

    monkeypatch.setattr(other, "_create", create_late)
    other.write([TableRecord("b", "shop", "db", "second")])
    for table in (other, one):
        records = table.records()
        assert {record.table: record.serial for record in records.values()} == {
            "first": 1,
            "second": 2,
        }


@pytest.mark.rotate(4, of="tables of the mirror")
def test_what_is_written_together_is_one_commit_and_is_read_as_it_was_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    control = ControlTable(spark, str(tmp_path / "target"))
    assert control.write([]) == {}
    assert delta_version(spark, control.path) < 0
    stands = Stopped(7, Live(exact_from=3), lost=9)
    table = TableRecord("a", "shop", "db", "t", "db/t", stands, from_lsn=6, reason="why")
    history = TableRecord("h", "shop", "db", "t", state=Creating(), history=True)
    control.write([], ("shop", 5))
    before = delta_version(spark, control.path)
    written = control.write([table, history], ("shop", 9))
    assert delta_version(spark, control.path) == before + 1
    assert {table_id: serial for table_id, (serial, _) in written.items()} == {"a": 2, "h": 3}

    for reader in (control, ControlTable(spark, str(tmp_path / "target"))):
        rows = reader.rows()
        assert (reader.applied("shop"), rows.serial) == (9, 4)
        (found,), (of_history,) = rows.records.values(), rows.histories.values()
        assert (found.state, found.reason, found.from_lsn) == (stands, "why", 6)
        assert (of_history.state, of_history.history) == (Creating(), True)
        assert found.at is not None
        assert (found.serial, found.at.replace(tzinfo=UTC)) == written["a"]


def test_rows_can_be_read_while_rows_are_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlTable(spark, str(tmp_path / "target"))
    control.write([TableRecord("a", "shop", "db", "first")])
    read: list[int] = []

    def appending(session: SparkSession, path: str, file: bytes, rows: int) -> None:
        append_file(session, path, file, rows)
        read.append(control.rows().serial)

    monkeypatch.setattr(control_table, "append_file", appending)
    control.write([TableRecord("b", "shop", "db", "second")])
    assert (read, control.rows().serial) == ([1], 2)


def test_the_applied_lsn_is_read_after_rows_that_are_being_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlTable(spark, str(tmp_path / "target"))
    control.write([], ("shop", 5))
    asked = []

    with ThreadPoolExecutor(1) as pool:

        def appending(session: SparkSession, path: str, file: bytes, rows: int) -> None:
            asked.append(pool.submit(control.applied, "shop"))
            wait(asked, 0.2)  # an answer before the commit would be wrong
            append_file(session, path, file, rows)

        monkeypatch.setattr(control_table, "append_file", appending)
        control.write([], ("shop", 9))
    assert asked[0].result() == 9


@pytest.mark.rotate(4, of="tables of the mirror")
def test_requests_stand_until_the_record_names_them_and_survive_a_compaction(
    spark: SparkSession, tmp_path: Path
) -> None:
    control, other = (ControlTable(spark, str(tmp_path / "target")) for _ in range(2))
    stopped = TableRecord("a", "shop", "db", "t", state=Stopped(7, Live()))
    control.write([stopped])
    other.request("a", Wish.SKIP)
    other.request("a", Wish.RETRY)
    other.request_copies([("shop", ("db", "x")), ("billing", ("db", "y"))])
    other.claim("job", ["shop"], [ClaimedStage.LOG, ClaimedStage.APPLY])
    control.write([stopped], ("shop", 3))
    assert control.compact() == 1

    for reader in (control, other):
        request = reader.records()["a"].request
        assert request is not None
        assert request == Request(request.id, Wish.RETRY)
        assert ("shop", ("db", "x")) in reader.rows().named
        assert set(reader.rows().claims.values()) == {"job"}
