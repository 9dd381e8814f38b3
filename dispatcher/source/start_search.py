"""Searches a log for the position that a start means: a time, a file and offset, or MariaDB's GTIDs.

**A time** has the same meaning as in Kafka. The position is before the first transaction, in the order of the log, that
was committed at or after the time. If there is no such transaction, the position is the end of the log. If the server
has purged the log of this time, the position is the beginning of the remaining log. The commit time is read from the
log. Since MySQL 8.0 it has microseconds; older logs have only the time, in whole seconds, at which the transaction's
first statement began.

A binary search finds the last file whose first transaction is older than the time. Then the module reads this file up
to the time. So a search reads a dozen file heads and one file, whatever the size of the log. Commit times may run
backwards, because a clock was set or a statement took long. In that case, older transactions that follow the position
are delivered, too. The search also misses a matching transaction in a file that precedes the file that the binary
search has found.

**A file and offset** mean the position after all transactions that end at or before the offset. The offset must be the
offset of a transaction's first event, the end of a transaction, or the beginning of a file.

**MariaDB's GTIDs**, with one host, mean the position before the first transaction, in the order of the log, whose
number is greater than the given number of its domain. If domains interleave, older transactions of other domains may
follow the position, and are delivered, too. With several hosts, the GTIDs mean all transactions except those that
follow the given GTID in its domain. The search proves that the log contains exactly these GTIDs. (MySQL's GTIDs need no
search: the server gets the set and searches itself.)

Each result holds the set of GTIDs that precede it. These GTIDs come from the file's head, from the part of the file
that was read, and from the server's purged set, which may hold GTIDs that were never in its log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.event.gtid import parse_gtid_event
from dispatcher.binlog.event.header import EventHeader, has_valid_checksum
from dispatcher.binlog.event.types import HEARTBEATS, EventType
from dispatcher.dispatch.values.executed_position import (
    BatchGtids,
    ExecutedPosition,
    Gtids,
    Mode,
    make_executed,
    parse_gtids,
)
from dispatcher.dispatch.values.specs import AtFile, AtGtid, AtTime, Start
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import DomainGtids, GtidSet, MariadbGtids
from dispatcher.model.position import file_number
from dispatcher.stream.batch import Batch

FIRST_OFFSET = 4  # the offset of a file's first event
NUMBERED = frozenset({EventType.GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID})
NOT_NUMBERED = frozenset({EventType.ANONYMOUS_GTID, EventType.QUERY, EventType.TABLE_MAP})
# Events that stand between two transactions, and events that always begin a transaction.
_BETWEEN = NUMBERED | {
    EventType.ANONYMOUS_GTID,
    EventType.FORMAT_DESCRIPTION,
    EventType.PREVIOUS_GTIDS,
    EventType.ROTATE,
    EventType.STOP,
    EventType.MARIADB_GTID_LIST,
    EventType.MARIADB_BINLOG_CHECKPOINT,
    EventType.MARIADB_START_ENCRYPTION,
}
_NAME_EXISTING = "name a position in one of the log's files (on the server: SHOW BINARY LOGS)"
# Errors that concern the source, not a single start.
_SOURCE_ERRORS = frozenset(
    {
        ErrorKind.CONNECT_FAILED,
        ErrorKind.CONNECTION_LOST,
        ErrorKind.ACCESS_DENIED,
        ErrorKind.GRANT_MISSING,
        ErrorKind.SERVER_SETTING,
        ErrorKind.DUPLICATE_SERVER_UUID,
        ErrorKind.FILES,
    }
)


class FirstTransaction(NamedTuple):
    """The first transaction in a file or in a later file: where it begins, and when it was committed (µs since
    1970)."""

    file: str
    offset: int
    commit_us: int


class SearchableLog(Protocol):
    """A log that can be read from the beginning of each of its files. Every method blocks and raises BinlogError."""

    mode: Mode
    files: Sequence[tuple[str, int]]  # names and sizes, oldest first
    end: ExecutedPosition

    @property
    def purged(self) -> str: ...

    def previous_gtids(self, name: str) -> Gtids | None:
        """Return the GTIDs of all files before the file `name`; None if this file does not hold them."""

    def first(self, name: str) -> FirstTransaction | None: ...

    def batches(self, name: str) -> Generator[Batch, None, None]:
        """Yield the log, starting at the beginning of a file. Each batch is valid until the caller asks for the
        next."""

    def type_at(self, name: str, offset: int) -> int | None:
        """Return the type of the event that begins at an offset; None if no event begins there."""


def find_starts(
    log: SearchableLog, starts: Iterable[Start]
) -> dict[Start, ExecutedPosition | BinlogError]:
    """For each start that needs a search, return the start's position or error. Raises BinlogError if the log cannot be
    read."""
    positions: dict[Start, ExecutedPosition | BinlogError] = {}
    for start in starts:
        try:
            position = _find(log, start)
        except BinlogError as error:
            if error.kind in _SOURCE_ERRORS:
                raise
            positions[start] = error
        else:
            if position is not None:
                positions[start] = position
    return positions


def _find(log: SearchableLog, start: Start) -> ExecutedPosition | None:
    """Return the position of a start; None if the start needs no search."""
    match start:
        case AtTime(commit_us):
            return at_moment(log, commit_us)
        case AtFile(file, offset, inside):
            return at_offset(log, file, offset, inside=inside)
        case AtGtid(gtids) if log.mode is Mode.MARIADB:
            return at_gtids(log, gtids)
        case AtGtid(gtids) if log.mode is Mode.DOMAINS:
            return proven(log, gtids)
    return None


def files_of(positions: Mapping[Start, ExecutedPosition | BinlogError]) -> list[str]:
    """Return the names of the files in which the positions are."""
    return [found.file for found in positions.values() if isinstance(found, ExecutedPosition)]


def at_moment(log: SearchableLog, moment_us: int) -> ExecutedPosition:
    """Return the position before the first transaction that was committed at or after a time (µs since 1970)."""
    names = [name for name, _ in log.files]

    def late(name: str) -> bool:
        try:
            first = log.first(name)
        except BinlogError as error:
            # The server wrote the file before gtid_mode=ON. This is an error only if the search ends in this file.
            if error.kind is ErrorKind.UNSUPPORTED_EVENT:
                return False
            raise
        return first is None or first.commit_us >= moment_us

    index = bisect_left(names, True, key=late)
    if not index:
        empty = not names or log.first(names[0]) is None
        return log.end if empty else _Reading(log, names[0]).position
    return _first_of(log, names[index - 1], lambda batch: batch.tx.commit_us >= moment_us)


def _first_of(
    log: SearchableLog, file: str, matches: Callable[[Batch], NDArray[np.bool_]]
) -> ExecutedPosition:
    """Read the log from the beginning of `file` up to the first transaction that matches. Return where that transaction
    begins, or the log's end if no transaction matches."""
    reading = _Reading(log, file)
    with closing(log.batches(file)) as batches:
        for batch in batches:
            matching = np.flatnonzero(matches(batch))
            reading.skip(batch, int(matching[0]) if len(matching) else len(batch.tx.end))
            if len(matching):
                return reading.position
    return log.end


def at_offset(
    log: SearchableLog, file: str, offset: int, *, inside: bool = False
) -> ExecutedPosition:
    """Return the position at a file and offset. Raises BinlogError unless the offset lies between two transactions.

    With `inside`, return the beginning of the transaction in which the offset lies. An offset at which no event begins
    is an error, as in a server's dump.
    """
    _check_exists(log, file, offset)
    reading = _Reading(log, file)
    beyond = 0
    with closing(log.batches(file)) as batches:
        for batch in batches:
            if batch.file != file:
                break
            ended = BatchGtids.of(batch).ended
            later = np.flatnonzero(ended & (batch.tx.end > offset))
            reading.skip(batch, int(later[0]) if len(later) else len(ended))
            if len(later):
                beyond = int(batch.tx.end[later[0]])
                break
    between = reading.offset
    if offset not in (FIRST_OFFSET, between) and not _is_between(log, reading, offset):
        begins = "transaction"
        if inside:
            # No dump can begin beyond 4 GiB, so `type_at` finds no event there.
            if offset >> 32 or log.type_at(file, offset) is not None:
                return reading.position
            begins = "event"
        places = f"{between} or {beyond}" if beyond else str(between)
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"no {begins} begins at {file}:{offset}",
            remedy=f"SHOW BINLOG EVENTS IN '{file}' lists the events; {places} is between two transactions",
        )
    reading.offset = offset
    return reading.position


def at_gtids(log: SearchableLog, text: str) -> ExecutedPosition:
    """Return the position before the first transaction that is beyond MariaDB's GTIDs `text`. Raises BinlogError if the
    server has not executed all of these GTIDs, or has purged transactions that follow these GTIDs."""
    gtids, executed = parse_gtids(log.mode, text), log.end.gtids
    assert isinstance(gtids, MariadbGtids) and isinstance(executed, MariadbGtids)
    if not executed.contains(gtids):
        what = f"the server has not executed {gtids}, only {str(executed) or 'nothing'}"
        raise BinlogError(ErrorKind.HISTORY_DIFFERS, what, remedy=_NAME_EXISTING)
    names = [name for name, _ in log.files]

    def beyond(name: str) -> bool:
        previous = log.previous_gtids(name)
        return isinstance(previous, MariadbGtids) and not gtids.contains(previous)

    index = bisect_left(names, True, key=beyond)
    if not index:
        oldest = log.previous_gtids(names[0])
        what = f"the oldest file begins after {gtids}: {oldest}"
        raise BinlogError(ErrorKind.POSITION_PURGED, what)

    def not_executed(batch: Batch) -> NDArray[np.bool_]:
        # The last entry is for transactions without a GTID.
        numbers = [gtids.number(int(name.partition("-")[0])) for name in batch.sources]
        last_numbers = np.array([*numbers, 0], dtype=np.int64)
        return batch.tx.gno > last_numbers[batch.tx.source]

    return _first_of(log, names[index - 1], not_executed)


def proven(log: SearchableLog, text: str) -> ExecutedPosition:
    """Return the position after MariaDB's GTIDs `text`, without a file. Raises BinlogError unless the log contains each
    of these GTIDs and everything that follows them in their domains.

    A file lists the newest GTID of each domain before it. So the search begins in the last file that lists nothing
    beyond `text`. From this file to its end, the log must contain each GTID of `text`, before any higher number of the
    same domain.
    """
    gtids, executed = DomainGtids.parse(text), log.end.gtids
    assert isinstance(executed, DomainGtids)
    if missing := gtids.subtract(executed):
        raise _not_in_log(f"{missing}, only {str(executed) or 'nothing'}")
    names = [name for name, _ in log.files]
    lists = {}

    def beyond(name: str) -> bool:
        listed = log.previous_gtids(name)
        lists[name] = DomainGtids.of(listed if isinstance(listed, MariadbGtids) else MariadbGtids())
        return not gtids.contains(lists[name])

    index = bisect_left(names, True, key=beyond)
    if not index:
        what = f"the oldest file, {names[0]}, begins after {text or 'the first transaction'}: {log.purged}"
        raise BinlogError(ErrorKind.POSITION_PURGED, what)
    wanted = gtids.domains()
    listed = lists.get(names[index - 1]) or DomainGtids()
    for domain, gtid in listed.domains().items():
        _check_same(domain, wanted, *gtid)
    if wanted:
        with closing(log.batches(names[index - 1])) as batches:
            for batch in batches:
                for source, start, end, _ in BatchGtids.of(batch).runs:
                    domain, server = map(int, source.split("-"))
                    if domain in wanted and wanted[domain][1] < end:
                        _check_same(domain, wanted, server, max(start, wanted[domain][1]))
                if not wanted:
                    break
    if wanted:
        raise _not_in_log(str(DomainGtids(wanted)))
    return make_executed(log.mode, text, "", 0)


def _check_same(domain: int, wanted: dict[int, tuple[int, int]], server: int, number: int) -> None:
    """Compare a GTID of the log with its domain's wanted GTID. If its `number` is lower, ignore it. If the two are
    equal, remove the wanted GTID, otherwise raise BinlogError."""
    gtid = wanted.get(domain, (0, 0))
    if number < gtid[1]:
        return
    if (server, number) != gtid:
        what = f"{domain}-{gtid[0]}-{gtid[1]}: there it has {domain}-{server}-{number}"
        raise _not_in_log(what)
    del wanted[domain]


def _not_in_log(what: str) -> BinlogError:
    return BinlogError(ErrorKind.HISTORY_DIFFERS, f"the server's log does not have {what}")


class _Reading:
    """The position up to which a log was read. It lies between two transactions."""

    def __init__(self, log: SearchableLog, file: str) -> None:
        self._log = log
        self.file = file
        self.offset = FIRST_OFFSET
        self._gtids = parse_gtids(log.mode, log.purged)
        previous = log.previous_gtids(file) if log.mode is not Mode.FILE else None
        if isinstance(self._gtids, GtidSet) and isinstance(previous, GtidSet):
            self._gtids = self._gtids.union(previous)
        elif previous is not None:
            self._gtids = parse_gtids(log.mode, str(previous))

    def skip(self, batch: Batch, count: int) -> None:
        """Move after the first `count` transactions of a batch."""
        if batch.file != self.file:
            self.file, self.offset = batch.file, FIRST_OFFSET
        steps = BatchGtids.of(batch)
        ended = np.flatnonzero(steps.ended[:count])
        if len(ended):
            last = int(ended[-1])
            self.offset = int(steps.end[last])
            if self._log.mode is not Mode.FILE:
                self._gtids = steps.after(self._gtids, last)

    @property
    def position(self) -> ExecutedPosition:
        return make_executed(self._log.mode, str(self._gtids), self.file, self.offset)


def commit_us(event: bytes, body: bytes) -> int:
    """Return the commit time (µs since 1970) in the first event of a transaction, by the splitter's rule."""
    header = EventHeader.read(event)
    code = header.type
    if code in (EventType.GTID, EventType.GTID_TAGGED, EventType.ANONYMOUS_GTID):
        moment = parse_gtid_event(code, body).immediate_commit_us
        if moment:
            return moment
    return header.timestamp * 1_000_000


def is_whole_event(event: bytes, offset: int, *, checksum: bool) -> bool:
    """True if the event's `log_pos` fits an event that begins at `offset` (compared in 32 bits), and its checksum, if
    it has one, is right. MariaDB 11.7 and newer write the events inside a transaction without `log_pos` (0); such an
    event must have a checksum."""
    log_pos = EventHeader.read(event).log_pos
    if log_pos != (offset + len(event)) & 0xFFFF_FFFF and (log_pos or not checksum):
        return False
    return not checksum or has_valid_checksum(event)


def is_made_for_dump(header: EventHeader) -> bool:
    """True for an event that is not in the log's files, because the server has made the event for a dump."""
    if header.type in (*HEARTBEATS, EventType.MARIADB_START_ENCRYPTION):
        return True
    return header.type in (EventType.ROTATE, EventType.FORMAT_DESCRIPTION) and not header.log_pos


def _check_exists(log: SearchableLog, file: str, offset: int) -> None:
    sizes = dict(log.files)
    if file in sizes:
        if offset > sizes[file] and (file, offset) != (log.end.file, log.end.offset):
            raise BinlogError(
                ErrorKind.HISTORY_DIFFERS,
                f"there is no {file}:{offset}: the file has {sizes[file]} bytes",
                remedy=_NAME_EXISTING,
            )
        return
    names = [name for name, _ in log.files]
    alike = bool(names) and file.rpartition(".")[0] == names[0].rpartition(".")[0]
    purged = alike and 0 < file_number(file) < file_number(names[0])
    has = f"{names[0]} to {names[-1]}" if names else "none"
    raise BinlogError(
        ErrorKind.POSITION_PURGED if purged else ErrorKind.HISTORY_DIFFERS,
        f"there is no {file}:{offset}: the files of the log are {has}",
        remedy=None if purged else _NAME_EXISTING,
    )


def _is_between(log: SearchableLog, reading: _Reading, offset: int) -> bool:
    """True if `offset` is a point between two transactions at which no transaction ends, such as the end of a file."""
    if (reading.file, offset) in ((log.end.file, log.end.offset), *log.files):
        return True
    first = log.first(reading.file) if reading.offset == FIRST_OFFSET else None
    if first is not None and (first.file, first.offset) == (reading.file, offset):
        return True
    return log.type_at(reading.file, offset) in _BETWEEN
