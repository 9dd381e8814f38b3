"""Events that published articles explain byte by byte: our parsers agree with the articles.

The bytes are from logs of MySQL 5.6.34, 5.7.19 and 8.0.22. Most articles omit the event headers. Where an article lists
the fields of a header, the event's checksum proves that header and body are correct. Comments name the errors of the
articles.
"""

from __future__ import annotations

import base64
import datetime as dt
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.event import header
from dispatcher.binlog.event.control import parse_rows_query, parse_xid
from dispatcher.binlog.event.gtid import Gtid, parse_gtid_event
from dispatcher.binlog.event.header import HEADER, MAGIC, parse_format_description
from dispatcher.binlog.event.query import Query, Status, parse_query
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import packed
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.gtid import GtidSet
from tests.support.rows_encoder import Delivered, Spec, optional, rows_body, table_map
from tests.support.rows_encoder import packed as packed_bytes

unhex = bytes.fromhex

# -- whole events ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vector:
    """An event. `crc`: its checksum, the last four bytes, in the order of the log."""

    kind: int
    timestamp: int
    server_id: int
    log_pos: int
    body: str
    crc: str
    parsed: Callable[[bytes], Any]
    wanted: Any
    flags: int = 0

    @property
    def event(self) -> bytes:
        body = unhex(self.body)
        size = HEADER.size + len(body) + 4
        header = HEADER.pack(
            self.timestamp, self.kind, self.server_id, size, self.log_pos, self.flags
        )
        return header + body + unhex(self.crc)


def gtid_set(body: bytes) -> str:
    return str(GtidSet.decode(body))


def gtid(body: bytes) -> Gtid:
    return parse_gtid_event(EventType.GTID, body)


def anonymous(body: bytes) -> Gtid:
    return parse_gtid_event(EventType.ANONYMOUS_GTID, body)


def table_map_facts(body: bytes) -> tuple[Any, ...]:
    found = TableMap.parse(body)
    columns = [(Type(c.type).name, c.meta, c.nullable, c.charset) for c in found.columns]
    return found.database, found.table, columns


def query_facts(body: bytes) -> tuple[Any, ...]:
    query = parse_query(body)
    return (
        query.thread_id,
        query.execution_s,
        query.error_code,
        query.database,
        query.query,
        query.status,
    )


WHOLE = {
    # 5.7.19. The article does not explain why the stored interval ends in 54 but the printed interval in 53: the stored
    # end is the first number after the interval.
    "PREVIOUS_GTIDS, one interval": Vector(
        EventType.PREVIOUS_GTIDS, 0x5E2AD944, 10, 194,
        "0100000000000000 b0d850c2dbd011e990c3080027b8bded 0100000000000000 0100000000000000 3600000000000000",
        "bddedcf1", gtid_set, "b0d850c2-dbd0-11e9-90c3-080027b8bded:1-53", flags=0x80,
    ),
    "PREVIOUS_GTIDS, two sources": Vector(
        EventType.PREVIOUS_GTIDS, 1515697827, 330619, 279,
        "0200000000000000 89fbcea2da6511e7a851fa163e618bac 0300000000000000 0100000000000000 0600000000000000"
        "e703000000000000 e803000000000000 1a04000000000000 1d04000000000000 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "0200000000000000 0100000000000000 0300000000000000 0500000000000000 0800000000000000",
        "7824a994", gtid_set,
        "89fbcea2-da65-11e7-a851-fa163e618bac:1-5:999:1050-1052,aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-2:5-7",
    ),
    "GTID": Vector(
        EventType.GTID, 1515540668, 330619, 239,
        "01 89fbcea2da6511e7a851fa163e618bac 0500000000000000", "e83003d2",
        gtid, Gtid("89fbcea2-da65-11e7-a851-fa163e618bac", "", 5, 1),
    ),
    # The article's listing omits the first byte, the flags. The printed form contains rbr_only=yes, so the flags are 0.
    "ANONYMOUS_GTID": Vector(
        EventType.ANONYMOUS_GTID, 1515466434, 9999, 5681,
        "00 00000000000000000000000000000000 0000000000000000 02 1400000000000000 1500000000000000", "3906be46",
        anonymous, Gtid("", "", 0, 0, last_committed=20, sequence_number=21),
    ),
    # In the article, the table has 20 characters of utf8 text (60 bytes), and another listing shows meta=60. But these
    # bytes contain 20, so they are from a table with a one-byte character set.
    "TABLE_MAP": Vector(
        EventType.TABLE_MAP, 1511792310, 9999, 896,
        "6c0000000000 0100 0867616e677368656e00 05746573743100 02 030f 02 1400 02", "52534ad9",
        table_map_facts, ("gangshen", "test1", [("LONG", 0, False, 0), ("VARCHAR", 20, True, 0)]),
    ),
    # 8.0.22: VARCHAR(20) in utf8mb4 has 80 bytes (the article does not explain this).
    "TABLE_MAP with metadata": Vector(
        EventType.TABLE_MAP, 0x5FA6AB40, 1, 931647020,
        "8c0000000000 0100 077a686a77706b7500 017400 03 030f0a 02 5000 04 010100 0203fcff00", "cfb552da",
        table_map_facts,
        ("zhjwpku", "t", [("LONG", 0, False, 0), ("VARCHAR", 80, False, 255), ("DATE", 0, True, 0)]),
    ),
    "XID": Vector(
        EventType.XID, 1515011445, 330619, 1722, "8a0a000000000000", "1c181688", parse_xid, 2698
    ),
    "ROTATE": Vector(
        EventType.ROTATE, 1512699394, 330619, 2017,
        "0400000000000000 6d7973716c2d62696e2e303030303032", "b3db0b9a",
        header.parse_rotate, ("mysql-bin.000002", 4),
    ),
    # The length field has one byte, so it is wrong for texts of more than 255 bytes. The text extends to the end of the
    # event.
    "ROWS_QUERY": Vector(
        EventType.ROWS_QUERY, 1515420726, 330619, 271,
        "2e 696e7365727420696e746f20746573743128606e616d6560292076616c7565732827726f77735f71756572792729", "8aaf68dc",
        parse_rows_query, "insert into test1(`name`) values('rows_query')", flags=0x80,
    ),
    "QUERY": Vector(
        EventType.QUERY, 1515183629, 330619, 374,
        "a49f0100 00000000 08 0000 2a00 00 00000000 01 0000204000000000 06 03737464 03 02000200 04 210021005300"
        "0c 01 67616e677368656e00 67616e677368656e00"
        "696e7365727420696e746f20746573743128606e616d6560292076616c75657328276265696a696e672729", "21923798",
        query_facts,
        (106404, 0, 0, "gangshen", "insert into test1(`name`) values('beijing')",
         Status(sql_mode=1075838976, client=33, connection=33, server=83, updated_databases=("gangshen",))),
    ),
    # 5.7, from another article. Its formula for the length of the text omits the zero after the database's name and
    # the checksum, and says 2 bytes for auto_increment, which has 4 bytes (two numbers).
    "QUERY of a DDL": Vector(
        EventType.QUERY, 1486595539, 93157, 448,
        "02000000 01000000 04 0000 1a00 00 00000000 01 0000204000000000 06 03737464 04 210021002100 7465737400"
        "435245415445205441424c452060746573746374617331602028"
        "0a20206069643160 20696e74283131292044454641554c54204e554c4c2c"
        "0a20206069643260 20696e74283131292044454641554c54204e554c4c2c"
        "0a2020606e616d6560 20766172636861722832302920 44454641554c54204e554c4c 0a29", "66a684c9",
        query_facts,
        (2, 1, 0, "test",
         "CREATE TABLE `testctas1` (\n  `id1` int(11) DEFAULT NULL,\n  `id2` int(11) DEFAULT NULL,\n"
         "  `name` varchar(20) DEFAULT NULL\n)",
         Status(sql_mode=0x40200000, client=33, connection=33, server=33)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("vector", WHOLE.values(), ids=WHOLE)
def test_an_event(vector: Vector) -> None:
    event = vector.event
    assert zlib.crc32(event[:-4]).to_bytes(4, "little") == event[-4:]
    assert vector.parsed(event[HEADER.size : -4]) == vector.wanted


def needed(kind: int, body: bytes) -> int:
    """Returns how many bytes an event must have at least. Behind them, a text extends to the event's end."""
    match kind:
        case EventType.ROTATE:
            return 9
        case EventType.ROWS_QUERY:
            return 1
        case EventType.QUERY:
            return 13 + int.from_bytes(body[11:13], "little") + body[8] + 1
    return len(body)


@pytest.mark.parametrize("vector", WHOLE.values(), ids=WHOLE)
def test_a_truncated_event_is_an_error(vector: Vector) -> None:
    body = vector.event[HEADER.size : -4]
    for size in range(needed(vector.kind, body)):
        try:
            found = vector.parsed(body[:size])
        except (BinlogError, UserError):
            continue
        # Only fields that later versions added may be missing.
        assert vector.kind in (EventType.ANONYMOUS_GTID, EventType.TABLE_MAP)
        assert found != vector.wanted


def test_a_header() -> None:
    fields = HEADER.unpack(unhex("b61e1c5a 1e 0f270000 31000000 b1030000 0000"))
    assert fields == (1511792310, EventType.WRITE_ROWS, 9999, 49, 945, 0)
    assert unhex("fe62696e") == MAGIC


def test_the_end_of_an_event_and_the_next_ones_header() -> None:
    # From the log with the DDL above: the text "BEGIN", the checksum of its event, and the beginning of the TABLE_MAP
    # that follows.
    dump = unhex("42 45 47 49 4e f8 10 6c 3e d3 a5 9b 58 13 e5 6b")
    assert dump[:5] == b"BEGIN"
    assert int.from_bytes(dump[5:9], "little") == 0x3E6C10F8
    assert int.from_bytes(dump[9:13], "little") == WHOLE["QUERY of a DDL"].timestamp
    assert dump[13] == EventType.TABLE_MAP


# -- FORMAT_DESCRIPTION ---------------------------------------------------------------------------------------

# 5.6.34. The fields of the header follow from the ROTATE above, which ended the previous file.
OLD_FORMAT = (
    HEADER.pack(1512699394, EventType.FORMAT_DESCRIPTION, 330619, 116, 120, 0)
    + unhex("0400352e362e33342d6c6f67") + bytes(40) + unhex("00000000 13")
    + unhex("380d0008001200040404041200005c00041a08000000080808020000000a0a0a191900 01 2eef23e2")
)  # fmt: skip
# 8.0.22: the event while the file is being written (OPEN), and after the file was closed.
OPEN_FORMAT = (
    "hk6eXw8BAAAAeQAAAH0AAAABAAQAOC4wLjIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAAAACGTp5fEwANAAgAAAAABAAEAAAAYQAEGggAAAAICAgCAAAACgoKKioAEjQACigBIzeHUg=="
)
CLOSED_FORMAT = OPEN_FORMAT.replace("AH0AAAABAAQA", "AH0AAAAAAAQA")
FORMAT_DUMP = (
    "864e9e5f 0f 01000000 79000000 7d000000 0100 0400 382e302e3232" + "00" * 44 + "864e9e5f 13"
    "000d0008000000000400040000006100041a08000000080808020000000a0a0a2a2a001234000a2801 23378752"
)  # fmt: skip


def test_how_an_old_file_begins() -> None:
    found = parse_format_description(OLD_FORMAT)
    assert (found.server_version, found.checksum, found.mariadb) == ("5.6.34-log", True, False)
    assert len(found.post_headers) == 35
    assert found.post_headers[EventType.FORMAT_DESCRIPTION - 1] == 0x5C
    assert found.post_headers[EventType.TABLE_MAP - 1] == 8


def test_how_a_newer_file_begins() -> None:
    # Only for this event, the tool prints positions that are wrong by 152, as the article has found.
    event = unhex(FORMAT_DUMP)
    assert base64.b64decode(OPEN_FORMAT) == event
    assert HEADER.unpack_from(event) == (
        1604210310,
        EventType.FORMAT_DESCRIPTION,
        1,
        121,
        125,
        header.FLAG_IN_USE,
    )
    for raw in (OPEN_FORMAT, CLOSED_FORMAT):
        found = parse_format_description(base64.b64decode(raw))
        assert (found.server_version, found.checksum, found.created) == ("8.0.22", True, 1604210310)
        assert len(found.post_headers) == 40


# -- rows -----------------------------------------------------------------------------------------------------


def decoded(
    columns: bytes, names: str, *rows: tuple[int, str], charsets: tuple[int, ...] = ()
) -> list[dict[str, Any]]:
    """Decodes rows events (type, body) with the TABLE_MAP `columns`, to which the column names `names` are added."""
    extra = optional(4, b"".join(packed_bytes(len(name)) + name.encode() for name in names.split()))
    if charsets:
        extra += optional(3, b"".join(map(packed_bytes, charsets)))
    log = Delivered()
    log.transaction(
        (EventType.TABLE_MAP, columns + extra), *((kind, unhex(body)) for kind, body in rows)
    )
    return [
        row
        for part in delivered.changes(log.bytes())
        if isinstance(part, TableChanges)
        for row in part.batch.to_pylist()
    ]


@dataclass(frozen=True)
class RowsVector:
    """A rows event of a server 5.6.34 whose header is known."""

    kind: int
    timestamp: int
    log_pos: int
    body: str
    crc: str
    before: dict[str, int] | None
    after: dict[str, int] | None


INT_TABLE = unhex(
    "640000000000 0100 0867616e677368656e00 09696e745f7461626c6500 06 010209030801 00 3f"
)
ROW = dict(zip("abcdef", (1, 11, 111, 1111, 11111, 1), strict=True))
CHANGED = ROW | {"b": 22, "c": 222}
ROWS = {
    "WRITE_ROWS": RowsVector(
        EventType.WRITE_ROWS, 1514992880, 395,
        "640000000000 0100 0200 06 ff c0 01 0b00 6f0000 57040000 672b000000000000 01", "107e1750", None, ROW,
    ),
    # The article's listing of this event is from another run (table id 231). These bytes are from the run at 10:21:44,
    # whose prompt the article shows.
    "UPDATE_ROWS": RowsVector(
        EventType.UPDATE_ROWS, 1514992904, 718,
        "640000000000 0100 0200 06 ff ff c0 01 0b00 6f0000 57040000 672b000000000000 01"
        "c0 01 1600 de0000 57040000 672b000000000000 01", "16a3debb", ROW, CHANGED,
    ),
    # The article's bytes end with the checksum of the WRITE_ROWS above by mistake. The checksum in its listing is
    # right.
    "DELETE_ROWS": RowsVector(
        EventType.DELETE_ROWS, 1515007494, 375,
        "640000000000 0100 0200 06 ff c0 01 1600 de0000 57040000 672b000000000000 01", "b21848ce", CHANGED, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("vector", ROWS.values(), ids=ROWS)
def test_rows(vector: RowsVector) -> None:
    body = unhex(vector.body)
    size = HEADER.size + len(body) + 4
    header = HEADER.pack(vector.timestamp, vector.kind, 330619, size, vector.log_pos, 0)
    assert zlib.crc32(header + body).to_bytes(4, "little") == unhex(vector.crc)
    (row,) = decoded(INT_TABLE, "a b c d e f", (vector.kind, vector.body))
    assert (row["before"], row["after"]) == (vector.before, vector.after)


def test_a_row_with_a_null() -> None:
    event = base64.b64decode("QKumXx4BAAAALgAAAFrOhzcAAIwAAAAAAAEAAgAD/wQBAAAABWFwcGxlEoIl4A==")
    assert event == unhex(
        "40aba65f 1e 01000000 2e000000 5ace8737 0000 8c0000000000 0100 0200 03 ff 04 01000000 056170706c65 128225e0"
    )
    assert zlib.crc32(event[:-4]).to_bytes(4, "little") == event[-4:]
    table = unhex(WHOLE["TABLE_MAP with metadata"].body)
    (row,) = decoded(table, "id name date", (EventType.WRITE_ROWS, event[HEADER.size : -4].hex()))
    assert row["after"] == {"id": 1, "name": "apple", "date": None}


def test_numbers() -> None:
    table = unhex(
        "5d0000000000 0100 0867616e677368656e00 0c6e756d6265725f7461626c6500 09 01020903 08f6040510"
        "06 190a 04 08 0500 ff01"
    )
    row = (
        "5d0000000000 0100 0200 09 ffff 00fe 02 eaff de0000 52f7ffff ce56000000000000 80007b0756b5b306b08a2800"
        "3333f642 cdcccccccccc5e40 06"
    )
    (found,) = decoded(table, "a b c d e f g h i", (EventType.WRITE_ROWS, row))
    values = list(found["after"].values())
    assert values[:6] == [2, -22, 222, -2222, 22222, Decimal("123123123123.1122330000")]
    # The article shows the FLOAT as C prints it, 123.099998: the 32-bit number nearest to 123.1.
    assert np.float32(values[6]) == np.float32(123.1)
    assert values[7] == 123.2
    assert values[8] == bytes((0b00110,))


def test_dates_and_times() -> None:
    # Comments in the article's listing belong to other tables: they say 6 bytes of metadata instead of 9, and a name of
    # 10 letters instead of 5.
    table = unhex(
        "4e0000000000 0100 0867616e677368656e00 0a74696d655f7461626c6500 09 0a12121111 13130d0d 06 000300040005 ff01"
    )
    row = (
        "4e0000000000 0100 0200 09 ffff 00fe 8ec30f 999e5c9d80 999e5c9d800460 5a31d9b8 5a31d9b80459 809d80"
        "809d80000000 75 75"
    )
    (found,) = decoded(table, "a b c d e f g h i", (EventType.WRITE_ROWS, row))
    day = dt.datetime(2017, 12, 14, 9, 54)  # noqa: DTZ001
    # A TIMESTAMP is an instant: 09:54 in the time zone of the article's author is 01:54 UTC.
    instant = dt.datetime(2017, 12, 14, 1, 54, tzinfo=dt.UTC)
    assert int(instant.timestamp()) == 1513216440
    time = (9 * 60 + 54) * 60 * 1_000_000
    assert list(found["after"].values()) == [
        day.date(),
        day,
        day.replace(microsecond=112_000),
        instant,
        instant.replace(microsecond=111_300),
        time,
        time,
        2017,
        2017,
    ]


def test_the_first_bit_of_a_decimal() -> None:
    # The article writes 12.34 as 0c22. These bytes lack the bit for "not negative", so they are no valid DECIMAL(4,2):
    # inverted, the fraction would be 221. The article also says that this bit is removed from the remaining digits of a
    # fraction, but these digits have no such bit.
    spec = Spec("d", Type.NEWDECIMAL, bytes((4, 2)))

    def value(raw: str) -> Any:
        log = Delivered()
        log.transaction((19, table_map([spec])), (30, rows_body(30, [[unhex(raw)]])))
        (part,) = delivered.changes(log.bytes())
        assert isinstance(part, TableChanges)
        return part.batch.column("after")[0].as_py()["d"]

    assert value("8c22") == Decimal("12.34")
    with pytest.raises(BinlogError) as caught:
        value("0c22")
    assert caught.value.kind is ErrorKind.INVALID_VALUE


@pytest.mark.parametrize(
    ("digits", "size"),
    [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (8, 4), (9, 4)],
)
def test_bytes_of_a_decimals_digits(digits: int, size: int) -> None:
    column = TableMap.parse(
        table_map([Spec("d", Type.NEWDECIMAL, bytes((digits + 9, 9)))])
    ).columns[0]
    row = rows_body(30, [[b"\x80" + bytes(size + 3)]])
    assert column.meta == (digits + 9) << 8 | 9
    log = Delivered()
    log.transaction(
        (19, table_map([Spec("d", Type.NEWDECIMAL, bytes((digits + 9, 9)))])), (30, row)
    )
    (part,) = delivered.changes(log.bytes())
    assert isinstance(part, TableChanges)
    assert part.batch.column("after")[0].as_py()["d"] == 0


# -- packed integers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("08", 8),
        # The article adds the first byte to the value, and reads the other bytes from the left: 260, 1193299 and 263.
        ("fc0008", 0x0800),
        ("fd123456", 0x563412),
        ("fe0000000000000009", 9 << 56),
    ],
)  # fmt: skip
def test_packed_integers(raw: str, wanted: int) -> None:
    data = np.frombuffer(unhex(raw), dtype=np.uint8)
    assert packed(data, 0, len(data)) == (wanted, len(data))
    assert Query("", b"", Status()).query == ""
