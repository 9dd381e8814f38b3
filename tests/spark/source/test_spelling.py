"""Options that name a table in another spelling than the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dispatcher.binlog.table_map.column_types import Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import UserError
from spark_sink.source import schemas
from spark_sink.source.options import SourceOptions
from spark_sink.source.rows import read_slice, selection_of
from spark_sink.source.selection import spelling
from spark_sink.source.slices import Slice
from tests.spark.source.test_partial_changes import END
from tests.spark.source.test_projection import definition
from tests.support.fake_daemon import FakeDaemon
from tests.support.rows_encoder import Delivered, Spec, integer, rows_body, table_map


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    spelling._is_same.cache_clear()
    yield
    spelling._is_same.cache_clear()


def rows(daemon: FakeDaemon, *tables: str, **more: str) -> int:
    """Returns the number of rows that a stream gets from a log with one row of each table."""
    log = Delivered()
    for table in tables:
        mapped = (19, table_map([Spec("id", Type.LONG)], table=table))
        log.transaction(mapped, (30, rows_body(30, [[integer(1, 4)]])))
    options = SourceOptions.parse({"url": daemon.url, "consumer": "shop"} | more)
    schema = schemas.stream_schema(options, definition(id="int") if options.table else None)
    batches = read_slice(options, schema, Slice(1, 0, END, END), log.bytes())
    return sum(batch.num_rows for batch in batches)


OPTIONS = [{"table": "shop.Orders"}, {"tables": "shop.Orders, shop.b*"}]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_server_that_ignores_case_has_one_table(
    daemon: FakeDaemon, options: dict[str, str]
) -> None:
    daemon.tables["shop.orderS"] = definition(id="int")
    with pytest.raises(UserError, match=r"names shop\.Orders, but the server's log .*") as caught:
        rows(daemon, "other", "orders", **options)
    (key,) = options
    assert caught.value.remedy == f"write shop.orders in the option {key}"
    assert "shop.orders" in caught.value.what


@pytest.mark.parametrize("options", OPTIONS)
def test_a_server_that_does_not_has_two(
    daemon: FakeDaemon, caplog: pytest.LogCaptureFixture, options: dict[str, str]
) -> None:
    for _ in range(2):
        assert rows(daemon, "orders", "Orders", "other", **options) == 1
    asked = [body["table"] for call, body in daemon.calls if call == "tables"]
    assert asked == ["shop.orderS"], "the answer is stored"
    assert "rows of shop.orders are left out, because the options name Orders" in caplog.text


def test_a_name_of_one_letter_has_no_third_spelling(
    daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    assert rows(daemon, "t", "T", table="shop.T") == 1
    assert daemon.calls == [] and "rows of shop.t are left out" in caplog.text


def test_the_right_spelling_asks_nothing(daemon: FakeDaemon) -> None:
    assert rows(daemon, "Orders", "other", table="shop.Orders") == 1
    assert rows(daemon, "orders", tables="shop.*") == 1
    assert daemon.calls == []


def test_the_driver_finds_it_too(daemon: FakeDaemon) -> None:
    daemon.tables["shop.orderS"] = definition(id="int")
    options = SourceOptions.parse({"url": daemon.url, "consumer": "shop", "table": "shop.Orders"})
    selection = selection_of(options, schemas.stream_schema(options, definition(id="int")))
    with pytest.raises(UserError, match="lower_case_table_names"):
        selection.layout_plan(TableMap(1, "shop", "orders", (), (), "layout"))
