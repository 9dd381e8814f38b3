"""A copy is asked for by name, and a name has one record, even if several threads want to make it."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.control_rows import ControlRows, latest_rows
from spark_sink.mirror.rules.renames import records_after
from spark_sink.mirror.rules.requests import after_request
from spark_sink.mirror.rules.table_record import TableRecord, TableState
from spark_sink.mirror.tables.directory import NameTakenError, TableDirectory
from spark_sink.mirror.values.names import TableName

X = ("shop", "x")


class Control:
    """A control table in memory: its rows are those that are written. `during`: what happens while one is written."""

    def __init__(self, *records: TableRecord) -> None:
        self.written: list[dict[str, Any]] = []
        self.write(*records)

    def rows(self) -> ControlRows:
        return latest_rows(self.written)

    def records(self) -> dict[str, TableRecord]:
        return self.rows().records

    def named_requests(self, consumer: str) -> dict[TableName, str]:
        return ControlTable.named_requests(cast(ControlTable, self), consumer)

    def write(self, *records: TableRecord) -> None:
        for r in records:
            detail = {k: v for k, v in r.detail.items() if k != "asked"}
            values = {name: getattr(r, name) for name in r.__slots__ if name != "history"}
            self._add("table", **values | {"detail": json.dumps(detail)})

    def ask(self, request_id: str, name: TableName = X) -> None:
        names = {"consumer": "shop", "database": name[0], "table": name[1], "table_id": ""}
        self._add("request", **names, request="copy", detail=json.dumps({"id": request_id}))

    def _add(self, kind: str, **values: Any) -> None:
        added = {"kind": kind, "serial": len(self.written) + 1, "at": datetime.now(UTC)}
        self.written.append(values | added)


def directory_of(control: Control) -> TableDirectory:
    return TableDirectory("shop", cast(ControlTable, control), str)


def table(table_id: str, name: TableName = X, **fields: Any) -> TableRecord:
    return TableRecord(table_id, "shop", *name, **fields)


def live(control: Control) -> list[TableRecord]:
    return [r for r in control.records().values() if r.state is not TableState.DROPPED]


def handle(directory: TableDirectory) -> None:
    """What a catch-up does about the requests that are in memory."""
    for record in directory.records():
        if record.request:
            directory.change(after_request, record.table_id)


def test_the_job_makes_the_record_of_a_table_that_it_does_not_have_once() -> None:
    control = Control()
    control.ask("r1")
    directory = directory_of(control)
    (made,) = live(control)
    assert (made.name, made.state, made.request) == (X, TableState.CREATING, "")
    assert control.rows().named == {}
    # Read again, also by another run, the request is answered.
    assert directory.read() == directory_of(control).read() == []
    assert live(control) == [made]


def test_two_requests_before_the_job_runs_are_one() -> None:
    control = Control()
    control.ask("r1")
    control.ask("r2")
    directory_of(control)
    assert len(live(control)) == 1
    assert control.rows().named == {}


def test_a_table_that_the_mirror_has_is_copied_under_its_record() -> None:
    control = Control(table("t", state=TableState.COMPLETE, signature="columns"))
    directory = directory_of(control)
    control.ask("r1")
    assert [r.table_id for r in directory.read()] == ["t"]
    assert directory.read() == []  # asked for once
    handle(directory)
    assert directory.record("t").state is TableState.CREATING
    assert (control.rows().named, len(live(control))) == ({}, 1)


def test_a_table_that_is_being_copied_is_not_begun_again() -> None:
    begun = table("t", state=TableState.COPYING, detail={"begin": {}, "rows": 5})
    control = Control(begun)
    control.ask("r1")
    directory = directory_of(control)
    handle(directory)
    after = directory.record("t")
    assert (after.state, after.detail["rows"]) == (TableState.COPYING, 5)
    assert control.rows().named == {}


def test_a_dropped_table_is_copied_under_its_record() -> None:
    control = Control(table("t", state=TableState.DROPPED))
    control.ask("r1")
    handle(directory_of(control))
    assert [(r.table_id, r.state) for r in live(control)] == [("t", TableState.CREATING)]


def test_an_answered_request_stays_so_when_the_table_is_renamed_and_asked_for_again() -> None:
    control = Control()
    control.ask("r1")
    directory = directory_of(control)
    (made,) = live(control)
    directory.save(replace(directory.record(made.table_id), table="y"))
    control.ask("r2", ("shop", "y"))
    directory.read()
    handle(directory)
    assert control.rows().named == {}
    assert [r.name for r in live(control)] == [("shop", "y")]


def test_a_second_record_of_a_name_is_refused() -> None:
    directory = directory_of(Control(table("t")))
    with pytest.raises(NameTakenError):
        directory.save(table("other"))
    directory.save(table("other", ("shop", "y")), replace(directory.record("t"), table="z"))
    directory.save(table("third"))  # the name is free now
    with pytest.raises(NameTakenError):
        directory.save(replace(directory.record("t"), table="x"))


def test_two_threads_that_make_a_record_of_a_name_make_one() -> None:
    control = Control()
    directory = directory_of(control)
    both, refused = threading.Barrier(2), []

    def make(table_id: str) -> None:
        both.wait()
        try:
            directory.save(table(table_id))
        except NameTakenError:
            refused.append(table_id)

    threads = [threading.Thread(target=make, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(refused), len(live(control))) == (1, 1)


def test_a_request_waits_while_another_thread_writes_the_record_of_the_name() -> None:
    control = Control()
    directory = directory_of(control)
    write = control.write

    def asked_meanwhile(*records: TableRecord) -> None:
        control.ask("r1")
        assert directory.read() == []
        write(*records)

    control.write = asked_meanwhile  # type: ignore[method-assign]
    directory.save(table("first", state=TableState.CREATING))
    control.write = write  # type: ignore[method-assign]
    assert [r.table_id for r in directory.read()] == ["first"]
    handle(directory)
    assert [r.table_id for r in live(control)] == ["first"]


def test_records_that_an_older_version_has_doubled_are_dropped_but_for_the_live_one() -> None:
    place: dict[str, Any] = {"folder": "shop/x"}
    control = Control(
        table("asked", state=TableState.CREATING),
        table("lives", state=TableState.COMPLETE, **place),
        table(
            "waits", state=TableState.COPYING, detail={"moved_from": "_binlog/copies/w"}, **place
        ),
        table("gone", state=TableState.DROPPED),
        table("y", ("shop", "y"), state=TableState.CREATING),
    )
    directory_of(control).settle_doubled()
    assert sorted(r.table_id for r in live(control)) == ["lives", "y"]
    assert control.records()["waits"].folder == ""


def test_a_table_that_gets_the_name_of_one_that_was_asked_for_is_that_table() -> None:
    known = {X: table("asked", state=TableState.CREATING), ("shop", "u"): table("u", ("shop", "u"))}
    after = {r.table_id: r for r in records_after(known, [(("shop", "u"), X)], 9)}
    assert (after["u"].name, after["u"].state) == (X, TableState.COMPLETE)
    assert after["asked"].state is TableState.DROPPED
