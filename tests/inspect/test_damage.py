"""Old, cut and damaged logs, and files that are no logs: `inspect` prints all readable events, then one message, and
ends with exit code 2."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import random
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from dispatcher.binlog.event.file import TYPE, LogReader
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.inspect import Inspection, InspectOptions
from dispatcher.inspect.sources import FileArguments
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.inspect.conftest import Inspect
from tests.support.inspect_logs import ORDERS, order, small_log
from tests.support.log_blocks import read_blocks
from tests.support.log_file import LogFile, header
from tests.support.rows_encoder import Spec, integer, table_map

K = EventType


def tiny_log() -> LogFile:
    log = LogFile()
    log.gtid(1)
    log.query("BEGIN", "")
    log.table([Spec("id", Type.LONG)], database="a", table="t")
    log.rows(K.WRITE_ROWS, [[integer(1, 4)]])
    log.xid()
    return log


def printed(path: Path) -> tuple[int, BinlogError | None]:
    """Returns (number of events printed, the error after them), without the command line."""
    out = io.BytesIO()
    inspection = Inspection(InspectOptions(as_json=True), out.write)
    try:
        inspection.run(FileArguments([str(path)]))
    except BinlogError as error:
        return out.getvalue().count(b"\n"), error
    return out.getvalue().count(b"\n"), None


def test_a_log_cut_at_any_offset_shows_the_events_before(tmp_path: Path) -> None:
    log = tiny_log()
    ends = [*log.offsets[1:], len(log.data)]
    path = tmp_path / "binlog.000001"
    for cut in range(len(log.data) + 1):
        path.write_bytes(log.data[:cut])
        shown, error = printed(path)
        assert shown == sum(end <= cut for end in ends), cut
        if cut in (4, *ends):
            assert error is None
            continue
        assert error is not None and error.kind is ErrorKind.MALFORMED_EVENT
        if cut > 4:
            assert error.where == f"binlog.000001, offset {([4, *ends])[shown]}"


def test_a_damaged_byte_ends_the_output_before_its_event(tmp_path: Path) -> None:
    log = tiny_log()
    ends = [*log.offsets[1:], len(log.data)]
    path = tmp_path / "binlog.000001"
    for at in range(4, len(log.data)):
        if at == 4 + 17:  # the checksum does not cover the flag "in use"
            continue
        data = bytearray(log.data)
        data[at] ^= 0x41
        path.write_bytes(data)
        shown, error = printed(path)
        assert error is not None, at
        assert shown == sum(end <= at for end in ends), at
        assert "binlog.000001, offset " in error.where


@pytest.mark.parametrize(
    "options",
    [
        InspectOptions(as_json=True),
        InspectOptions(),
        InspectOptions(as_json=True, summary=True),
        InspectOptions(tables=("orders",)),
    ],
    ids=["json", "text", "summary", "table"],
)  # fmt: skip
def test_random_content_under_a_valid_checksum_never_crashes(
    tmp_path: Path, options: InspectOptions
) -> None:
    chance = random.Random(7)
    path = tmp_path / "binlog.000001"
    whole = small_log()
    for _ in range(120):
        log = LogFile()
        for start, end in itertools.pairwise([*whole.offsets[1:], len(whole.data)]):
            kind, body = whole.data[start + 4], bytearray(whole.data[start + 19 : end - 4])
            while chance.random() < 0.3:
                body[chance.randrange(len(body))] = chance.choice(
                    (0, 1, 255, chance.randrange(256))
                )
            if chance.random() < 0.1:
                del body[chance.randrange(len(body)) :]
            log.add(chance.randrange(256) if chance.random() < 0.05 else kind, bytes(body))
        path.write_bytes(log.bytes())
        out = io.BytesIO()
        inspection = Inspection(options, out.write)
        # If the damaged event defines the format of the other events, the inspection may end here.
        with suppress(BinlogError):
            inspection.run(FileArguments([str(path)]))
        text = out.getvalue().decode()
        if options.as_json:
            shown = [json.loads(line) for line in text.splitlines()]
            assert options.summary or inspection.unread == sum("error" in event for event in shown)


@pytest.mark.parametrize("step", [1, 7, 19, 1000])
def test_chunks_of_any_size_give_the_same_events(step: int) -> None:
    log = small_log()
    data = log.bytes()
    chunks = (data[at : at + step] for at in range(0, len(data), step))
    kinds = [int(line[TYPE]) for block in read_blocks(chunks, "x") for line in block.events]
    assert kinds == log.kinds


def test_offsets_exceed_4_gib() -> None:
    log = small_log()
    reader = LogReader("binlog.000001")
    list(reader.feed(bytes(log.data[: log.offsets[2]])))
    base = (5 << 32) + 7
    reader.jump(base)
    offsets = [
        int(line[7])
        for block in reader.feed(bytes(log.data[log.offsets[2] :]))
        for line in block.events
    ]
    assert offsets == [base + at - log.offsets[2] for at in log.offsets[2:]]


@pytest.mark.parametrize(
    ("version", "checksum"),
    [
        ("5.0.96-log", None), ("5.1.73-log", None), ("5.5.62-log", None), ("5.6.0-m4", None), ("5.6.1-m5", True),
        ("5.6.24-log", False), ("5.7.44", True), ("5.2.14-MariaDB", None), ("5.3.12-MariaDB", True),
        ("10.11.6-MariaDB-log", False),
    ],
)  # fmt: skip
def test_reads_the_format_of_each_server_version(
    inspect: Inspect, version: str, checksum: bool | None
) -> None:
    log = LogFile(version=version, checksum=checksum)
    log.query("BEGIN")
    log.table(ORDERS, full=False)
    log.rows(K.WRITE_ROWS_V1, [order(1, "Ann")])
    log.xid()
    shown = inspect(log.bytes(), "--json")
    assert (shown.code, shown.err) == (0, "")
    assert [event["offset"] for event in shown.events] == log.offsets
    assert shown.events[0]["checksum"] == (
        None if checksum is None else "CRC32" if checksum else "NONE"
    )
    assert shown.events[3]["rows"] == [{"after": {"@1": 1, "@2": "Ann", "@3": None}}]
    summary = inspect(log.bytes(), "--summary", "--json").events[0]
    assert summary["transactions"] == 1


def test_table_ids_of_four_bytes(inspect: Inspect) -> None:
    sizes = bytearray(40)
    sizes[18] = 6  # the post-header length of TABLE_MAP
    log = LogFile(version="5.1.2-alpha", checksum=None, sizes=bytes(sizes))
    body = table_map(ORDERS, full=False)
    log.add(K.TABLE_MAP, body[:4] + body[6:])
    images = (77).to_bytes(4, "little") + b"\1\0" + b"\3\7" + b"\4" + integer(9, 4) + b"\1a"
    log.add(K.WRITE_ROWS_V1, images.replace(b"\3\7\4", b"\3\7\4"))
    events = inspect(log.bytes(), "--json").events
    assert events[2]["rows"] == [{"after": {"@1": 9, "@2": "a", "@3": None}}]


def test_old_files_are_named(inspect: Inspect) -> None:
    for size, version in ((75, 3), (69, 1)):
        start = header(1, size, 0) + struct.pack("<H50sI", version, b"4.1.22-log", 0)
        shown = inspect(b"\xfebin" + start.ljust(size, b"\0"), "--json")
        assert (shown.code, shown.out) == (2, "")
        assert f"START_EVENT_V3: a log of binlog version {version}" in shown.err


def test_rows_from_before_the_release_are_named(inspect: Inspect) -> None:
    log = LogFile(version="5.1.15-beta", checksum=None)
    log.add(K.PRE_GA_WRITE_ROWS, bytes(20))
    log.xid()
    shown = inspect(log.bytes(), "--json")
    assert shown.code == 2
    assert "before its release" in shown.events[1]["error"]
    assert shown.events[2]["type"] == "XID_EVENT"
    assert "not shown: the content of 1 event;" in shown.err
    assert f"(binlog.000001, offset {log.offsets[1]})" in shown.err


def test_encrypted_files_are_named(inspect: Inspect) -> None:
    shown = inspect(b"\xfdbin" + bytes(512))
    assert (shown.code, shown.out) == (2, "")
    assert "the file is encrypted (binlog_encryption=ON)" in shown.err
    assert "mysql://user@host:port/FILE" in shown.err
    log = LogFile(version="10.11.6-MariaDB")
    log.add(K.MARIADB_START_ENCRYPTION, b"\1" + (1).to_bytes(4, "little") + bytes(12))
    log.data += b"\xa7" * 300
    shown = inspect(log.bytes(), "--json")
    assert shown.code == 2
    assert [event["type"] for event in shown.events] == [
        "FORMAT_DESCRIPTION_EVENT",
        "START_ENCRYPTION_EVENT",
    ]
    assert "encrypt_binlog=ON" in shown.err


def test_a_file_in_use_is_reported(inspect: Inspect) -> None:
    log = LogFile(in_use=True)
    log.gtid(1)
    assert "in use" in inspect(log.bytes()).out
    shown = inspect(log.bytes()[:-3], "--json")
    assert shown.events[0]["in_use"] is True
    assert shown.code == 2
    assert "ends inside GTID_EVENT, 3 bytes are missing" in shown.err


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"\xfebin", mtime=0), "packed by gzip"),
        (b"\x28\xb5\x2f\xfd....", "packed by zstd"),
        (b"BZh91AY&SY", "packed by bzip2"),
        (b"hello world", "not a binlog: it begins with b'hell'"),
        (b"\xfeb", "not a binlog"),
        (b"\xfebin" + header(2, 30, 0) + bytes(11), "QUERY_EVENT before any FORMAT_DESCRIPTION_EVENT"),
        (b"\xfebin" + header(15, 19, 0), "FORMAT_DESCRIPTION_EVENT has 19 bytes"),
        (b"\xfebin" + header(15, 5, 0), "names a size of 5 bytes"),
        (b"\xfebin" + bytes(40), "names a size of 0 bytes"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_a_binlog_is_refused(inspect: Inspect, data: bytes, said: str) -> None:
    shown = inspect(data)
    assert (shown.code, shown.out) == (2, "")
    assert said in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_directory_and_a_missing_file_are_refused(inspect: Inspect, tmp_path: Path) -> None:
    directory = inspect(tmp_path)
    assert (directory.code, directory.out) == (2, "")
    assert "is a directory" in directory.err and "binlog.0*" in directory.err
    missing = inspect(tmp_path / "nothing")
    assert missing.code == 2
    assert "No such file" in missing.err


def test_an_event_that_cannot_be_shown_is_reported_in_its_place(inspect: Inspect) -> None:
    log = LogFile()
    log.rows(K.WRITE_ROWS, [order(1, "Ann")])  # rows without a TABLE_MAP before
    log.table([Spec("id", Type.LONG), Spec("g", Type.TYPED_ARRAY, b"\1")])
    log.rows(K.WRITE_ROWS, [[integer(1, 4), b"x"]])
    log.table(ORDERS, table_id=80)
    log.rows(K.WRITE_ROWS, [order(2, "Bob")], table_id=80)
    log.add(
        K.WRITE_ROWS, (80).to_bytes(6, "little") + b"\1\0\2\0\3\7\0" + b"\1"
    )  # cut inside the event
    log.rows(K.WRITE_ROWS, [order(3, "Cy")], table_id=80)
    log.add(200, b"what is this")
    log.add(201, b"may be ignored", flags=0x80)
    log.add(K.QUERY, b"short")
    log.xid()
    shown = inspect(log.bytes(), "--json")
    assert shown.code == 2
    errors = [event.get("error") for event in shown.events]
    assert [error is not None for error in errors] == [
        False, True, True, True, False, False, True, False, True, False, True, False,
    ]  # fmt: skip
    assert "no TABLE_MAP_EVENT" in str(errors[1])
    assert "type code 20" in str(errors[2])
    assert [
        event["rows"][0]["after"]["customer"] for event in shown.events if event.get("rows")
    ] == ["Bob", "Cy"]
    assert shown.events[8]["type"] == "UNKNOWN_EVENT_200"
    assert "not shown: the content of 6 events; first: " in shown.err
    out = inspect(log.bytes()).out
    assert out.count("### not shown: ") == 6
