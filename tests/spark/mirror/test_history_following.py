"""How histories follow the log, against a plain model: rows and statements in any cuts, with failures and restarts.
Without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.history.histories import Histories
from spark_sink.mirror.history.history_records import NEWEST, HistoryRecords
from spark_sink.mirror.history.row_versions import row_versions
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.rules.table_record import TableRecord, TableState
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.entries import LogEntry, first_lsn
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import ApplyOptions, TablePolicy
from spark_sink.source.raw_entries import EntryKind
from tests.spark.mirror.test_keyed import ROW, Change
from tests.spark.mirror.test_row_versions import (
    KEY,
    History,
    Key,
    Point,
    Version,
    batch,
    histories,
    key_of,
)

NAME = ("shop", "t")
SESSION: Any = SimpleNamespace(spark=None)
DEFAULT_APPENDS = 16
STATEMENTS = {
    "alter": "ALTER TABLE t MODIFY v TEXT",
    "index": "ALTER TABLE t ADD INDEX (v)",
    "truncate": "TRUNCATE t",
    "drop": "DROP TABLE t",
    "create": "CREATE TABLE t (id INT PRIMARY KEY)",
}


def seconds(lsn: int) -> int:
    return lsn >> 20


def entry(lsn: int, kind: EntryKind, query: str = "", rows: int = 0) -> LogEntry:
    values: dict[str, Any] = {f.name: "" for f in fields(LogEntry)}
    values |= dict.fromkeys(("first_seq", "last_seq", "inserts", "updates", "deletes", "pos"), 0)
    values |= {"lsn": lsn, "kind": kind, "database": "shop", "table": "t", "query": query}
    values |= {"rows": rows, "payload_bytes": 1 << 19, "payload": b"", "epoch": 1, "sql_mode": 0}
    at = datetime.fromtimestamp(seconds(lsn), UTC)
    return LogEntry(**values | {"gap": False, "position": None, "committed_at": at})


@dataclass
class Server:
    """A table, its log, and its rows at each entry. `versions`: those that the history has to have."""

    entries: list[LogEntry] = field(default_factory=list)
    changes: dict[int, list[Change]] = field(default_factory=dict)
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    rows_at: dict[int, dict[Key, dict[str, Any]]] = field(default_factory=dict)
    exists_at: dict[int, bool] = field(default_factory=dict)
    current: dict[Key, Version] = field(default_factory=dict)
    ended: list[Version] = field(default_factory=list)

    def add(self, kind: str, changes: list[Change] = []) -> int:  # noqa: B006 - it is not changed
        lsn = first_lsn(len(self.entries) + 1)
        exists = self.exists_at.get(lsn - (1 << 32), False)
        if kind == "rows":
            self.changes[lsn] = changes
            self.entries.append(entry(lsn, EntryKind.ROWS, rows=len(changes)))
            for position, (_, before, after) in enumerate(changes):
                self._change(before, after, (lsn, position, 1000 + position))
        elif kind == "copy":
            self.entries.append(entry(lsn, EntryKind.END))
        else:
            self.entries.append(entry(lsn, EntryKind.STATEMENT, STATEMENTS[kind]))
        if kind in ("alter", "copy"):
            for row in list(self.rows.values())[::2]:
                self._change(row, row | {"v": f"{row['v']} {lsn}"}, (lsn, 0, seconds(lsn)))
        if kind in ("truncate", "drop"):
            for row in list(self.rows.values()):
                self._change(row, None, (lsn, 0, seconds(lsn)))
        self.exists_at[lsn] = {"create": True, "drop": False}.get(kind, exists)
        self.rows_at[lsn] = dict(self.rows)
        return lsn

    def _change(
        self, before: dict[str, Any] | None, after: dict[str, Any] | None, at: Point
    ) -> None:
        if before is not None:
            key = key_of(before)
            del self.rows[key]
            version = self.current.pop(key)
            self.ended.append((*version[:3], at))
        if after is not None:
            key = key_of(after)
            self.rows[key] = after
            self.current[key] = key, after["v"], at, None

    @property
    def versions(self) -> list[Version]:
        return sorted([*self.ended, *self.current.values()], key=lambda v: (v[2], v[0]))

    # -- as the log ------------------------------------------------------------------------------------------

    def entries_of(self, after: int, before: int | None, appends_max: int) -> list[LogEntry]:
        found = [e for e in self.entries if e.lsn > after and (before is None or e.lsn < before)]
        return found[: 3 if appends_max == DEFAULT_APPENDS else appends_max]


@dataclass
class Log:
    server: Server
    first: int | None = None

    def entries(
        self,
        _consumer: str,
        after: int,
        *,
        appends_max: int = DEFAULT_APPENDS,
        before: int,
        **_: Any,
    ) -> list[LogEntry]:
        return self.server.entries_of(after, before, appends_max)

    def first_lsn_held(self, _consumer: str) -> int | None:
        return self.first


class Control:
    """The newest records, without a Delta table."""

    def __init__(self) -> None:
        self.tables: dict[str, TableRecord] = {}
        self.histories: dict[str, TableRecord] = {}

    def records(self) -> dict[str, TableRecord]:
        return dict(self.tables)

    def rows(self) -> ControlRows:
        return ControlRows(dict(self.tables), {}, {}, 0, dict(self.histories))

    def named_requests(self, _consumer: str) -> dict[TableName, str]:
        return {}

    def write(self, *records: TableRecord) -> None:
        for record in records:
            known = self.histories if record.history else self.tables
            known[record.table_id] = record


@dataclass
class Steps:
    """Steps on a history in memory. `failing`: for each next step whether it fails "before" or "after" its commit."""

    server: Server
    history: History = field(default_factory=History)
    failing: list[str] = field(default_factory=list)
    done: list[tuple[str, int]] = field(default_factory=list)
    fault: BinlogError | None = None

    def recorded(self, _session: object, _record: TableRecord) -> int:
        return self.history.recorded

    def _commit(self, what: str, lsn: int, lines: list[dict[str, Any]]) -> None:
        failure = self.failing.pop() if self.failing else ""
        if failure == "before":
            raise OSError("storage does not answer")
        self.done.append((what, lsn))
        self.history.merge(lsn, lines)
        if failure == "after":
            raise OSError("storage does not answer")

    def rows(self, _session: object, _record: TableRecord, run: RowRun, *, exact: bool) -> None:
        if self.fault is not None:
            raise self.fault
        decoded = [(e.lsn, [batch(self.server.changes[e.lsn], 0)]) for e in run.entries]
        lines = row_versions(decoded, ROW, KEY, exact=exact).to_pylist()
        self._commit("rows", run.lsn, lines)

    def end_all(self, _session: object, _record: TableRecord, lsn: int, at: datetime) -> None:
        self._commit("end", lsn, self._lines(lsn, at, {}))

    def compare(self, _session: object, _record: TableRecord, lsn: int, at: datetime) -> None:
        rows = self.server.rows_at[lsn] if self.server.exists_at[lsn] else {}
        self._commit("compare", lsn, self._lines(lsn, at, rows))

    def _lines(
        self, lsn: int, at: datetime, rows: dict[Key, dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The lines that make the current versions those of `rows`."""
        current = {v[0]: v[1] for v in self.history.versions if v[3] is None}
        begin = {"from_lsn": lsn, "from_position": 0, "from_at": at}
        end = {"to_lsn": lsn, "to_position": 0, "to_at": at}
        gone = [k for k, value in current.items() if k not in rows or rows[k]["v"] != value]
        new = [r for k, r in rows.items() if current.get(k) != r["v"]]
        lines = [{"closes": True, "key": dict(zip(KEY, k, strict=True)), **end} for k in gone]
        open_end = dict.fromkeys(end)
        return lines + [{"closes": False, "key": r, "row": r, **begin, **open_end} for r in new]


@dataclass
class Scene:
    """`to`: up to where the mirrored table is."""

    server: Server = field(default_factory=Server)
    control: Control = field(default_factory=Control)
    to: int = 0
    copied_at: int = -1

    def __post_init__(self) -> None:
        self.steps = Steps(self.server)
        self.log = Log(self.server)
        self.start()

    def start(self) -> None:
        """Start the application again, with what the control table and the Delta table hold."""
        control = cast("ControlTable", self.control)
        self.directory = TableDirectory("shop", control, str)
        policy = TablePolicy(history=True)
        options = ApplyOptions("", ["shop"], lambda _: policy, retry_first_s=0.0)
        self.records = HistoryRecords(self.directory, control, options)
        log = cast("Any", self.log)
        self.follower = Histories(self.records, self.steps, log, lambda _: self.to)

    def reach(self, lsn: int) -> None:
        """The mirrored table has applied everything up to `lsn`."""
        for each in self.server.entries:
            if not self.to < each.lsn <= lsn:
                continue
            query = each.query.split(" ")[0]
            record = self.control.tables.get("m", TableRecord("m", "shop", *NAME))
            exact = each.lsn if query in ("CREATE", "TRUNCATE") else None
            if query:
                record = replace(record, from_lsn=each.lsn, folder="shop/t")
                state = TableState.DROPPED if query == "DROP" else TableState.COMPLETE
                record = replace(record, state=state)
            if exact is not None:
                record = record.having(exact_from=exact)
            if each.kind is EntryKind.END:
                record = replace(record, from_lsn=each.lsn).having(copied_at=each.lsn)
            self.directory.save(record)
            if query:
                self.records.executed(NAME, each.lsn)
        self.to = lsn

    def rest(self) -> None:
        """Let the history follow until it rests."""
        for _ in range(200):
            if not self.follower.advance(SESSION) and self.records.at_rest(self.to):
                return
        raise AssertionError(f"it does not rest: {self.control.histories}")


def apply_all(scene: Scene, kinds: Iterable[tuple[str, list[Change]]], data: st.DataObject) -> None:
    """Append to the log, and bring table and history forward at any pace."""
    for kind, changes in [("create", []), *kinds]:
        if kind == "copy":
            scene.reach(scene.server.entries[-1].lsn)
            scene.rest()
        lsn = scene.server.add(kind, changes)
        scene.steps.failing = data.draw(st.lists(st.sampled_from(["before", "after"]), max_size=2))
        match data.draw(st.integers(0, 3)) if kind != "copy" else 1:
            case 0:
                scene.reach(lsn)
            case 1:
                scene.reach(lsn)
                scene.rest()
            case 2:
                scene.reach(lsn)
                scene.follower.advance(SESSION)
                scene.start()
    scene.reach(scene.server.entries[-1].lsn)
    scene.rest()


@st.composite
def kinds_of(draw: st.DrawFn) -> list[tuple[str, list[Change]]]:
    """What happens to a table: changes of rows that it has, and statements."""
    found: list[tuple[str, list[Change]]] = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["rows", "rows", "alter", "index", "truncate", "drop", "copy"]))
        if kind == "drop":
            found += [("drop", []), ("create", [])]
        elif kind != "rows":
            found.append((kind, []))
        if kind in ("rows", "truncate", "drop"):
            # Changes of an empty table.
            if kind == "rows":
                found.append(("truncate", []))
            changes = draw(histories())
            cut = draw(st.integers(0, len(changes)))
            found += [("rows", part) for part in (changes[:cut], changes[cut:]) if part]
    return found


@given(kinds_of(), st.data())
def test_a_history_is_that_of_the_model_at_any_pace_with_failures_and_restarts(
    kinds: list[tuple[str, list[Change]]], data: st.DataObject
) -> None:
    scene = Scene()
    apply_all(scene, kinds, data)
    found = sorted(scene.steps.history.versions, key=lambda v: (v[2], v[0]))
    assert found == scene.server.versions
    # What is read again after a restart changes nothing.
    scene.start()
    scene.rest()
    assert sorted(scene.steps.history.versions, key=lambda v: (v[2], v[0])) == found
    assert scene.records.standing() == []


def added(scene: Scene, *kinds: tuple[str, list[Change]]) -> int:
    """Append to the log. Returns the last entry."""
    return [scene.server.add(kind, changes) for kind, changes in kinds][-1]


def inserted(key: int, value: str) -> Change:
    return "insert", None, {"id": key, "part": "a", "v": value}


def test_a_table_that_has_rows_begins_with_them_where_the_log_still_has_all_since() -> None:
    for lost in (False, True):
        scene = Scene()
        rows: list[tuple[str, list[Change]]] = [("rows", [inserted(i, "a")]) for i in (1, 2)]
        last = added(scene, ("create", []), *rows)
        scene.reach(last)
        scene.control.histories.clear()
        scene.start()
        scene.directory.committed(scene.control.tables["m"], last)
        scene.log.first = last if lost else None
        scene.rest()
        expected = [("compare", last)] if lost else [("compare", first_lsn(1)), ("rows", last)]
        assert scene.steps.done == expected


def test_behind_a_copy_rows_of_before_it_are_left_out_from_a_statement_on() -> None:
    scene = Scene()
    last = added(
        scene,
        ("create", []),
        ("rows", [inserted(1, "a")]),
        ("alter", []),
        ("rows", [inserted(2, "b")]),
        ("copy", []),
        ("rows", [inserted(3, "c")]),
    )
    scene.reach(last)
    scene.rest()
    lsns = [e.lsn for e in scene.server.entries]
    assert scene.steps.done == [("rows", lsns[1]), ("compare", lsns[4]), ("rows", lsns[5])]


def test_a_history_waits_for_its_table_and_stops_alone_until_it_is_begun_anew() -> None:
    scene = Scene()
    last = added(scene, ("create", []), ("rows", [inserted(1, "a")]))
    scene.reach(first_lsn(1))
    stopped = replace(scene.control.tables["m"], state=TableState.STOPPED)
    scene.directory.save(stopped)
    scene.to = last
    assert not scene.follower.advance(SESSION)
    assert scene.records.at_rest(last)
    scene.directory.save(replace(stopped, state=TableState.COMPLETE))
    scene.steps.fault = BinlogError(ErrorKind.ROW_IMAGE, "rows do not hold all columns")
    scene.rest()
    assert scene.records.standing() == ["shop.t__history"]
    (record,) = scene.control.histories.values()
    assert "resolve shop.t__history --as recopy" in record.reason
    assert scene.records.oldest_needed() == record.from_lsn
    asked = replace(record, request="recopy").having(asked={"id": "1"})
    scene.control.histories[record.table_id] = asked
    scene.directory.committed(stopped, last)
    scene.steps.fault = None
    scene.records.read_requests()
    scene.rest()
    (record,) = scene.control.histories.values()
    assert (record.state, record.reason, record.request) == (TableState.COMPLETE, "", "")
    assert [v[1] for v in scene.steps.history.versions] == ["a"]


def test_a_table_that_is_dropped_before_its_history_begins_leaves_nothing_to_wait_for() -> None:
    scene = Scene()
    record = TableRecord("m", "shop", *NAME, folder="shop/t", from_lsn=5)
    scene.directory.save(replace(record, state=TableState.COMPLETE))
    scene.records.begin_new()
    scene.to = added(scene, ("create", []), ("drop", []))
    scene.directory.save(replace(record, state=TableState.DROPPED, from_lsn=scene.to))
    scene.rest()
    (history,) = scene.control.histories.values()
    assert (history.state, scene.steps.done) == (TableState.CREATING, [])
    assert min(scene.records.oldest_needed(), scene.records.oldest_cursor()) == NEWEST
    scene.server.add("create")
    scene.reach(scene.server.add("rows", [inserted(1, "a")]))
    scene.rest()
    assert [v[1] for v in scene.steps.history.versions] == ["a"]
    assert scene.records.oldest_needed() < NEWEST


@pytest.mark.parametrize("state", [TableState.CREATING, TableState.COPYING])
def test_a_history_of_a_table_that_is_copied_waits(state: TableState) -> None:
    scene = Scene()
    lsn = scene.server.add("create")
    scene.reach(lsn)
    scene.directory.save(replace(scene.control.tables["m"], state=state))
    scene.to = scene.server.add("rows", [inserted(1, "a")])
    assert not scene.follower.advance(SESSION)
    assert scene.steps.done == []
