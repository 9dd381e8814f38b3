"""The kernels print the same text as the Python code that reads each event, and the literal of each type is as
expected."""

from __future__ import annotations

import datetime as dt
import json
import random
import struct
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from dispatcher.binlog.decode.arrow.arrow_buffers import fixed
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import U8
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.inspect import event_text, row_kernels
from tests.data.record import FOLDER
from tests.inspect.conftest import Inspect, Shown
from tests.servers import KINDS
from tests.support import event_encoder
from tests.support.log_file import LogFile, payload_body
from tests.support.rows_encoder import BINARY, LATIN1, UTF8MB4, Spec, encode_cell, string_meta

K = EventType
_UUID = UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
_NEVER = ("--stop", "2106-01-01")  # no event is so late; makes Python print the events

_LITERALS: list[tuple[Spec, object, str]] = [
    (Spec("a", Type.TINY), -128, "-128"),
    (Spec("a", Type.TINY, unsigned=True), 255, "255"),
    (Spec("a", Type.SHORT), 0, "0"),
    (Spec("a", Type.INT24), -8388608, "-8388608"),
    (Spec("a", Type.INT24, unsigned=True), 16777215, "16777215"),
    (Spec("a", Type.LONGLONG), -(2**63), "-9223372036854775808"),
    (Spec("a", Type.LONGLONG, unsigned=True), 2**64 - 1, "18446744073709551615"),
    (Spec("a", Type.YEAR), 0, "0"),
    (Spec("a", Type.YEAR), 255, "2155"),
    (Spec("a", Type.FLOAT, b"\4"), 0.1, "0.1"),
    (Spec("a", Type.DOUBLE, b"\x08"), 1e10, "1e+10"),
    (Spec("a", Type.DOUBLE, b"\x08"), -0.000001, "-0.000001"),
    (Spec("a", Type.NEWDECIMAL, b"\x0a\x02"), Decimal("-0.05"), "-0.05"),
    (Spec("a", Type.NEWDECIMAL, b"\x41\x1e"), Decimal("12345678901234567890.5"), f"12345678901234567890.5{29 * '0'}"),
    (Spec("a", Type.DATE), dt.date(1000, 1, 1), "'1000-01-01'"),
    (Spec("a", Type.DATETIME2, b"\0"), dt.datetime(9999, 12, 31, 23, 59, 59), "'9999-12-31 23:59:59'"),  # noqa: DTZ001
    (Spec("a", Type.TIMESTAMP2, b"\6"), dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC),
     "'2024-02-29 01:02:03.000004 UTC'"),
    (Spec("a", Type.TIME2, b"\0"), -3_020_399_000_000, "'-838:59:59'"),
    (Spec("a", Type.TIME2, b"\3"), 1_002_000, "'00:00:01.002'"),
    (Spec("a", Type.BIT, b"\1\1"), b"\1\xff", "0x01FF"),
    (Spec("a", Type.VARCHAR, b"\x40\1", charset=UTF8MB4), "it's\\\n\r\t\0\x1a\x1b\x7f é😀",
     r"'it\'s\\\n\r\t\0\Z\x1b\x7f é😀'"),
    (Spec("a", Type.VARCHAR, b"\x40\0", charset=UTF8MB4), "", "''"),
    (Spec("a", Type.VARCHAR, b"\x40\0", charset=LATIN1), "é'€", r"'é\'€'"),
    (Spec("a", Type.STRING, string_meta(4), charset=BINARY), b"\1\2", "0x01020000"),
    (Spec("a", Type.BLOB, b"\2", charset=BINARY), b"", "''"),
    (Spec("a", Type.BLOB, b"\4", charset=BINARY), b"\0\xff", "0x00FF"),
    (Spec("a", Type.ENUM, b"\xf7\1", charset=UTF8MB4, labels=("x", "it's\n")), 2, r"'it\'s\n'"),
    (Spec("a", Type.ENUM, b"\xf7\1", charset=UTF8MB4, labels=("x", "y")), 0, "''"),
    (Spec("a", Type.SET, b"\xf8\1", charset=UTF8MB4, labels=("a", "b'", "c")), 6, r"'b\',c'"),
    (Spec("a", Type.SET, b"\xf8\1", charset=UTF8MB4, labels=("a", "b")), 0, "''"),
]  # fmt: skip


def both_ways(inspect: Inspect, data: bytes, *options: str) -> Shown:
    """Returns the output of the kernels. Asserts that the output of Python is equal."""
    shown, by_python = inspect(data, *options), inspect(data, *options, *_NEVER)
    assert shown == by_python
    return shown


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_log_is_printed_alike(kind: str, inspect: Inspect) -> None:
    shown = both_ways(inspect, (FOLDER / f"{kind}.binlog").read_bytes())
    assert shown.out.count("# at ") > 90


def test_the_literal_of_each_type(inspect: Inspect) -> None:
    log = LogFile()
    specs = [replace(spec, name=f"c{i}") for i, (spec, _, _) in enumerate(_LITERALS)]
    log.table(specs)
    row = [encode_cell(spec, value) for spec, value, _ in _LITERALS]
    log.rows(K.WRITE_ROWS, [row])
    out = both_ways(inspect, log.bytes()).out
    lines = [line for line in out.split("\n") if line.startswith("###   ")]
    assert lines == [f"###   `c{i}`={literal}" for i, (_, _, literal) in enumerate(_LITERALS)]


def test_doubles_are_printed_with_the_fewest_digits() -> None:
    """The kernels print DOUBLE values like Arrow, and so like the JSON output."""
    rng = random.Random(1)
    bits = [rng.getrandbits(64) for _ in range(3000)]
    values = [struct.unpack("<d", struct.pack("<Q", number))[0] for number in bits]
    values += [10.0**k for k in range(-12, 24)] + [k / 8 for k in range(-80, 80)] + [1.5e-6, -0.0]
    values = [value for value in values if np.isfinite(value)]
    expected = fixed(pa.float64(), np.array(values)).cast(pa.string()).to_pylist()
    out: U8 = np.zeros(64, np.uint8)
    for number, text in zip(np.array(values).view(np.uint64), expected, strict=True):
        assert out[: row_kernels.put_double(number, out, 0)].tobytes().decode() == text


def test_numbers_of_unknown_sign_have_the_bits_of_their_column(inspect: Inspect) -> None:
    log = LogFile()
    sizes = {Type.TINY: 1, Type.SHORT: 2, Type.INT24: 3, Type.LONG: 4, Type.LONGLONG: 8}
    log.table([Spec("n", kind) for kind in sizes], full=False)
    log.rows(K.WRITE_ROWS, [[b"\xff" * size for size in sizes.values()]])
    out = both_ways(inspect, log.bytes()).out
    for number, size in enumerate(sizes.values(), 1):
        assert f"###   `@{number}`=-1 ({2 ** (8 * size) - 1})\n" in out


def small_transactions(count: int, text: str = "x") -> LogFile:
    log = LogFile()
    specs = [
        Spec("id", Type.LONG),
        Spec("j", Type.JSON, b"\4"),
        Spec("t", Type.BLOB, b"\4", charset=UTF8MB4),
    ]
    for number in range(1, count + 1):
        log.add(
            K.GTID, event_encoder.gtid_body(_UUID, number, commit_us=1_700_000_000_000_000 + number)
        )
        log.query("BEGIN")
        for table_id, table in ((7, "one"), (8, "two")):
            log.table(specs, table=table, table_id=table_id)
            document = {"n": number, "q": "it's"}
            cells = [
                encode_cell(specs[0], number),
                encode_cell(specs[1], document),
                encode_cell(specs[2], text),
            ]
            log.rows(K.WRITE_ROWS, [cells, [cells[0], None, None]], table_id=table_id)
        log.xid(number)
    return log  # fmt: skip


def test_columns_that_arrow_decodes_stand_in_their_rows(inspect: Inspect) -> None:
    out = both_ways(inspect, small_transactions(40).bytes()).out
    for number in range(1, 41):
        assert (
            out.count(f'###   `id`={number}\n###   `j`=\'{{"n": {number}, "q": "it\\\'s"}}\'\n')
            == 2
        )
    assert out.count("###   `j`=NULL\n") == 80
    assert (
        "  GTID_EVENT  3e11fa47-71ca-11e1-9e33-c80aa9429562:40  committed 2023-11-14T22:13:20.000040Z\n"
        in out
    )
    assert out.count("#   id int\n") == 2  # each table's columns are printed once


def test_an_event_that_cannot_be_decoded_says_why_and_the_others_are_shown(
    inspect: Inspect,
) -> None:
    log = small_transactions(3)
    specs = [
        Spec("id", Type.LONG),
        Spec("j", Type.JSON, b"\4"),
        Spec("t", Type.BLOB, b"\4", charset=UTF8MB4),
    ]
    cells = [encode_cell(specs[0], 4), b"\2\0\0\0\xff\xff", encode_cell(specs[2], "x")]
    log.table(specs, table="one", table_id=7)
    log.rows(K.WRITE_ROWS, [cells], table_id=7)
    log.rows(K.WRITE_ROWS, [[cells[0], None, b"\2\0\0\0\xc3\x28"]], table_id=7)
    log.rows(K.WRITE_ROWS, [[cells[0], None, cells[2]]], table_id=7)
    shown = both_ways(inspect, log.bytes())
    assert shown.code == 2
    assert shown.out.count("### not shown: ") == 2
    assert "column 'j': not JSON" in shown.out
    assert "column 't': bytes that are not valid utf8mb4" in shown.out
    assert shown.out.endswith("###   `id`=4\n###   `j`=NULL\n###   `t`='x'\n")


def test_rows_larger_than_the_room_for_text(inspect: Inspect) -> None:
    out = both_ways(inspect, small_transactions(3, "\x01" * 800_000).bytes()).out
    assert out.count("\\x01") == 6 * 800_000


def test_more_bodies_than_are_kept(inspect: Inspect, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = inspect(small_transactions(5).bytes()).out
    monkeypatch.setattr(event_text, "_BODIES_MAX", 2)
    assert inspect(small_transactions(5).bytes()).out == wanted


def test_a_table_whose_columns_change_is_shown_again(inspect: Inspect) -> None:
    log = LogFile()
    one, two = [Spec("a", Type.LONG)], [Spec("b", Type.SHORT)]
    for specs, size in ((one, 4), (one, 4), (two, 2), (two, 2), (one, 4)):
        log.table(specs)
        log.rows(K.WRITE_ROWS, [[bytes(size)]])
    out = both_ways(inspect, log.bytes()).out
    marks = "#   a", "#   b", "###   "
    shown = [line for line in out.splitlines() if line.startswith(marks)]
    a, b = ["#   a int", "###   `a`=0"], ["#   b smallint", "###   `b`=0"]
    assert shown == [*a, a[1], *b, b[1], *a]


def test_the_events_of_a_payload(inspect: Inspect) -> None:
    inner = LogFile(checksum=False)
    for number in range(300):
        inner.query("BEGIN")
        inner.table([Spec("a", Type.LONG)])
        inner.rows(K.WRITE_ROWS, [[number.to_bytes(4, "little")]])
        inner.xid(number)
    plain = bytes(inner.data[inner.offsets[1] :])
    log = LogFile()
    log.add(K.TRANSACTION_PAYLOAD, payload_body(plain, zstandard.compress(plain)))
    log.gtid(2)
    out = both_ways(inspect, log.bytes()).out
    at = log.offsets[1]
    assert f"# at {at} (event 1200 of the payload)\n" in out
    events = inspect(log.bytes(), "--json").events
    assert out.count("\n# at ") == len(events) == 1203


def test_logs_without_checksums(inspect: Inspect) -> None:
    log = LogFile(checksum=False)
    for number in range(3):
        log.add(K.ANONYMOUS_GTID, event_encoder.gtid_body(_UUID, 0, commit_us=5))
        log.query("BEGIN")
        log.xid(2**64 - 1 - number)
    out = both_ways(inspect, log.bytes()).out
    assert out.count("ANONYMOUS_GTID_EVENT  ANONYMOUS  committed ") == 3
    assert "XID_EVENT  18446744073709551613\nCOMMIT;\n" in out
    assert json.loads(inspect(log.bytes(), "--json").out.splitlines()[-1])["xid"] == 2**64 - 3
