"""Statements that the log holds meanwhile decide about a copy, however far the applier is behind. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import pytest

from dispatcher.model.position import Position
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.renames import records_after
from spark_sink.mirror.rules.table_record import MOVED_FROM, TableRecord, TableState
from spark_sink.mirror.runtime import copy_track
from spark_sink.mirror.runtime.catch_up import CatchUps
from spark_sink.mirror.runtime.copy_track import CopyTrack
from spark_sink.mirror.runtime.progress import ProgressCounter
from spark_sink.mirror.tables.delta import StepSession
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.entries import LogEnd, LogEntry, last_lsn
from spark_sink.source.raw_entries import EntryKind

BEGIN = Position("server", "", "binlog.1", 100, 1, 1)
NOW = Position("server", "", "binlog.1", 200, 2, 1)
PASSED = last_lsn(3)


class Control:
    """The newest records, without a Delta table."""

    def __init__(self, *records: TableRecord) -> None:
        self.newest = {record.table_id: record for record in records}

    def records(self) -> dict[str, TableRecord]:
        return dict(self.newest)

    def named_requests(self, _consumer: str) -> dict[tuple[str, str], str]:
        return {}

    def write(self, *records: TableRecord) -> None:
        self.newest |= {record.table_id: record for record in records}


@dataclass
class Parts:
    """What a copy works with: each part does nothing but be called."""

    copied: list[str] = field(default_factory=list)
    replayed: list[int] = field(default_factory=list)
    stopping: bool = False
    rows: int = 7
    exact: bool = False
    complete: bool = True
    executed: Position = NOW
    signature: str = "columns"

    def delete(self, _folder: str) -> None: ...

    def end(self, _consumer: str) -> LogEnd:
        return LogEnd(2, BEGIN)

    def entries(self, _consumer: str, _after: int, **_: Any) -> list[LogEntry]:
        values: dict[str, Any] = dict.fromkeys(f.name for f in fields(LogEntry))
        return [LogEntry(**values | {"lsn": PASSED, "kind": EntryKind.END, "position": NOW})]

    def copy(self, record: TableRecord, **_: Any) -> Parts:
        self.copied.append(record.label)
        return self

    def replay(self, _session: object, _table_id: str, _folder: str, to: int) -> bool:
        self.replayed.append(to)
        return True


@dataclass
class Scene:
    directory: TableDirectory
    parts: Parts
    dealt_with: Callable[[tuple[str, str]], int]

    def run(self) -> TableRecord:
        parts = cast("Any", self.parts)
        track = CopyTrack(
            cast(FileSystem, parts),
            self.directory,
            cast(BinlogLog, parts),
            parts,
            ProgressCounter("shop"),
            self.dealt_with,
        )
        track.run(cast(StepSession, None), "t", cast(CatchUps, parts))
        return self.directory.record("t")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(copy_track, "LOG_WAIT_S", 0.0)
    table = TableRecord("t", "shop", "shop", "t", state=TableState.CREATING, from_lsn=5)
    directory = TableDirectory("shop", cast(ControlTable, Control(table)), str)
    return Scene(directory, Parts(), lambda _: PASSED)


def test_a_copy_takes_the_place_of_its_table(scene: Scene) -> None:
    after = scene.run()
    assert (after.state, after.folder, after.from_lsn) == (TableState.COPYING, "shop/t", PASSED)
    assert (after.signature, after.detail["goal"]) == ("columns", "complete")
    assert after.detail[MOVED_FROM] == "_binlog/copies/t"
    assert scene.parts.copied == ["shop.t"]
    assert scene.parts.replayed == [PASSED]


def test_a_copy_that_has_no_place_yet_is_not_made_again(scene: Scene) -> None:
    scene.run()
    after = scene.run()
    assert after.state is TableState.COPYING
    assert after.detail[MOVED_FROM] == "_binlog/copies/t"
    assert not scene.directory.go_live("t", PASSED)
    assert scene.parts.copied == ["shop.t"]


def test_the_copy_of_a_server_at_rest_waits_for_nothing(scene: Scene) -> None:
    def entries(*_: Any, **__: Any) -> list[LogEntry]:
        raise AssertionError("the log has nothing more, and nothing is needed")

    scene.parts.executed = BEGIN
    scene.parts.entries = entries  # type: ignore[method-assign]
    after = scene.run()
    assert (after.folder, after.from_lsn) == ("shop/t", last_lsn(2))
    assert scene.parts.replayed == [last_lsn(2)]


def test_a_table_that_the_log_drops_before_its_copy_begins_is_not_copied(scene: Scene) -> None:
    def behind(_: tuple[str, str]) -> int:
        # The applier is behind, and executes the DROP now.
        dropped = replace(scene.directory.record("t"), state=TableState.DROPPED)
        scene.directory.save(dropped)
        return PASSED

    scene.dealt_with = behind
    assert scene.run().state is TableState.DROPPED
    assert scene.parts.copied == []


@pytest.mark.parametrize("again", [True, False])
def test_a_rename_that_the_applier_has_not_reached_yet_counts(scene: Scene, again: bool) -> None:
    answers = [PASSED, last_lsn(2), last_lsn(2), PASSED]

    def behind(name: tuple[str, str]) -> int:
        if len(answers) == 2 and again:
            pairs = [(("shop", "t"), ("shop", "u"))]
            (moved,) = records_after(
                {("shop", "t"): scene.directory.record("t")}, pairs, PASSED - 1
            )
            scene.directory.save(moved)
        return answers.pop(0)

    scene.dealt_with = behind
    after = scene.run()
    if again:
        assert (after.state, after.name) == (TableState.CREATING, ("shop", "u"))
        assert scene.parts.replayed == []
    else:
        assert after.state is TableState.COPYING
        assert scene.parts.replayed == [PASSED]


def test_what_a_statement_wrote_during_a_copy_is_not_written_over(scene: Scene) -> None:
    def copy(record: TableRecord, **_: Any) -> Parts:
        settled = replace(record, state=TableState.COMPLETE, detail={"exact_from": PASSED})
        scene.directory.save(settled)  # a TRUNCATE
        return scene.parts

    scene.parts.copy = copy  # type: ignore[method-assign]
    after = scene.run()
    assert (after.state, after.detail) == (TableState.COMPLETE, {"exact_from": PASSED})
    assert scene.parts.replayed == []


@pytest.mark.parametrize("exact", [True, False])
def test_the_replay_on_a_snapshot_leaves_out_what_the_snapshot_shows(
    scene: Scene, exact: bool
) -> None:
    seen: list[dict[str, Any]] = []

    def replay(*_: object) -> bool:
        seen.append(dict(scene.directory.record("t").detail))
        return True

    scene.parts.exact = exact
    scene.parts.replay = replay  # type: ignore[method-assign, assignment]
    after = scene.run()
    (during,) = seen
    assert ("exact" in during) == exact
    assert (during["begin"], during["executed"]) == (BEGIN.as_dict(), NOW.as_dict())
    assert "exact" not in after.detail
