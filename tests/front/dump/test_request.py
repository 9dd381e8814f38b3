"""Dump commands and registrations as clients send them."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.front.dump.request import (
    DumpRequest,
    Registration,
    parse_dump,
    parse_register,
)
from dispatcher.front.wire.errors import WireError
from dispatcher.front.wire.packets import Command
from dispatcher.model.gtid import GtidSet

GTIDS = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7:tag:2")


def by_gtids(gtids: bytes, file: bytes = b"") -> bytes:
    return struct.pack("<HII", 6, 9, len(file)) + file + struct.pack("<QI", 4, len(gtids)) + gtids


def test_a_dump_by_file() -> None:
    payload = struct.pack("<IHI", 1234, 3, 42) + b"binlog.000007"
    request = parse_dump(Command.BINLOG_DUMP, payload)
    assert request == DumpRequest("binlog.000007", 1234, None, 3, 42)
    assert request.non_blocking and request.annotate
    assert parse_dump(Command.BINLOG_DUMP, payload + b"\0more").file == "binlog.000007"
    assert parse_dump(Command.BINLOG_DUMP, payload[:10]).file == ""


def test_a_dump_by_gtids() -> None:
    request = parse_dump(Command.BINLOG_DUMP_GTID, by_gtids(GTIDS.encode(), b"binlog.000001"))
    assert request == DumpRequest("binlog.000001", 4, GTIDS, 6, 9)
    assert request.heartbeat_v2 and not request.non_blocking
    assert parse_dump(Command.BINLOG_DUMP_GTID, by_gtids(GtidSet().encode())).gtids == GtidSet()


def test_a_registration() -> None:
    payload = struct.pack("<I", 7) + b"\4host\4user\6secret" + struct.pack("<HII", 3306, 0, 0)
    assert parse_register(payload) == Registration(7, "host", "user", 3306)


def cut(payload: bytes) -> list[bytes]:
    return [payload[:size] for size in range(len(payload))]


@pytest.mark.parametrize("payload", cut(by_gtids(GTIDS.encode(), b"f")))
def test_a_request_that_is_cut_short(payload: bytes) -> None:
    with pytest.raises(WireError) as failure:
        parse_dump(Command.BINLOG_DUMP_GTID, payload)
    assert failure.value.number == 1835


def test_invalid_names_and_sets() -> None:
    for name in (b"\xff\xfe", b"x" * 256, b"a\nb"):
        with pytest.raises(WireError) as failure:
            parse_dump(Command.BINLOG_DUMP, struct.pack("<IHI", 4, 0, 1) + name)
        assert failure.value.number == 1236
    for gtids in (b"\1" + bytes(7), GTIDS.encode() + b"\0", bytes(7), b"\xff" * 8):
        with pytest.raises(WireError) as failure:
            parse_dump(Command.BINLOG_DUMP_GTID, by_gtids(gtids))
        assert failure.value.number == 1236
    with pytest.raises(WireError):
        parse_dump(0x03, b"SELECT 1")


@given(st.sampled_from((Command.BINLOG_DUMP, Command.BINLOG_DUMP_GTID)), st.binary(max_size=80))
def test_no_bytes_raise_anything_else(command: int, payload: bytes) -> None:
    for parse in (lambda: parse_dump(command, payload), lambda: parse_register(payload)):
        with contextlib.suppress(WireError):
            parse()
