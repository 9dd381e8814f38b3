"""The text, the JSON and the hexdump of each kind of event."""

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal

import zstandard

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import Type
from tests.inspect.conftest import Inspect
from tests.support.inspect_logs import ORDERS, order, small_log
from tests.support.log_file import SERVER, TIME, LogFile, payload_body
from tests.support.rows_encoder import Spec, date, decimal, integer, text

K = EventType


def test_json_has_one_object_per_event(inspect: Inspect) -> None:
    log = small_log()
    shown = inspect(log.bytes(), "--json")
    assert (shown.code, shown.err) == (0, "")
    events = shown.events
    assert [event["offset"] for event in events] == log.offsets
    assert [event["type"] for event in events] == [f"{K(kind).name}_EVENT" for kind in log.kinds]
    ends = [*log.offsets[1:], len(log.data)]
    assert [event["end_log_pos"] for event in events] == ends
    assert [event["size"] for event in events] == [
        end - start for start, end in zip(log.offsets, ends, strict=True)
    ]
    rows = events[6]
    assert rows == {
        "file": "binlog.000001", "offset": log.offsets[6], "end_log_pos": ends[6], "timestamp": TIME,
        "time": "2023-11-14T22:13:20Z", "server_id": 1, "size": ends[6] - log.offsets[6], "flags": 0,
        "type": "WRITE_ROWS_EVENT", "database": "shop", "table": "orders", "row_count": 2,
        "rows": [{"after": {"id": 1, "customer": "Ann", "day": "2026-01-02"}},
                 {"after": {"id": 2, "customer": None, "day": None}}],
    }  # fmt: skip
    assert events[0]["server_version"] == "8.0.36"
    assert events[0]["checksum"] == "CRC32"
    assert events[1]["gtid_set"] == ""
    assert events[2]["gtid"] == f"{SERVER}:1"
    assert (events[3]["query"], events[3]["database"]) == ("BEGIN", "shop")
    assert events[4]["query"] == "INSERT INTO orders ..."
    assert events[5]["columns"][1] == {
        "name": "customer", "type": "varchar(40)", "charset": "utf8mb4", "nullable": True,
    }  # fmt: skip
    assert events[5]["key"] == ["id"]
    assert events[7]["xid"] == 7
    update = {
        "before": {"id": 1, "customer": "Ann", "day": None},
        "after": {"id": 1, "customer": "it's\n\x1b[1m", "day": None},
    }
    assert events[11]["rows"] == [update]
    assert events[16]["rows"] == [{"before": {"id": 5, "customer": "x", "day": None}}]
    assert (events[-1]["next_file"], events[-1]["next_position"]) == ("binlog.000002", 4)


def test_text_reads_like_mysqlbinlog(inspect: Inspect) -> None:
    log = small_log()
    out = inspect(log.bytes()).out
    start = log.offsets[6]
    end = log.offsets[7]
    assert (
        f"# at {start}\n# 2023-11-14T22:13:20Z  server id 1  end_log_pos {end}  WRITE_ROWS_EVENT  `shop`.`orders`"
        "  2 rows\n### INSERT INTO `shop`.`orders`\n### SET\n###   `id`=1\n###   `customer`='Ann'\n"
        "###   `day`='2026-01-02'\n### INSERT INTO `shop`.`orders`\n### SET\n###   `id`=2\n###   `customer`=NULL\n"
        "###   `day`=NULL\n# at "
    ) in out
    assert "### UPDATE `shop`.`orders`\n### WHERE\n###   `id`=1\n###   `customer`='Ann'\n" in out
    assert "### SET\n###   `id`=1\n###   `customer`='it\\'s\\n\\x1b[1m'\n" in out
    assert "### DELETE FROM `bank`.`bills`\n### WHERE\n###   `id`=5\n" in out
    assert "#   customer varchar(40) character set utf8mb4\n" in out
    assert out.count("#   customer") == 2  # a table's columns are shown when they are new
    assert "# INSERT INTO orders ...\n" in out
    assert "ALTER TABLE orders ADD COLUMN more INT;\n" in out
    assert "\x1b" not in out


def test_hexdump_shows_all_bytes(inspect: Inspect) -> None:
    log = small_log()
    out = inspect(log.bytes(), "--hexdump").out
    lines = re.findall(r"^# +([0-9a-f]+)  ((?:[0-9a-f]{2} {1,2})+) +\|", out, re.MULTILINE)
    assert bytes.fromhex("".join(line for _, line in lines).replace(" ", "")) == bytes(log.data[4:])
    assert int(lines[0][0], 16) == 4
    events = inspect(log.bytes(), "--hexdump", "--json").events
    assert b"".join(bytes.fromhex(event["hex"]) for event in events) == bytes(log.data[4:])


def test_a_compressed_transaction_is_shown_unpacked(inspect: Inspect) -> None:
    inner = LogFile(checksum=False)
    inner.query("BEGIN")
    inner.table(ORDERS)
    for number in range(300):
        inner.rows(K.WRITE_ROWS, [order(number, "c" * 90)])
    inner.xid()
    plain = bytes(inner.data[inner.offsets[1] :])
    log = LogFile()
    log.gtid(1)
    log.add(K.TRANSACTION_PAYLOAD, payload_body(plain, zstandard.compress(plain)))
    log.gtid(2)
    log.query("CREATE TABLE t (id INT)")
    shown = inspect(log.bytes(), "--json")
    assert (shown.code, shown.err) == (0, "")
    inside = [event for event in shown.events if "payload_index" in event]
    assert [event["payload_index"] for event in inside] == list(range(303))
    assert {event["offset"] for event in inside} == {log.offsets[2]}
    assert {event["end_log_pos"] for event in inside} == {log.offsets[3]}
    assert [
        row["after"]["id"] for event in inside if "rows" in event for row in event["rows"]
    ] == list(range(300))
    assert shown.events[2]["compression"] == "ZSTD"
    assert shown.events[-1]["query"] == "CREATE TABLE t (id INT)"
    found = inspect(log.bytes(), "--summary", "--json").events[0]
    assert found["transactions"] == 2
    assert found["largest_transactions"][0]["bytes"] == log.offsets[3] - log.offsets[1]
    assert found["largest_transactions"][0]["rows"] == 300


def test_invalid_dates(inspect: Inspect) -> None:
    log = LogFile()
    log.table(ORDERS)
    log.rows(K.WRITE_ROWS, [order(1, "a", date(0, 0, 0)), order(2, "b", date(2026, 2, 3))])
    data = log.bytes()
    days = [row["after"]["day"] for row in inspect(data, "--json").events[-1]["rows"]]
    assert days == ["0000-00-00", "2026-02-03"]
    assert "###   `day`='0000-00-00'\n" in inspect(data).out
    nulls = inspect(data, "--json", "--invalid-dates", "null")
    assert [row["after"]["day"] for row in nulls.events[-1]["rows"]] == [None, "2026-02-03"]
    refused = inspect(data, "--json", "--invalid-dates", "error")
    assert refused.code == 2
    assert "day" in refused.events[-1]["error"]


def test_rows_without_column_names(inspect: Inspect) -> None:
    columns = [
        Spec("id", Type.LONG), Spec("c", Type.VARCHAR, b"\xa0\0"), Spec("b", Type.BLOB, b"\2"),
        Spec("e", Type.ENUM, b"\xf7\1"), Spec("p", Type.NEWDECIMAL, b"\x0a\2"), Spec("s", Type.STRING, b"\xfe\x0a"),
    ]  # fmt: skip
    row = [
        integer(-1, 4),
        text("é", 1),
        text(b"\xff\0", 2),
        b"\2",
        decimal(Decimal("-1.50"), 10, 2),
        text("x", 1),
    ]
    log = LogFile(version="5.6.24-log")
    log.table(columns, full=False)
    log.rows(K.WRITE_ROWS, [row])
    shown = inspect(log.bytes(), "--json")
    assert shown.code == 0
    assert shown.events[-1]["rows"] == [
        {"after": {"@1": -1, "@2": "é", "@3": "/wA=", "@4": 2, "@5": "-1.50", "@6": "x"}}
    ]
    out = inspect(log.bytes()).out
    for line in (
        "`@1`=-1 (4294967295)",
        "`@2`='é'",
        "`@3`=0xFF00",
        "`@4`=2",
        "`@5`=-1.50",
        "`@6`='x'",
    ):
        assert f"###   {line}\n" in out
    assert "#   @2 varchar(160)\n" in out


def test_statement_events(inspect: Inspect) -> None:
    log = LogFile()
    log.add(K.INTVAR, b"\2" + (5).to_bytes(8, "little"))
    log.add(K.RAND, struct.pack("<QQ", 11, 12))
    for value in (
        b"\0\0" + struct.pack("<II", 255, 4) + b"it's",
        b"\0\2" + struct.pack("<IIq", 63, 8, -3),
    ):
        log.add(K.USER_VAR, struct.pack("<I", 1) + b"v" + value)
    log.add(K.XA_PREPARE, struct.pack("<BIII", 0, 7, 3, 2) + b"onebq")
    log.add(K.STOP, b"")
    events = inspect(log.bytes(), "--json").events
    assert events[1]["intvar"] == {"name": "INSERT_ID", "value": 5}
    assert events[2]["rand_seeds"] == [11, 12]
    assert [event["user_var"] for event in events[3:5]] == [
        {"name": "v", "value": "it's"},
        {"name": "v", "value": -3},
    ]
    assert events[5]["xid"] == {"format_id": 7, "gtrid": b"one".hex(), "bqual": b"bq".hex()}
    out = inspect(log.bytes()).out
    for line in (
        "SET INSERT_ID=5;",
        "SET @`v`='it\\'s';",
        "SET @`v`=-3;",
        "XA PREPARE X'6f6e65',X'6271',7;",
    ):
        assert f"\n{line}\n" in out


def test_json_escapes_any_text(inspect: Inspect) -> None:
    log = LogFile()
    log.query("CREATE TABLE `a\"b\\c` (id INT) COMMENT '\x01 ж 😀'")
    log.add(K.QUERY, struct.pack("<IIBHH", 1, 0, 0, 0, 0) + b"\0INSERT \xff\xfe")
    log.table([Spec('na"me', Type.VARCHAR, b"\xa0\0", charset=255)])
    log.rows(K.WRITE_ROWS, [[text('"\\\n\x00ж😀', 1)]])
    lines = inspect(log.bytes(), "--json").out.splitlines()
    assert json.loads(lines[-1])["rows"] == [{"after": {'na"me': '"\\\n\x00ж😀'}}]
    assert "ж 😀" in json.loads(lines[1])["query"]
