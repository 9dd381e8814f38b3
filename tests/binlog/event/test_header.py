"""Headers and the bodies that Python parses: round trips, every truncation, and the 64-bit offset."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.event import header
from dispatcher.binlog.event.gtid import Gtid, parse_gtid_event
from dispatcher.binlog.event.query import parse_query
from dispatcher.binlog.event.record import Record, encode_record, parse_record
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.stream.splitter_kernel import advance_position
from tests.support import event_encoder as e
from tests.support.rows_encoder import query_body

GIB4 = 1 << 32


def test_type_names() -> None:
    assert type_name(30) == "WRITE_ROWS_EVENT"
    assert type_name(23) == "WRITE_ROWS_EVENT_V1"
    assert type_name(41) == "HEARTBEAT_EVENT_V2"
    assert type_name(1) == "START_EVENT_V3"
    assert type_name(33) == type_name(162) == "GTID_EVENT"
    assert type_name(168) == "DELETE_ROWS_COMPRESSED_EVENT_V1"
    assert type_name(250) == "UNKNOWN_EVENT_250"


# -- offsets --------------------------------------------------------------------------------------------------


def test_offsets_over_4_gib() -> None:
    position = 0
    for size, log_pos, want in (
        (8161, 4294958114, 4294958114),
        (8035, 4294966149, 4294966149),
        (8161, 7014, 4294966149 + 8161),
        (8107, 15121, 4294966149 + 8161 + 8107),
        (8131, 23252, 4294966149 + 8161 + 8107 + 8131),
    ):
        position = advance_position(position, log_pos, size)
        assert position == want
    assert advance_position(4724501662, 429542491, 8125) == 4724501662 + 8125
    assert advance_position(5474055640, 1179088375, 31) == 5474055640 + 31
    assert advance_position(advance_position(0, 4294965445, 100), 6076, 7927) == 4294965445 + 7927


@given(st.integers(4, 3 * GIB4), st.integers(19, GIB4 - 1))
def test_the_next_offset_is_the_last_one_plus_the_size(position: int, size: int) -> None:
    assert advance_position(position, (position + size) % GIB4, size) == position + size
    assert advance_position(position, 0, size) == position + size


@given(st.integers(4, GIB4 // 2), st.integers(19, 1000), st.integers(0, GIB4 // 4))
def test_a_dump_that_omits_transactions_skips_offsets(position: int, size: int, gap: int) -> None:
    assert advance_position(position, position + gap + size, size) == position + gap + size


# -- bodies ---------------------------------------------------------------------------------------------------


def body(raw: bytes) -> bytes:
    return raw[19:-4]


PARSERS: list[tuple[Callable[[bytes], Any], bytes]] = [
    (header.parse_format_description, e.format_description()),
    (header.parse_rotate, e.rotate_body("binlog.000002")),
    (partial(parse_gtid_event, 33), e.gtid_body(e.SERVER, 5)),
    (parse_query, query_body("BEGIN", "db", e.status_variables(updated_databases=["a", "b"]))),
    (parse_record, body(encode_record(Record(1, 2, "f", 3, 4, 5), checksum=True))),
]  # fmt: skip


@pytest.mark.parametrize(("parse", "data"), PARSERS)
def test_every_cut_is_a_typed_error_or_a_value(parse: Callable[[bytes], Any], data: bytes) -> None:
    parse(data)
    for end in range(len(data)):
        try:
            parse(data[:end])
        except BinlogError as error:
            assert error.kind in (ErrorKind.MALFORMED_EVENT, ErrorKind.CHECKSUM_MISMATCH)  # noqa: PT017


@pytest.mark.parametrize(("parse", "data"), PARSERS)
@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
def test_every_change_is_a_typed_error_or_a_value(
    parse: Callable[[bytes], Any], data: bytes, place: int, value: int
) -> None:
    place %= len(data)
    try:
        parse(data[:place] + bytes((value,)) + data[place + 1 :])
    except BinlogError as error:
        assert error.kind in (  # noqa: PT017 - either outcome is right
            ErrorKind.MALFORMED_EVENT, ErrorKind.CHECKSUM_MISMATCH, ErrorKind.UNSUPPORTED_EVENT,
        )  # fmt: skip


@pytest.mark.parametrize("in_use", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
def test_format_description(checksum: bool, in_use: bool) -> None:
    raw = e.format_description(checksum=checksum, version="10.11.6-MariaDB-log", in_use=in_use)
    parsed = header.parse_format_description(raw)
    assert parsed == header.FormatDescription(
        raw, "10.11.6-MariaDB-log", e.TIME, checksum, True, bytes(41), started=e.TIME, in_use=in_use
    )
    assert not header.parse_format_description(e.format_description()).mariadb


def test_rotate_and_gtid() -> None:
    assert header.parse_rotate(e.rotate_body("binlog.000002", 5 << 32)) == (
        "binlog.000002",
        5 << 32,
    )
    parsed = parse_gtid_event(33, e.gtid_56_body(e.SERVER, 77))
    assert parsed == Gtid(str(e.SERVER), "", 77, 1)
    with pytest.raises(BinlogError, match="not UTF-8"):
        header.parse_rotate(bytes(8) + b"\xff\xff")


@pytest.mark.parametrize(
    ("status", "updated"),
    [
        (b"", None),
        (e.status_variables(), None),
        (e.status_variables(updated_databases=["shop"]), ("shop",)),
        (e.status_variables(updated_databases=["a", "größe"]), ("a", "größe")),
        (e.status_variables(updated_databases=[]), ()),
        (e.status_variables(too_many=True), None),
        (b"\x02\x03std\0\x0c\1a\0", ("a",)),
        (b"\xc8what is this\x0c\1a\0", None),
        (b"\x80\1\2\3\x81" + bytes(8) + b"\x0c\1a\0", ("a",)),
    ],
)
def test_updated_databases(status: bytes, updated: tuple[str, ...] | None) -> None:
    parsed = parse_query(query_body("DROP TABLE `a`.b", "shop", status))
    assert (parsed.database, parsed.query) == ("shop", "DROP TABLE `a`.b")
    assert parsed.updated_databases == updated


def test_a_statement_of_any_bytes_is_read() -> None:
    parsed = parse_query(query_body(b"INSERT '\xff\xfe'", ""))
    assert parsed.raw == b"INSERT '\xff\xfe'"
    assert parsed.query == "INSERT '\ufffd\ufffd'"


# -- the record -----------------------------------------------------------------------------------------------

records = st.builds(
    Record,
    epoch=st.integers(0, 2**32 - 1),
    seq=st.integers(0, 2**63 - 1),
    file=st.text(max_size=50).filter(lambda name: len(name.encode(errors="ignore")) < 256),
    offset=st.integers(0, 2**63 - 1),
    commit_us=st.integers(-(2**63), 2**63 - 1),
    first_event=st.integers(0, 2**32 - 1),
    lower_case_table_names=st.integers(0, 2),
)


@given(records, st.booleans())
def test_record_round_trip(record: Record, checksum: bool) -> None:
    raw = encode_record(record, checksum=checksum, timestamp=7, server_id=9)
    assert raw[4] == EventType.IGNORABLE
    assert raw[17] == header.FLAG_IGNORABLE
    assert int.from_bytes(raw[9:13], "little") == len(raw)
    if checksum:
        assert zlib.crc32(raw[:-4]) == int.from_bytes(raw[-4:], "little")
    assert parse_record(raw[19:-4] if checksum else raw[19:]) == record


def test_a_record_to_the_byte() -> None:
    raw = encode_record(Record(1, 2, "bin.7", 3, 4, 5, 1), checksum=False)
    assert raw[19:].hex() == (
        "42440205010000000200000000000000030000000000000004000000000000000500000001"
        + b"bin.7".hex()
    )  # fmt: skip


def test_other_ignorable_events_are_not_records() -> None:
    assert parse_record(b"something else") is None
    with pytest.raises(BinlogError, match="cut short"):
        parse_record(b"BD\1")
    newer = bytearray(body(encode_record(Record(1, 2, "f", 3, 4, 5), checksum=True)))
    newer[2] = 3
    with pytest.raises(BinlogError, match="record of version 3") as info:
        parse_record(bytes(newer))
    assert info.value.kind is ErrorKind.UNSUPPORTED_EVENT


@pytest.mark.parametrize(
    ("file", "position"),
    [("x" * 256, 4), ("b." + "9" * 200, 4), ("binlog.8388608", 4), ("binlog.000001", 1 << 40)],
)
def test_a_rotate_outside_the_servers_range_is_malformed(file: str, position: int) -> None:
    with pytest.raises(BinlogError) as caught:
        header.parse_rotate(e.rotate_body(file, position))
    assert caught.value.kind is ErrorKind.MALFORMED_EVENT


def test_a_record_holds_the_longest_file_name() -> None:
    file, _ = header.parse_rotate(e.rotate_body("x" * 248 + ".000001"))
    raw = encode_record(Record(1, 2, file, 4, 5, 6), checksum=True)
    assert parse_record(raw[19:-4]) == Record(1, 2, file, 4, 5, 6)


def test_a_record_with_a_longer_file_name_is_refused() -> None:
    with pytest.raises(BinlogError) as caught:
        encode_record(Record(1, 2, "x" * 256, 4, 5, 6), checksum=True)
    assert caught.value.kind is ErrorKind.MALFORMED_EVENT
