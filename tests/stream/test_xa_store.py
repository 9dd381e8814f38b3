"""The store of prepared transactions: which commit or rollback belongs to which transaction, limits, and what is saved
to the state store."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.event.transaction_payload import Compression, Payload
from dispatcher.model.errors import ErrorKind
from dispatcher.model.position import LogPosition
from dispatcher.stream.xa_store import (
    ENTRY_BYTES,
    LogPoint,
    XaChanges,
    XaEntry,
    XaFault,
    XaStore,
)


def spot(n: int, *, file: int = 1, gno: int = 0, server: str = "s1", created: int = 1) -> LogPoint:
    return LogPoint(
        LogPosition(f"binlog.{file:06}", n, created), "uuid" if gno else "", gno, server
    )


def rows(size: int = 100) -> Payload:
    return Payload(Compression.NONE, size, bytes(size))


def kept(prepared: XaStore) -> list[tuple[str, int, int | None]]:
    return [(e.xid, e.at.mark.offset, e.end.mark.offset if e.end else None) for e in prepared]


def test_an_end_belongs_to_the_last_prepare_before_it() -> None:
    prepared = XaStore()
    for at in (10, 30, 50):
        prepared.keep("x", spot(at), rows(), ())
    prepared.keep("y", spot(12), rows(), ())
    found = {end: prepared.find("x", spot(end)) for end in (5, 20, 40, 60)}
    assert {end: e and e.at.mark.offset for end, e in found.items()} == {5: None, 20: 10, 40: 30, 60: 50}  # fmt: skip
    assert prepared.find("z", spot(20)) is None
    # A prepared transaction whose commit or rollback was not read ends where its xid is prepared again.
    assert kept(prepared) == [("x", 10, 30), ("x", 30, 50), ("x", 50, None), ("y", 12, None)]
    ten = found[20]
    assert ten is not None
    prepared.ended(ten, spot(20))
    assert ten.end == spot(20)
    assert prepared.find("x", spot(25)) is None, "that one is over"
    assert prepared.find("x", spot(20)) is ten, "read again"


def test_a_prepare_that_is_read_again_adds_nothing() -> None:
    prepared = XaStore()
    for _ in range(2):
        prepared.keep("x", spot(10), rows(), ())
    (entry,) = prepared
    prepared.ended(entry, spot(20))
    prepared.keep("x", spot(10), rows(), ())
    assert kept(prepared) == [("x", 10, 20)]
    assert prepared.bytes == ENTRY_BYTES + 100


def test_another_server_is_told_by_gtids() -> None:
    prepared = XaStore()
    prepared.keep("x", spot(500, file=9, gno=5), rows(), ())
    (entry,) = prepared
    # The commit of this transaction in the log of a replica, whose files have other numbers.
    end = spot(40, gno=9, server="s2")
    assert prepared.find("x", end) is entry
    assert prepared.find("x", spot(40, gno=4, server="s2")) is None, "it was before"
    prepared.ended(entry, end)
    assert prepared.find("x", spot(70, file=9, gno=9)) is entry, "the same one, elsewhere"
    prepared.ended(entry, spot(70, file=9, gno=9))
    assert entry.end == end
    assert prepared.find("x", spot(90, gno=12, server="s3")) is None
    prepared.keep("x", spot(30, gno=5, server="s2"), rows(), ())
    assert len(prepared) == 1


def test_a_file_of_the_same_name_is_another_history() -> None:
    prepared = XaStore()
    prepared.keep("x", spot(10, created=1), rows(), ())
    assert prepared.find("x", spot(20, created=2)) is None
    prepared.keep("x", spot(10, created=2), rows(7), ())
    assert [e.at.mark.created for e in prepared] == [2]
    prepared.keep("y", spot(15, created=2), rows(7), ())
    newest = prepared.newest
    prepared.keep("z", spot(11, created=2), rows(7), ())
    prepared.retain(lambda at: at.mark.offset > 12, newest)
    assert kept(prepared) == [("y", 15, None), ("z", 11, None)]


def test_what_has_ended_goes_first_where_room_is_short() -> None:
    one = ENTRY_BYTES + 100
    prepared = XaStore(3 * one)
    for n in range(3):
        prepared.keep(f"x{n}", spot(n), rows(), ())
    assert not prepared.has_room(1)
    first, second, _ = prepared
    prepared.ended(second, spot(10))
    prepared.ended(first, spot(11))
    assert prepared.has_room(one)
    assert [e.xid for e in prepared] == ["x0", "x2"]
    assert prepared.has_room(one + 1)
    assert [e.xid for e in prepared] == ["x2"]
    assert not prepared.has_room(3 * one)
    assert prepared.bytes == one


def test_what_did_not_fit_is_kept_when_it_is_read_with_room() -> None:
    prepared = XaStore()
    flaw = XaFault(ErrorKind.PREPARED, "too much", None, ())
    prepared.keep("x", spot(10), None, (flaw,))
    (entry,) = prepared
    prepared.ended(entry, spot(20))
    prepared.keep("x", spot(10), rows(), ())
    (entry,) = prepared
    assert (entry.rows, entry.faults, entry.end) == (rows(), (), spot(20))


class Disk:
    """Fake of the state store: the saved transactions."""

    def __init__(self) -> None:
        self.entries: dict[int, XaEntry] = {}

    def write(self, changes: XaChanges) -> None:
        self.entries |= {entry.number: entry for entry in changes.put}
        for number, end in changes.ended:
            self.entries[number].end = end
        for number in changes.gone:
            self.entries.pop(number, None)


def use(prepared: XaStore, n: int, rng: random.Random) -> None:
    what, xid = rng.random(), rng.choice("abc")
    if what < 0.5:
        prepared.keep(xid, spot(n), rows(rng.randrange(1000)), ())
    elif what < 0.7:
        entry = prepared.find(xid, spot(n))
        if entry:
            prepared.ended(entry, spot(n))
    elif what < 0.85:
        limit = rng.randrange(60)
        prepared.forget(lambda end: end.mark.offset < limit)
    else:
        prepared.has_room(rng.randrange(5000))


@given(st.integers(0, 2**32 - 1))
def test_the_store_follows(seed: int) -> None:
    """Saves fail, overlap, and are late. In the end, the state store has the same transactions as the memory."""
    rng = random.Random(seed)
    prepared, disk = XaStore(20 * ENTRY_BYTES), Disk()
    flying: list[XaChanges] = []
    for n in range(60):
        use(prepared, n, rng)
        if rng.random() < 0.3 and (changes := prepared.changes()):
            flying.append(changes)
        while flying and rng.random() < 0.5:
            changes = flying.pop(0)
            if rng.random() < 0.8:  # otherwise the disk is full
                disk.write(changes)
                prepared.stored(changes)
    if changes := prepared.changes():
        disk.write(changes)
        prepared.stored(changes)
    assert prepared.changes() is None
    stored = sorted(disk.entries.values(), key=lambda entry: entry.number)
    assert [(e.number, e.xid, e.end) for e in stored] == [
        (e.number, e.xid, e.end) for e in prepared
    ]
    again = XaStore(stored=stored)
    assert kept(again) == kept(prepared)
    assert again.bytes == prepared.bytes
    again.keep("new", spot(99), rows(), ())
    assert [e.number for e in again][-1] not in disk.entries
