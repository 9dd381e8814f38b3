"""What a start means in a log: the place of a moment, of a file and offset, of MariaDB's GTIDs.

**A moment** means what it means to Kafka: the first transaction, in the order of the log, that was committed at or
after it; the end of the log where there is none; the beginning where the log has been purged beyond it. A commit time
is what the log says of a transaction: microseconds as of MySQL 8.0, else whole seconds, and then those at which its
first statement began.

Files are searched by halves for the last one whose first transaction is older, and that one is read up to the moment.
So of a log of any size a dozen file heads and one file are read. Where commit times run backwards, because a clock was
set or a statement took long, transactions that are older may follow the first one that is not, and are delivered; one
that stands in an earlier file than those of its time is not found.

**A file and offset** mean the transactions that end there or before. It must be the place of a transaction's first
event, the end of a transaction, or the beginning of a file.

**MariaDB's GTIDs** mean the first transaction, in the order of the log, that is not among them: of a number beyond that
of its domain. Where domains interleave, older ones of another domain may follow it, and are delivered. (MySQL is asked
by GTIDs, nothing has to be found.)

All come with the set of GTIDs that lies before: what the file's head says of the files before it, what was read of the
file itself, and what the server has purged, which it may count without having had it in a log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

import numpy as np

from dispatcher.binlog.event.gtid import parse_gtid_event
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.stream.batch import Batch
from dispatcher.dispatch.executed_position import (
    BatchGtids,
    ExecutedPosition,
    Gtids,
    Mode,
    make_executed,
    parse_gtids,
)
from dispatcher.dispatch.specs import AtFile, AtGtid, AtTime, Start
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import file_number

_FIRST = 4  # the offset of a file's first event
NUMBERED = frozenset({EventType.GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID})
NOT_NUMBERED = frozenset({EventType.ANONYMOUS_GTID, EventType.QUERY, EventType.TABLE_MAP})
# What stands between two transactions, or begins one beyond doubt.
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
# Faults of the source rather than of the log: they are not the start's.
_OF_THE_SOURCE = frozenset(
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


class First(NamedTuple):
    """The first transaction in a file, or in those after it: where it begins, and when it was committed (µs)."""

    file: str
    offset: int
    commit_us: int


class SearchableLog(Protocol):
    """A log that can be read from the beginning of each of its files. Blocks, raises BinlogError."""

    mode: Mode
    files: Sequence[tuple[str, int]]  # names and sizes, oldest first
    purged: str
    end: ExecutedPosition

    def held(self, name: str) -> Gtids | None:
        """What the files before this one hold; None where it does not say."""

    def first(self, name: str) -> First | None: ...

    def batches(self, name: str) -> Generator[Batch, None, None]:
        """From the beginning of a file to the end of the log; each is valid until the next one is asked for."""

    def type_at(self, name: str, offset: int) -> int | None:
        """The type of the event that begins there; None where none does."""


def find_starts(
    log: SearchableLog, starts: Iterable[Start]
) -> dict[Start, ExecutedPosition | BinlogError]:
    """Each start that has to be searched for with its place, or what is wrong with it. Raises BinlogError where the log
    cannot be read."""
    found: dict[Start, ExecutedPosition | BinlogError] = {}
    for start in starts:
        try:
            place = _find(log, start)
        except BinlogError as error:
            if error.kind in _OF_THE_SOURCE:
                raise
            found[start] = error
        else:
            if place is not None:
                found[start] = place
    return found


def _find(log: SearchableLog, start: Start) -> ExecutedPosition | None:
    """None where the log need not be searched."""
    match start:
        case AtTime(commit_us):
            return at_moment(log, commit_us)
        case AtFile(file, offset):
            return at_offset(log, file, offset)
        case AtGtid(gtids) if log.mode is Mode.MARIADB:
            return at_gtids(log, gtids)
    return None


def files_of(found: Mapping[Start, ExecutedPosition | BinlogError]) -> list[str]:
    """Those in which the places lie."""
    return [place.file for place in found.values() if isinstance(place, ExecutedPosition)]


def at_moment(log: SearchableLog, moment_us: int) -> ExecutedPosition:
    """Where the first transaction begins that was committed at or after a moment (µs since 1970)."""
    names = [name for name, _ in log.files]

    def late(name: str) -> bool:
        try:
            first = log.first(name)
        except BinlogError as error:
            if (
                error.kind is ErrorKind.UNSUPPORTED_EVENT
            ):  # from before gtid_mode=ON: read it only if need be
                return False
            raise
        return first is None or first.commit_us >= moment_us

    index = bisect_left(names, True, key=late)
    if not index:
        none_at_all = not names or log.first(names[0]) is None
        return log.end if none_at_all else _Reading(log, names[0]).place
    reading = _Reading(log, names[index - 1])
    with closing(log.batches(reading.file)) as batches:
        for batch in batches:
            there = np.flatnonzero(batch.tx.commit_us >= moment_us)
            if len(there):
                reading.over(batch, int(there[0]))
                return reading.place
            reading.over(batch, len(batch.tx.end))
    return log.end


def at_offset(log: SearchableLog, file: str, offset: int) -> ExecutedPosition:
    """The place of a file and offset. Raises BinlogError where the log has none between two transactions there."""
    _is_there(log, file, offset)
    reading = _Reading(log, file)
    beyond = 0
    with closing(log.batches(file)) as batches:
        for batch in batches:
            if batch.file != file:
                break
            ended = BatchGtids.of(batch).ended
            later = np.flatnonzero(ended & (batch.tx.end > offset))
            reading.over(batch, int(later[0]) if len(later) else len(ended))
            if len(later):
                beyond = int(batch.tx.end[later[0]])
                break
    between = reading.offset
    if offset not in (_FIRST, between) and not _is_between(log, reading, offset):
        places = f"{between} or {beyond}" if beyond else str(between)
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"start names {file}:{offset}, where no transaction begins",
            remedy=f"SHOW BINLOG EVENTS IN '{file}' lists them; {places} is between two transactions",
        )
    reading.offset = offset
    return reading.place


def at_gtids(log: SearchableLog, text: str) -> ExecutedPosition:
    """Where the first transaction begins that is not among MariaDB's GTIDs. Raises BinlogError where the server does
    not have all of these, or no longer has what follows them."""
    wanted, executed = parse_gtids(log.mode, text), log.end.gtids
    assert isinstance(wanted, MariadbGtids) and isinstance(executed, MariadbGtids)
    if not executed.contains(wanted):
        what = (
            f"start names {wanted}, but the server has executed {str(executed) or 'nothing'} only"
        )
        raise BinlogError(ErrorKind.HISTORY_DIFFERS, what, remedy="correct the start")
    names = [name for name, _ in log.files]

    def beyond(name: str) -> bool:
        held = log.held(name)
        return isinstance(held, MariadbGtids) and not wanted.contains(held)

    index = bisect_left(names, True, key=beyond)
    if not index:
        what = f"start names {wanted}, but the oldest file begins behind it: {log.held(names[0])}"
        raise BinlogError(ErrorKind.POSITION_PURGED, what)
    reading = _Reading(log, names[index - 1])
    with closing(log.batches(reading.file)) as batches:
        for batch in batches:
            # The last entry is for what has no GTID.
            last = [wanted.number(int(name.partition("-")[0])) for name in batch.sources]
            held_up_to = np.array([*last, 0], dtype=np.int64)
            there = np.flatnonzero(batch.tx.gno > held_up_to[batch.tx.source])
            if len(there):
                reading.over(batch, int(there[0]))
                return reading.place
            reading.over(batch, len(batch.tx.end))
    return log.end


class _Reading:
    """How far a log was read: the place between two transactions."""

    def __init__(self, log: SearchableLog, file: str) -> None:
        self._log = log
        self.file = file
        self.offset = _FIRST
        self._gtids = parse_gtids(log.mode, log.purged)
        held = log.held(file) if log.mode is not Mode.FILE else None
        if isinstance(self._gtids, GtidSet) and isinstance(held, GtidSet):
            self._gtids = self._gtids.union(held)
        elif held is not None:
            self._gtids = held

    def over(self, batch: Batch, count: int) -> None:
        """Go over the first `count` transactions of a batch."""
        if batch.file != self.file:
            self.file, self.offset = batch.file, _FIRST
        steps = BatchGtids.of(batch)
        ended = np.flatnonzero(steps.ended[:count])
        if len(ended):
            last = int(ended[-1])
            self.offset = int(steps.end[last])
            if self._log.mode is not Mode.FILE:
                self._gtids = steps.after(self._gtids, last)

    @property
    def place(self) -> ExecutedPosition:
        return make_executed(self._log.mode, str(self._gtids), self.file, self.offset)


def commit_us(event: bytes, body: bytes) -> int:
    """The commit time that the first event of a transaction tells, as the splitter understands it."""
    code = event[4]
    if code in (EventType.GTID, EventType.GTID_TAGGED, EventType.ANONYMOUS_GTID):
        moment = parse_gtid_event(code, body).immediate_commit_us
        if moment:
            return moment
    return int.from_bytes(event[:4], "little") * 1_000_000


def _is_there(log: SearchableLog, file: str, offset: int) -> None:
    sizes = dict(log.files)
    if file in sizes:
        if offset > sizes[file] and (file, offset) != (log.end.file, log.end.offset):
            raise BinlogError(
                ErrorKind.HISTORY_DIFFERS,
                f"start names {file}:{offset}, but the file has {sizes[file]} bytes",
                remedy="correct the start",
            )
        return
    names = [name for name, _ in log.files]
    alike = bool(names) and file.rpartition(".")[0] == names[0].rpartition(".")[0]
    purged = alike and 0 < file_number(file) < file_number(names[0])
    has = f"{names[0]} to {names[-1]}" if names else "none"
    raise BinlogError(
        ErrorKind.POSITION_PURGED if purged else ErrorKind.HISTORY_DIFFERS,
        f"start names {file}:{offset}, but the files of the log are {has}",
        remedy=None if purged else "correct the start",
    )


def _is_between(log: SearchableLog, reading: _Reading, offset: int) -> bool:
    """Is an offset behind the end of a transaction that is no such end between two of them nevertheless?"""
    if (reading.file, offset) in ((log.end.file, log.end.offset), *log.files):
        return True
    first = log.first(reading.file) if reading.offset == _FIRST else None
    if first is not None and (first.file, first.offset) == (reading.file, offset):
        return True
    return log.type_at(reading.file, offset) in _BETWEEN
