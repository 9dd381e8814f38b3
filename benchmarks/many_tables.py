"""Measures what a loop of the mirror costs, by the number of its tables: 100, 1,000 and 10,000.

One thread makes all decisions of a mirror. Its time must depend on what changes, and not on the number of tables. No
Spark and no files take part: the answers of the works are made here, and the catalog is in memory.

* nothing changes: the rules get an event, and the catalog looks at the records
* rows arrive: the rules read an append with rows of ten tables, which is committed to these tables
* a record changes: the rules change one record and store it, and the catalog looks at it
* a commit of the control table: the content of one row is added to the content of the others
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.figures import Run
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.position import Position
from spark_sink.mirror.rules.control_rows import ControlRows, latest_rows, row_of, rows_after
from spark_sink.mirror.rules.effects import AskTable, CommitRows, ReadLog, StoreRecords
from spark_sink.mirror.rules.events import (
    EntriesRead,
    Event,
    LogGrew,
    RowsCommitted,
    Started,
    Stored,
    TableAsked,
    Ticked,
    VectorsEnabled,
)
from spark_sink.mirror.rules.mirror import Mirror
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import DeltaFacts
from spark_sink.mirror.runtime.catalog import CatalogEntries
from spark_sink.mirror.runtime.consumer import AppliedConsumer, mirror_options
from spark_sink.mirror.runtime.progress import ProgressCounter
from spark_sink.mirror.runtime.works import StepTimes
from spark_sink.mirror.schema.signature import Signature
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.mirror.values.entries import LogEntry, first_lsn
from spark_sink.mirror.values.policies import ApplyOptions
from spark_sink.source.raw_entries import EntryKind
from tests.support.rows_encoder import Spec, table_map

PART = "many tables"
SIZES = (100, 1_000, 10_000)
_CONSUMER, _DATABASE = "bench", "shop"
_LONG = 3  # type code of INT
_ROUNDS = 30
_STEPPED = 10  # the tables that have rows in an append
_SERVER = Position("11111111-2222-3333-4444-555555555555", "", "binlog.000001", 4, 4, 1)


class _CatalogInMemory:
    moves_wait = False

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def open(self) -> None:
        """Nothing needs to be opened."""

    def location(self, name: str) -> str | None:
        return self.entries.get(name)

    def register(self, name: str, path: str) -> None:
        self.entries[name] = path

    def refresh(self, name: str, path: str) -> None:
        self.entries[name] = path

    def drop(self, name: str) -> None:
        del self.entries[name]


class Tables:
    """A mirror of `count` tables, with the rules, the catalog and the content of the control table."""

    def __init__(self, count: int) -> None:
        self.maps = {f"t{n:05}": _map_of(f"t{n:05}") for n in range(count)}
        self.records = [_record(name, body) for name, body in self.maps.items()]
        self.running: list[Any] = []
        self.posted: list[Event] = []
        options = ApplyOptions("/lake", [_CONSUMER], parallel=_STEPPED)
        works = SimpleNamespace(consumer=_CONSUMER, options=options, times=_Times())
        self.consumer = AppliedConsumer(
            cast("Any", works),
            Mirror(mirror_options(_CONSUMER, options, copies=False, proves=False)),
            ProgressCounter(_CONSUMER),
            cast("Any", None),
            lambda _, work: self.running.append(work),
        )
        self.catalog = CatalogEntries(
            _CatalogInMemory(),
            CatalogTemplate.parse("{database}.{table}"),
            "/lake",
            lambda _, event: self.posted.append(event),
        )
        self.append = self.changed = 0
        self.consumer.step(Started(tuple(self.records), {}, 0, None, 0))
        self.rest()

    def loop(self, event: Event) -> None:
        """One loop of the applier."""
        self.consumer.step(event)
        self.catalog.forward({_CONSUMER: self.consumer.snapshot.records})

    def rest(self) -> None:
        """Let all works and rounds of the catalog end."""
        while True:
            while self.running:
                self.loop(self._answer(self.running.pop(0)))
            is_settled = self.catalog.forward({_CONSUMER: self.consumer.snapshot.records})
            while self.catalog.is_running:
                time.sleep(0.001)
            while self.posted:
                self.loop(self.posted.pop(0))
            if is_settled and not self.running:
                return

    def nothing(self) -> None:
        self.loop(Ticked())

    def rows(self) -> None:
        self.append += 1
        self.loop(LogGrew(self.append))
        while self.running:
            self.loop(self._answer(self.running.pop(0)))

    def change(self) -> None:
        self.changed += 1
        self.loop(VectorsEnabled(f"t{self.changed % len(self.records):05}"))
        while self.running:
            self.loop(self._answer(self.running.pop(0)))

    def _answer(self, work: Any) -> Event:
        match work:
            case ReadLog():
                return EntriesRead(work.run, self._entries())
            case AskTable():
                return TableAsked(work.run, DeltaFacts(0, None, work.table_id))
            case CommitRows():
                return RowsCommitted(work.run)
            case StoreRecords():
                return Stored(work.run, {r.table_id: (1, r.at) for r in work.records})
        raise AssertionError(f"not known: {work}")

    def _entries(self) -> tuple[LogEntry, ...]:
        begin, count = first_lsn(self.append), len(self.records)
        names = [f"t{(self.append * _STEPPED + n) % count:05}" for n in range(_STEPPED)]
        rows = [_entry(begin + n, name, self.maps[name]) for n, name in enumerate(names, 1)]
        return (*rows, _entry(begin + _STEPPED + 1, "", b""))


class _Times(dict[int, Any]):
    """The times of works: each work of the benchmark takes 0 s."""

    def pop(self, *_: object) -> StepTimes:
        return StepTimes(0.0, {}, 0)


def measure(run: Run) -> None:
    for count in SIZES:
        subject = f"{count:,} tables"
        tables = Tables(count)
        measured: Sequence[tuple[str, Callable[[], None]]] = (
            ("a loop, nothing changes", tables.nothing),
            ("an append with rows of ten tables", tables.rows),
            ("a record changes", tables.change),
            ("a commit of the control table", _control(tables.records)),
        )
        for quantity, action in measured:
            run.series(PART, "", subject, quantity, "ms", _times_ms(action))


def _times_ms(action: Callable[[], None]) -> list[float]:
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        action()
        times.append((time.perf_counter() - began) * 1e3)
    return times


def _control(records: Sequence[TableRecord]) -> Callable[[], None]:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [row_of(r) | {"serial": n, "at": at} for n, r in enumerate(records, 1)]
    known: list[ControlRows] = [latest_rows(rows)]

    def commit() -> None:
        serial = known[0].serial + 1
        known[0] = rows_after(known[0], [row_of(records[0]) | {"serial": serial, "at": at}])

    return commit


def _map_of(name: str) -> bytes:
    columns = [Spec("id", _LONG), Spec("a", _LONG, nullable=True)]
    return table_map(columns, database=_DATABASE, table=name, key=[0])


def _record(name: str, body: bytes) -> TableRecord:
    signature = Signature.of_table_map(TableMap.parse(body), InvalidDates.NULL).to_json()
    folder = folder_of((_DATABASE, name))
    return TableRecord(
        *(name, _CONSUMER, _DATABASE, name, folder),
        signature=signature,
        epoch=_SERVER.epoch,
        registered=f"{_DATABASE}.{name}",
    )


def _entry(lsn: int, name: str, body: bytes) -> LogEntry:
    kind = EntryKind.ROWS if name else EntryKind.END
    return LogEntry(
        lsn=lsn,
        kind=kind,
        database=_DATABASE if name else "",
        table=name,
        layout="l",
        epoch=1,
        first_seq=lsn,
        last_seq=lsn,
        rows=1,
        inserts=1,
        updates=0,
        deletes=0,
        table_map=body,
        payload_bytes=100,
        payload=b"x" * 100,
        statement=None,
        file="binlog.000001",
        pos=4,
        committed_at=None,
        position=None if name else _SERVER,
    )
