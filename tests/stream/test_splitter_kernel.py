"""Logs that no server writes, which the kernel refuses, and the limits of the kernel's arrays."""

from __future__ import annotations

import pytest

from dispatcher.binlog.event.types import EventType
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.stream import splitter_kernel
from tests.support import event_encoder as e
from tests.support.split_log import check, feed, splitter


def test_partial_updates_are_rows() -> None:
    log = e.LogWriter()
    log.begin()
    log.statement(e.Statement((("shop", "orders"),), ((0, 10), (0, 5)), kind=39))
    log.commit()
    check(feed(splitter(), [log.stream()]), log)


def test_mariadb_out_of_order() -> None:
    """Without gtid_strict_mode a sequence number may be lower than the previous sequence number."""
    log = e.LogWriter(gtid="mariadb")
    for gno in (100, 7, 101, 7):
        log.begin(gno=gno)
        log.commit()
    flat = feed(splitter(), [log.stream()])
    assert [t[1:3] for t in flat.done] == [("0-1", n) for n in (100, 7, 101, 7)]


@pytest.mark.parametrize(
    "again", [EventType.GTID, EventType.ANONYMOUS_GTID, EventType.MARIADB_GTID]
)
def test_a_transaction_inside_another_one_is_refused(again: int) -> None:
    log = e.LogWriter(gtid="mariadb" if again == EventType.MARIADB_GTID else "mysql")
    log.begin()
    body = e.mariadb_gtid_body(9) if log.gtid == "mariadb" else e.gtid_body(e.SERVER, 9)
    log.add(again, body)
    with pytest.raises(BinlogError, match=r"occurs inside a transaction \(binlog.000001:\d+\)"):
        feed(splitter(), [log.stream()])


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (EventType.XID, bytes(8)),
        (EventType.TABLE_MAP, e.table_map_body("shop", "orders", 1)),
        (EventType.WRITE_ROWS, e.opaque_rows_body(30, 1, b"", end=True)),
    ],
)
def test_rows_outside_a_transaction_are_refused(kind: int, body: bytes) -> None:
    log = e.LogWriter()
    log.add(kind, body)
    with pytest.raises(BinlogError, match="occurs outside a transaction") as info:
        feed(splitter(), [log.stream()])
    assert info.value.kind is ErrorKind.MALFORMED_EVENT
    assert info.value.where.startswith("binlog.000001:")


@pytest.mark.parametrize(("database", "table"), [("", ""), ("shop", ""), ("", "orders")])
def test_a_table_map_without_a_name_is_refused(database: str, table: str) -> None:
    log = e.LogWriter()
    log.begin()
    log.add(EventType.TABLE_MAP, e.table_map_body(database, table, 1))
    with pytest.raises(BinlogError, match="TABLE_MAP_EVENT names no table") as info:
        feed(splitter(), [log.stream()])
    assert info.value.kind is ErrorKind.MALFORMED_EVENT


def test_rows_without_their_table_map_are_refused() -> None:
    log = e.LogWriter()
    log.begin()
    log.add(EventType.WRITE_ROWS, e.opaque_rows_body(30, 77, b"", end=True))
    with pytest.raises(BinlogError, match="table map that is missing"):
        feed(splitter(), [log.stream()])


def test_a_statement_closed_with_no_table_ends_it() -> None:
    # MySQL writes such an event if the last table of a statement is not logged.
    log = e.LogWriter()
    log.begin()
    log.add(EventType.TABLE_MAP, e.table_map_body("shop", "orders", 5))
    log.add(EventType.WRITE_ROWS, e.opaque_rows_body(30, 5, b"", end=False))
    log.add(EventType.WRITE_ROWS, e.opaque_rows_body(30, 0xFFFFFF, b"", end=True))
    log.commit()
    flat = feed(splitter(), [log.stream()])
    assert [part[3] for part in flat.done[0][5]][3:5] == [False, True]


def test_more_events_than_the_arrays_hold() -> None:
    log = e.LogWriter(checksum=False)
    table = (("shop", "orders"),)
    log.begin()
    for n in range(70_000):
        if n % 1000 == 0:
            log.statement(e.Statement(table, ((0, 1),)))
        else:
            log.statement(
                e.Statement(table, ((0, 1), (0, 1))) if n % 7 else e.Statement(table, ((0, 0),))
            )
    log.commit()
    log.begin()
    log.commit()
    flat = feed(splitter(checksum=False, buffer=1 << 23), [log.stream()])
    check(flat, log)


def test_a_large_event_where_the_arrays_are_just_full() -> None:
    log = e.LogWriter(checksum=False)
    table = (("shop", "orders"),)
    log.begin()
    log.add(EventType.TABLE_MAP, e.table_map_body("shop", "orders", 100))
    small = e.opaque_rows_body(30, 100, b"", end=False)
    for _ in range(splitter_kernel.EVENTS_MAX - 4):
        log.add(EventType.WRITE_ROWS, small)
    log.add(EventType.WRITE_ROWS, e.opaque_rows_body(30, 100, bytes(e.PACKET_MAX), end=True))
    log.statement(e.Statement(table, ((0, 1),)))
    log.commit()
    split = splitter(checksum=False, buffer=1 << 25)
    flat = feed(split, [log.stream()])
    assert len(flat.done) == 1
    assert len(flat.done[0][5]) == splitter_kernel.EVENTS_MAX + 3
    assert flat.done[0][3] == log.file.size


@pytest.mark.parametrize(
    ("version", "kind"),
    [("5.1.73-log", ErrorKind.UNSUPPORTED_EVENT), ("5.5.62-log", ErrorKind.MALFORMED_EVENT)],
)
def test_rows_without_begin_are_named_as_those_of_mysql_51(version: str, kind: ErrorKind) -> None:
    """MySQL 5.1 logs changes of MyISAM tables without BEGIN; later servers begin a transaction."""
    body = e.table_map_body("shop", "orders", 1)
    old = version.startswith("5.1")
    head = e.format_description(version=version, checksum=False)
    # Before 5.6.1, a FORMAT_DESCRIPTION names no checksum algorithm and has no checksum.
    head = head[:-5]
    head = head[:9] + len(head).to_bytes(4, "little") + head[13:]
    split = splitter()
    split.feed(e.event_packet(head))
    with pytest.raises(BinlogError) as caught:
        split.feed(e.event_packet(e.event(EventType.TABLE_MAP, body, checksum=False)))
    assert caught.value.kind is kind
    assert ("MySQL 5.1 logs" in caught.value.what) is old
    assert "TABLE_MAP_EVENT occurs outside a transaction" in caught.value.what


@pytest.mark.parametrize("packets", [True, False])
def test_an_event_over_1_gib_is_refused_at_its_header(packets: bool) -> None:
    split = splitter(packets=packets)
    raw = bytearray(e.event(EventType.WRITE_ROWS, bytes(10)))
    raw[9:13] = (0xFFFFFFFF).to_bytes(4, "little")
    head = e.format_description()
    split.feed(e.event_packet(head) if packets else head)
    with pytest.raises(BinlogError) as caught:
        split.feed(b"\xff\xff\xff\1\0" + raw if packets else bytes(raw))
    assert caught.value.kind is ErrorKind.MALFORMED_EVENT
    assert len(split.room()) < 1 << 20


def test_a_gtid_of_a_number_that_no_transaction_has_is_malformed() -> None:
    for number in (0, 1 << 63, (1 << 63) - 1):
        split = splitter()
        raws = (e.format_description(), e.event(EventType.GTID, e.gtid_body(e.SERVER, number)))
        with pytest.raises(BinlogError, match="number that no transaction has"):
            split.feed(b"".join(e.event_packet(raw) for raw in raws))


def test_a_packet_must_fit_its_event() -> None:
    raw = e.event(EventType.XID, bytes(8))
    for bad in (b"\0" + raw + b"x", b"\0" + raw[:-1], b"\0" + raw[:10]):
        with pytest.raises(BinlogError, match="does not fit its packet"):
            feed(splitter(), [e.packets(bad)])
