"""What is printed of each event: text, JSON, bytes, numbers; filters and bounds."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import Type
from tests.inspect.conftest import Inspect
from tests.support.log_file import SERVER, TIME, LogFile, payload_body
from tests.support.rows_encoder import Spec, date, decimal, integer, text

K = EventType
ORDERS = [
    Spec("id", Type.LONG, unsigned=True, nullable=False),
    Spec("customer", Type.VARCHAR, b"\xa0\0", charset=255),
    Spec("day", Type.DATE),
]


def order(number: int, customer: str | None, day: bytes | None = None) -> list[bytes | None]:
    return [integer(number, 4), None if customer is None else text(customer, 1), day]


def small_log() -> LogFile:
    """Three transactions, a minute apart: two of orders, one of a table of another database; then a DDL."""
    log = LogFile()
    log.add(K.PREVIOUS_GTIDS, bytes(8))
    log.gtid(1)
    log.query("BEGIN")
    log.add(K.ROWS_QUERY, b"\x10INSERT INTO orders ...")
    log.table(ORDERS)
    log.rows(K.WRITE_ROWS, [order(1, "Ann", date(2026, 1, 2)), order(2, None)])
    log.xid(7)
    log.gtid(2, timestamp=TIME + 60)
    log.query("BEGIN", timestamp=TIME + 60)
    log.table(ORDERS, timestamp=TIME + 60)
    log.rows(K.UPDATE_ROWS, [order(1, "Ann"), order(1, "it's\n\x1b[1m")], timestamp=TIME + 60)
    log.xid(8, timestamp=TIME + 60)
    log.gtid(3, timestamp=TIME + 120)
    log.query("BEGIN", "bank", timestamp=TIME + 120)
    log.table(ORDERS, database="bank", table="bills", table_id=78, timestamp=TIME + 120)
    log.rows(K.DELETE_ROWS, [order(5, "x")], table_id=78, timestamp=TIME + 120)
    log.xid(9, timestamp=TIME + 120)
    log.gtid(4, timestamp=TIME + 180)
    log.query("ALTER TABLE orders ADD COLUMN more INT", timestamp=TIME + 180)
    log.add(K.ROTATE, (4).to_bytes(8, "little") + b"binlog.000002", timestamp=TIME + 180)
    return log


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


@pytest.mark.parametrize(
    ("options", "gtids", "types"),
    [
        (["--database", "bank"], [3], ["GTID", "QUERY", "TABLE_MAP", "DELETE_ROWS", "XID"]),
        (["--table", "bills"], [3], ["GTID", "QUERY", "TABLE_MAP", "DELETE_ROWS", "XID"]),
        (["--table", "bank.bills"], [3], ["GTID", "QUERY", "TABLE_MAP", "DELETE_ROWS", "XID"]),
        (["--table", "shop.bills"], [], []),
        (["--database", "nothing"], [], []),
        (["--table", "shop.orders"], [1, 2, 4],
         ["GTID", "QUERY", "ROWS_QUERY", "TABLE_MAP", "WRITE_ROWS", "XID", "GTID", "QUERY", "TABLE_MAP", "UPDATE_ROWS",
          "XID", "GTID", "QUERY"]),
    ],
)  # fmt: skip
def test_filters(inspect: Inspect, options: list[str], gtids: list[int], types: list[str]) -> None:
    shown = inspect(small_log().bytes(), "--json", *options)
    assert shown.code == 0
    assert [event["type"].removesuffix("_EVENT") for event in shown.events] == types
    assert [event["gtid"] for event in shown.events if "gtid" in event] == [
        f"{SERVER}:{n}" for n in gtids
    ]


def test_a_filter_keeps_what_may_concern_its_table(inspect: Inspect) -> None:
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
    log.query("SOMETHING UNKNOWN", "shop")
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


def bounds(log: LogFile, start: int | None, stop: int | None) -> list[int]:
    return log.offsets[start:stop]


@pytest.mark.parametrize(
    ("start", "stop", "first", "end"),
    [
        ("{at2}", None, 8, None),
        ("binlog.000001:{at2}", "{at3}", 8, 13),
        (None, "binlog.000001:{at2}", 0, 8),
        ("{uuid}:2", None, 8, None),
        ("{uuid}:2-3", "{uuid}:4", 8, 18),
        (None, "{uuid}:2", 0, 8),
        ("2023-11-14T22:14:20Z", "2023-11-14 22:15:20", 8, 13),
        ("2023-11-14T23:14:20+01:00", None, 8, None),
        ("2023-11-14T22:14:19.5", "2023-11-14T22:14:20.5Z", 8, 13),
    ],
)
def test_start_and_stop(
    inspect: Inspect, start: str | None, stop: str | None, first: int, end: int | None
) -> None:
    log = small_log()
    options = []
    for name, bound in (("--start", start), ("--stop", stop)):
        if bound is not None:
            options += [name, bound.format(at2=log.offsets[8], at3=log.offsets[13], uuid=SERVER)]
    shown = inspect(log.bytes(), "--json", *options)
    assert shown.code == 0
    assert [event["offset"] for event in shown.events] == log.offsets[first:end]


def test_a_start_far_into_the_file_is_gone_to(inspect: Inspect) -> None:
    log = LogFile()
    for number in range(1, 1200):
        log.gtid(number)
        log.query(f"CREATE TABLE t{number} (id INT)")
    at = log.offsets[2001]
    assert at > 1 << 16
    assert [
        event["offset"] for event in inspect(log.bytes(), "--json", "--start", str(at)).events
    ] == log.offsets[2001:]
    inside = inspect(log.bytes(), "--json", "--start", str(at + 1))
    assert (inside.code, inside.out.count("\n")) == (2, 0)
    assert f"--start: no event begins at binlog.000001:{at + 1}" in inside.err
    behind = inspect(log.bytes(), "--start", "9999999")
    assert behind.code == 2
    assert f"ends at {len(log.data)}" in behind.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--start", "yesterday"], "'yesterday' is not a position, a GTID or a time"),
        (["--stop", "2026-13-01"], "--stop: '2026-13-01'"),
        (["--start", "binlog.000009:4"], "--start: binlog.000009 is not among the files"),
        (["--start", f"{SERVER}:9"], "no transaction of"),
        (["--start", f"{SERVER}:5-x"], "--start: not a GTID set"),
        (["--start", "99999"], "ends at 1215, before 99999"),
        (["--start", "1215"], "no event at or after offset 1215"),
        (["--invalid-dates", "maybe"], "--invalid-dates: 'maybe'"),
        (["--follow"], "--follow needs a server"),
    ],
)
def test_wrong_arguments_say_so(inspect: Inspect, options: list[str], said: str) -> None:
    shown = inspect(small_log().bytes(), *options)
    assert shown.code == 2
    assert said in shown.err
    assert len(shown.err.splitlines()) == 1


def test_mariadb_gtids_and_dates_are_told_apart(inspect: Inspect) -> None:
    log = LogFile(version="10.11.6-MariaDB")
    for number in (1, 2, 3):
        log.add(
            K.MARIADB_GTID, struct.pack("<QIB", number, 0, 1) + bytes(6), timestamp=TIME + number
        )
        log.query(f"CREATE TABLE t{number} (id INT)", timestamp=TIME + number)
    for start in ("0-1-2", "gtid:0-1-2", f"{log.offsets[3]}"):
        events = inspect(log.bytes(), "--json", "--start", start).events
        assert [event["offset"] for event in events] == log.offsets[3:]
    assert inspect(log.bytes(), "--json", "--start", "0-1-2").events[0]["gtid"] == "0-1-2"
    assert inspect(log.bytes(), "--start", "2023-11-15").out == ""


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


def test_dates_that_are_none(inspect: Inspect) -> None:
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
    from decimal import Decimal  # noqa: PLC0415

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


def test_help_names_every_option(inspect: Inspect) -> None:
    shown = inspect("--help")
    assert shown.code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.out)
    for option in (
        "--json", "--summary", "--hexdump", "--database", "--table", "--start", "--stop", "--invalid-dates", "--follow",
        "--password-file", "--password-env", "--tls-mode", "--ca", "mysql://",
    ):  # fmt: skip
        assert option in plain


def test_several_files_and_standard_input(inspect: Inspect, tmp_path: Path) -> None:
    one, two = small_log(), LogFile()
    two.query("CREATE TABLE later (id INT)")
    other = tmp_path / "binlog.000002"
    other.write_bytes(two.bytes())
    both = inspect(one.bytes(), str(other), "--json").events
    assert [event["file"] for event in both] == ["binlog.000001"] * len(one.offsets) + [
        "binlog.000002"
    ] * 2
    start = inspect(one.bytes(), str(other), "--json", "--start", "binlog.000002:4").events
    assert [event["file"] for event in start] == ["binlog.000002"] * 2
    stop = inspect(one.bytes(), str(other), "--json", "--stop", f"{two.offsets[1]}").events
    assert len(stop) == len(one.offsets) + 1
    piped = inspect("-", "--json", stdin=one.bytes())
    assert [event["offset"] for event in piped.events] == one.offsets
    assert piped.events[0]["file"] == "stdin"


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    log = LogFile()
    for number in range(1, 20_000):
        log.gtid(number)
    path = tmp_path / "binlog.000001"
    path.write_bytes(log.bytes())
    command = [sys.executable, "-m", "dispatcher", "inspect", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"# binlog.000001\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_json_survives_any_text(inspect: Inspect) -> None:
    log = LogFile()
    log.query("CREATE TABLE `a\"b\\c` (id INT) COMMENT '\x01 ж 😀'")
    log.add(K.QUERY, struct.pack("<IIBHH", 1, 0, 0, 0, 0) + b"\0INSERT \xff\xfe")
    log.table([Spec('na"me', Type.VARCHAR, b"\xa0\0", charset=255)])
    log.rows(K.WRITE_ROWS, [[text('"\\\n\x00ж😀', 1)]])
    lines = inspect(log.bytes(), "--json").out.splitlines()
    assert json.loads(lines[-1])["rows"] == [{"after": {'na"me': '"\\\n\x00ж😀'}}]
    assert "ж 😀" in json.loads(lines[1])["query"]
