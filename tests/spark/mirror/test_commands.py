"""What `resolve` and `adopt` write into the control table. No job runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType
from typer.testing import CliRunner

from dispatcher.model.errors import UserError
from spark_sink.mirror import command_session
from spark_sink.mirror.adopt_command import adopt_tables
from spark_sink.mirror.cli import app
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.request_commands import request_resolution
from spark_sink.mirror.rules.chosen_tables import RESOLUTIONS
from spark_sink.mirror.rules.control_rows import ClaimedStage
from spark_sink.mirror.rules.states import CatchingUp, Dropped, LeftOut, Live, Stopped
from spark_sink.mirror.rules.table_record import Move, TableRecord, Wish
from spark_sink.mirror.tables.delta import MirroredTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def record(name: str, **fields: object) -> TableRecord:
    made = TableRecord(name, "shop", "db", name, f"db/{name}")
    return replace(made, **fields)  # type: ignore[arg-type]


def make(spark: SparkSession, target: Path, folder: str, table_id: str) -> MirroredTable:
    table = MirroredTable(table_id, f"{target}/{folder}", folder)
    table.create(spark, StructType([StructField("id", IntegerType())]))
    return table


@pytest.mark.rotate(4, of="tables of the mirror")
def test_a_resolution_is_asked_of_tables_that_are_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = str(tmp_path / "target")
    control = ControlTable(spark, target)
    control.write(
        [
            record("live"),
            record("bad", state=Stopped(7, Live())),
            record("waits", state=CatchingUp(Live()), move=Move("db/before")),
            record("left", state=LeftOut(3)),
            record("h", table="live", state=Stopped(7, Live()), history=True),
        ]
    )
    chosen = request_resolution(ControlTable(spark, target), ["db.*"], Wish.RETRY)
    assert [table.table for table in chosen] == ["bad", "waits"]
    requests = {i: r.request and r.request.wish for i, r in control.records().items()}
    assert requests == {"live": None, "bad": Wish.RETRY, "waits": Wish.RETRY, "left": None}
    request_resolution(ControlTable(spark, target), ["db.live", "db.live__history"], Wish.RECOPY)
    history = control.rows().histories["h"].request
    assert history is not None
    assert history.wish is Wish.RECOPY
    for pattern, wish, why in (
        ("db.live", Wish.SKIP, "is stopped"),
        ("db.left", Wish.RECOPY, "the settings leave out db.left"),
        ("db.live__history", Wish.SKIP, "a history cannot continue as skip"),
    ):
        with pytest.raises(UserError, match=why):
            request_resolution(ControlTable(spark, target), [pattern], wish)
    assert Wish.COPY not in RESOLUTIONS


@pytest.mark.rotate(4, of="tables of the mirror")
def test_tables_are_adopted_with_what_the_consumer_knows_of_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    control = ControlTable(spark, str(target))
    tables = {name: make(spark, target, f"db/{name}", name) for name in ("known", "new")}
    make(spark, target, "db/unowned", "")
    stands = Stopped(12, Live(complete=False), lost=13)
    own = record("own", consumer="other", table="known", state=stands, folder="", from_lsn=11)
    own = replace(own, signature="s", epoch=3, conflict="c", copied_at=2, deletion_vectors=True)
    control.write([record("known", move=Move("db/before")), record("new"), own])
    adopted = adopt_tables(spark, str(target), "other", ["db.known", "db.new", "db.unowned"])

    records = control.records()
    written = {table.label: table for table in adopted}
    known, new, unowned = (written[f"db.{name}"] for name in ("known", "new", "unowned"))
    assert known.table_id == "own"
    assert (known.state, known.folder, known.from_lsn) == (CatchingUp(Live()), "db/known", 11)
    assert (known.signature, known.epoch, known.conflict) == ("", 0, "")
    assert (known.copied_at, known.deletion_vectors) == (2, False)
    for table, folder in ((new, "db/new"), (unowned, "db/unowned")):
        assert (table.state, table.folder, table.from_lsn) == (Live(), folder, 0)
    for table in adopted:
        assert replace(records[table.table_id], at=None) == replace(table, at=None)
        assert MirroredTable("", f"{target}/{table.folder}", "").owner(spark) == table.table_id
    for name in tables:
        given = records[name]
        assert (given.state, given.folder, given.move) == (Dropped(), "", None)
        assert given.reason == "adopted by other"
    # Jobs of both consumers end.
    claims = control.rows().claims
    assert {key for key, job in claims.items() if job.startswith("adopt-")} == {
        ("shop", ClaimedStage.APPLY),
        ("other", ClaimedStage.APPLY),
    }
    with pytest.raises(UserError, match="belong to other already"):
        adopt_tables(spark, str(target), "other", ["db.new"])


def test_top_and_tables_of_a_local_target_start_no_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "target")
    ControlTable(spark, target).write([record("live"), record("bad", state=Stopped(7, Live()))])

    def refused(settings: object) -> None:
        raise AssertionError(settings)

    monkeypatch.setattr(command_session, "command_session", refused)
    for arguments in (["top", "--once"], ["tables"]):
        done = CliRunner().invoke(app, [*arguments, "--target", target])
        assert done.exit_code == 0, done.output
        assert "db.live" in done.stdout and "stopped" in done.stdout
        assert "starting Spark" not in done.output
