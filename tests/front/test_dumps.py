"""What a replication client gets through the front."""

from __future__ import annotations

from dispatcher.binlog.event.header import HEADER_SIZE, EventHeader
from dispatcher.binlog.event.types import EventType
from dispatcher.model.gtid import GtidSet
from tests.front.dump.raw_dump import CRC32, by_file, by_gtids, events, payloads, raw_dump
from tests.front.fronted import Fronted


def test_mysqlbinlog_reads_the_consumer_s_events(fronted: Fronted) -> None:
    fronted.insert("shop", 1, 3)
    fronted.insert("other", 1, 3)
    fronted.insert("shop", 4, 3)
    first = fronted.server.execute("SHOW BINARY LOGS")[0][0]
    text = fronted.mysqlbinlog("-vv", first)
    print(text)
    assert text.count("### INSERT INTO `shop`.`t`") == 6
    assert "`other`" not in text


def test_a_client_that_is_killed_after_any_event_misses_no_row(fronted: Fronted) -> None:
    """The client stores the position of each event that has one. The front sends events in place of the payload of a
    compressed transaction and of XA COMMIT."""
    file, begin = fronted.server.binlog_position()
    fronted.server.execute(
        "USE shop",
        "SET binlog_transaction_compression = ON",
        "BEGIN", *(f"INSERT INTO t VALUES ({n}, 'compressed')" for n in range(4)), "COMMIT",
        "SET binlog_transaction_compression = OFF",
        "XA START 'x'", *(f"INSERT INTO t VALUES ({n}, 'XA')" for n in range(4, 8)), "XA END 'x'",
        "XA PREPARE 'x'", "XA COMMIT 'x'",
        "BEGIN", *(f"INSERT INTO t VALUES ({n}, 'plain')" for n in range(8, 10)), "COMMIT",
    )  # fmt: skip

    def read(offset: int, events_max: int | None = None) -> list[bytes]:
        return events(raw_dump(fronted, by_file(file, offset), CRC32, events_max=events_max))

    def rows(found: list[bytes]) -> set[bytes]:
        return {e[HEADER_SIZE:-4] for e in found if e[4] == EventType.WRITE_ROWS}

    whole = read(begin)
    assert len(rows(whole)) == 10
    for count in range(1, len(whole) + 1):
        got = read(begin, count)
        assert got == whole[:count]
        stored = [EventHeader.read(e).log_pos for e in got]
        place = max([begin, *stored])
        assert rows(got) | rows(read(place)) == rows(whole), f"after event {count}, at {place}"


def test_a_client_that_is_ahead_of_its_source_is_refused(fronted: Fronted) -> None:
    """A source that was restored gives the numbers of GTIDs to other transactions."""
    fronted.insert("shop", 1)
    (uuid,) = fronted.server.execute("SELECT @@server_uuid")[0]
    ahead = raw_dump(fronted, by_gtids(GtidSet.parse(f"{uuid}:1-1000")), CRC32)
    assert b"has more GTIDs than the source has" in payloads(ahead)[-1]
    refused = raw_dump(fronted.server, by_gtids(GtidSet.parse(f"{uuid}:1-1000")), CRC32)
    assert b"has more GTIDs than the source has" in payloads(refused)[-1]
    other = GtidSet.parse("4e11fa47-71ca-11e1-9e33-c80aa9429562:1-1000")
    found = events(raw_dump(fronted, by_gtids(other), CRC32))
    assert [e[4] for e in found].count(EventType.WRITE_ROWS) == 1
