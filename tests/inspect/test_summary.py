"""`--summary`: the counts by file, table, transaction and event type."""

from __future__ import annotations

import re

from dispatcher.binlog.event.types import EventType
from tests.inspect.conftest import Inspect
from tests.support.inspect_logs import small_log
from tests.support.log_file import SERVER

K = EventType


def test_summary(inspect: Inspect) -> None:
    log = small_log()
    found = inspect(log.bytes(), "--summary", "--json").events[0]
    assert found["transactions"] == 4
    assert (found["first_time"], found["last_time"]) == (
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:16:20Z",
    )
    by_table = {(one["database"], one["table"]): one for one in found["tables"]}
    orders = by_table["shop", "orders"]
    assert (orders["inserts"], orders["updates"], orders["deletes"], orders["transactions"]) == (
        2,
        1,
        0,
        2,
    )
    assert by_table["bank", "bills"]["deletes"] == 1
    largest = found["largest_transactions"]
    assert [one["bytes"] for one in largest] == sorted(
        (one["bytes"] for one in largest), reverse=True
    )
    assert largest[0]["gtid"] == f"{SERVER}:1"
    assert largest[0]["bytes"] == log.offsets[8] - log.offsets[2]
    assert largest[0]["rows"] == 2
    assert {one["type"]: one["count"] for one in found["events"]}["XID_EVENT"] == 3
    assert found["files"] == [{"file": "binlog.000001", "bytes": len(log.data) - 4}]
    text_out = inspect(log.bytes(), "--summary").out
    assert re.search(r"shop +orders +2 +2 +1 +0 ", text_out)
    only = inspect(log.bytes(), "--summary", "--json", "--database", "bank").events[0]
    assert only["transactions"] == 1
    assert [one["table"] for one in only["tables"]] == ["bills"]
