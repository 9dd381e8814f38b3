"""Which definition of a table holds where in a server's log.

The TABLE_MAPs of a server without full metadata do not change when columns are renamed, labels are exchanged or a key
is added. So a definition is good for an event only if no statement that may alter the table lies between the event and
the moment at which the server was asked: that is a *version*, a definition and the range of the log it holds in.

Places in the log are `LogPosition`s: file and offset, in the order in which the server wrote. GTIDs would not do, since
what a dump skips, as held already, has no place among what it sends. A mark lies between two transactions; the version
at a mark is that of the transaction which begins there.

* A look-up says the definition at a mark and, from reading the log, every statement between the event that asked and
  that mark. They cut the log into segments, each with one definition; that of the last segment was looked up, and one
  that is known anywhere within a segment holds in all of it. A segment of which none is known is kept as such, so that
  nobody asks again.
* A version is *open* while the stream has come from within its range without meeting such a statement: then it holds
  wherever the stream is.
* Marks are compared only within one history: the same server, and files that were created when they should have been.

Pure, and without a clock; `net.lookups` asks the server and reads ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dispatcher.binlog.event.mariadb_compressed import plain_event
from dispatcher.binlog.event.query import read_statement
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import u32
from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, DdlKind, parse_statement
from dispatcher.binlog.stream.batch import CONTINUED, DDL, KIND_MASK, OPEN, TABLE_MAP, Batch
from dispatcher.binlog.stream.routes import ALL, Routes
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import LogPosition as LogPosition  # noqa: PLC0414 - part of what this module says

Name = tuple[str, str]  # database, table
Definition = Mapping[str, Any]  # see `net.definitions`

VERSIONS_MAX = 64  # of one table; the oldest go first

# What changes neither columns nor keys.
_HARMLESS = frozenset(
    (
        *(
            DdlKind.TRUNCATE,
            DdlKind.TEMPORARY_TABLE,
            DdlKind.VIEW,
            DdlKind.ROUTINE,
        ),
        *(DdlKind.ACCOUNT, DdlKind.MAINTENANCE),
    )
)


@dataclass(frozen=True, slots=True)
class Touch:
    """The tables that a statement may alter: some, all of some databases, or any. Names without regard to case, because
    statements are logged as they were written."""

    tables: frozenset[Name] = frozenset()
    databases: frozenset[str] = frozenset()
    any: bool = False

    def __bool__(self) -> bool:
        return self.any or bool(self.tables) or bool(self.databases)

    def concerns(self, name: Name) -> bool:
        database, table = name[0].casefold(), name[1].casefold()
        return self.any or database in self.databases or (database, table) in self.tables

    @classmethod
    def of(cls, tables: Iterable[Name] = (), databases: Iterable[str] = ()) -> Touch:
        return cls(
            frozenset((database.casefold(), table.casefold()) for database, table in tables),
            frozenset(database.casefold() for database in databases),
        )


@dataclass(frozen=True, slots=True)
class Touched:
    """A statement in the log: it ends what held at `place`, and what it makes holds from `after` on.

    Both are the beginning of its transaction where nothing of a table stands before it there, as in CREATE TABLE ...
    SELECT; else `after` is the end.
    """

    place: LogPosition
    after: LogPosition
    touch: Touch


@dataclass(slots=True, eq=False)
class Version:
    """`definition` None: none is known here, `why` says so, and `current` is the one that the look-up found then."""

    name: Name
    start: LogPosition
    end: LogPosition
    definition: Definition | None
    why: BinlogError | None = None
    current: Definition | None = None

    def holds(self, at: LogPosition) -> bool:
        """For the transaction that begins at a mark? `end` was read up to, so it may begin there."""
        if not self.start.key <= at.key <= self.end.key:
            return False
        for own in (self.start, self.end):
            if own.file == at.file and own.created and at.created and own.created != at.created:
                return False
        # A file in between was created in between, unless the log was begun anew.
        low, high = self.start.created, self.end.created
        return not at.created or (low <= at.created and (not high or at.created <= high))


@dataclass(frozen=True, slots=True)
class FetchedDefinition:
    """What a look-up found of one table: its definition at a mark, or why there is none."""

    name: Name
    at: LogPosition
    definition: Definition | BinlogError


@dataclass(frozen=True, slots=True)
class Kept:
    """What is stored: the server, how far its log was read, and the versions with, each, whether it is open there."""

    server: str
    mark: LogPosition | None
    versions: tuple[tuple[Name, LogPosition, LogPosition, Definition, bool], ...]


@dataclass(slots=True)
class Versions:
    """The versions of one connection.

    `changed`: since `keep()`, other than by reading on, so that the mark alone must not be stored: it is the end of all
    that is stored as open.
    """

    server: str = ""
    mark: LogPosition | None = None  # how far the stream has been read
    changed: bool = False
    _known: dict[Name, list[Version]] = field(default_factory=dict)  # by start
    _open: dict[Name, Version] = field(default_factory=dict)
    _here: list[Touched] = field(default_factory=list)  # statements of the transaction being read

    # -- the stream ------------------------------------------------------------------------------------------

    def login(self, server: str, files: Iterable[str]) -> None:
        """Forget what is of another server, or of files that it has purged."""
        self._shut()
        there = set(files)
        before = sum(map(len, self._known.values()))
        if server != self.server:
            self._known.clear()
            self.mark = None
        for name, versions in list(self._known.items()):
            self._known[name] = [v for v in versions if not there or v.end.file in there]
            if not self._known[name]:
                del self._known[name]
        self.changed |= before != sum(map(len, self._known.values()))
        self.server = server

    def begin(self, at: LogPosition, *, opening: bool = True) -> None:
        """The stream begins, or begins anew, at a mark: open is what holds there, or (not `opening`) nothing, because
        statements may be passed unseen."""
        self._shut()
        self._here.clear()
        self.mark = at
        for name in self._known if opening else ():
            self._reopen(name, at)

    def advance(self, to: LogPosition) -> None:
        """Everything up to a mark was read, and every statement in it was told by `touched`."""
        self.mark = to

    def touched(self, what: Touched) -> None:
        """The stream is at a statement that may alter tables."""
        if self._here and self._here[0].place.key != what.place.key:
            self._here.clear()
        self._here.append(what)
        for name in [name for name in self._open if what.touch.concerns(name)]:
            version = self._open[name]
            if version.start.key < what.after.key:
                del self._open[name]
                version.end = what.place
                self.changed = True
        # One that seems to hold on both sides of it comes from a reading that did not see it.
        for versions in self._known.values():
            for version in versions:
                spans = version.start.key < what.place.key < version.end.key
                if spans and what.touch.concerns(version.name):
                    version.end = what.place
                    self.changed = True

    def at(self, name: Name, at: LogPosition) -> Version | None:
        """The version of a transaction that begins at a mark, where the stream is now; None: ask."""
        version = self._open.get(name)
        return version if version is not None else self._reopen(name, at)

    def _reopen(self, name: Name, at: LogPosition) -> Version | None:
        """The newest one that holds, for at a statement's own mark there are two: before it, and after it."""
        for version in reversed(self._known.get(name, ())):
            if not version.holds(at):
                continue
            if version.definition is None:
                return version
            if not any(
                t.touch.concerns(name) and version.start.key < t.after.key for t in self._here
            ):
                self._open[name] = version
                self.changed = True
                return version
        return None

    def _shut(self) -> None:
        for version in self._open.values():
            if self.mark is not None and self.mark.key > version.end.key:
                version.end = self.mark
        self.changed |= bool(self._open)
        self._open.clear()

    # -- look-ups --------------------------------------------------------------------------------------------

    def learn(
        self, start: LogPosition, found: Iterable[FetchedDefinition], touches: Sequence[Touched]
    ) -> None:
        """What a look-up found, and every statement between `start` and where it found it."""
        for one in found:
            cuts = [t for t in touches if t.touch.concerns(one.name) and t.place.key < one.at.key]
            starts = [start, *(cut.after for cut in cuts)]
            ends = [*(cut.place for cut in cuts), one.at]
            for n, (low, high) in enumerate(zip(starts, ends, strict=True)):
                self._segment(one, low, high, cuts[n] if n < len(cuts) else None)
            self._trim(one.name)
        self.changed = True

    def _segment(
        self, found: FetchedDefinition, low: LogPosition, high: LogPosition, cut: Touched | None
    ) -> None:
        """One definition holds from `low` to `high`, where a statement ends it or (None) the look-up was."""
        versions = self._known.setdefault(found.name, [])
        definition, why = None, None
        if cut is None and not isinstance(found.definition, BinlogError):
            definition = found.definition
        else:
            same = [v for v in versions if v.definition is not None and _within(v, low, high)]
            definition = same[-1].definition if same else None
            why = found.definition if isinstance(found.definition, BinlogError) else None
        if high.key < low.key:
            return  # two statements in one transaction: nothing lies between
        current = None if isinstance(found.definition, BinlogError) else found.definition
        versions[:] = [v for v in versions if not _inside(v, low, high)]
        versions.append(Version(found.name, low, high, definition, why, current))
        versions.sort(key=lambda version: version.start.key)

    def _trim(self, name: Name) -> None:
        versions = self._known[name]
        # Open ones are in use.
        spare = [v for v in versions if self._open.get(name) is not v]
        for version in spare[: max(len(versions) - VERSIONS_MAX, 0)]:
            versions.remove(version)

    # -- storing ---------------------------------------------------------------------------------------------

    def keep(self) -> Kept:
        """All that is known, to be stored."""
        self.changed = False
        return self.known()

    def known(self) -> Kept:
        versions = tuple(
            (v.name, v.start, v.end, v.definition, self._open.get(v.name) is v)
            for versions in self._known.values()
            for v in versions
            if v.definition is not None
        )
        return Kept(self.server, self.mark, versions)

    @classmethod
    def of(cls, kept: Kept | None) -> Versions:
        if kept is None:
            return cls()
        self = cls(kept.server, kept.mark)
        # What is stored as open is not so before the stream says it.
        self.changed = any(open_ for *_, open_ in kept.versions)
        for name, start, end, definition, open_ in kept.versions:
            version = Version(name, start, end, definition)
            if open_ and kept.mark is not None and kept.mark.key > end.key:
                version.end = kept.mark
            self._known.setdefault(name, []).append(version)
        for versions in self._known.values():
            versions.sort(key=lambda version: version.start.key)
        return self

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))


def _within(version: Version, low: LogPosition, high: LogPosition) -> bool:
    """Does a version hold somewhere within (low, high), and begin there?"""
    return low.key <= version.start.key and version.start.key < min(version.end.key, high.key)


def _inside(version: Version, low: LogPosition, high: LogPosition) -> bool:
    return low.key <= version.start.key and version.end.key <= high.key


# -- what batches hold ----------------------------------------------------------------------------------------


def touch_of(event: bytes, *, checksum: bool) -> Touch:
    """The tables that a QUERY event (MariaDB's compressed ones too) may alter."""
    plain = plain_event(event, checksum=checksum)
    body = plain[19 : len(plain) - 4 * checksum]
    if plain[4] != EventType.QUERY:
        return Touch(any=True)
    database, text, sql_mode = read_statement(body)
    parsed = parse_statement(text, database, sql_mode, ROUTING_BOUNDS)
    if not parsed.parsed:
        return Touch(any=True)
    if parsed.kind in _HARMLESS:
        return Touch()
    return Touch.of(parsed.tables, parsed.databases)


@dataclass(slots=True)
class TransactionStarts:
    """Where the transactions of consecutive batches begin. MySQL and MariaDB write an event's end into its header."""

    _open: LogPosition | None = None  # the beginning of the one that goes on

    def start(self, batch: Batch, created: int, t: int) -> LogPosition:
        if batch.tx.flags[t] & CONTINUED and self._open is not None:
            return self._open
        first = int(batch.tx.first[t])
        off, size = int(batch.ev.off[first]), int(batch.ev.size[first])
        log_pos = int(u32(batch.buf, off + 13))
        end = int(batch.tx.end[t])
        if log_pos and not batch.tx.flags[t] & CONTINUED:
            # 32 bits of it: the transaction's end has all.
            return LogPosition(batch.file, end - ((end - (log_pos - size)) & 0xFFFFFFFF), created)
        return LogPosition(batch.file, int(batch.tx.end[t - 1]) if t else end, created)

    def after(self, batch: Batch, created: int) -> LogPosition:
        """Where the next transaction begins; remembers where one that goes on began. Once per batch, after `start`."""
        t = len(batch.tx.first) - 1
        if t >= 0 and batch.tx.flags[t] & OPEN:
            self._open = self.start(batch, created, t)
            return self._open
        self._open = None
        return LogPosition(batch.file, batch.offset, created)


def touched_in(batch: Batch, created: int, marks: TransactionStarts, i: int, t: int) -> Touched:
    """The statement that is event `i` of a batch, in its transaction `t`."""
    off, size = int(batch.ev.off[i]), int(batch.ev.size[i])
    touch = touch_of(batch.buf[off : off + size].tobytes(), checksum=batch.format.checksum)
    place = after = marks.start(batch, created, t)
    kinds = batch.ev.kind[int(batch.tx.first[t]) : i] & KIND_MASK
    if (kinds == TABLE_MAP).any() or batch.tx.flags[t] & CONTINUED:
        after = replace(place, offset=max(int(batch.tx.end[t]), place.offset))
    return Touched(place, after, touch)


def touches(batch: Batch, created: int, marks: TransactionStarts, routes: Routes) -> list[Touched]:
    """Every statement of a batch that may alter a table."""
    found = []
    for i in (int(n) for n in (batch.ev.kind & KIND_MASK == DDL).nonzero()[0]):
        t = int((batch.tx.first <= i).sum()) - 1
        found.append(touched_in(batch, created, marks, i, t))
    if batch.fault and (batch.fault.route == ALL or batch.fault.route < len(routes)):
        place = marks.after(batch, created)
        found.append(Touched(place, place, Touch(any=True)))
    return [one for one in found if one.touch]
