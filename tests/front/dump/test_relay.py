"""The packets of delivered ranges for any cuts of the ranges, and the events that the relay omits for a client that
resumes."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Iterable

import pytest

from dispatcher.binlog.event.header import MAGIC, EventHeader
from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.binlog.event.types import EventType
from dispatcher.front.dump.options import AfterGtids, AfterPlace, Checksum, RelayOptions, Resume
from dispatcher.front.dump.relay import CHUNK_BYTES, Relay
from dispatcher.front.dump.relay_kernel import LARGE_BYTES
from dispatcher.front.dump.warmup import load_dump_kernels
from dispatcher.front.wire.errors import WireError
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.stream.warmup import load_kept_kernels
from tests.front.dump.delivered_bytes import Delivered, Parts, delivered
from tests.front.dump.raw_dump import events, for_a_consumer, payloads
from tests.support.event_encoder import (
    SERVER,
    LogWriter,
    Statement,
    event,
    format_description,
    gtid_body,
    mariadb_gtid_body,
)

A, B = ("a", "t"), ("b", "t")
FILE, FIRST_FILE = "binlog.000002", "binlog.000001"


def written(
    gtid: str = "mysql", count: int = 40, *, size: int = 30, checksum: bool = True
) -> LogWriter:
    """Returns a log of two files, in which every third transaction changes the database `a`."""
    log = LogWriter(gtid=gtid, checksum=checksum)
    for n in range(count):
        log.begin()
        log.statement(Statement((A if n % 3 == 0 else B,), ((0, size), (0, size)), text="x"))
        log.commit()
        if n == count // 2:
            log.rotate()
    return log


def of(log: LogWriter, *databases: str) -> Delivered:
    mariadb = log.gtid == "mariadb"
    return delivered(
        log.stream(),
        *databases,
        executed=MariadbGtids() if mariadb else GtidSet(),
        checksum=log.files[0].checksum,
    )


def relay(resume: Resume = None, checksum: Checksum = Checksum.CRC32, **more: bool) -> Relay:
    return Relay(RelayOptions(1, checksum, mariadb_capability=4, **more), resume)


def sent(relay: Relay, parts: Iterable[bytes | memoryview]) -> bytes:
    return b"".join(relay.packets(parts))


def cut(parts: Parts, rng: random.Random, size: int) -> Parts:
    """Returns the same bytes, cut at random offsets."""
    data = b"".join(parts)
    out: Parts = []
    at = 0
    while at < len(data):
        step = rng.randint(1, size)
        out.append(memoryview(data)[at : at + step])
        at += step
    return out


def transaction(
    gno: int, bodies: Iterable[bytes], *, start: int = 1000, mariadb: bool = False
) -> tuple[bytes, int]:
    """Returns a delivered transaction, and the offset after it."""
    out, at = [], start
    gtid = (
        (EventType.MARIADB_GTID, mariadb_gtid_body(gno))
        if mariadb
        else (33, gtid_body(SERVER, gno))
    )
    for kind, body in (gtid, *((EventType.WRITE_ROWS, body) for body in bodies), (16, bytes(8))):
        at += 23 + len(body)
        blank = mariadb and kind == EventType.WRITE_ROWS
        out.append(event(kind, body, log_pos=0 if blank else at))
    record = encode_record(Record(1, gno, FILE, at, 7_000_000, 0), checksum=True)
    return record + b"".join(out), at


# -- whole dumps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gtid", ["mysql", "tagged", "5.6", "mariadb", "none"])
@pytest.mark.parametrize("checksum", [True, False])
def test_a_consumer_of_everything_gets_the_servers_packets(gtid: str, checksum: bool) -> None:
    log = written(gtid, checksum=checksum)
    stream = sent(
        relay(AfterPlace(FIRST_FILE, 4), mariadb=gtid == "mariadb"), of(log, "a", "b").parts()
    )
    expected = list(for_a_consumer(log.dump()))
    found = events(stream)
    assert [e for e in found if e[4] != 4] == [e for e in expected if e[4] != 4]
    assert [e[19:40] for e in found if e[4] == 4] == [e[19:40] for e in expected if e[4] == 4]


@pytest.mark.parametrize("checksum", [Checksum.CRC32, Checksum.UNSET])
def test_parts_may_be_cut_anywhere(checksum: Checksum) -> None:
    rng = random.Random(11)
    parts = of(written(count=12, size=500), "a", "b").parts()
    held = GtidSet({str(SERVER): [(4, 6), (9, 10)]})
    expected = sent(relay(AfterGtids(held), checksum), parts)
    for size in (2, 50, 3000):
        assert (
            sent(relay(AfterGtids(held), checksum), [parts[0], *cut(parts[1:], rng, size)])
            == expected
        )


def test_chunks_are_small_and_numbers_go_on() -> None:
    parts = of(written(count=900, size=700), "a", "b").parts()
    chunks = list(relay().packets(parts))
    assert max(map(len, chunks)) <= CHUNK_BYTES and len(chunks) > 3
    payloads(b"".join(chunks))  # `payloads` checks the numbers of the packets
    later = Relay(RelayOptions(1, Checksum.CRC32), None, sequence=77)
    assert b"".join(later.packets(parts))[3] == 77


def test_ranges_repeat_neither_the_file_nor_its_format() -> None:
    consumer = of(written(), "a")
    whole = sent(relay(), consumer.parts())
    one = relay()
    pieces = b""
    for start, end in zip((0, *consumer.ends), consumer.ends, strict=False):
        pieces += sent(one, consumer.parts(start, end))
    assert pieces == whole
    assert one.file == FILE
    assert [e[4] for e in events(whole)].count(EventType.FORMAT_DESCRIPTION) == 2


def test_a_format_that_the_daemon_got_within_the_file_is_not_told_again() -> None:
    first, at = transaction(1, [b"x" * 30])
    second, _ = transaction(2, [b"y" * 30], start=at)
    again = format_description(log_pos=0)
    parts = [MAGIC, format_description(log_pos=126), first, again, second]
    found = [e[4] for e in events(sent(relay(AfterPlace(FILE, 4)), parts))]
    assert found == [4, 15, 33, 30, 16, 33, 30, 16]
    other = format_description(version="9.7.9")
    parts = [MAGIC, format_description(log_pos=126), first, other, second]
    found = [e[4] for e in events(sent(relay(AfterPlace(FILE, 4)), parts))]
    assert found == [4, 15, 33, 30, 16, 4, 15, 33, 30, 16]


# -- large events ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("checksum", "cut_at"),
    [(Checksum.CRC32, 0), (Checksum.CRC32, 700_001), (Checksum.UNSET, 700_001)],
)
def test_large_events_pass_through(checksum: Checksum, cut_at: int) -> None:
    ends = 4 if checksum is Checksum.CRC32 else 0
    full = 0xFFFFFF - 1 - 19 - ends  # the size of the body that fills a packet
    sizes = [LARGE_BYTES - 24, LARGE_BYTES, full - 1, full, full + 1]
    data, _ = transaction(1, (bytes((n,)) * size for n, size in enumerate(sizes)))
    parts: Parts = [MAGIC, format_description(), data]
    if cut_at:
        parts[2:] = [memoryview(data)[at : at + cut_at] for at in range(0, len(data), cut_at)]
    chunks = list(relay(checksum=checksum).packets(parts))
    assert max(map(len, chunks)) <= 1 << 20
    found = [e for e in events(b"".join(chunks)) if e[4] == EventType.WRITE_ROWS]
    assert [len(e) for e in found] == [size + 19 + ends for size in sizes]
    for n, e in enumerate(found):
        assert e[19 : len(e) - ends].count(bytes((n,))) == sizes[n]
        assert not ends or zlib.crc32(e[:-4]) == int.from_bytes(e[-4:], "little")


def test_large_events_are_dropped_with_their_transaction() -> None:
    big = [b"x" * 200_000, b"y" * 30]
    first, at = transaction(1, big)
    second, end = transaction(2, big, start=at)
    parts: Parts = [MAGIC, format_description(), first, second]
    by_gtid = events(sent(relay(AfterGtids(GtidSet({str(SERVER): [(1, 2)]}))), parts))
    assert [EventHeader.read(e).log_pos for e in by_gtid][-1] == end and len(by_gtid) == 6
    within = EventHeader.read(second, len(second) - 31 - 53).log_pos - 53  # after the large event
    by_place = events(sent(relay(AfterPlace(FILE, within)), parts))
    assert [e[4] for e in by_place] == [4, 15, 30, 16]


# -- resuming -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gtid", ["mysql", "tagged", "5.6", "mariadb"])
def test_transactions_of_the_clients_set_are_dropped_and_the_others_noted(gtid: str) -> None:
    log = written(gtid)
    consumer, rng = of(log, "a"), random.Random(3)
    for _ in range(8):
        held: GtidSet | MariadbGtids = GtidSet()
        if gtid == "mariadb":
            held = MariadbGtids({0: (1, rng.randint(0, 40))})
        else:
            for tx in rng.sample(log.transactions, 20):
                assert isinstance(held, GtidSet)
                held = held.add(tx.source, tx.gno)
        one = relay(AfterGtids(held), mariadb=gtid == "mariadb")
        expected = [
            part.raw
            for tx in log.transactions[::3]
            for part in tx.parts
            if not _has(held, tx.source, tx.gno)
        ]
        assert [e for e in events(sent(one, consumer.parts())) if e[4] not in (4, 15)] == expected
        assert one.gtids is not None
        fills = events(
            b"".join(one.fill(consumer.executed, FILE, consumer.offset)), _next(one, consumer, held)
        )
        assert one.gtids == _union(held, consumer.executed)
        if isinstance(held, GtidSet):
            lacking = sum(
                not held.has(tx.source, tx.gno) for n, tx in enumerate(log.transactions) if n % 3
            )
            assert len([e for e in fills if e[4] in (33, 42)]) == lacking


def _has(held: GtidSet | MariadbGtids, source: str, gno: int) -> bool:
    return held.has(source, gno) if isinstance(held, GtidSet) else gno <= held.number(0)


def _union(
    held: GtidSet | MariadbGtids, executed: GtidSet | MariadbGtids
) -> GtidSet | MariadbGtids:
    if isinstance(held, GtidSet):
        assert isinstance(executed, GtidSet)
        return held.union(executed)
    return executed


def _next(one: Relay, consumer: Delivered, held: GtidSet | MariadbGtids) -> int:
    """The number of the next packet of `one`, which has sent the consumer's range."""
    twin = relay(AfterGtids(held), mariadb=isinstance(held, MariadbGtids))
    sent(twin, consumer.parts())
    return twin.end()[3]


def test_what_precedes_the_place_is_dropped() -> None:
    log = written()
    consumer = of(log, "a", "b")
    places = [EventHeader.read(raw).log_pos for raw, _ in log.files[1].events]
    for place in places[2:]:
        found = events(sent(relay(AfterPlace(FILE, place)), consumer.parts()))
        rest = [raw for raw, _ in log.files[1].events if EventHeader.read(raw).log_pos > place]
        assert found[2:] == list(for_a_consumer(rest))
        assert found[0][19:27] == place.to_bytes(8, "little")
        assert EventHeader.read(found[1]).log_pos == 0


def test_a_place_behind_everything_gets_its_frame_only() -> None:
    consumer = of(written(), "a", "b")
    one = relay(AfterPlace("binlog.000009", 500))
    found = events(sent(one, consumer.parts()))
    assert [e[4] for e in found] == [4, 15]
    assert (one.file, one.offset) == ("binlog.000009", 500)
    assert all(not chunk for chunk in relay(AfterPlace(FILE, 1 << 40)).packets([]))


def test_offsets_beyond_32_bits() -> None:
    start = (1 << 32) - 60
    first, at = transaction(1, [b"x" * 30], start=start)
    second, end = transaction(2, [b"y" * 30], start=at)
    parts: Parts = [MAGIC, format_description(), first, second]
    one = relay(AfterPlace(FILE, start + 43))  # before the end of the GTID event
    assert [e[4] for e in events(sent(one, parts))] == [4, 15, 33, 30, 16, 33, 30, 16]
    assert one.offset == end
    one = relay(AfterPlace(FILE, at))
    assert [e[4] for e in events(sent(one, parts))] == [4, 15, 33, 30, 16]


def test_events_of_mariadb_without_a_position() -> None:
    first, at = transaction(1, [b"x" * 30], mariadb=True)
    second, end = transaction(2, [b"y" * 30], start=at, mariadb=True)
    parts: Parts = [MAGIC, format_description(version="11.8.6-MariaDB"), first, second]

    def kinds(place: int) -> list[int]:
        return [e[4] for e in events(sent(relay(AfterPlace(FILE, place), mariadb=True), parts))]

    behind_gtid = at + 23 + 19
    assert kinds(at) == [4, 15, 162, 30, 16]
    assert kinds(behind_gtid) == [4, 15, 30, 16]
    assert kinds(end) == [4, 15]


def test_a_transaction_that_goes_on_stays_dropped() -> None:
    first, at = transaction(1, [b"x" * 30])
    rest = encode_record(Record(1, 1, FILE, at, 0, 2), checksum=True)
    rest += event(EventType.WRITE_ROWS, b"z" * 30, log_pos=at)
    held = AfterGtids(GtidSet({str(SERVER): [(1, 2)]}))
    parts: Parts = [MAGIC, format_description(), first, rest]
    assert [e[4] for e in events(sent(relay(held), parts))] == [4, 15]
    assert [e[4] for e in events(sent(relay(), parts))] == [4, 15, 33, 30, 16, 30]


@pytest.mark.parametrize("checksum", [Checksum.CRC32, Checksum.UNSET])
@pytest.mark.parametrize("size", [30, LARGE_BYTES + 700_000])
def test_events_in_place_of_one_event_have_no_position_of_their_own(
    checksum: Checksum, size: int
) -> None:
    before, end = 1000, 5000
    begin = bytes(8) + b"\1\0\0" + b"\2\0" + b"xx" + b"s\0" + b"BEGIN"
    bodies = [
        (33, gtid_body(SERVER, 1)),
        (EventType.QUERY, begin),
        (EventType.TABLE_MAP, b"t" * 30),
    ]
    bodies += [(EventType.WRITE_ROWS, b"r" * size), (EventType.XID, bytes(8))]
    raw = [event(kind, b, log_pos=before if kind == 33 else end) for kind, b in bodies]
    record = encode_record(Record(1, 1, FILE, end, 7_000_000, 0), checksum=True)
    data = record + b"".join(raw)
    cut_parts = [memoryview(data)[at : at + 100_001] for at in range(0, len(data), 100_001)]

    def places(resume: Resume) -> list[int]:
        one = relay(resume, checksum)
        found = events(sent(one, [MAGIC, format_description(), *cut_parts]))[2:]
        for got, (kind, body) in zip(found, bodies[-len(found) :], strict=True):
            assert (got[4], got[19 : 19 + len(body)]) == (kind, body)
            if checksum is Checksum.CRC32:
                assert zlib.crc32(got[:-4]) == int.from_bytes(got[-4:], "little")
        assert one.offset == end
        return [EventHeader.read(got).log_pos for got in found]

    assert places(AfterPlace(FILE, 900)) == [before, 0, 0, 0, end]
    assert places(AfterPlace(FILE, before)) == [0, 0, 0, end]
    assert places(AfterGtids(GtidSet())) == [before, end, end, end, end]


def test_statements_keep_their_position() -> None:
    raw = event(33, gtid_body(SERVER, 1), log_pos=100)
    raw += event(EventType.QUERY, bytes(8) + b"\0\0\0\0\0\0" + b"DROP TABLE t", log_pos=200)
    record = encode_record(Record(1, 1, FILE, 200, 7_000_000, 0), checksum=True)
    found = events(sent(relay(AfterPlace(FILE, 4)), [MAGIC, format_description(), record + raw]))
    assert [EventHeader.read(one).log_pos for one in found[2:]] == [100, 200]


# -- between ranges -------------------------------------------------------------------------------------------


def test_a_heartbeat_in_another_file_follows_a_rotate() -> None:
    consumer = of(written(), "a")
    one = relay()
    first = sent(one, consumer.parts())
    count = len(payloads(first)) + 1
    rotate, format_, beat = events(one.heartbeat("binlog.000003", 900), count)
    assert rotate[19:-4] == (900).to_bytes(8, "little") + b"binlog.000003"
    assert EventHeader.read(format_).log_pos == 0 and format_[71:75] == bytes(4)
    assert EventHeader.read(beat).log_pos == 900 and beat[19:-4] == b"binlog.000003"
    (beat,) = events(one.heartbeat("binlog.000003", 800), count + 3)  # not an earlier position
    assert EventHeader.read(beat).log_pos == 900
    (beat,) = events(one.heartbeat("binlog.000003", 1 << 33), count + 4)
    assert beat[4] == EventType.HEARTBEAT_V2


def test_a_heartbeat_is_never_behind_what_a_replica_counts() -> None:
    consumer = of(written(), "a")
    place = (FILE, consumer.offset)
    for resume, ahead in ((AfterGtids(GtidSet()), True), (AfterPlace(FIRST_FILE, 4), False)):
        one = relay(resume)
        stream = sent(one, consumer.parts())
        assert isinstance(consumer.executed, GtidSet)
        end = consumer.executed.add(str(SERVER), 41, 200)
        stream += b"".join(one.fill(end, *place)) + one.heartbeat(*place)
        *before, beat = events(stream)
        start = max(n for n, e in enumerate(before) if e[4] == EventType.ROTATE)
        counted = 4 + sum(map(len, before[start + 1 :]))
        assert (counted > consumer.offset) == ahead
        assert EventHeader.read(beat).log_pos == (counted if ahead else consumer.offset)
        assert (one.file, one.offset) == place


def test_the_place_that_was_asked_for_is_never_left_backwards() -> None:
    """The queue begins before the place, in an earlier file."""
    log = written()
    consumer = of(log, "a", "b")
    place = EventHeader.read(log.files[1].events[9][0]).log_pos
    one = relay(AfterPlace(FILE, place))
    sent(one, [MAGIC, log.files[0].events[0][0]])
    first = len(log.files[0].events)
    got = one.arrive(FIRST_FILE, 300) + one.heartbeat(FIRST_FILE, 400) + one.heartbeat(FILE, 200)
    got += sent(one, consumer.parts()) + one.heartbeat(FILE, consumer.offset)
    assert first > 9
    found = events(got, 3)
    rotates = [e for e in found if e[4] == EventType.ROTATE]
    assert not rotates, rotates
    beats = [EventHeader.read(e).log_pos for e in found if e[4] == EventType.HEARTBEAT]
    assert beats == [place, place, consumer.offset]
    rest = [raw for raw, _ in log.files[1].events if EventHeader.read(raw).log_pos > place]
    assert [e for e in found if e[4] != EventType.HEARTBEAT] == list(for_a_consumer(rest))


def test_a_file_with_a_lower_number_follows_when_the_place_was_passed() -> None:
    """A server's numbers begin again after RESET."""
    later, at = transaction(1, [b"x" * 30])
    again, _ = transaction(2, [b"y" * 30], start=200)
    again = again.replace(FILE.encode(), FIRST_FILE.encode())
    one = relay(AfterPlace(FILE, 900))
    kinds = [e[4] for e in events(sent(one, [MAGIC, format_description(), later]))]
    assert kinds == [4, 15, 33, 30, 16] and one.offset == at
    found = events(sent(one, [MAGIC, format_description(), again]), 6)
    assert [e[4] for e in found] == [4, 15, 33, 30, 16]
    assert one.file == FIRST_FILE


def test_a_position_without_a_file_tells_nothing() -> None:
    one = relay(AfterGtids(GtidSet()))
    sent(one, [MAGIC, format_description()])
    assert one.arrive("", 0) == b"" and one.heartbeat("", 0) == b""
    first, at = transaction(1, [b"x" * 30])
    kinds = [e[4] for e in events(sent(one, [MAGIC, format_description(), first]))]
    assert kinds == [4, 15, 33, 30, 16]
    (beat,) = events(one.heartbeat("", 0), 6)
    assert EventHeader.read(beat).log_pos == at


def test_a_dump_by_file_is_not_filled() -> None:
    consumer = of(written(), "a")
    one = relay(AfterPlace(FIRST_FILE, 4))
    sent(one, consumer.parts())
    assert list(one.fill(consumer.executed, FILE, consumer.offset)) == []
    assert one.gtids is None


def test_the_ends_of_a_dump() -> None:
    one = relay()
    assert payloads(one.end()) == [b"\xfe\0\0\2\0"]
    assert payloads(one.error(WireError(1236, "text", "HY000")), 2) == [b"\xff\xd4\x04#HY000text"]


# -- damage ---------------------------------------------------------------------------------------------------


def test_a_range_that_is_damaged_raises() -> None:
    data, _ = transaction(1, [b"x" * 30])
    short, unknown = bytearray(data), bytearray(data)
    short[9:13] = (18).to_bytes(4, "little")  # the size of the record
    unknown[21] = 1  # its version
    for damaged in (short, unknown, data[:100], data[:-1]):
        with pytest.raises(BinlogError):
            sent(relay(), [MAGIC, format_description(), bytes(damaged)])


def test_no_bytes_raise_anything_else() -> None:
    rng = random.Random(7)
    data = b"".join(of(written(count=6), "a", "b").parts())
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        resume = rng.choice((None, AfterGtids(GtidSet()), AfterPlace(FIRST_FILE, 300)))
        with contextlib.suppress(BinlogError):
            sent(relay(resume), [bytes(damaged)])


def test_the_kernels_that_are_loaded_in_advance_are_all() -> None:
    load_dump_kernels()
    first, _ = transaction(1, [b"x" * 200_000, b"y" * 30])

    def use() -> None:
        one = relay(AfterGtids(GtidSet()))
        sent(one, [MAGIC, format_description(), first])
        list(one.fill(GtidSet({str(SERVER): [(1, 5)], f"{SERVER}:t": [(1, 3)]}), FILE, 5000))

    assert load_kept_kernels(use)
