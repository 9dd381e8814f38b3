"""The splitter finds all events that the log's writer has written, for chunks of any size. Also: damage, packets, and
positions."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dispatcher.binlog.event.types import EventType
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.stream.batch import Batch, Closed
from tests.support import event_encoder as e
from tests.support.random_log import random_log
from tests.support.split_log import Flat, check, cuts, expected, feed, splitter

SEEDS = st.integers(0, 2**32 - 1)


DAMAGE = (ErrorKind.MALFORMED_EVENT, ErrorKind.CHECKSUM_MISMATCH, ErrorKind.UNSUPPORTED_EVENT)


GTIDS = st.sampled_from(["mysql", "mysql", "tagged", "anonymous", "5.6", "none", "mariadb"])


@given(SEEDS, GTIDS)
def test_any_log_in_any_chunks_of_a_dump(seed: int, gtid: str) -> None:
    rng = random.Random(seed)
    log = random_log(
        rng, gtid=gtid, size_max=rng.choice((50, 3000, 20_000)), far=rng.random() < 0.2
    )
    split = splitter(checksum=log.files[0].checksum, buffer=rng.choice((1 << 14, 20_000, 1 << 17)))
    split.embedded.small_bytes = rng.choice((0, 1 << 18))
    stream = bytearray()
    for n, raw in enumerate(log.dump()):
        stream += e.event_packet(raw, n)
        if rng.random() < 0.1 and n > 2:
            stream += heartbeat(log, raw, n)
    check(feed(split, cuts(rng, bytes(stream))), log)
    assert split.file == log.file.name
    assert split.created[log.file.name] == log.file.created
    assert split.offset == log.file.size


def heartbeat(log: e.LogWriter, raw: bytes, n: int) -> bytes:
    """Returns a heartbeat as the server would send it after `raw`, in the format of the last FORMAT_DESCRIPTION."""
    checksum = True
    for file in log.files:
        if any(event is raw or event == raw for event, _ in file.events):
            checksum = file.checksum
    if raw[4] == EventType.ROTATE:
        return b""  # the format would depend on the previous file
    beat = e.event(EventType.HEARTBEAT, b"binlog.000008", checksum=checksum, timestamp=0)
    return e.event_packet(beat, n)


@given(SEEDS, GTIDS)
def test_any_file_in_any_chunks(seed: int, gtid: str) -> None:
    rng = random.Random(seed)
    log = random_log(rng, gtid=gtid, files=False)
    split = splitter(packets=False, checksum=False)
    split.file = log.file.name
    split.feed(b"")
    flat = feed(split, cuts(rng, log.file.raw[4:]))
    # Offsets count from the file's start, and the header of the first event contains the event's end offset.
    check(flat, log)


def test_byte_by_byte() -> None:
    log = random_log(random.Random(5), transactions=12)
    split = splitter(checksum=log.files[0].checksum)
    flat = Flat(split.routes)
    for byte in log.stream():
        flat.add(split.feed(bytes((byte,))))
    check(flat, log)


@given(SEEDS)
@example(0)
@settings(max_examples=10 * settings().max_examples // 100)
def test_cut_at_every_offset_gives_a_prefix(seed: int) -> None:
    log = random_log(random.Random(seed), transactions=3, size_max=20)
    stream = log.stream()
    want = expected(log)
    for end in range(0, len(stream), 1 if seed == 0 else 29):
        split = splitter(checksum=log.files[0].checksum)
        flat = feed(split, [stream[:end]])
        assert flat.done == want[: len(flat.done)]
        assert not flat.faults
        assert not flat.closed


@given(SEEDS, st.booleans())
@example(159099259, True)
def test_a_damaged_byte_is_found_or_harmless(seed: int, packets: bool) -> None:
    rng = random.Random(seed)
    log = random_log(rng, transactions=4, size_max=30, files=packets)
    data = log.stream() if packets else log.file.raw[4:]
    want = expected(log)
    for _ in range(20):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        split = splitter(packets=packets, checksum=log.files[0].checksum)
        flat = Flat(split.routes)
        try:
            for chunk in cuts(rng, bytes(damaged)):
                batches = split.feed(chunk)
                closed = next((n for n, b in enumerate(batches) if isinstance(b, Closed)), None)
                flat.add(batches[:closed])
                if closed is not None:
                    break  # the caller closes the connection here
        except BinlogError as error:
            if error.kind not in DAMAGE:
                raise
        # In a dump from the middle of a file, a FORMAT_DESCRIPTION that says "no checksums" has no valid checksum
        # itself, so no checksum protects this bit.
        if flat.checked and all(file.checksum for file in log.files):
            assert [t[1:3] for t in flat.done] == [t[1:3] for t in want[: len(flat.done)]]
            assert [t[5] for t in flat.done] == [t[5] for t in want[: len(flat.done)]]


def test_a_crashed_file_ends_at_the_next_one() -> None:
    log = e.LogWriter()
    log.begin()
    log.statement(e.Statement((("shop", "orders"),), ((0, 10),)))
    log.crash()
    flat = feed(splitter(), [log.stream()])
    assert flat.places[-1] == (log.file.name, log.file.size)
    assert flat.done == []
    assert len(flat.aborted) == 1


def test_short_files_that_come_at_once_keep_their_creation_times() -> None:
    """Without the creation time of its file, a position could not be distinguished from a position of a log that was
    reset."""
    log = e.LogWriter()
    for _ in range(3):
        log.begin()
        log.statement(e.Statement((("shop", "orders"),), ((0, 10),)))
        log.commit()
        log.rotate()
    split = splitter()
    batches = [batch for batch in split.feed(log.stream()) if isinstance(batch, Batch)]
    created = {batch.file: split.created[batch.file] for batch in batches if len(batch.tx.end)}
    assert created == {file.name: file.created for file in log.files[:3]}
    split.split()
    assert split.created == {log.file.name: log.file.created}


@pytest.mark.parametrize("kind", sorted({*EventType} - {EventType.FORMAT_DESCRIPTION}))
def test_every_type_cut_short_is_a_typed_error_or_none(kind: int) -> None:
    named = kind == EventType.ROTATE  # a damaged ROTATE may hold another file name
    for size in range(60):
        for inside in (False, True):
            log = e.LogWriter()
            if inside:
                log.begin()
            log.add(kind, b"\x07" * size)
            try:
                flat = feed(splitter(), [log.stream()])
            except BinlogError as error:
                if error.kind not in DAMAGE or not (named or "binlog.000001:" in error.where):
                    raise
            else:
                assert all(fault.where for fault in flat.faults)


def test_events_before_damage_are_returned_first() -> None:
    log = e.LogWriter()
    for _ in range(3):
        log.begin()
        log.statement(e.Statement((("shop", "orders"),), ((0, 10),)))
        log.commit()
    stream = bytearray(log.stream())
    stream[-1] ^= 1
    split = splitter()
    flat = Flat(split.routes)
    room = split.room()
    room[: len(stream)] = stream
    split.wrote(len(stream))
    flat.add(split.split())
    assert len(flat.done) == 2
    for _ in range(2):
        split.compact()
        with pytest.raises(BinlogError, match="checksum mismatch: XID_EVENT") as info:
            split.split()
        assert info.value.where.startswith("binlog.000001:")


def test_heartbeats_move_nothing() -> None:
    log = random_log(random.Random(1), transactions=2, checksum=True, files=False)
    split = splitter()
    feed(split, [log.stream()])
    offset = split.offset
    for kind in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2):
        beat = e.event(kind, b"binlog.000099", log_pos=12345)
        flat = feed(split, [e.event_packet(beat)])
        assert flat.events == 0
    assert split.offset == offset


@pytest.mark.parametrize(
    "packet", [e.EOF_PACKET, e.error_packet(1236, "purged"), e.packets(b"\x07?"), e.packets(b"")]
)
def test_any_other_packet_closes_the_dump(packet: bytes) -> None:
    log = random_log(random.Random(2), transactions=3, files=False)
    split = splitter(checksum=log.files[0].checksum)
    flat = feed(split, [log.stream() + packet])
    assert flat.closed == [packet[4:]]
    assert len(flat.done) == 3


SIZES = (
    e.PACKET_MAX - 2,
    e.PACKET_MAX - 1,
    e.PACKET_MAX,
    2 * e.PACKET_MAX - 1,
    2 * e.PACKET_MAX + 5,
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chunk", [1 << 14, 3_000_001, 1 << 26])
def test_an_event_larger_than_a_packet(size: int, chunk: int) -> None:
    log = e.LogWriter()
    payload = size - 19 - 10 - 4
    statement = e.Statement((("shop", "orders"),), ((0, payload), (0, 100)))
    for _ in range(2):
        log.begin()
        log.statement(statement)
        log.commit()
    assert len(log.transactions[0].parts[3].raw) == size
    stream = log.stream()
    flat = feed(splitter(), [stream[at : at + chunk] for at in range(0, len(stream), chunk)])
    check(flat, log)
    # Events before the first format belong to no batch.
    assert 0 <= len(stream) - flat.bytes < 200


def test_a_large_event_that_goes_on_with_a_packet_too_long() -> None:
    raw = e.event(EventType.XID, bytes(e.PACKET_MAX + 100))
    whole = bytearray(e.event_packet(raw))
    whole[4 + e.PACKET_MAX] += 1
    with pytest.raises(BinlogError, match="continues an event that lacks"):
        feed(splitter(), [bytes(whole) + b"more"])


def test_a_damaged_size_does_not_ask_for_its_memory() -> None:
    raw = bytearray(e.event_packet(e.event(EventType.XID, bytes(8))))
    raw[5 + 9 + 3] = 0xFF  # the event's header says 4 GiB, its packet 31 bytes
    split = splitter()
    split.feed(bytes(raw[:-1]))
    assert len(split.room()) < 1 << 20
