"""Tables that stop where no copy helps, and the commands by which they go on."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from typer.testing import CliRunner

from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.model.position import Position
from spark_sink.mirror.cli import app
from spark_sink.mirror.rules.remedies import CommandOptions, completed
from spark_sink.mirror.rules.states import Live, Stopped, TableState
from spark_sink.mirror.rules.table_record import TableRecord, Wish
from spark_sink.mirror.rules.tasks import log_tasks, replay_task
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.schema.signature import Signature
from spark_sink.mirror.schema.statements import TableEffect, effects_of
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.values.entries import LogEnd
from spark_sink.mirror.values.names import copy_folder
from spark_sink.mirror.values.policies import TablePolicy, UnknownTables
from tests.mirror.printed import commands
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror
from tests.spark.mirror.test_schema_changes import signature

pytestmark = pytest.mark.rotate(1, of="stopped tables")


@dataclass
class CopiedFrom:
    """A copier that copies rows of a Delta table, and reports the columns of another signature."""

    mirror: Mirror
    rows: Callable[[], Any]
    signature: Signature
    copies: list[str] = field(default_factory=list)

    def copy(self, record: TableRecord, *, begin: LogEnd, **_: Any) -> Any:
        self.copies.append(record.label)
        path = f"{self.mirror.target.path}/{copy_folder(record.table_id)}"
        table = MirroredTable(record.table_id, path, record.label)
        frame = self.rows()
        table.create(self.mirror.spark, frame.schema)
        frame.write.format("delta").mode("append").save(path)
        assert begin.position is not None
        return Copied(begin.position, self.signature.to_json())


@dataclass(frozen=True)
class Copied:
    executed: Position
    signature: str
    generated: tuple[()] = ()
    rows: int = 1
    exact: bool = False
    complete: bool = True


def test_a_copy_that_ends_at_the_same_difference_is_not_made_again(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.policy = TablePolicy(unknown=UnknownTables.COPY)
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    source.feed()
    mirror.fed = len(source.daemon.transactions)

    def rows() -> Any:
        values = [(row["id"], row["v"]) for row in source.rows("t")]
        return mirror.spark.createDataFrame(values, "id int, v int")

    copier = CopiedFrom(mirror, rows, signature(id="INT", v="BIGINT"))

    def apply() -> int:
        mirror.feed()
        applier = Applier(mirror.spark, mirror.options(can_copy=True), copier)
        return applier.run(threading.Event(), drain=True)

    for number in (2, 3):
        source.execute(f"INSERT INTO t VALUES ({number}, {number})")
        assert apply() == 0
        assert_equal(source, target, "t")
        assert len(copier.copies) == number - 1
    source.execute("INSERT INTO t VALUES (4, 4)", "INSERT INTO t VALUES (5, 5)")
    assert apply() == 1
    assert len(copier.copies) == 2
    record = mirror.record("t")
    assert record.word is TableState.STOPPED
    assert (
        "column 'v' is BIGINT in the mirror and int in the log, also after a copy" in record.reason
    )
    resolve(mirror, record, monkeypatch)
    source.execute("UPDATE t SET v = 9 WHERE id = 1")
    assert apply() == 0
    assert len(copier.copies) == 2
    assert mirror.record("t").word is TableState.COMPLETE
    assert_equal(source, target, "t")


@pytest.mark.deep
def test_the_commands_of_a_statement_that_is_not_understood_work(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading(statement: LoggedStatement) -> Sequence[TableEffect]:
        text = statement.text.replace("ALTER TABLE odd COMMENT", "FROBNICATE odd")
        return effects_of(replace(statement, text=text))

    for module in (log_tasks, replay_task):
        monkeypatch.setattr(module, "effects_of", reading)
    source.execute(
        "CREATE TABLE odd (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE other (id INT PRIMARY KEY, v INT)",
        "INSERT INTO odd VALUES (1, 1)",
        "ALTER TABLE odd COMMENT 'x'",
        "INSERT INTO odd VALUES (2, 2)",
        "INSERT INTO other VALUES (2, 2)",
    )
    assert mirror.run() == 1
    assert_equal(source, target, "other")
    record = mirror.record("odd")
    assert record.word is TableState.STOPPED
    assert "a statement that is not understood: FROBNICATE ODD ..." in record.reason
    resolve(mirror, record, monkeypatch)
    assert mirror.apply() == 0
    assert mirror.record("odd").word is TableState.COMPLETE
    assert_equal(source, target, "odd")


@pytest.mark.deep
def test_a_statement_on_a_temporary_table_stops_the_table_of_its_name(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute(
        "CREATE TABLE shadowed (id INT PRIMARY KEY)",
        "INSERT INTO shadowed VALUES (1), (2), (3)",
        "SET SESSION binlog_format = STATEMENT",
        "CREATE TEMPORARY TABLE shadowed (id INT)",
        "TRUNCATE TABLE shadowed",
        "DROP TEMPORARY TABLE shadowed",
        "SET SESSION binlog_format = ROW",
        "INSERT INTO shadowed VALUES (4)",
    )
    assert mirror.run() == 1
    record = mirror.record("shadowed")
    assert record.word is TableState.STOPPED
    assert "TRUNCATE TABLE SHADOWED ... was executed on this table or on a temp" in record.reason
    resolve(mirror, record, monkeypatch)
    assert mirror.apply() == 0
    assert mirror.record("shadowed").word is TableState.COMPLETE
    assert_equal(source, target, "shadowed")


def test_a_statement_that_is_not_understood_waits_for_a_table_that_is_stopped(
    mirror: Mirror, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading(statement: LoggedStatement) -> Sequence[TableEffect]:
        text = statement.text.replace("ALTER TABLE odd COMMENT", "FROBNICATE odd")
        return effects_of(replace(statement, text=text))

    for module in (log_tasks, replay_task):
        monkeypatch.setattr(module, "effects_of", reading)
    source.execute("CREATE TABLE odd (id INT PRIMARY KEY)", "INSERT INTO odd VALUES (1)")
    assert mirror.run() == 0
    record = mirror.record("odd")
    stands = Stopped(record.from_lsn, Live())
    mirror.control.write([replace(record, state=stands, reason="by hand")])
    source.execute("ALTER TABLE odd COMMENT 'x'")
    assert mirror.run() == 1
    mirror.ask("odd", Wish.RETRY)
    assert mirror.apply() == 1
    assert "a statement that is not understood: FROBNICATE" in mirror.record("odd").reason


def test_the_commands_of_rows_of_another_history_work(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert mirror.run() == 0
    record = mirror.record("t")
    mirror.control.write([replace(record, epoch=record.epoch + 7)])
    source.execute("INSERT INTO t VALUES (2)")
    assert mirror.run() == 1
    assert "is of epoch" in mirror.record("t").reason
    resolve(mirror, mirror.record("t"), monkeypatch)
    assert mirror.apply() == 0
    assert mirror.record("t").word is TableState.COMPLETE
    assert_equal(source, target, "t")


def resolve(mirror: Mirror, record: TableRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the command by which a stopped table goes on, as it is printed, in the shared Spark."""
    options = CommandOptions(target=("--target", str(mirror.target.path)))
    printed = commands(completed(record.reason, options))
    (line,) = [command for command in printed if command.endswith("--as applied")]
    shared = mirror.spark.newSession()
    monkeypatch.setattr(shared, "stop", lambda: None)
    monkeypatch.setattr("spark_sink.mirror.session.spark_session", lambda _: shared)
    monkeypatch.setattr("spark_sink.mirror.cli.configure_log", lambda *_: None)
    done = CliRunner().invoke(app, shlex.split(line)[3:])
    assert (done.exit_code, done.stdout) == (0, f"{record.label}: applied\n"), done.output
