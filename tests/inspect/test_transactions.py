"""`--database` and `--table`: the events and transactions that they select."""

from __future__ import annotations

import struct

import pytest

from dispatcher.binlog.event.types import EventType
from tests.inspect.conftest import Inspect
from tests.support.inspect_logs import ORDERS, order, small_log
from tests.support.log_file import SERVER, LogFile

K = EventType


@pytest.mark.parametrize(
    ("options", "gtids", "types"),
    [
        (["--database", "bank"], [3], ["GTID", "QUERY", "TABLE_MAP", "DELETE_ROWS", "XID"]),
        (["--table", "bills"], [3], ["GTID", "QUERY", "TABLE_MAP", "DELETE_ROWS", "XID"]),
        (["--table", "bank.bills"], [3], ["GTID", "QUERY", "TABLE_MAP", "DELETE_ROWS", "XID"]),
        (["--table", "BANK.Bills"], [3], ["GTID", "QUERY", "TABLE_MAP", "DELETE_ROWS", "XID"]),
        (["--database", "Bank"], [3], ["GTID", "QUERY", "TABLE_MAP", "DELETE_ROWS", "XID"]),
        (["--table", "shop.bills"], [], []),
        (["--database", "nothing"], [], []),
        (["--table", "shop.orders"], [1, 2, 4],
         ["GTID", "QUERY", "ROWS_QUERY", "TABLE_MAP", "WRITE_ROWS", "XID", "GTID", "QUERY", "TABLE_MAP", "UPDATE_ROWS",
          "XID", "GTID", "QUERY"]),
    ],
)  # fmt: skip
def test_filters_by_database_and_table(
    inspect: Inspect, options: list[str], gtids: list[int], types: list[str]
) -> None:
    shown = inspect(small_log().bytes(), "--json", *options)
    assert shown.code == 0
    assert [event["type"].removesuffix("_EVENT") for event in shown.events] == types
    assert [event["gtid"] for event in shown.events if "gtid" in event] == [
        f"{SERVER}:{n}" for n in gtids
    ]


def test_a_filter_shows_events_that_may_concern_its_table(inspect: Inspect) -> None:
    log = LogFile()
    log.add(K.INCIDENT, struct.pack("<HB", 1, 4) + b"lost")
    log.gtid(1)
    log.query("BEGIN", "bank")
    log.table(ORDERS, database="bank")
    log.rows(K.WRITE_ROWS, [order(1, "x")])
    log.table(ORDERS, database="shop", table_id=79)
    log.rows(K.WRITE_ROWS, [order(2, "y")], table_id=79)
    log.query("SAVEPOINT s", "bank")
    log.xid()
    log.gtid(2)
    log.query("SOMETHING UNKNOWN TO EVERY SERVER", "shop")
    log.gtid(3)
    log.query("DROP TABLE bank.t, shop.orders", "bank")
    log.gtid(4)
    log.query("CREATE TABLE bank.z (id INT)", "shop")
    events = inspect(log.bytes(), "--json", "--table", "shop.orders").events
    assert [event["type"].removesuffix("_EVENT") for event in events] == [
        "INCIDENT", "GTID", "QUERY", "TABLE_MAP", "WRITE_ROWS", "QUERY", "XID", "GTID", "QUERY", "GTID", "QUERY",
    ]  # fmt: skip
    assert events[4]["rows"][0]["after"]["id"] == 2
    assert events[0]["incident"] == {"number": 1, "message": "lost"}
