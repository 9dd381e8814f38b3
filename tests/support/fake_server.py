"""A simulated server. Its whole log is written in advance, and the server sends dumps of the part that exists at
present.

The log of a `LogWriter` is everything that the server will ever write. A stop is a point after a complete transaction
at which the log may end for some time. A `Server` is at one of its stops, and a test moves it to the next stop. A
server without stops always has its whole log, even after a test appends to the log. Several servers may have the same
transactions in different files, like replicas.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dispatcher.binlog.event.types import EventType
from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    Mode,
    dump_offset,
    executed_set,
    make_executed,
    parse_set,
)
from dispatcher.dispatch.values.server_view import Boundary, ServerView
from dispatcher.dispatch.values.specs import AtFile, AtGtid, AtTime, Start
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import DomainGtids, ExecutedSet, GtidSet
from dispatcher.model.position import Position, file_number
from tests.support.event_encoder import (
    ARTIFICIAL,
    File,
    LogWriter,
    Transaction,
    event,
    event_packet,
    rotate_body,
)
from tests.support.random_log import Wanted, delivered

SERVER_NAME = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_HEADERS = (EventType.FORMAT_DESCRIPTION, EventType.ROTATE)


def gtid_set(transactions: Iterable[Transaction]) -> GtidSet:
    out = executed_by(Mode.GTID, transactions)
    assert isinstance(out, GtidSet)
    return out


def executed_by(mode: Mode, transactions: Iterable[Transaction]) -> ExecutedSet:
    """Returns the transactions as a set."""
    out = parse_set(mode, "")
    for transaction in transactions:
        out = out.add(transaction.source, transaction.gno)
    return out


@dataclass(frozen=True, slots=True)
class Stop:
    """How much of a log exists: the number of files, the events and bytes in the last file, the number of transactions,
    and the executed set."""

    files: int
    events: int
    offset: int
    transactions: int
    executed: str


def stops_of(log: LogWriter, mode: Mode) -> list[Stop]:
    """Returns the stops of a log. The first stop is before the first transaction."""
    out: list[Stop] = []
    gtids, done = parse_set(mode, ""), 0
    for n, file in enumerate(log.files, start=1):
        at = 4
        for i, (raw, transaction) in enumerate(file.events):
            at += file.jumps.get(i, 0) + len(raw)
            following = file.events[i + 1] if i + 1 < len(file.events) else None
            if transaction is not None:
                if transaction.aborted or (following and following[1] is transaction):
                    continue
                gtids, done = gtids.add(transaction.source, transaction.gno), done + 1
            elif raw[4] in _HEADERS and following is not None:
                continue  # a server writes all header events of a file together
            elif raw[4] == EventType.ROTATE:
                continue
            last = log.transactions[done - 1] if done else None
            executed = str(gtids) if mode.by_gtid else ""
            if mode is Mode.MARIADB and last:
                executed = f"0-1-{last.gno}"
            out.append(Stop(n, i + 1, at, done, executed))
    return out


class Server:
    """Returns the answers and the dumps of a server with this log."""

    def __init__(
        self,
        log: LogWriter,
        mode: Mode,
        name: str = SERVER_NAME,
        stops: Sequence[Stop] | None = None,
    ) -> None:
        self.log = log
        self.mode = mode
        self.name = name
        self.purged = ""
        self.oldest = 0  # index of the oldest file that is not purged
        self.stops = stops
        self.at = 0  # index of the present stop
        self.successor: Server | None = None  # the server after a RESET, with the same name
        # For each of the next views: how many of the newest transactions the server has sent but not yet executed.
        self.late_commits: Iterator[int] = itertools.repeat(0)

    @property
    def stop(self) -> Stop:
        if self.stops is not None:
            return self.stops[self.at]
        log = self.log
        done = log.transactions
        executed = str(executed_by(self.mode, done)) if self.mode.by_gtid else ""
        if self.mode is Mode.MARIADB and done:
            executed = f"0-1-{done[-1].gno}"
        return Stop(len(log.files), len(log.file.events), log.file.size, len(done), executed)

    @property
    def extent(self) -> tuple[int, int]:
        """Returns the number of files, and the number of events in the last file."""
        if self.stops is not None:
            stop = self.stops[self.at]
            return stop.files, stop.events
        return len(self.log.files), len(self.log.file.events)

    @property
    def files(self) -> list[tuple[str, int]]:
        """Returns names and present sizes of the files that are not purged."""
        stop = self.stop
        there = self.log.files[self.oldest : stop.files]
        return [*((file.name, file.size) for file in there[:-1]), (there[-1].name, stop.offset)]

    def index_of(self, name: str) -> int:
        """Returns the index of a file. Raises BinlogError if there is no file of this name."""
        for index, file in enumerate(self.log.files[: self.extent[0]]):
            if file.name == name and index >= self.oldest:
                return index
        raise BinlogError(ErrorKind.POSITION_PURGED, "could not find next log")

    def grow(self, transactions: int) -> None:
        assert self.stops is not None
        self.at = min(self.at + transactions, len(self.stops) - 1)

    def purge(self, before: int) -> None:
        """Execute PURGE BINARY LOGS TO the file of this index, or to the newest file if the index is too large."""
        before = min(before, self.stop.files - 1)
        if before > self.oldest:
            self.oldest = before
            names = {file.name for file in self.log.files[:before]}
            if self.mode.by_gtid:
                purged = (t for t in self.log.transactions if t.file in names and not t.aborted)
                self.purged = str(executed_by(self.mode, purged))

    def view(
        self,
        probe: Iterable[str] | None = None,
        starts: Iterable[Start] = (),
        places: Iterable[tuple[str, int]] = (),
    ) -> ServerView:
        """Returns the server's answers. `probe`: the files whose creation time the caller needs, None for all;
        `starts`: the starts to search for; `places`: the files and offsets whose event the caller needs."""
        stop, files = self.stop, self.files
        sizes = dict(files)
        newest = self.log.files[stop.files - 1]
        found: dict[Start, ExecutedPosition | BinlogError] = {
            start: self._find(start)
            for start in starts
            if not isinstance(start, AtGtid)
            or (self.mode is Mode.DOMAINS and start.read_from != self.name)
        }
        wanted = {name for name, _ in files} if probe is None else {*probe, newest.name}
        wanted |= {place.file for place in found.values() if isinstance(place, ExecutedPosition)}
        created = {
            file.name: file.created
            for file in self.log.files[self.oldest : stop.files]
            if file.name in wanted
        }
        executed, owned = self._executed(next(self.late_commits))
        return ServerView(
            server=self.name,
            mode=self.mode,
            executed=executed,
            owned=owned,
            purged=self.purged,
            files=tuple(files),
            file=newest.name,
            offset=stop.offset,
            created=created,
            starts=found,
            lower_case_table_names=self.log.lower_case,
            boundaries={
                (name, offset): self._boundary(name, offset, sizes[name])
                for name, offset in places
                if 4 < offset <= sizes.get(name, 0)
            },
        )

    def _executed(self, late: int) -> tuple[str, str]:
        """Returns the executed GTIDs, and the GTIDs of the newest `late` transactions, which are being committed."""
        stop, newest = self.stop, self.files[-1][0]
        if self.mode is not Mode.GTID or not late:
            return stop.executed, ""
        done = self.log.transactions[: stop.transactions]
        committing = gtid_set(t for t in done[-late:] if t.file == newest)
        return str(GtidSet.parse(stop.executed).subtract(committing)), str(committing)

    def _boundary(self, name: str, offset: int, size: int) -> Boundary:
        if offset == size:
            return Boundary(whole=True)
        file = next(file for file in self.log.files if file.name == name)
        events = _events_at(file)
        if offset not in events:
            return Boundary(whole=False)
        begun = events[offset]
        named = begun is not None and begun.start == offset and self.mode is Mode.GTID
        return Boundary(whole=True, gtid=(begun.source, begun.gno) if named and begun else None)

    def _find(self, start: Start) -> ExecutedPosition | BinlogError:
        match start:
            case AtFile(file, offset):
                return self._at_offset(file, offset)
            case AtTime(commit_us):
                return self._at_moment(commit_us)
            case AtGtid(gtids):
                return self._after_gtids(gtids)
        raise AssertionError(f"no search for {start}")

    def _after_gtids(self, text: str) -> ExecutedPosition | BinlogError:
        """Returns the position after MariaDB's GTIDs. Each GTID must be in the log, or be the last purged GTID of its
        domain."""
        gtids, purged = DomainGtids.parse(text), DomainGtids.parse(self.purged)
        if missing := purged.subtract(gtids):
            return BinlogError(ErrorKind.POSITION_PURGED, f"the server has purged {missing}")
        there = self.log.transactions[: self.stop.transactions]
        names = {f"{t.source}-{t.gno}" for t in there if not t.aborted}
        absent = [name for name in text.split(",") if name and name not in names]
        if absent:
            return BinlogError(ErrorKind.HISTORY_DIFFERS, f"the log does not have {absent}")
        return make_executed(self.mode, text, "", 0)

    def _at_moment(self, moment: int) -> ExecutedPosition | BinlogError:
        """Returns the position before the first transaction committed at or after a time, or the end of the log."""
        there = self.log.transactions[: self.stop.transactions]
        for i, transaction in enumerate(there):
            if transaction.commit_us >= moment:
                return self._before(i)
        stop, newest = self.stop, self.log.files[self.extent[0] - 1]
        return make_executed(self.mode, stop.executed, newest.name, stop.offset)

    def _at_offset(self, file: str, offset: int) -> ExecutedPosition | BinlogError:
        """Returns the position at a file and offset, which must be between two transactions that the server has."""
        size = dict(self.files).get(file)
        if size is None or offset > size:
            return BinlogError(ErrorKind.POSITION_PURGED, f"there is no {file}:{offset}")
        index = next(i for i, each in enumerate(self.log.files) if each.name == file)
        if offset != size and offset not in between_transactions(self.log.files[index]):
            return BinlogError(ErrorKind.SETTINGS, f"no transaction begins at {file}:{offset}")
        number, done = file_number(file), self.log.transactions[: self.stop.transactions]
        before = [t for t in done if (file_number(t.file), t.end) <= (number, offset)]
        return self._place_after(before, file, offset)

    def _before(self, index: int) -> ExecutedPosition | BinlogError:
        transaction = self.log.transactions[index]
        if transaction.file not in dict(self.files):
            return BinlogError(ErrorKind.POSITION_PURGED, f"{transaction.file} was purged")
        return self._place_after(self.log.transactions[:index], transaction.file, transaction.start)

    def _place_after(self, done: Sequence[Transaction], file: str, offset: int) -> ExecutedPosition:
        gtids = str(executed_by(self.mode, done)) if self.mode.by_gtid else ""
        if self.mode is Mode.MARIADB and done:
            gtids = f"0-1-{done[-1].gno}"
        return make_executed(self.mode, gtids, file, offset)

    # -- what a consumer should get ---------------------------------------------------------------------------

    def between(self, start: Position, end: Position) -> list[Transaction]:
        """Returns the transactions of the log in (start, end], in the log's order."""
        if self.mode.by_gtid:
            a, b = parse_set(self.mode, start.gtid), parse_set(self.mode, end.gtid)
            return [
                t
                for t in self.log.transactions
                if b.has(t.source, t.gno) and not a.has(t.source, t.gno)
            ]
        lo, hi = ((file_number(p.file), p.offset) for p in (start, end))
        return [t for t in self.log.transactions if lo < (file_number(t.file), t.end) <= hi]

    def expected(self, wanted: Wanted, start: Position, end: Position) -> bytes:
        out = b""
        held = parse_set(self.mode, start.gtid) if self.mode.by_gtid else GtidSet()
        for transaction in self.between(start, end):
            if self.mode.by_gtid:
                held = held.add(transaction.source, transaction.gno)
                seq = len(held)
            else:
                seq = file_number(transaction.file) << 40 | transaction.end
            out += delivered(transaction, wanted, epoch=start.epoch, seq=seq)
        return out


class Feed:
    """The packets of one dump, up to the end of the server's log. The dump continues when the log grows.

    Raises BinlogError if a real server would refuse the dump. Without GTIDs, a real server does not detect that a dump
    begins inside a transaction; this class then raises AssertionError.
    """

    def __init__(self, server: Server, place: ExecutedPosition) -> None:
        self.server = server
        self._held: ExecutedSet | None = None
        self._offset = 4
        if server.mode.by_gtid:
            self._held = executed_set(place.gtids)
            self.file = self._first_file(self._held)
        else:
            self._offset = dump_offset(place)
            self.file = self._file_of(place)
        self.checksum = server.log.files[self.file].checksum
        self._events = self._from(self.file)
        self._data = bytearray()
        self.spoil_at: float | None = None  # where to damage the body of the next event (0..1)

    def take(self, size: int) -> bytes:
        """Returns at most this many bytes; no bytes if nothing has arrived."""
        data = self._data
        while len(data) < size:
            raw = next(self._events)
            if raw is None:
                break
            data += _packet(raw if self.spoil_at is None else self._spoilt(raw))
        out = bytes(data[:size])
        del data[:size]
        return out

    def _spoilt(self, raw: bytes) -> bytes:
        if raw[4] in _HEADERS or len(raw) < 24:
            return raw
        assert self.spoil_at is not None
        at = 19 + int(self.spoil_at * (len(raw) - 19))
        self.spoil_at = None
        return raw[:at] + bytes((raw[at] ^ 0x10,)) + raw[at + 1 :]

    def _first_file(self, held: ExecutedSet) -> int:
        server = self.server
        if missing := parse_set(server.mode, server.purged).subtract(held):
            raise BinlogError(ErrorKind.POSITION_PURGED, f"the server has purged {missing}")
        names = [file.name for file in server.log.files]
        for transaction in server.log.transactions[: server.stop.transactions]:
            if not held.has(transaction.source, transaction.gno):
                return names.index(transaction.file)
        return server.extent[0] - 1

    def _file_of(self, place: ExecutedPosition) -> int:
        server, log = self.server, self.server.log
        index = next((i for i, f in enumerate(log.files) if f.name == place.file), -1)
        if not server.oldest <= index < server.stop.files:
            raise BinlogError(ErrorKind.POSITION_PURGED, f"could not find {place.file}")
        size = dict(server.files)[place.file]
        if self._offset > size:
            raise BinlogError(ErrorKind.HISTORY_DIFFERS, f"{place.file} has {size} bytes")
        assert self._offset in between_transactions(log.files[index]), (
            f"a dump from the middle: {place}"
        )
        return index

    def _from(self, first: int) -> Iterator[bytes | None]:
        """Yields the events of a dump, and None each time that no event follows yet. A dump continues after a RESET: it
        sends the rest of the open file, and then the new log, beginning with the file whose name follows the open
        file's name."""
        server, log, held = self.server, self.server.log, self._held
        checksum = log.files[first].checksum
        n = first
        while True:
            file = log.files[n]
            start = self._offset if n == first else 4
            # This event precedes the file's FORMAT_DESCRIPTION, so it has the format of the previous file.
            yield event(EventType.ROTATE, rotate_body(file.name, start), checksum=checksum, timestamp=0,
                        flags=ARTIFICIAL)  # fmt: skip
            checksum = file.checksum
            at, i = 4, 0
            while True:
                files, events = server.extent
                if i == (events if files == n + 1 else len(file.events)):
                    if server.successor is not None:
                        at_new = server.successor.index_of(file.name)
                        if server.successor.extent[0] > at_new + 1:
                            server, n = server.successor, at_new
                            log = server.log
                            break
                    elif files > n + 1:
                        break
                    yield None
                    continue
                raw, transaction = file.events[i]
                at += file.jumps.get(i, 0)
                i += 1
                if raw[4] == EventType.FORMAT_DESCRIPTION:
                    # A dump from the middle of a file repeats this event, without a position.
                    yield event(15, raw[19:-4], timestamp=file.created) if start > 4 else raw
                elif at >= start and not (
                    held is not None
                    and transaction is not None
                    and held.has(transaction.source, transaction.gno)
                ):
                    yield raw
                at += len(raw)
            n += 1
            self.file = n


@lru_cache(maxsize=1 << 14)
def _packet(raw: bytes) -> bytes:
    """Returns an event as a packet. Cached, because every dump sends the same packets."""
    return event_packet(raw)


def _events_at(file: File) -> dict[int, Transaction | None]:
    """Returns the transaction of each event, by the event's offset. The result is cached until the file grows."""
    count, events = file.events_at
    if count != len(file.events):
        events, at = {}, 4
        for i, (raw, transaction) in enumerate(file.events):
            at += file.jumps.get(i, 0)
            events.setdefault(at, transaction)
            at += len(raw)
        file.events_at = len(file.events), events
    return events


def between_transactions(file: File) -> set[int]:
    """Returns the offsets at which no transaction is open."""
    out, at = {4, file.size}, 4
    for i, (raw, transaction) in enumerate(file.events):
        at += file.jumps.get(i, 0)
        before = file.events[i - 1][1] if i else None
        if transaction is None or transaction is not before:
            out.add(at)
        at += len(raw)
    return out
