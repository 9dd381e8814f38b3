"""A person requests the copy of a table by the table's name. Only the rules of the name's consumer make a record for
the table, and only once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dispatcher.model.position import Position
from spark_sink.mirror.rules.control_rows import ControlRows, control_row, latest_rows, row_of
from spark_sink.mirror.rules.effects import Effect, StoreRecords
from spark_sink.mirror.rules.events import RequestsRead, Started, Stored
from spark_sink.mirror.rules.mirror import Mirror
from spark_sink.mirror.rules.mirror_state import MirrorOptions
from spark_sink.mirror.rules.states import Copying, Creating, Dropped, Live, State
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.entries import LogEnd
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import TablePolicy

X = ("shop", "x")
BEGIN = Position("s", "", "f.1", 4, 0, 0)
AT = datetime(2026, 1, 1, tzinfo=UTC)


class Job:
    """Jobs that apply a consumer, one after the other, and the rows of the control table that they write."""

    def __init__(self, *records: TableRecord) -> None:
        self.written: list[dict[str, Any]] = []
        for record in records:
            self._add(row_of(record))
        self.start()

    def _add(self, row: dict[str, Any]) -> tuple[int, datetime]:
        self.written.append(row | {"serial": len(self.written) + 1, "at": AT})
        return len(self.written), AT

    def start(self) -> None:
        """Begin a new job."""
        # This job cannot copy, so the requested copies do not begin.
        self._mirror = Mirror(MirrorOptions("shop", lambda _: TablePolicy(), lambda _: False, str))
        own = tuple(self.rows().records.values())
        self._do(self._mirror.step(Started(own, {}, 0, LogEnd(0, BEGIN), newest=0), 1.0))

    def rows(self) -> ControlRows:
        return latest_rows(self.written)

    def ask(self, request_id: str, name: TableName = X) -> None:
        names = {"consumer": "shop", "database": name[0], "table": name[1]}
        detail = f'{{"id": "{request_id}"}}'
        self._add(control_row("request", **names, request="copy", detail=detail))

    def read(self) -> list[TableRecord]:
        """Pass the open requests to the rules. Returns the records that the rules write."""
        rows = self.rows()
        named = {name: asked for (_, name), asked in rows.named.items()}
        return self._do(self._mirror.step(RequestsRead({}, named, {}), 1.0))

    def rename(self, table_id: str, name: TableName) -> None:
        """Give the table another name."""
        now = self._mirror.state.records[table_id]
        renamed = replace(now, database=name[0], table=name[1])
        self._mirror.state.records[table_id] = renamed
        self._add(row_of(renamed))

    def _do(self, effects: list[Effect]) -> list[TableRecord]:
        """Store the records that the rules write. Returns them."""
        stored: list[TableRecord] = []
        while stores := [effect for effect in effects if isinstance(effect, StoreRecords)]:
            (store,) = stores
            stored += store.records
            written = {r.table_id: self._add(row_of(r)) for r in store.records}
            effects = self._mirror.step(Stored(store.run, written), 1.0)
        return stored

    def live(self) -> list[TableRecord]:
        return [record for record in self.rows().records.values() if not record.is_dropped]


def table(table_id: str, state: State, name: TableName = X) -> TableRecord:
    return TableRecord(table_id, "shop", *name, state=state, signature="columns")


def test_the_job_makes_the_record_of_a_table_that_it_does_not_have_once() -> None:
    job = Job()
    job.ask("r1")
    assert len(job.read()) == 1
    (made,) = job.live()
    assert (made.name, made.state, made.request) == (X, Creating(), None)
    assert made.answered == {"shop.x": "r1"}
    assert job.rows().named == {}
    # The request is already answered if it is read again, also by another job.
    assert job.read() == []
    job.start()
    assert job.read() == []
    assert job.live() == [made]


def test_two_requests_before_the_job_runs_are_one() -> None:
    job = Job()
    job.ask("r1")
    job.ask("r2")
    job.read()
    assert len(job.live()) == 1
    assert job.rows().named == {}


def test_a_table_that_the_mirror_has_is_copied_under_its_record() -> None:
    job = Job(table("t", Live()))
    job.ask("r1")
    (after,) = job.read()
    assert (after.table_id, after.state, after.signature) == ("t", Creating(), "")
    assert job.read() == []
    assert (job.rows().named, len(job.live())) == ({}, 1)


def test_a_table_that_is_being_copied_is_not_begun_again() -> None:
    job = Job(table("t", Copying(BEGIN)))
    job.ask("r1")
    (after,) = job.read()
    assert (after.state, after.answered) == (Copying(BEGIN), {"shop.x": "r1"})
    assert job.rows().named == {}


def test_a_dropped_table_is_copied_under_its_record() -> None:
    job = Job(table("t", Dropped()))
    job.ask("r1")
    job.read()
    assert [(r.table_id, r.state) for r in job.live()] == [("t", Creating())]


def test_an_answered_request_stays_so_when_the_table_is_renamed_and_asked_for_again() -> None:
    job = Job()
    job.ask("r1")
    job.read()
    (made,) = job.live()
    job.rename(made.table_id, ("shop", "y"))
    job.ask("r2", ("shop", "y"))
    job.read()
    assert job.rows().named == {}
    assert [r.name for r in job.live()] == [("shop", "y")]
    assert job.live()[0].answered == {"shop.x": "r1", "shop.y": "r2"}
