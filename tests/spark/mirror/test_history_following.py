"""How histories follow the log, compared with a simple model: rows and statements with any cuts between steps, failures
and restarts. The tests need no Spark: they execute the works of the rules on the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.history.row_versions import row_versions
from spark_sink.mirror.rules.effects import (
    AskTable,
    ChangeTable,
    CommitRows,
    CompareVersions,
    Effect,
    EndConsumer,
    EndVersions,
    ReadLog,
    StoreRecords,
    WriteVersions,
)
from spark_sink.mirror.rules.events import (
    EntriesRead,
    Event,
    Failure,
    HistoryWritten,
    LogGrew,
    RequestsRead,
    RowsCommitted,
    Started,
    Stored,
    TableAsked,
    TableChanged,
    WorkFailed,
)
from spark_sink.mirror.rules.mirror import Mirror
from spark_sink.mirror.rules.mirror_state import MirrorOptions
from spark_sink.mirror.rules.states import Copying, Creating, Dropped, Live, Stopped, TableState
from spark_sink.mirror.rules.table_record import Request, TableRecord, Wish
from spark_sink.mirror.rules.table_work import (
    ChangeColumns,
    DeleteRows,
    DeltaFacts,
)
from spark_sink.mirror.values.entries import LogEntry, append_of, first_lsn, last_lsn
from spark_sink.mirror.values.policies import TablePolicy
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
from tests.support.rows_encoder import Spec, table_map
from tests.support.statements import as_logged

NAME = ("shop", "t")
LONG, VARCHAR = 3, 15
COLUMNS = [
    Spec("id", LONG, nullable=False),
    Spec("part", VARCHAR, b"\x50\x00", charset=255, nullable=False),
    Spec("v", VARCHAR, b"\x50\x00", charset=255),
]
TABLE_MAP = table_map(COLUMNS, database="shop", table="t", key=[0, 1])
END = Position("server", "", "binlog.1", 100, 1, 1)
STATEMENTS = {
    "alter": "ALTER TABLE t MODIFY v VARCHAR(20)",
    "index": "ALTER TABLE t ADD INDEX (v)",
    "truncate": "TRUNCATE t",
    "drop": "DROP TABLE t",
    "create": "CREATE TABLE t (id INT PRIMARY KEY)",
}
STORAGE = Failure("OSError: storage does not answer")
HistoryWork = WriteVersions | EndVersions | CompareVersions


def seconds(lsn: int) -> int:
    return lsn >> 20


def entry(lsn: int, kind: EntryKind, query: str = "", rows: int = 0) -> LogEntry:
    values: dict[str, Any] = {f.name: "" for f in fields(LogEntry)}
    values |= dict.fromkeys(("first_seq", "last_seq", "inserts", "updates", "deletes", "pos"), 0)
    values |= {
        "lsn": lsn,
        "kind": kind,
        "database": "shop",
        "table": "t",
        "statement": as_logged(query, "shop"),
    }
    values |= {"rows": rows, "payload_bytes": 1 << 19, "payload": b"", "epoch": 1}
    values |= {"table_map": TABLE_MAP, "layout": "id/part/v"}
    at = datetime.fromtimestamp(seconds(lsn), UTC)
    return LogEntry(
        **values
        | {"gap": False, "position": END if kind is EntryKind.END else None, "committed_at": at}
    )


@dataclass
class Server:
    """A table of the server, its log, and its rows at each entry. `versions`: the versions that the history must
    have."""

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

    def known(self, lsn: int) -> int:
        """Returns the last entry up to an lsn."""
        return max(each.lsn for each in self.entries if each.lsn <= lsn)

    @property
    def versions(self) -> list[Version]:
        return sorted([*self.ended, *self.current.values()], key=lambda v: (v[2], v[0]))


@dataclass
class Steps:
    """Executes steps on a history in memory. `failing`: for each of the next steps, "before" or "after" if it fails
    before or after its commit."""

    server: Server
    history: History = field(default_factory=History)
    failing: list[str] = field(default_factory=list)
    done: list[tuple[str, int]] = field(default_factory=list)
    fault: BinlogError | None = None

    def do(self, work: HistoryWork) -> Event:
        assert work.record.folder == "shop/t__history", "its record names the folder before"
        if self.fault is not None:
            return WorkFailed(work.run, Failure(str(self.fault), self.fault))
        failure = self.failing.pop() if self.failing else ""
        if failure != "before":
            self._commit(work)
        return WorkFailed(work.run, STORAGE) if failure else HistoryWritten(work.run)

    def _commit(self, work: HistoryWork) -> None:
        match work:
            case WriteVersions(rows=run):
                decoded = [(e.lsn, [batch(self.server.changes[e.lsn], 0)]) for e in run.entries]
                lines = row_versions(decoded, ROW, KEY, exact=work.exact).to_pylist()
                what, lsn = "rows", run.lsn
            case EndVersions():
                what, lsn = "end", work.lsn
                lines = self._lines(lsn, work.at, {})
            case _:
                lsn = work.lsn
                known = self.server.known(lsn)
                rows = self.server.rows_at[known] if self.server.exists_at[known] else {}
                # The table may be dropped by now, but its Delta table still has the version.
                assert not rows or (work.mirrored is not None and work.mirrored.folder)
                what, lines = "compare", self._lines(lsn, work.at, rows)
        self.done.append((what, lsn))
        self.history.merge(lsn, lines)

    def _lines(
        self, lsn: int, known_at: datetime | None, rows: dict[Key, dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Returns the lines that change the current versions to `rows`."""
        at = known_at or datetime.fromtimestamp(seconds(self.server.known(lsn)), UTC)
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
    """A job with a mirrored table and its history. `to`: the lsn up to which the log can be read; `first`: the smallest
    lsn that the log still has; `applied`: by table id, the lsn that the Delta table records; `held`: works of the
    history that are not done yet."""

    server: Server = field(default_factory=Server)
    durable: dict[str, TableRecord] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    to: int = 0
    first: int = 0

    def __post_init__(self) -> None:
        self.steps = Steps(self.server)
        self.serial = 0
        self.start()

    def start(self) -> None:
        """Start the job again, with the content of the control table and the Delta tables."""
        policy = TablePolicy(history=True)
        options = MirrorOptions("shop", lambda _: policy, lambda _: False, str, retry_first_s=0.0)
        self.mirror = Mirror(options)
        self.works: list[Any] = []
        self.held: list[Any] = []
        records, newest = tuple(self.durable.values()), append_of(self.to)
        self.step(Started(records, {}, 0, None, newest, self.first))

    def step(self, event: Event) -> None:
        stores: list[StoreRecords] = []
        for effect in self.mirror.step(event, 0.0):
            match effect:
                case StoreRecords():
                    stores.append(effect)
                case EndConsumer():
                    raise effect.error
                case _ if self._is_of_history(effect):
                    self.held.append(effect)
                case ReadLog() | AskTable() | ChangeTable() | CommitRows():
                    self.works.append(effect)
        for store in stores:
            self.step(self._stored(store))

    def _stored(self, store: StoreRecords) -> Stored:
        written = {}
        for record in store.records:
            self.serial += 1
            self.durable[record.table_id] = replace(record, serial=self.serial)
            written[record.table_id] = (self.serial, None)
        return Stored(store.run, written)

    def _is_of_history(self, effect: Effect) -> bool:
        is_read = isinstance(effect, ReadLog) and effect.tables == (NAME,)
        return is_read or isinstance(effect, HistoryWork)

    # -- the mirrored table --------------------------------------------------------------------------------------

    def reach(self, lsn: int) -> None:
        """Let the mirrored table apply everything up to `lsn`."""
        for each in self.server.entries:
            if not self.to < each.lsn <= lsn:
                continue
            if each.kind is EntryKind.END:
                self._copied(each.lsn)
            self.to = each.lsn
            self.step(LogGrew(append_of(self.to), self.first))
            while self.works or self.mirror.state.watermark() < self.to:
                # While a comparison runs, the table is not changed.
                self.do((self.works or self.held).pop(0))

    def _copied(self, lsn: int) -> None:
        """Set the state after a copy: the table's folder has other rows, in their state at the entry `lsn`."""
        mirrored = self.mirrored
        self.durable[mirrored.table_id] = replace(mirrored, from_lsn=lsn, copied_at=lsn)
        self.applied[mirrored.table_id] = lsn
        self.start()

    def do(self, work: Any) -> None:
        match work:
            case ReadLog():
                self.step(EntriesRead(work.run, tuple(self._entries(work))))
            case AskTable(table_id=table_id):
                of_history = self.durable[table_id].history
                applied = self.steps.history.recorded if of_history else self.applied.get(table_id)
                known = (
                    DeltaFacts(-1, True, "")
                    if applied is None
                    else DeltaFacts(applied, False, table_id)
                )
                self.step(TableAsked(work.run, known))
            case ChangeTable(change=DeleteRows(lsn=lsn) | ChangeColumns(lsn=lsn)):
                self.applied[work.record.table_id] = lsn
                self.step(TableChanged(work.run))
            case ChangeTable():
                self.applied.setdefault(work.record.table_id, -1)
                self.step(TableChanged(work.run))
            case CommitRows():
                self.applied[work.record.table_id] = work.rows.lsn
                self.step(RowsCommitted(work.run))
            case _:
                self.step(self.steps.do(work))

    def _entries(self, work: ReadLog) -> list[LogEntry]:
        before = self.to + 1 if work.before is None else work.before
        found = [e for e in self.server.entries if work.after < e.lsn < before]
        return found[:3]

    # -- the history ---------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Execute the works that the history waits for. Returns False if there are none."""
        while self.works:
            self.do(self.works.pop(0))
        held, self.held = self.held, []
        for work in held:
            self.do(work)
        return bool(held)

    def rest(self) -> None:
        """Let the history follow the log until it has no more work."""
        for _ in range(400):
            if not self.advance() and not self.works:
                return
        raise AssertionError(f"it does not rest: {self.durable}")

    @property
    def mirrored(self) -> TableRecord:
        found = [record for record in self.durable.values() if not record.history]
        return max(found, key=lambda record: record.serial)

    @property
    def record(self) -> TableRecord:
        (record,) = (record for record in self.durable.values() if record.history)
        return record

    @property
    def needed(self) -> int:
        return self.mirror.needed_to


def apply_all(scene: Scene, kinds: Iterable[tuple[str, list[Change]]], data: st.DataObject) -> None:
    """Append to the log, and let table and history apply it at any relative speed."""
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
                scene.advance()
                scene.start()
    scene.reach(scene.server.entries[-1].lsn)
    scene.rest()


@st.composite
def kinds_of(draw: st.DrawFn) -> list[tuple[str, list[Change]]]:
    """A series of events of a table: changes of its rows, and statements."""
    found: list[tuple[str, list[Change]]] = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["rows", "rows", "alter", "index", "truncate", "drop", "copy"]))
        if kind == "drop":
            found += [("drop", []), ("create", [])]
        elif kind != "rows":
            found.append((kind, []))
        if kind in ("rows", "truncate", "drop"):
            # Now add changes of an empty table.
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
    # Entries that are read again after a restart change nothing.
    scene.start()
    scene.rest()
    assert sorted(scene.steps.history.versions, key=lambda v: (v[2], v[0])) == found
    assert scene.mirror.unfinished() == []


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
        del scene.durable[scene.record.table_id]
        # The table's record after a copy.
        copied = replace(scene.mirrored, state=Live(), copied_at=first_lsn(1))
        scene.durable[copied.table_id] = copied
        scene.first = last if lost else 0
        scene.start()
        scene.reach(scene.to)
        scene.rest()
        begun = [("compare", first_lsn(1)), ("rows", last)]
        expected = [("compare", last_lsn(append_of(last)))] if lost else begun
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
    scene.reach(added(scene, ("create", []), ("rows", [inserted(1, "a")])))
    scene.held = []
    live = scene.mirrored
    stopped = replace(live, state=Stopped(scene.to, Live(exact_from=first_lsn(1))))
    scene.durable[live.table_id] = stopped
    scene.start()
    assert not scene.advance()
    scene.durable[live.table_id] = live
    scene.steps.fault = BinlogError(ErrorKind.ROW_IMAGE, "rows do not hold all columns")
    scene.start()
    scene.rest()
    assert scene.mirror.unfinished() == ["shop.t__history"]
    assert "resolve shop.t__history --as recopy" in scene.record.reason
    assert scene.needed <= scene.record.from_lsn
    scene.steps.fault = None
    asked = {scene.record.table_id: Request("1", Wish.RECOPY)}
    scene.start()
    scene.step(RequestsRead(asked, {}, {}))
    scene.rest()
    record = scene.record
    assert (record.word, record.reason, record.handled) == (TableState.COMPLETE, "", "1")
    assert [v[1] for v in scene.steps.history.versions] == ["a"]


def test_a_table_that_is_dropped_before_its_history_begins_leaves_nothing_to_wait_for() -> None:
    scene = Scene()
    scene.reach(added(scene, ("create", []), ("rows", [inserted(1, "a")])))
    # The stored state as if a person had requested the history later, and the job was killed after that.
    scene.durable[scene.record.table_id] = replace(scene.record, state=Creating(), from_lsn=0)
    last = scene.server.add("drop")
    dropped = replace(scene.mirrored, state=Dropped(), from_lsn=last)
    scene.durable[scene.mirrored.table_id] = dropped
    scene.start()
    scene.reach(last)
    scene.rest()
    assert (scene.record.state, scene.steps.done) == (Creating(), [])
    assert scene.mirror.histories_cursor() == scene.to
    scene.server.add("create")
    scene.reach(scene.server.add("rows", [inserted(1, "a")]))
    scene.rest()
    assert [v[1] for v in scene.steps.history.versions] == ["a"]


@pytest.mark.parametrize("state", [Creating(), Copying(END)])
def test_a_history_of_a_table_that_is_copied_waits(state: Creating | Copying) -> None:
    scene = Scene()
    scene.reach(scene.server.add("create"))
    scene.durable[scene.mirrored.table_id] = replace(scene.mirrored, state=state)
    scene.start()
    scene.reach(scene.server.add("rows", [inserted(1, "a")]))
    assert not scene.advance()
    assert scene.steps.done == []
