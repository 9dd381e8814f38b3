"""Which entries the mirror registers in a catalog, renames and removes, tested with a catalog in memory."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dispatcher.model.position import Position
from spark_sink.mirror.rules.events import Registered
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.states import Copying, Creating, Dropped, Live, State, Stopped
from spark_sink.mirror.rules.table_record import Move, TableRecord
from spark_sink.mirror.runtime.catalog import AGAIN_S, CatalogEntries, below, same_location
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from tests.daemon.harness import until

TARGET = "file:/lake"
NOWHERE = Position("", "", "", 0, 0, 0)


@dataclass
class CatalogInMemory:
    """`entries`: locations by name; `refuses`: names for which registration fails; `calls`: the calls that have changed
    the catalog."""

    entries: dict[str, str] = field(default_factory=dict)
    refuses: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    refreshed: list[str] = field(default_factory=list)
    opening: Callable[[], None] = lambda: None
    attempts: int = 0
    moves_wait = False

    def open(self) -> None:
        self.opening()

    def location(self, name: str) -> str | None:
        if name in self.refuses:
            self.attempts += 1
            raise PermissionError(f"user etl may not see {name}, request {self.attempts}")
        return self.entries.get(name)

    def register(self, name: str, path: str) -> None:
        self.calls.append(f"register {name}")
        assert name not in self.entries
        self.entries[name] = path

    def refresh(self, name: str, path: str) -> None:
        assert self.entries[name] == path
        if f"content of {name}" in self.refuses:
            raise OSError(f"{name} does not answer")
        self.refreshed.append(name)

    def drop(self, name: str) -> None:
        self.calls.append(f"drop {name}")
        del self.entries[name]


@dataclass
class Tables:
    """The records of the tables and histories of the consumer `shop`, by id, in memory of the rules. `told`: events
    that the rules have not handled yet."""

    catalog: CatalogInMemory = field(default_factory=CatalogInMemory)
    records: dict[str, TableRecord] = field(default_factory=dict)
    told: list[Registered] = field(default_factory=list)
    entries: CatalogEntries = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin a new job."""
        template = CatalogTemplate.parse("{database}.{table}")
        self.entries = CatalogEntries(self.catalog, template, TARGET, self._post)

    def _post(self, consumer: str, event: Registered) -> None:
        assert consumer == "shop"
        self.told.append(event)

    def take(self) -> None:
        """Let the rules handle the posted events."""
        told, self.told = self.told, []
        for event in told:
            self.change(event.table_id, registered=event.name, refused=event.refused)

    def table(self, name: str, state: State | None = None, **more: Any) -> None:
        record = TableRecord(name, "shop", "shop", name, state=state or Live(), **more)
        folder = more.get("folder", folder_of(record.shown_name))
        self.records[name] = replace(record, folder=folder)

    def change(self, table_id: str, **fields: Any) -> None:
        self.records[table_id] = replace(self.records[table_id], **fields)

    def rename(self, *moves: tuple[str, str]) -> None:
        """Rename tables with one statement. `moves`: (id, new name)."""
        for table_id, name in moves:
            self.change(table_id, table=name, folder=folder_of(("shop", name)))

    def snapshots(self) -> dict[str, tuple[TableRecord, ...]]:
        return {"shop": tuple(self.records.values())}

    def synchronize(self) -> None:
        self.entries.synchronize(self.snapshots())
        self.take()

    def forward(self) -> bool:
        self.take()
        return self.entries.forward(self.snapshots())

    def names(self) -> dict[str, str]:
        """Returns, by name, the ids of the tables that the records show as registered under this name."""
        return {r.registered: r.table_id for r in self.records.values() if r.registered}


@pytest.fixture
def tables() -> Tables:
    return Tables()


def test_tables_are_registered_when_they_can_be_read(tables: Tables) -> None:
    tables.table("orders")
    tables.table("partial", Live(complete=False))
    for state in (Creating(), Copying(NOWHERE), Stopped(7, Live()), Dropped()):
        tables.table(f"is_{state.word}", state)
    tables.table("empty", folder="")  # a table without rows has no folder yet
    tables.synchronize()
    assert tables.catalog.entries == {
        "shop.orders": "file:/lake/shop/orders",
        "shop.partial": "file:/lake/shop/partial",
    }
    tables.change("orders", state=Stopped(7, Live()))
    tables.change("partial", state=Creating())
    tables.synchronize()
    assert set(tables.catalog.entries) == {"shop.orders", "shop.partial"}
    tables.change("orders", state=Dropped())
    tables.synchronize()
    assert set(tables.catalog.entries) == {"shop.partial"}
    assert tables.names() == {"shop.partial": "partial"}


def test_a_rename_moves_an_entry_when_the_folder_has_moved(tables: Tables) -> None:
    tables.table("a")
    tables.synchronize()
    tables.rename(("a", "b"))
    tables.change("a", move=Move("shop/a"))
    tables.synchronize()
    assert set(tables.catalog.entries) == {"shop.a"}
    tables.change("a", move=None)
    tables.synchronize()
    assert tables.catalog.entries == {"shop.b": "file:/lake/shop/b"}


def test_a_swap_changes_nothing_in_the_catalog(tables: Tables) -> None:
    tables.table("a")
    tables.table("b")
    tables.synchronize()
    before = len(tables.catalog.calls)
    tables.rename(("a", "b"), ("b", "a"))
    tables.synchronize()
    assert tables.catalog.calls[before:] == []
    assert tables.names() == {"shop.b": "a", "shop.a": "b"}


def test_a_chain_of_renames_keeps_what_is_still_needed(tables: Tables) -> None:
    for name in ("a", "b"):
        tables.table(name)
    tables.synchronize()
    tables.rename(("b", "c"))
    tables.rename(("a", "b"))
    tables.synchronize()
    assert set(tables.catalog.entries) == {"shop.b", "shop.c"}
    assert tables.names() == {"shop.b": "a", "shop.c": "b"}


@pytest.mark.parametrize("before", ["nothing", "ours", "elsewhere in the target"])
def test_what_was_done_before_a_crash_is_not_done_again(tables: Tables, before: str) -> None:
    tables.table("orders")
    there = {"ours": "file:///lake/shop/orders", "elsewhere in the target": "file:/lake/shop/old"}
    if before in there:
        tables.catalog.entries["shop.orders"] = there[before]
    tables.synchronize()
    assert same_location(tables.catalog.entries["shop.orders"], "file:/lake/shop/orders")
    assert len(tables.catalog.calls) == {"nothing": 1, "ours": 0}.get(before, 2)


def test_an_entry_that_is_missing_is_made_again_by_the_next_job(tables: Tables) -> None:
    tables.table("orders")
    tables.synchronize()
    tables.catalog.entries.clear()
    tables.synchronize()
    assert tables.catalog.entries == {}
    tables.start()
    tables.synchronize()
    assert set(tables.catalog.entries) == {"shop.orders"}


def test_the_name_of_another_table_is_left_alone(
    tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    tables.table("orders")
    tables.table("lines")
    tables.catalog.entries |= {"shop.orders": "file:/theirs/orders", "shop.lines": ""}
    with caplog.at_level(logging.WARNING):
        tables.synchronize()
        tables.synchronize()
    assert tables.catalog.calls == []
    assert [record.getMessage() for record in caplog.records] == [
        "shop: shop.orders: not registered as shop.orders: table change that the mirror cannot apply: shop.orders is"
        " another table at file:/theirs/orders (table shop.orders); drop or rename shop.orders in the catalog, or"
        " choose other names with the setting catalog",
        "shop: shop.lines: not registered as shop.lines: table change that the mirror cannot apply: shop.lines is a"
        " view, or a table that is not Delta (table shop.lines); drop or rename shop.lines in the catalog, or choose"
        " other names with the setting catalog",
    ]
    assert set(tables.entries.failing) == {"orders", "lines"}
    assert "not registered as" in tables.records["orders"].refused

    tables.catalog.entries.clear()
    tables.synchronize()
    assert tables.entries.failing == {}
    assert tables.records["orders"].refused == ""


def test_tables_whose_names_differ_in_case_alone_clash(tables: Tables) -> None:
    tables.table("orders")
    tables.table("Orders")
    tables.synchronize()
    assert tables.catalog.entries == {"shop.orders": "file:/lake/shop/orders"}
    assert "shop.orders has the same name" in tables.entries.failing["Orders"]
    tables.change("orders", state=Dropped())
    tables.synchronize()
    tables.synchronize()
    assert tables.catalog.entries == {"shop.orders": "file:/lake/shop/Orders"}
    assert tables.entries.failing == {}


def test_a_refusal_concerns_one_table(tables: Tables) -> None:
    tables.catalog.refuses = {"shop.a"}
    tables.table("a")
    tables.table("b")
    tables.synchronize()
    assert set(tables.catalog.entries) == {"shop.b"}
    assert "PermissionError: user etl may not see shop.a" in tables.entries.failing["a"]
    tables.change("a", state=Dropped())
    tables.catalog.refuses = set()
    tables.synchronize()
    assert tables.entries.failing == {}


def test_a_name_that_is_not_ours_any_more_is_not_dropped(tables: Tables) -> None:
    tables.table("orders")
    tables.synchronize()
    tables.catalog.entries["shop.orders"] = "file:/theirs/orders"
    tables.change("orders", state=Dropped())
    tables.synchronize()
    assert tables.catalog.entries == {"shop.orders": "file:/theirs/orders"}
    assert tables.names() == {}


def test_a_history_is_registered_under_its_own_name(tables: Tables) -> None:
    tables.table("orders")
    history = "orders__history"
    begun = TableRecord(history, "shop", "shop", "orders", state=Creating(), history=True)
    tables.records[history] = begun
    tables.synchronize()
    assert set(tables.catalog.entries) == {"shop.orders"}  # the other table has no rows yet
    tables.change(history, state=Live(), folder="shop/orders__history")
    tables.synchronize()
    assert tables.catalog.entries["shop.orders__history"] == "file:/lake/shop/orders__history"
    assert tables.records[history].registered == "shop.orders__history"
    # The entry of a history belongs to its name. It stays when the table is dropped, or when the history is stopped.
    tables.change("orders", state=Dropped())
    tables.change(history, state=Stopped(7, Live()))
    tables.synchronize()
    assert set(tables.catalog.entries) == {"shop.orders__history"}
    tables.start()
    tables.synchronize()
    assert tables.catalog.calls == [
        "register shop.orders",
        "register shop.orders__history",
        "drop shop.orders",
    ]


def test_rounds_are_done_when_nothing_changes_and_the_records_say_so(tables: Tables) -> None:
    tables.table("orders")
    try:
        until(tables.forward, "the round is done")
        assert tables.forward()
        assert tables.names() == {"shop.orders": "orders"}
        tables.table("lines")
        assert not tables.forward()
        until(lambda: not tables.entries.is_running, "the round is done")
        assert set(tables.catalog.entries) == {"shop.orders", "shop.lines"}
        # The rules have not handled the event of the second registration yet.
        assert not tables.entries.forward(tables.snapshots())
        until(tables.forward, "the records say so")
        assert tables.names() == {"shop.orders": "orders", "shop.lines": "lines"}
    finally:
        tables.entries.close()


def test_what_the_rules_were_told_counts_before_they_have_taken_it_in(tables: Tables) -> None:
    tables.table("orders")
    before = tables.snapshots()
    tables.synchronize()
    tables.change("orders", state=Dropped())
    tables.synchronize()
    assert tables.catalog.entries == {}
    # Another table has the name in the catalog by now; the records are older than this.
    tables.catalog.entries["shop.orders"] = "file:/lake/shop/orders"
    tables.records = {
        "orders": replace(before["shop"][0], state=Dropped(), registered="shop.orders")
    }
    tables.synchronize()
    assert set(tables.catalog.entries) == {"shop.orders"}
    assert tables.told == []


def test_a_failed_round_is_tried_again_later(tables: Tables) -> None:
    tables.catalog.refuses = {"shop.orders"}
    tables.table("orders")
    try:
        until(tables.forward, "nothing is left to do now")
        assert set(tables.entries.failing) == {"orders"}
        assert tables.records["orders"].refused.startswith("not registered as shop.orders")
        tables.catalog.refuses = set()
        assert tables.forward()
        assert 0 < tables.entries._retry_at - time.monotonic() <= AGAIN_S
        tables.entries._retry_at = time.monotonic()
        assert not tables.forward()
        until(tables.forward, "the round is done")
        assert tables.names() == {"shop.orders": "orders"}
        assert (tables.records["orders"].refused, tables.entries.failing) == ("", {})
    finally:
        tables.entries.close()


def test_a_round_that_is_paused_goes_on_with_the_next(tables: Tables) -> None:
    for name in ("a", "b", "c"):
        tables.table(name)
    register = tables.catalog.register

    def pausing(name: str, path: str) -> None:
        tables.entries.pause()
        register(name, path)

    tables.catalog.register = pausing  # type: ignore[method-assign]
    try:
        assert not tables.forward()
        until(lambda: not tables.entries.is_running, "the round is done")
        assert set(tables.catalog.entries) == {"shop.a"}
        until(tables.forward, "all rounds are done")
        assert set(tables.catalog.entries) == {"shop.a", "shop.b", "shop.c"}
    finally:
        tables.entries.close()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("file:/a/b", "file:///a/b/", True),
        ("/a/b", "file:/a/b", True),
        ("s3a://bucket/a", "s3a://bucket/a", True),
        ("s3a://bucket/a", "s3a://other/a", False),
        ("s3a://bucket/a", "/a", True),
        ("file:/a/b%5Fc d?e", "file:///a/b%5Fc d?e", True),
        ("hdfs://one:8020/a", "hdfs://two:8020/a", False),
    ],
)
def test_locations_are_compared(one: str, other: str, same: bool) -> None:
    assert same_location(one, other) is same
    assert same_location(other, one) is same


def test_a_location_below_a_folder() -> None:
    assert below("file:///lake/shop/t", "file:/lake")
    assert below("s3a://b/lake/t", "s3a://b/lake/")
    assert not below("file:/lake2/t", "file:/lake")
    assert not below("s3a://b/lake/t", "s3a://c/lake")


def test_a_refresh_is_due_after_its_interval_and_at_the_end_when_tables_have_changed(
    tables: Tables,
) -> None:
    tables.entries.refresh_s = 1000.0
    tables.table("orders")

    def settled(*, at_rest: bool = False) -> bool:
        tables.take()
        return tables.entries.forward(tables.snapshots(), at_rest=at_rest)

    until(settled, "orders is registered")
    assert tables.catalog.refreshed == []
    tables.entries.touch()
    assert settled()  # the interval has not passed
    assert not settled(at_rest=True)
    until(lambda: settled(at_rest=True), "the last round has ended")
    assert tables.catalog.refreshed == ["shop.orders"]
    assert settled(at_rest=True)

    tables.entries.refresh_s = 0.0
    tables.start()
    tables.entries.refresh_s = 0.0
    until(lambda: settled() or len(tables.catalog.refreshed) > 3, "rounds follow without changes")
    assert len(tables.catalog.refreshed) > 3


def test_an_entry_that_cannot_be_refreshed_is_tried_again_and_shown(tables: Tables) -> None:
    tables.table("orders")
    tables.synchronize()
    tables.catalog.refuses.add("content of shop.orders")
    tables.entries.synchronize(tables.snapshots(), refresh=True)
    tables.take()
    (record,) = tables.records.values()
    assert record.registered == "shop.orders"
    assert "shop.orders does not answer" in record.refused
    assert set(tables.entries.failing) == {"orders"}
    tables.catalog.refuses.clear()
    tables.synchronize()  # a record that shows a failure is always tried again
    (record,) = tables.records.values()
    assert (record.refused, tables.entries.failing) == ("", {})
    assert tables.catalog.refreshed == ["shop.orders"]


def test_a_refusal_with_a_new_text_each_time_is_tried_again_after_the_pause_only(
    tables: Tables,
) -> None:
    tables.table("orders")
    tables.catalog.refuses.add("shop.orders")
    until(tables.forward, "the record has the reason")
    assert tables.catalog.attempts <= 2
    attempts = tables.catalog.attempts
    for _ in range(20):
        assert tables.forward()
    assert tables.catalog.attempts == attempts


def test_a_table_whose_folder_has_new_content_is_refreshed_at_once(tables: Tables) -> None:
    tables.entries.refresh_s = 1000.0
    tables.table("orders")
    until(tables.forward, "orders is registered")
    tables.change("orders", state=Copying(NOWHERE))
    until(tables.forward, "the change is seen")
    tables.change("orders", state=Live(), from_lsn=7)
    tables.catalog.refreshed.clear()
    until(tables.forward, "the copy is seen")
    assert tables.catalog.refreshed == ["shop.orders"]


def test_a_catalog_that_does_not_open_fails_the_round_and_is_opened_later(
    tables: Tables, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise ConnectionRefusedError("port 8181")

    tables.catalog.opening = refuse
    tables.table("orders")
    with caplog.at_level(logging.WARNING):
        until(tables.forward, "the round has failed")
    assert "port 8181" in tables.entries.failing[""]
    assert [record.exc_info for record in caplog.records] == [None]
    tables.catalog.opening = lambda: None
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + AGAIN_S)
    until(tables.forward, "orders is registered")
    assert not tables.entries.failing
    assert tables.names() == {"shop.orders": "orders"}


def test_the_job_ends_while_a_catalog_does_not_answer(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    tables.catalog.opening = lambda: assert_set(answers)
    monkeypatch.setattr("spark_sink.mirror.runtime.catalog.CLOSE_S", 0.01)
    tables.table("orders")
    tables.forward()
    tables.entries.close()
    assert tables.entries.is_running
    answers.set()
    until(lambda: not tables.entries.is_running, "the round ends")
    assert tables.catalog.entries == {}  # the round was paused


def assert_set(event: threading.Event) -> None:
    assert event.wait(60)
