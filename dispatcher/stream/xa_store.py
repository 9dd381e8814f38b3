"""Prepared XA transactions: their rows are kept until XA COMMIT, because consumers get the rows at that event.

A server writes a transaction's rows into the log at XA PREPARE. XA COMMIT or XA ROLLBACK comes later in the log, under
another GTID: it may come in a much later file, from another session, and after a restart of the server or of the
daemon. An `XaStore` keeps the prepared transactions of one connection key. The splitters of all dispatchers of the key
share the store, though they read different parts of the log.

* An xid may be used again. So a transaction is identified by its xid and its *mark*: the file and the offset after the
  GTID event of its prepare. If a dispatcher reads a part of the log again, the store adds no second entry for a
  transaction, and an entry that has ended stays ended.
* An XA COMMIT or XA ROLLBACK ends the last prepare that has the same xid and lies before this event in the log. So a
  dispatcher that reads an old part of a log finds the prepares of that part, not later ones. After a failover to
  another server, marks cannot be compared, so the store compares GTIDs.
* The store is bounded in bytes; the recording of an open XA transaction may use the remaining bytes. The store keeps an
  ended transaction for consumers that have not passed its end. If room is short, the store drops ended transactions
  first. A transaction that does not fit is kept without rows, but with a fault for the consumers of the tables that it
  changed.
* A restart must lose nothing. So the caller must store what `changes` returns in the same write as the consumers'
  progress, never later.

This module does no I/O. `state.store` makes the entries durable; the caller passes the progress of all consumers to
`forget`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dispatcher.binlog.event.transaction_payload import Payload
from dispatcher.model.errors import ErrorKind
from dispatcher.model.position import LogPosition
from dispatcher.stream.routes import Target

BYTES_MAX = 256 << 20
ENTRY_BYTES = 512  # about the size of an entry without its rows


@dataclass(frozen=True, slots=True)
class XaFault:
    """The reason why the consumers of `targets` (None = all consumers) must stop at the commit of the transaction."""

    kind: ErrorKind
    what: str
    remedy: str | None
    targets: tuple[Target, ...] | None


@dataclass(frozen=True, slots=True)
class LogPoint:
    """The place of a prepare or of its end: the offset after the GTID event, the GTID ("" and 0 = none), the server's
    uuid."""

    mark: LogPosition
    source: str = ""
    gno: int = 0
    server: str = ""

    @property
    def gtid(self) -> tuple[str, int] | None:
        return (self.source, self.gno) if self.source else None


@dataclass(slots=True, eq=False)
class XaEntry:
    """One prepared transaction. `rows`: its events without checksums, with BEGIN if the server writes one; None if the
    events were not kept, for the reasons in `faults`. `end`: the place of its XA COMMIT or XA ROLLBACK, None if that
    was not read yet."""

    number: int  # grows with each entry that the store keeps
    xid: str
    at: LogPoint
    rows: Payload | None
    faults: tuple[XaFault, ...] = ()
    end: LogPoint | None = None

    @property
    def bytes(self) -> int:
        return ENTRY_BYTES + (len(self.rows.data) if self.rows else 0)


@dataclass(frozen=True, slots=True)
class XaChanges:
    """What has changed since the entries were last written to the state store: new entries, entries that ended, and the
    numbers of removed entries."""

    put: tuple[XaEntry, ...]
    ended: tuple[tuple[int, LogPoint], ...]
    gone: tuple[int, ...]


class XaStore:
    """The prepared transactions of one connection key. `stored`: the entries that the state store holds, in order of
    their numbers.

    `server`: the uuid of the server that is read; set at login, before any event is read.
    """

    def __init__(self, bytes_max: int = BYTES_MAX, stored: Iterable[XaEntry] = ()) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.server = ""
        self._entries: dict[int, XaEntry] = {}
        self._by_xid: dict[str, list[XaEntry]] = {}
        self._ended: dict[int, XaEntry] = {}
        # Maps the number of each entry in the state store to the entry's stored end.
        self._stored: dict[int, LogPoint | None] = {}
        self._dirty: dict[int, None] = {}
        self._next = 1
        for entry in stored:
            self._add(entry)
            self._stored[entry.number] = entry.end
            self._dirty.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[XaEntry]:
        return iter(self._entries.values())

    # -- splitters -------------------------------------------------------------------------------------------

    def keep(
        self, xid: str, at: LogPoint, rows: Payload | None, faults: tuple[XaFault, ...]
    ) -> None:
        """Keep a transaction whose prepare was read."""
        end = None
        for known in list(self._by_xid.get(xid, ())):
            if _same(known.at, at):
                if known.rows is not None or rows is None:
                    return
                end = known.end
                self._drop(
                    known
                )  # the entry was kept without rows, and now there is room for the rows
            elif _elsewhere(known.at, at):
                self._drop(known)
            elif known.end is None and _before(known.at, at):
                self._end(known, at)  # `known` ended in a part of the log that was not read
        self._add(XaEntry(self._next, xid, at, rows, faults, end))

    def find(self, xid: str, end: LogPoint) -> XaEntry | None:
        """Returns the transaction that ends at `end`; None if its prepare was not read, or was forgotten."""
        found = None
        for entry in self._by_xid.get(xid, ()):
            if entry.end is not None and _same(entry.end, end):
                return entry
            if entry.end is not None and not (_one_log(end, entry.end) and _before(end, entry.end)):
                continue
            if _before(entry.at, end) and (found is None or _before(found.at, entry.at)):
                found = entry
        return found

    def ended(self, entry: XaEntry, end: LogPoint) -> None:
        """Record that the XA COMMIT or XA ROLLBACK of `entry` was read at `end`."""
        if entry.number in self._entries:
            self._end(entry, end)

    def has_room(self, size: int) -> bool:
        """True if `size` bytes more fit. Makes room by dropping ended transactions, the oldest first."""
        while self.bytes + size > self.bytes_max and self._ended:
            self._drop(next(iter(self._ended.values())))
        return self.bytes + size <= self.bytes_max

    def forget(self, passed: Callable[[LogPoint], bool]) -> None:
        """Drop the ended transactions that no consumer will read again. `passed`: returns True for an end that all
        consumers have durably acknowledged."""
        for entry in list(self._ended.values()):
            assert entry.end is not None
            if passed(entry.end):
                self._drop(entry)

    @property
    def newest(self) -> int:
        """Number of the entry that was kept last."""
        return self._next - 1

    def retain(self, valid: Callable[[LogPoint], bool], upto: int) -> None:
        """Drop the entries that, by `valid`, are not part of the server's history (after a reset or a restore). `upto`:
        the value of `newest` before the server was asked for its history. Newer entries may lie beyond the server's
        answer, so they stay."""
        for entry in list(self._entries.values()):
            if entry.number <= upto and not valid(entry.at):
                self._drop(entry)

    def changes(self) -> XaChanges | None:
        """Return what to store with the next progress; None if nothing has changed. Changes are returned again until
        `stored` is called."""
        put, ended, gone = [], [], []
        for number in self._dirty:
            entry = self._entries.get(number)
            if entry is None:
                if number in self._stored:
                    gone.append(number)
            elif number not in self._stored:
                put.append(entry)
            elif entry.end is not None and entry.end != self._stored[number]:
                ended.append((number, entry.end))
        if not (put or ended or gone):
            return None
        # Another thread stores these copies, while the entries themselves may change.
        fixed = tuple(XaEntry(e.number, e.xid, e.at, e.rows, e.faults, e.end) for e in put)
        return XaChanges(fixed, tuple(ended), tuple(gone))

    def stored(self, changes: XaChanges) -> None:
        """Record that `changes` are durable."""
        for entry in changes.put:
            self._stored[entry.number] = entry.end
        self._stored |= dict(changes.ended)
        for number in changes.gone:
            self._stored.pop(number, None)
        numbers = [entry.number for entry in changes.put] + [number for number, _ in changes.ended]
        for number in (*numbers, *changes.gone):
            # The entry may have been changed or dropped since `changes` returned it.
            own = self._entries.get(number)
            if (own is None) == (number not in self._stored) and (
                own is None or self._stored[number] == own.end
            ):
                self._dirty.pop(number, None)
            else:
                self._dirty[number] = None

    def _add(self, entry: XaEntry) -> None:
        self._next = max(self._next, entry.number + 1)
        self._entries[entry.number] = entry
        self._by_xid.setdefault(entry.xid, []).append(entry)
        self.bytes += entry.bytes
        self._dirty[entry.number] = None
        if entry.end is not None:
            self._ended[entry.number] = entry

    def _end(self, entry: XaEntry, end: LogPoint) -> None:
        # Keep the place that was read first: on another server, the end with the same GTID lies at another place.
        if entry.end is None or not _same(entry.end, end):
            entry.end = end
            self._ended[entry.number] = entry
            self._dirty[entry.number] = None

    def _drop(self, entry: XaEntry) -> None:
        number = entry.number
        del self._entries[number]
        self._ended.pop(number, None)
        self.bytes -= entry.bytes
        same = self._by_xid[entry.xid]
        same.remove(entry)
        if not same:
            del self._by_xid[entry.xid]
        if number in self._stored:
            self._dirty[number] = None
        else:
            self._dirty.pop(number, None)


def _one_log(one: LogPoint, two: LogPoint) -> bool:
    return one.server == two.server or not (one.server and two.server)


def _same(one: LogPoint, two: LogPoint) -> bool:
    if one.gtid is not None and two.gtid is not None and one.gtid != two.gtid:
        return False
    if not _one_log(one, two):
        return one.gtid is not None and one.gtid == two.gtid
    return one.mark.key == two.mark.key and not _elsewhere(one, two)


def _elsewhere(one: LogPoint, two: LogPoint) -> bool:
    """True if the points lie in different files of the same name: after a reset the server reuses file names."""
    a, b = one.mark, two.mark
    known = 0 not in (a.created, b.created)
    return _one_log(one, two) and a.file == b.file and known and a.created != b.created


def _before(one: LogPoint, two: LogPoint) -> bool:
    """True if `one` lies before `two`. For points on two servers, the numbers of the GTIDs decide; if the GTIDs have
    different sources, the result is True."""
    if _one_log(one, two):
        return one.mark.key < two.mark.key and not _elsewhere(one, two)
    return one.source != two.source or one.gno < two.gno
