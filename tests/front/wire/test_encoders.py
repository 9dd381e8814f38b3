"""Packets, errors and result sets, byte by byte as MySQL's documentation shows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.front.wire.errors import WireError, error_packet
from dispatcher.front.wire.packets import (
    PACKET_BYTES_MAX,
    Capability,
    framed,
    lenenc_int,
    lenenc_text,
    packets_in,
)
from dispatcher.front.wire.payload_reader import PayloadReader
from dispatcher.front.wire.result_set import (
    AnswerColumn,
    Cell,
    ColumnKind,
    eof_packet,
    ok_packet,
    text_result_set,
)

MODERN = Capability.PROTOCOL_41 | Capability.DEPRECATE_EOF
FULL = PACKET_BYTES_MAX


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (250, "fa"),
        (251, "fcfb00"),
        (65535, "fcffff"),
        (65536, "fd000001"),
        (2**24 - 1, "fdffffff"),
        (2**24, "fe0000000100000000"),
        (2**64 - 1, "feffffffffffffffff"),
    ],
)
def test_an_integer_has_the_shortest_encoding(value: int, encoded: str) -> None:
    assert lenenc_int(value).hex() == encoded


def test_a_payload_follows_its_length_and_sequence_number() -> None:
    assert framed(b"abc", 7) == b"\x03\0\0\x07abc"
    assert framed(b"", 255) == b"\0\0\0\xff"
    assert framed(memoryview(b"a"), 256) == b"\x01\0\0\0a"


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(FULL - 1, [FULL - 1]), (FULL, [FULL, 0]), (FULL + 1, [FULL, 1]), (2 * FULL, [FULL, FULL, 0])],
)
def test_a_large_payload_has_several_packets(size: int, sizes: list[int]) -> None:
    payload = bytes(size)
    packets = framed(payload, 255)
    assert packets_in(payload) == len(sizes)
    at = 0
    for number, part in enumerate(sizes):
        header = part.to_bytes(3, "little") + bytes([(255 + number) % 256])
        assert packets[at : at + 4] == header
        at += 4 + part
    assert at == len(packets)


def test_an_error_has_a_state_for_clients_that_read_one() -> None:
    error = WireError(1045, "Access denied")
    assert error_packet(error, MODERN) == b"\xff\x15\x04#28000Access denied"
    assert error_packet(error, 0) == b"\xff\x15\x04Access denied"
    assert WireError(1999, "unlisted").sqlstate == "HY000"
    assert WireError(1, "own", "12345").sqlstate == "12345"


def test_an_error_does_not_control_a_terminal() -> None:
    assert WireError(1064, "near '\x1b[2J\n'").message == r"near '\x1b[2J\n'"


def test_ok_and_eof() -> None:
    assert ok_packet() == b"\0\0\0\x02\0\0\0"
    assert ok_packet(affected_rows=300, info="x") == b"\0\xfc\x2c\x01\0\x02\0\0\0x"
    assert eof_packet() == b"\xfe\0\0\x02\0"


def test_a_result_set_ends_as_the_client_expects_it() -> None:
    columns = (AnswerColumn("a"), AnswerColumn("n", ColumnKind.UNSIGNED))
    rows: list[tuple[Cell, Cell]] = [("é", 2**64 - 1), (b"\0", None)]
    definitions = [
        b"\x03def\0\0\0\x01a\0\x0c\x2d\0\xfc\xff\x03\0\xfd\0\0\0\0\0",
        b"\x03def\0\0\0\x01n\0\x0c\x3f\0\x14\0\0\0\x08\xa0\0\0\0\0",
    ]
    encoded = [b"\x02\xc3\xa9\x1418446744073709551615", b"\x01\0\xfb"]
    eof = eof_packet()
    assert text_result_set(columns, rows, Capability.PROTOCOL_41) == [
        b"\x02", *definitions, eof, *encoded, eof,
    ]  # fmt: skip
    assert text_result_set(columns, rows, MODERN) == [
        b"\x02", *definitions, *encoded, b"\xfe\0\0\x02\0\0\0",
    ]  # fmt: skip


@given(st.binary(max_size=300))
def test_a_text_is_read_as_it_was_written(text: bytes) -> None:
    reader = PayloadReader(lenenc_text(text) + text.replace(b"\0", b"1") + b"\0rest")
    assert reader.lenenc_text() == text
    assert reader.until_nul() == text.replace(b"\0", b"1")
    assert reader.last_text() == b"rest" and reader.left == 0
