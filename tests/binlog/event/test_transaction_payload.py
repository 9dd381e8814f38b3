"""Compressed events of MySQL and MariaDB: round trips, typed errors for wrong fields, and bounded memory."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from itertools import accumulate

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.event import mariadb_compressed, transaction_payload
from dispatcher.binlog.event.types import EventType
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.stream.batch import Batch
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.embedded import SMALL_BYTES
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.splitter import Splitter
from tests.support import control_encoder as c
from tests.support import event_encoder as e
from tests.support.random_log import Wanted, delivered
from tests.support.rows_encoder import Spec, query_body, rows_body

T = (("shop", "orders"),)
sizes = st.lists(st.integers(0, 3000), max_size=20)


def inner(*bodies: tuple[int, bytes]) -> bytes:
    return b"".join(e.event(kind, body, checksum=False) for kind, body in bodies)


@given(sizes, st.sampled_from([0, 255]), st.integers(1, 4000))
def test_events_of_a_payload(sizes: list[int], compression: int, chunk: int) -> None:
    raw = [e.event(250, bytes([n % 256]) * size, checksum=False) for n, size in enumerate(sizes)]
    body = c.payload_body(b"".join(raw), compression=compression, unknown=c.packed(9) + b"\2xx")
    parsed = transaction_payload.parse_payload(body)
    assert parsed.uncompressed_size == sum(map(len, raw))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_payload, "CHUNK_BYTES", chunk)
        runs = [
            run.tobytes()
            for run in transaction_payload.event_runs(
                transaction_payload.decompressed_chunks(parsed)
            )
        ]
    assert b"".join(runs) == b"".join(raw)
    ends = set(accumulate(map(len, raw)))
    assert set(accumulate(map(len, runs))) <= ends, "whole events"
    assert all(len(run) <= chunk + max(map(len, raw)) for run in runs)


BEGIN = (EventType.QUERY, query_body("BEGIN", ""))
MAP = (EventType.TABLE_MAP, e.table_map_body("shop", "orders", 7))
ROWS = (EventType.WRITE_ROWS, e.opaque_rows_body(30, 7, b"x" * 100, end=True))
XID = (EventType.XID, bytes(8))
GOOD = (BEGIN, MAP, ROWS, XID)


def log_with(body: bytes) -> e.LogWriter:
    """Returns a log of a good transaction, a transaction with this payload, and another good transaction."""
    log = e.LogWriter()
    for payload_body in (None, body, None):
        log.begin(standalone=payload_body is not None)
        if payload_body is None:
            log.statement(e.Statement(T, ((0, 10),)))
            log.commit()
        else:
            log._part("frame", EventType.TRANSACTION_PAYLOAD, payload_body)
            log.commit("")
    return log


def transactions(log: e.LogWriter, *, small: bool = True) -> Iterator[Batch]:
    chunk = 1 << 20
    split = Splitter(Routes(), packets=True, checksum=True, buffer_bytes=1 << 14)
    split.embedded.small_bytes = SMALL_BYTES if small else 0
    stream = log.stream()
    for at in range(0, len(stream), chunk):
        for batch in split.feed(stream[at : at + chunk]):
            assert isinstance(batch, Batch)
            yield batch


RAW = inner(*GOOD)
COMPRESSED = zstandard.ZstdCompressor().compress(RAW)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (c.payload_body(inner(*GOOD, XID)), "XID_EVENT occurs outside"),
        (c.payload_body(inner(BEGIN, MAP, ROWS)), "something else than one transaction"),
        (c.payload_body(inner(*GOOD, BEGIN)), "something else than one transaction"),
        (c.payload_body(inner(*GOOD, *GOOD)), "something else than one transaction"),
        (c.payload_body(b""), "something else than one transaction"),
        (c.payload_body(RAW, said=len(RAW) - 1), "more bytes than"),
        (c.payload_body(RAW, said=len(RAW) + 1), "fewer bytes than"),
        (c.payload_body(RAW + b"\0" * 10), "ends inside an event"),
        (c.payload_body(RAW + bytes(30)), "shorter than its header"),
        (c.payload_body(inner(BEGIN, (40, c.payload_body(RAW)))), "holds another one"),
        (c.payload_body(inner(BEGIN, (15, bytes(80)))), "holds a FORMAT_DESCRIPTION_EVENT"),
        (c.payload_body(inner(BEGIN, (4, e.rotate_body("x")))), "holds a ROTATE_EVENT"),
        (c.payload_body(inner(BEGIN, (33, e.gtid_body(e.SERVER, 9)))), "inside a transaction"),
        (c.payload_body(RAW) + b"garbage", "and holds"),
        (c.payload_body(RAW)[:-5], "and holds"),
        (b"\2\1\0\3\1\5\1\1\7\0garbage", "cannot be uncompressed"),
        (b"\2\1\0\3\1\5\0", "does not say its size"),
        (b"\2\1\7\1\1\0\0", "unknown compression 7"),
        (b"\xfb", "where a length begins"),
        (bytes(0), "cut short"),
        (c.payload_body(bytes(5 << 20), said=100), "more bytes than"),
    ],
)
@pytest.mark.parametrize("small", [False, True])
def test_a_payload_with_wrong_fields_is_a_typed_error(body: bytes, why: str, small: bool) -> None:
    log = log_with(body)
    got: list[Batch] = []
    with pytest.raises(BinlogError, match=why) as info:
        got.extend(transactions(log, small=small))
    assert info.value.kind in (ErrorKind.MALFORMED_EVENT, ErrorKind.UNSUPPORTED_EVENT)
    # Wherever in the payload the fault is, the error names the offset of the payload or of its transaction.
    first, bad = log.transactions[:2]
    assert info.value.where in [
        f"binlog.000001:{at}" for at in (first.end + len(bad.parts[0].raw), bad.end)
    ]


def test_a_payload_outside_a_transaction() -> None:
    log = e.LogWriter(gtid="none")
    log.add(EventType.TRANSACTION_PAYLOAD, c.payload_body(RAW))
    with pytest.raises(BinlogError, match="occurs where no transaction begins"):
        list(transactions(log))


def test_every_cut_of_a_payload_is_a_typed_error() -> None:
    body = c.payload_body(RAW)
    for end in range(len(body)):
        with pytest.raises(BinlogError) as info:
            list(transactions(log_with(body[:end]), small=bool(end % 2)))
        assert info.value.kind in (ErrorKind.MALFORMED_EVENT, ErrorKind.UNSUPPORTED_EVENT)


def test_positions_in_a_payload_are_those_of_its_event() -> None:
    log = log_with(c.payload_body(RAW))
    log.files[0].jumps.clear()
    ends = [
        int(end)
        for batch in transactions(log)
        for end, flags in zip(batch.tx.end, batch.tx.flags, strict=True)
        if not flags & 2
    ]
    assert ends == [t.end for t in log.transactions]


@pytest.mark.parametrize("size", [e.PACKET_MAX - 200, e.PACKET_MAX + 5, 2 * e.PACKET_MAX + 9])
@pytest.mark.parametrize("checksum", [False, True])
def test_a_payload_larger_than_a_packet(size: int, checksum: bool) -> None:
    log = e.LogWriter(checksum=checksum)
    log.compress, log.compression = True, 255
    for _ in range(2):
        log.begin()
        log.statement(e.Statement(T, ((0, size // 2), (0, size // 2), (0, 10))))
        log.commit()
    split = Splitter(Routes(), packets=True, checksum=checksum, buffer_bytes=1 << 14)
    wanted, taken = Filter(["shop"]), ConsumerLog()
    for batch in split.feed(log.stream()):
        assert isinstance(batch, Batch)
        wants = wanted.route_mask(split.routes)
        taken.append(batch, wants, None, epoch=3, seq=int(taken.committed > 0), packed=False)
    want = [
        delivered(t, Wanted(("shop",)), epoch=3, seq=n + 1) for n, t in enumerate(log.transactions)
    ]
    assert b"".join(taken.read(0, taken.committed)) == b"".join(want)
    assert split.offset == log.file.size


def big_log(megabytes: int, *, event_bytes: int) -> e.LogWriter:
    start = random.Random(1).randbytes(64).ljust(event_bytes)
    rows = (EventType.WRITE_ROWS, e.opaque_rows_body(30, 7, start, end=False))
    last = (EventType.WRITE_ROWS, e.opaque_rows_body(30, 7, b"", end=True))
    count = (megabytes << 20) // event_bytes
    return log_with(c.payload_body(inner(BEGIN, MAP, *[rows] * count, last, XID), level=1))


@pytest.mark.parametrize("event_bytes", [8000, 3 << 20])
def test_decompression_needs_only_a_few_chunks_of_memory(event_bytes: int) -> None:
    """The 64 MiB of rows compress to a few bytes. The test drops each transaction as soon as the splitter returns
    it."""
    log = big_log(64, event_bytes=event_bytes)
    stream = log.stream()
    split = Splitter(Routes(), packets=True, checksum=True, buffer_bytes=1 << 16)
    other = Filter(["elsewhere"])
    taken, seen, at = ConsumerLog(), 0, 0
    tracemalloc.start()
    while at < len(stream) or split.full:
        if not split.full:
            room = split.room()[: 1 << 14]
            size = min(len(room), len(stream) - at)
            room[:size] = stream[at : at + size]
            split.wrote(size)
            at += size
        for batch in split.split():
            assert isinstance(batch, Batch)
            seen += int(batch.ev.size.sum())
            taken.append(batch, other.route_mask(split.routes), None, epoch=0, seq=0, packed=False)
        del batch
        split.compact()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen > 60 << 20
    assert peak < len(stream) + 6 * max(transaction_payload.CHUNK_BYTES, event_bytes)


# -- MariaDB --------------------------------------------------------------------------------------------------

COLUMNS = [Spec("id", 3), Spec("n", 3)]
PLAIN = {
    165: (2, query_body("INSERT INTO a VALUES (1)", "shop", e.status_variables())),
    166: (23, rows_body(23, [[b"\1\0\0\0", b"\2\0\0\0"]])),
    167: (24, rows_body(24, [[b"\1\0\0\0", b"\2\0\0\0"], [b"\3\0\0\0", None]])),
    168: (25, rows_body(25, [[b"\1\0\0\0", None]])),
    169: (30, rows_body(30, [[b"\1\0\0\0", b"\2\0\0\0"]])),
    170: (31, rows_body(31, [[b"\1\0\0\0", b"\2\0\0\0"], [b"\3\0\0\0", None]])),
    171: (32, rows_body(32, [[b"\1\0\0\0", None]])),
}


def squeezed(kind: int, body: bytes) -> bytes:
    if kind == EventType.MARIADB_QUERY_COMPRESSED:
        return c.query_compressed_body(body)
    return c.rows_compressed_body(body, v2=kind >= 169, update=kind in (167, 170))


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("kind", PLAIN)
def test_plain_events(kind: int, checksum: bool) -> None:
    plain_kind, body = PLAIN[kind]
    event = e.event(kind, squeezed(kind, body), checksum=checksum, log_pos=5, flags=8)
    plain = e.event(plain_kind, body, checksum=checksum, log_pos=5, flags=8)
    assert mariadb_compressed.plain_event(event, checksum=checksum) == plain
    assert mariadb_compressed.plain_event(plain, checksum=checksum) == plain
    squeezed_body = event[19 : len(event) - 4 * checksum]
    for end in range(len(squeezed_body)):
        with pytest.raises(BinlogError) as info:
            mariadb_compressed.plain_body(kind, squeezed_body[:end])
        assert info.value.kind is ErrorKind.MALFORMED_EVENT
    if checksum:
        damaged = event[:25] + bytes((event[25] ^ 1,)) + event[26:]
        with pytest.raises(BinlogError) as info:
            mariadb_compressed.plain_event(damaged, checksum=True)
        assert info.value.kind is ErrorKind.CHECKSUM_MISMATCH


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (c.mariadb_compressed(b"BEGIN", said=4), "does not hold the 4 bytes"),
        (c.mariadb_compressed(b"BEGIN", said=6), "does not hold the 6 bytes"),
        (c.mariadb_compressed(b"BEGIN", said=0), "says that it holds 0 bytes"),
        (c.mariadb_compressed(bytes(1 << 20), said=1 << 31), "says that it holds"),
        (c.mariadb_compressed(b"BEGIN") + b"x", "does not hold"),
        (b"\x91\5" + zlib.compress(b"BEGIN"), "unknown compression"),
        (b"\1\5" + zlib.compress(b"BEGIN"), "unknown compression"),
        (b"\x81\5garbage", "cannot be uncompressed"),
    ],
)
def test_a_compressed_event_with_wrong_fields_is_a_typed_error(tail: bytes, why: str) -> None:
    body = query_body("", "", b"")
    with pytest.raises(BinlogError, match=why) as info:
        mariadb_compressed.plain_body(165, body + tail)
    assert info.value.kind is ErrorKind.MALFORMED_EVENT


def test_a_plain_log() -> None:
    log = e.LogWriter(gtid="mariadb")
    want = e.MAGIC + log.file.events[0][0]
    for kind, (plain_kind, body) in PLAIN.items():
        raw = log.add(kind, squeezed(kind, body))
        position = int.from_bytes(raw[13:17], "little")
        want += e.event(plain_kind, body, timestamp=log._now, log_pos=position)
    want += log.add(EventType.XID, bytes(8))
    assert mariadb_compressed.plain_log(log.file.raw) == want
    assert mariadb_compressed.plain_log(want) is want
    assert mariadb_compressed.plain_log(b"no log") == b"no log"


def damage(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 0x40,)) + data[at + 1 :]


@pytest.mark.parametrize("change", [damage, lambda data, at: data[:at]])
def test_a_damaged_log_is_a_typed_error_or_returned_unchanged(
    change: Callable[[bytes, int], bytes],
) -> None:
    log = e.LogWriter(gtid="mariadb")
    for kind, (_, body) in PLAIN.items():
        log.add(kind, squeezed(kind, body))
    data = log.file.raw
    for at in range(4, len(data), 3):
        try:
            mariadb_compressed.plain_log(change(data, at))
        except BinlogError as error:
            assert error.where.startswith("offset")  # noqa: PT017
