"""Which entries a catalog gets, follows and loses, on a catalog in memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from spark_sink.mirror.history.history_records import HistoryRecords
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.table_record import MOVED_FROM, TableRecord, TableState
from spark_sink.mirror.runtime.catalog import (
    CatalogEntries,
    RegisteredRecords,
    below,
    same_location,
)
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import ApplyOptions, TablePolicy
from tests.daemon.harness import until

TARGET = "file:/lake"


@dataclass
class Control:
    """A control table in memory."""

    rows_: dict[str, TableRecord] = field(default_factory=dict)

    def records(self) -> dict[str, TableRecord]:
        return {i: record for i, record in self.rows_.items() if not record.history}

    def rows(self) -> ControlRows:
        histories = {i: record for i, record in self.rows_.items() if record.history}
        return ControlRows(self.records(), {}, {}, 0, histories)

    def named_requests(self, _consumer: str) -> dict[TableName, str]:
        return {}

    def write(self, *records: TableRecord) -> None:
        self.rows_ |= {record.table_id: record for record in records}


@dataclass
class CatalogInMemory:
    """`entries`: locations by name; `refuses`: names that it refuses; `calls`: what changed it."""

    entries: dict[str, str] = field(default_factory=dict)
    refuses: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    def location(self, name: str) -> str | None:
        if name in self.refuses:
            raise PermissionError(f"user etl may not see {name}")
        return self.entries.get(name)

    def register(self, name: str, path: str) -> None:
        self.calls.append(f"register {name}")
        assert name not in self.entries
        self.entries[name] = path

    def drop(self, name: str) -> None:
        self.calls.append(f"drop {name}")
        del self.entries[name]


@dataclass
class Registered:
    """The tables of the consumer `shop` under test."""

    catalog: CatalogInMemory = field(default_factory=CatalogInMemory)
    control: Control = field(default_factory=Control)
    directory: TableDirectory = field(init=False)
    histories: HistoryRecords = field(init=False)
    entries: CatalogEntries = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A job begins."""
        control = cast(ControlTable, self.control)
        self.directory = TableDirectory("shop", control, lambda folder: folder)
        options = ApplyOptions("t", ["shop"], lambda _: TablePolicy(history=True))
        self.histories = HistoryRecords(self.directory, control, options)
        template = CatalogTemplate.parse("{database}.{table}")
        self.entries = CatalogEntries(self.catalog, template, TARGET)

    @property
    def registered(self) -> list[RegisteredRecords]:
        return [self.directory, self.histories.registered]

    def table(self, name: str, state: TableState = TableState.COMPLETE, **more: str) -> TableRecord:
        folder = folder_of(("shop", name))
        record = TableRecord(name, "shop", "shop", name, folder=folder, state=state)
        self.directory.save(record.having(**more))
        return self.directory.record(name)

    def rename(self, *moves: tuple[str, str]) -> None:
        """Give tables their names, as one statement does: (id, name)."""
        self.directory.save(
            *(
                replace(
                    self.directory.record(table_id), table=name, folder=folder_of(("shop", name))
                )
                for table_id, name in moves
            )
        )

    def bring(self) -> None:
        self.entries.bring(self.registered)

    def names(self) -> dict[str, str]:
        """Table ids by the names under which their records say that they are registered."""
        records = self.directory.records()
        return {str(r.detail["catalog"]): r.table_id for r in records if "catalog" in r.detail}


@pytest.fixture
def tables() -> Registered:
    return Registered()


def test_tables_are_registered_when_they_can_be_read(tables: Registered) -> None:
    tables.table("orders")
    tables.table("partial", TableState.PARTIAL)
    for state in (TableState.CREATING, TableState.COPYING, TableState.STOPPED, TableState.DROPPED):
        tables.table(f"is_{state}", state)
    tables.directory.save(TableRecord("empty", "shop", "shop", "empty"))  # no rows so far
    tables.bring()
    assert tables.catalog.entries == {
        "shop.orders": "file:/lake/shop/orders",
        "shop.partial": "file:/lake/shop/partial",
    }
    tables.directory.change(lambda r: replace(r, state=TableState.STOPPED), "orders")
    tables.directory.change(lambda r: replace(r, state=TableState.CREATING), "partial")
    tables.bring()
    assert set(tables.catalog.entries) == {"shop.orders", "shop.partial"}
    tables.directory.change(lambda r: replace(r, state=TableState.DROPPED), "orders")
    tables.bring()
    assert set(tables.catalog.entries) == {"shop.partial"}
    assert tables.names() == {"shop.partial": "partial"}


def test_a_rename_moves_an_entry_when_the_folder_has_moved(tables: Registered) -> None:
    tables.table("a")
    tables.bring()
    tables.rename(("a", "b"))
    tables.directory.change(lambda r: r.having(**{MOVED_FROM: "shop/a"}), "a")
    tables.bring()
    assert set(tables.catalog.entries) == {"shop.a"}
    tables.directory.change(lambda r: r.having(**{MOVED_FROM: None}), "a")
    tables.bring()
    assert tables.catalog.entries == {"shop.b": "file:/lake/shop/b"}


def test_a_swap_changes_nothing_in_the_catalog(tables: Registered) -> None:
    tables.table("a")
    tables.table("b")
    tables.bring()
    before = len(tables.catalog.calls)
    tables.rename(("a", "b"), ("b", "a"))
    tables.bring()
    assert tables.catalog.calls[before:] == []
    assert tables.names() == {"shop.b": "a", "shop.a": "b"}


def test_a_chain_of_renames_keeps_what_is_still_needed(tables: Registered) -> None:
    for name in ("a", "b"):
        tables.table(name)
    tables.bring()
    tables.rename(("b", "c"))
    tables.rename(("a", "b"))
    tables.bring()
    assert set(tables.catalog.entries) == {"shop.b", "shop.c"}
    assert tables.names() == {"shop.b": "a", "shop.c": "b"}


@pytest.mark.parametrize("before", ["nothing", "ours", "elsewhere in the target"])
def test_what_was_done_before_a_crash_is_not_done_again(tables: Registered, before: str) -> None:
    tables.table("orders")
    there = {"ours": "file:///lake/shop/orders", "elsewhere in the target": "file:/lake/shop/old"}
    if before in there:
        tables.catalog.entries["shop.orders"] = there[before]
    tables.bring()
    assert same_location(tables.catalog.entries["shop.orders"], "file:/lake/shop/orders")
    assert len(tables.catalog.calls) == {"nothing": 1, "ours": 0}.get(before, 2)


def test_an_entry_that_is_missing_is_made_again_by_the_next_job(tables: Registered) -> None:
    tables.table("orders")
    tables.bring()
    tables.catalog.entries.clear()
    tables.bring()
    assert tables.catalog.entries == {}
    tables.start()
    tables.bring()
    assert set(tables.catalog.entries) == {"shop.orders"}


def test_the_name_of_another_table_is_left_alone(
    tables: Registered, caplog: pytest.LogCaptureFixture
) -> None:
    tables.table("orders")
    tables.table("lines")
    tables.catalog.entries |= {"shop.orders": "file:/theirs/orders", "shop.lines": ""}
    with caplog.at_level(logging.WARNING):
        tables.bring()
        tables.bring()
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
    assert "not registered as" in tables.directory.record("orders").detail["catalog_error"]

    tables.catalog.entries.clear()
    tables.bring()
    assert tables.entries.failing == {}
    assert "catalog_error" not in tables.directory.record("orders").detail


def test_tables_whose_names_differ_in_case_alone_clash(tables: Registered) -> None:
    tables.table("orders")
    tables.table("Orders")
    tables.bring()
    assert tables.catalog.entries == {"shop.orders": "file:/lake/shop/orders"}
    assert "shop.orders has the same name" in tables.entries.failing["Orders"]
    tables.directory.change(lambda r: replace(r, state=TableState.DROPPED), "orders")
    tables.bring()
    tables.bring()
    assert tables.catalog.entries == {"shop.orders": "file:/lake/shop/Orders"}
    assert tables.entries.failing == {}


def test_a_refusal_concerns_one_table(tables: Registered) -> None:
    tables.catalog.refuses = {"shop.a"}
    tables.table("a")
    tables.table("b")
    tables.bring()
    assert set(tables.catalog.entries) == {"shop.b"}
    assert "PermissionError: user etl may not see shop.a" in tables.entries.failing["a"]
    tables.directory.change(lambda r: replace(r, state=TableState.DROPPED), "a")
    tables.catalog.refuses = set()
    tables.bring()
    assert tables.entries.failing == {}


def test_a_name_that_is_not_ours_any_more_is_not_dropped(tables: Registered) -> None:
    tables.table("orders")
    tables.bring()
    tables.catalog.entries["shop.orders"] = "file:/theirs/orders"
    tables.directory.change(lambda r: replace(r, state=TableState.DROPPED), "orders")
    tables.bring()
    assert tables.catalog.entries == {"shop.orders": "file:/theirs/orders"}
    assert tables.names() == {}


def test_a_history_is_registered_under_its_own_name(tables: Registered) -> None:
    tables.table("orders")
    tables.histories.begin_new()
    tables.bring()
    assert set(tables.catalog.entries) == {"shop.orders"}  # it has no rows so far
    name = ("shop", "orders")
    tables.histories.change(
        name, lambda r: replace(r, state=TableState.COMPLETE, folder=folder_of(r.shown_name))
    )
    tables.bring()
    assert tables.catalog.entries["shop.orders__history"] == "file:/lake/shop/orders__history"
    assert tables.histories.record(name).detail["catalog"] == "shop.orders__history"
    # It belongs to the name, and stays when the table is gone, or when it is stopped.
    tables.directory.change(lambda r: replace(r, state=TableState.DROPPED), "orders")
    tables.histories.change(name, lambda r: replace(r, state=TableState.STOPPED))
    tables.bring()
    assert set(tables.catalog.entries) == {"shop.orders__history"}
    tables.start()
    tables.bring()
    assert tables.catalog.calls == [
        "register shop.orders",
        "register shop.orders__history",
        "drop shop.orders",
    ]


def test_rounds_are_done_when_nothing_changes(tables: Registered) -> None:
    def forward() -> bool:
        return tables.entries.forward([tables])

    tables.table("orders")
    try:
        until(forward, "the round is done")
        assert forward()
        assert set(tables.catalog.entries) == {"shop.orders"}
        tables.table("lines")
        assert not forward()
        until(forward, "the round is done")
        assert set(tables.catalog.entries) == {"shop.orders", "shop.lines"}
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
