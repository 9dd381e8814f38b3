"""Empty transactions: which are made, and their bytes."""

from __future__ import annotations

import random
import zlib
from itertools import pairwise

import numpy as np
import pytest

from dispatcher.binlog.event.gtid import Gtid, parse_gtid_event, parse_mariadb_gtid
from dispatcher.binlog.event.header import EventHeader
from dispatcher.binlog.event.query import parse_query
from dispatcher.binlog.event.types import EventType
from dispatcher.front.dump.fill import CHUNK_BYTES, empty_transactions
from dispatcher.front.dump.made_events import MadeTransaction
from dispatcher.front.dump.sent_gtids import Missing
from dispatcher.model.gtid import GtidSet
from tests.front.dump.raw_dump import events

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TIME = 1_700_000_000


def missing(source: str, *intervals: tuple[int, int]) -> Missing:
    starts, ends = np.array(intervals, dtype=np.int64).T
    return Missing(source, starts.copy(), ends.copy())


def made(
    lacking: list[Missing], version: str = "9.7.4", *, checksum: bool = True, prefix: bytes = b"\0", sequence: int = 250
) -> list[bytes]:  # fmt: skip
    """The events of empty transactions."""
    out, number = [], sequence
    for chunk, after in empty_transactions(
        lacking, MadeTransaction(version, 17, TIME, (1 << 32) + 500, checksum), prefix, sequence
    ):
        assert len(chunk) <= CHUNK_BYTES
        out.append(chunk)
        number = after
    found = events(b"".join(out), sequence, prefix)
    assert number == sequence + len(found)
    for event in found:
        header = EventHeader.read(event)
        assert header.size == len(event) and header.timestamp == TIME and header.log_pos == 500
        assert not checksum or zlib.crc32(event[:-4]) == int.from_bytes(event[-4:], "little")
    return found if not checksum else [event[:-4] for event in found]


def gtids(found: list[bytes]) -> list[Gtid]:
    """The GTIDs of transactions of MySQL, which must be GTID, BEGIN, COMMIT."""
    for begin, commit in zip(found[1::3], found[2::3], strict=True):
        assert begin[4] == commit[4] == EventType.QUERY
        assert (parse_query(begin[19:]).raw, parse_query(commit[19:]).raw) == (b"BEGIN", b"COMMIT")
    return [parse_gtid_event(event[4], event[19:]) for event in found[::3]]


@pytest.mark.parametrize("checksum", [True, False])
def test_the_newest_form_says_the_length_of_the_transaction(checksum: bool) -> None:
    for source in (UUID, f"{UUID}:tag_1"):
        found = made([missing(source, (3, 4), (7, 9), (10**15, 10**15 + 2))], checksum=checksum)
        for n, gtid in enumerate(gtids(found)):
            size = sum(map(len, found[3 * n : 3 * n + 3])) + 3 * 4 * checksum
            assert gtid.transaction_length == size
            assert (gtid.name, gtid.immediate_commit_us) == (source, TIME * 1_000_000)
            assert gtid.immediate_version == gtid.original_version == 90704
            assert (gtid.last_committed, gtid.sequence_number) == (0, 0)
        assert [gtid.gno for gtid in gtids(found)] == [3, 7, 8, 10**15, 10**15 + 1]


@pytest.mark.parametrize(("version", "size"), [("5.6.24-log", 25), ("5.7.44", 42), ("8.0.36", 54)])
def test_older_forms_are_those_of_the_servers_version(version: str, size: int) -> None:
    found = made([missing(UUID, (1, 3))], version)
    assert [len(event) - 19 for event in found[::3]] == [size, size]
    assert [gtid.gno for gtid in gtids(found)] == [1, 2]


def test_numbers_with_a_tag_of_every_size() -> None:
    limits = [1, *(1 << 7 * size - 1 for size in range(1, 9)), (1 << 63) - 1]
    intervals = [(max(n - 2, 1), n + 2) for n in limits[1:-1]] + [((1 << 63) - 4, (1 << 63) - 1)]
    found = gtids(made([missing(f"{UUID}:a", *intervals)]))
    assert [gtid.gno for gtid in found] == [n for low, high in intervals for n in range(low, high)]
    assert all(low < high for low, high in pairwise(limits))


def test_many_transactions_come_in_chunks() -> None:
    rng = random.Random(5)
    edges = sorted(rng.sample(range(1, 9000), 300))
    intervals = list(zip(edges[::2], edges[1::2], strict=True))
    found = gtids(
        made([missing(UUID, *intervals), missing(f"{UUID}:b", (60, 70))], prefix=b"\0\xef\0")
    )
    whole = GtidSet({UUID: intervals, f"{UUID}:b": [(60, 70)]})
    assert len(found) == len(whole)
    assert all(whole.has(gtid.name, gtid.gno) for gtid in found)


def test_mariadb_has_the_server_of_the_gtid() -> None:
    gtid, commit = made([missing("7-99", (12, 13))], "11.8.6-MariaDB")
    header = EventHeader.read(gtid)
    found = parse_mariadb_gtid(gtid[19:], header.server_id)
    assert str(found) == "7-99-12" and EventHeader.read(commit).server_id == 99
    assert parse_query(commit[19:]).raw == b"COMMIT"
