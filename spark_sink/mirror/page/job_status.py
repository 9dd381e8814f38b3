"""Collects what the page of a running job shows. This module reads the state that the applier's threads publish for
other threads. It holds a lock only while it copies some counts, and reads neither the target nor the server.

An answer has at most `SHOWN_MAX` tables. Tables that need a person come first.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qs

from dispatcher.model.errors import BinlogError
from dispatcher.model.printable import printable, printable_values
from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.proofs import Proof
from spark_sink.mirror.rules.queues import WaitingTable, WaitReason
from spark_sink.mirror.rules.states import LeftOut, Live, TableState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.consumer import ConsumerSnapshot
from spark_sink.mirror.runtime.progress import ConsumerProgress, TableSteps
from spark_sink.mirror.table_lines import TableLine, completed_line, lines_of
from spark_sink.source.listener import StreamTotals

SHOWN_MAX = 100
PROBLEMS_MAX = 20
Json = dict[str, Any]
# The order in which tables are shown. For each rank: the title of the problem that a person has to solve, or "" if
# there is none.
_ORDER = (
    "stopped",
    "differs",
    "fails and is tried again",
    "not in the catalog",
    "partial",
    "",
    "",
    "",
    "",
)
_STOPPED, _DIFFERS, _FAILS, _REFUSED, _PARTIAL, _COPYING, _CREATING, _OTHER, _DROPPED = range(9)  # fmt: skip
_WAITS = {
    WaitReason.FAILING: "its step has failed",
    WaitReason.INTERVAL: "they wait for seconds_between_steps",
    WaitReason.RENAME: "a RENAME waits for another table",
    WaitReason.STEP: "a step runs, or is one of the next",
}


class AppliedState(Protocol):
    """A consumer of the applier."""

    name: str
    failure: BinlogError | None
    snapshot: ConsumerSnapshot

    def progress(self) -> ConsumerProgress: ...


@dataclass(frozen=True, slots=True)
class ShownTables:
    """Which tables a person wants to see. `state`: a state in one word, `problems`, or "" for all tables that are not
    dropped; `find`: a part of the table's name; `first`: how many of the matching tables to skip."""

    state: str = ""
    find: str = ""
    first: int = 0

    @classmethod
    def of_query(cls, text: str) -> ShownTables:
        """Parses the query of a URL. An invalid value has no effect."""
        given = {name: values[0] for name, values in parse_qs(text[:2000]).items()}
        first = given.get("first", "")
        number = int(first) if first.isascii() and first.isdecimal() and len(first) < 8 else 0
        return cls(given.get("state", ""), given.get("find", "").lower(), number)

    def shows(self, row: _RankedTable) -> bool:
        state = row.record.word
        if self.find and self.find not in row.record.label.lower():
            return False
        if self.state == "problems":
            return bool(_ORDER[row.rank])
        return state == self.state if self.state else state is not TableState.DROPPED


@dataclass(slots=True)
class JobStatus:
    """`head`: the values that are the same in each answer; `applied`: returns the consumers of the applier;
    `log_stages`: returns each consumer whose log this job writes, with True if its log stage works; `streams`: returns
    what the log stages have read, by query and consumer; `complete`: adds options to the commands in a message."""

    head: Json
    applied: Callable[[], Sequence[AppliedState]]
    log_stages: Callable[[], Iterable[tuple[str, bool]]]
    streams: Callable[[], Mapping[tuple[str, str], StreamTotals]]
    complete: Callable[[str], str] = str
    _ranked: tuple[list[object], list[_RankedTable]] = field(default=([], []), init=False)

    def answer(self, shown: ShownTables) -> Json:
        """Returns the state of the job as JSON."""
        states = {state.name: _Consumer(state) for state in self.applied()}
        rows = self._rows(states.values())
        found = [row for row in rows if shown.shows(row)]
        worst = [row for row in rows[:PROBLEMS_MAX] if _ORDER[row.rank]]
        words = Counter(row.record.word.value for row in rows)
        return self.head | {
            "time": round(time.time(), 3),
            "consumers": [*self._consumers(states)],
            "states": {state.value: words[state.value] for state in TableState},
            "problems": [
                self._problem(row, line)
                for row, line in zip(worst, _lines(worst, states), strict=True)
            ],
            "all_problems": sum(1 for row in rows if _ORDER[row.rank]),
            "matching": len(found),
            "first": min(shown.first, max(0, len(found) - 1)),
            "tables": self._tables(found[shown.first : shown.first + SHOWN_MAX], states),
        }

    def _rows(self, consumers: Iterable[_Consumer]) -> list[_RankedTable]:
        """Returns all tables, sorted by rank. Sorts the tables again only if a record or a proof has changed."""
        parts = [(one.snapshot.records, one.snapshot.proofs) for one in consumers]
        key: list[object] = [part for both in parts for part in both]
        known, rows = self._ranked
        if len(key) != len(known) or any(a is not b for a, b in zip(key, known, strict=True)):
            rows = [
                _RankedTable(_rank(record, (proofs or {}).get(record.table_id)), record)
                for records, proofs in parts
                for record in records
            ]
            rows.sort(key=lambda row: (row.rank, row.record.name, row.record.history))
            self._ranked = key, rows
        return rows

    def _consumers(self, states: Mapping[str, _Consumer]) -> Iterator[Json]:
        stages, streams = dict(self.log_stages()), self.streams()
        for name in dict.fromkeys([*states, *stages]):
            read, state = streams.get((name, name)), states.get(name)
            values: Json = {"consumer": printable(name), "log": stages.get(name), "apply": None}
            if read is not None:
                values |= {f"lag_{key}": value for key, value in asdict(read.last.lag).items()}
                values |= {"logged_rows": read.rows}
            yield values | (state.as_json(self.complete) if state else {})

    def _problem(self, row: _RankedTable, line: TableLine) -> Json:
        what, _, remedy = line.reason.partition("; ")
        if row.rank == _DIFFERS:
            more = f"; the rows of both sides: {line.evidence}" if line.evidence else ""
            what, remedy = f"{line.differs}{more}", remedies.of_live_difference(line.table)
        elif row.rank == _REFUSED:
            what, _, remedy = line.catalog_error.partition("; ")
        texts = {"title": _ORDER[row.rank], "what": what, "remedy": self.complete(remedy)}
        tone = "bad" if row.rank in (_STOPPED, _DIFFERS) else "warn"
        shown: Json = printable_values({"table": line.table, "consumer": line.consumer} | texts)
        return shown | {"tone": tone}

    def _tables(self, rows: Sequence[_RankedTable], states: Mapping[str, _Consumer]) -> list[Json]:
        return [
            self._table(row, line, states[line.consumer])
            for row, line in zip(rows, _lines(rows, states), strict=True)
        ]

    def _table(self, row: _RankedTable, line: TableLine, of: _Consumer) -> Json:
        waits = None if row.record.history else of.waiting.get(row.record.name)
        steps = of.progress.stepped.get(line.table)
        values = completed_line(line, self.complete).as_dict() | {
            "problem": _ORDER[row.rank],
            "proved": line.proved and line.proved.timestamp(),
            "since": line.since and line.since.timestamp(),
            "waiting_entries": waits.entries if waits else 0,
            "waits": _WAITS[waits.reason] if waits else "",
            "invalid_values": of.progress.invalid.get(line.table, 0),
            "rows": steps.rows if steps else None,
            "step_seconds": _mean_s(steps) if steps else None,
        }
        shown: Json = printable_values(values)
        return shown


@dataclass(slots=True)
class _Consumer:
    """A consumer at one moment."""

    state: AppliedState
    snapshot: ConsumerSnapshot = field(init=False)
    progress: ConsumerProgress = field(init=False)
    waiting: Mapping[tuple[str, str], WaitingTable] = field(init=False)
    copies: Mapping[str, CopyProgress] = field(init=False)

    def __post_init__(self) -> None:
        self.snapshot, self.progress = self.state.snapshot, self.state.progress()
        self.waiting = {table.name: table for table in self.snapshot.waiting_tables}
        self.copies = {copy.label: copy for copy in self.progress.copies}

    def as_json(self, complete: Callable[[str], str]) -> Json:
        now, failure = self.progress, self.state.failure
        proved = now.proved
        return {
            "apply": not now.failed,
            "failure": printable(complete(str(failure))) if failure else "",
            "apply_lag_seconds": now.lag_s(),
            "waiting_entries": now.waiting,
            "rows": now.rows,
            "steps": now.steps,
            "failures": now.failures,
            "proof_rows": now.proof_rows,
            "repaired_rows": now.repaired_rows,
            "proves": proved is not None,
            "copies": printable_values([asdict(copy) for copy in now.copies[:PROBLEMS_MAX]]),
            "differing": proved.differing if proved else 0,
            "unproved": proved.unproved if proved else 0,
        }


@dataclass(frozen=True, slots=True)
class _RankedTable:
    rank: int
    record: TableRecord


@dataclass(frozen=True, slots=True)
class _JobFacts:
    """The facts about tables that the job itself knows, for `lines_of`. The page shows neither lsns nor features of
    Delta. It shows the number of the waiting entries, but not that of the waiting row changes."""

    copies: Mapping[tuple[str, str], CopyProgress]

    def applied(self, record: TableRecord) -> int:
        return record.from_lsn

    def features(self, _record: TableRecord) -> tuple[str, ...]:
        return ()

    def copied(self, record: TableRecord) -> CopyProgress | None:
        return self.copies.get((record.consumer, record.label))

    def waiting(self, _records: Sequence[TableRecord], _applied: Mapping[str, int]) -> Any:
        return {}


def _lines(rows: Sequence[_RankedTable], states: Mapping[str, _Consumer]) -> list[TableLine]:
    copies = {
        (name, label): copy for name, of in states.items() for label, copy in of.copies.items()
    }
    proofs: dict[str, Proof] = {}
    for row in rows:
        known = states[row.record.consumer].snapshot.proofs or {}
        if (proof := known.get(row.record.table_id)) is not None:
            proofs[row.record.table_id] = proof
    return lines_of(_JobFacts(copies), [row.record for row in rows], proofs)


def _rank(record: TableRecord, proof: Proof | None) -> int:
    """Returns the rank of a table: the index in `_ORDER` of what a person has to do."""
    word, state = record.word, record.state
    if word is TableState.STOPPED:
        return _STOPPED
    if record.is_live and proof is not None and proof.difference is not None:
        return _DIFFERS
    if isinstance(state, Live) and state.failing is not None:
        return _FAILS
    if record.refused and not record.is_dropped:
        return _REFUSED
    if word is TableState.PARTIAL and not isinstance(state, LeftOut):
        return _PARTIAL
    others = {
        TableState.COPYING: _COPYING,
        TableState.CREATING: _CREATING,
        TableState.DROPPED: _DROPPED,
    }
    return others.get(word, _OTHER)


def _mean_s(steps: TableSteps) -> float | None:
    return sum(steps.seconds.values()) / steps.steps if steps.steps else None
