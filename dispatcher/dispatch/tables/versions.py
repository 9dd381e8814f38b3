"""Finds the definition of a table that is valid at a point of a server's log.

The TABLE_MAPs of a server without full metadata do not change when columns are renamed, labels of an ENUM or SET are
exchanged, or a key is added. So a fetched definition is valid for an event only if the log contains no statement that
may alter the table between the event and the point of the fetch. A *version* is a definition and the range of the log
in which it is valid.

A point of the log is a `LogPosition`: a file and an offset. Such points have the order in which the server wrote the
log. GTIDs do not have this order: a dump skips some transactions, and GTIDs do not say where the skipped ones lie among
the transactions that the dump sends. A `LogPosition` lies between two transactions. The version at a `LogPosition` is
the version for the transaction that begins there.

* A fetch asks the server for the definition at one point. It also reads from the log every statement between the event
  that needed the definition and that point. These statements divide this range of the log into segments; within a
  segment, the table has only one definition. In the last segment, this is the fetched definition. If the definition is
  known at one point of a segment, it is valid in the whole segment. A segment without a known definition is recorded,
  too, so that the daemon does not fetch the definition again.
* A version is *open* if the stream has reached the version's range and has since then read no statement that may alter
  the table. An open version is valid at the current point of the stream.
* The code compares two points only within one history: on the same server, in files with the expected creation times.

This module does no I/O and reads no clock. `runtime.client.table_lookup` asks the server and reads the log ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    HEADER_SIZE,
    EventHeader,
    FormatDescription,
)
from dispatcher.binlog.event.mariadb_compressed import plain_event
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import u32
from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.query_event import logged_kind, read_statement
from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, DdlKind, QueryKind, parse_statement
from dispatcher.binlog.stream.batch import CONTINUED, DDL, KIND_MASK, OPEN, TABLE_MAP, Batch
from dispatcher.binlog.stream.routes import ALL, Routes
from dispatcher.binlog.table_map.table_kind import sequence_definition
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import LogPosition as LogPosition  # noqa: PLC0414 - part of this module's interface

Name = tuple[str, str]  # database, table
Definition = Mapping[str, Any]  # see `source.mysql.table_schema`

VERSIONS_MAX = 64  # per table; the oldest are dropped first

# Statements that change neither columns nor keys.
_HARMLESS = frozenset(
    {
        DdlKind.TRUNCATE,
        DdlKind.TEMPORARY_TABLE,
        DdlKind.VIEW,
        DdlKind.ALTER_SEQUENCE,
        DdlKind.ROUTINE,
        DdlKind.ACCOUNT,
        DdlKind.MAINTENANCE,
    }
)


@dataclass(frozen=True, slots=True)
class AlteredTables:
    """The tables that a statement may alter: some tables, all tables of some databases, or any table. Names are
    compared without regard to case, because the log contains each statement as its author wrote it."""

    tables: frozenset[Name] = frozenset()
    databases: frozenset[str] = frozenset()
    any: bool = False

    def __bool__(self) -> bool:
        return self.any or bool(self.tables) or bool(self.databases)

    def concerns(self, name: Name) -> bool:
        database, table = name[0].casefold(), name[1].casefold()
        return self.any or database in self.databases or (database, table) in self.tables

    @classmethod
    def of(cls, tables: Iterable[Name] = (), databases: Iterable[str] = ()) -> AlteredTables:
        return cls(
            frozenset((database.casefold(), table.casefold()) for database, table in tables),
            frozenset(database.casefold() for database in databases),
        )


@dataclass(frozen=True, slots=True)
class AlteringStatement:
    """A statement in the log that may alter tables. The old versions of the tables are valid up to `before`, the new
    versions from `after` on.

    `before` is the beginning of the statement's transaction. Usually `after` is the same point. If rows precede the
    statement in its transaction, `after` is the end of the transaction.
    `sequences`: the sequences of MariaDB that the statement dropped. Their definitions need not be fetched, because all
    sequences have the same columns.
    """

    before: LogPosition
    after: LogPosition
    altered: AlteredTables
    sequences: AlteredTables = AlteredTables()


@dataclass(slots=True, eq=False)
class Version:
    """A table's definition in the range of the log from `start` to `end`. If `definition` is None, no definition is
    known for this range: `why` is the error of the fetch, if there was one, and `current` is the definition that the
    fetch returned for the newest segment."""

    name: Name
    start: LogPosition
    end: LogPosition
    definition: Definition | None
    why: BinlogError | None = None
    current: Definition | None = None

    def holds(self, at: LogPosition) -> bool:
        """True if the version is valid for the transaction that begins at `at`. The log was read up to `end`, so a
        transaction may begin at `end`."""
        if not self.start.key <= at.key <= self.end.key:
            return False
        for own in (self.start, self.end):
            if own.file == at.file and own.created and at.created and own.created != at.created:
                return False
        # A file between those of `start` and `end` was created after the former and before the latter, unless the log
        # was reset.
        low, high = self.start.created, self.end.created
        return not at.created or (low <= at.created and (not high or at.created <= high))


@dataclass(frozen=True, slots=True)
class FetchedDefinition:
    """The definition of one table at one point of the log, or the error with which the fetch failed."""

    name: Name
    at: LogPosition
    definition: Definition | BinlogError


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """The versions that the state store holds. `position`: the point up to which the stream was read; `versions`: name
    of the table, start, end and definition of each version, and True if the version is open."""

    server: str
    position: LogPosition | None
    versions: tuple[tuple[Name, LogPosition, LogPosition, Definition, bool], ...]


@dataclass(slots=True)
class Versions:
    """The versions of one connection.

    `changed`: True if a version has changed since `to_store()`. A new `position` alone is not a change. While `changed`
    is True, `position` must not be stored without the versions, because a stored open version ends at the stored
    `position`.
    """

    server: str = ""
    position: LogPosition | None = None  # the point up to which the stream was read
    changed: bool = False
    _versions: dict[Name, list[Version]] = field(default_factory=dict)  # sorted by start
    _open: dict[Name, Version] = field(default_factory=dict)
    # The altering statements of the transaction that is being read.
    _statements_here: list[AlteringStatement] = field(default_factory=list)

    # -- the stream ------------------------------------------------------------------------------------------

    def login(self, server: str, files: Iterable[str]) -> None:
        """Drop the versions of another server, and the versions that end in purged files. `server`: the server that the
        connection has logged in to; `files`: its files."""
        self._close()
        existing = set(files)
        before = len(self)
        if server != self.server:
            self._versions.clear()
            self.position = None
        for name, versions in list(self._versions.items()):
            kept = [v for v in versions if not existing or v.end.file in existing]
            if kept:
                self._versions[name] = kept
            else:
                del self._versions[name]
        self.changed |= before != len(self)
        self.server = server

    def begin(self, at: LogPosition, *, opening: bool = True) -> None:
        """Reopen the versions that are valid at `at`, the point where the stream begins or begins again.

        `opening`: False to reopen no version, because the stream may skip statements.
        """
        self._close()
        self._statements_here.clear()
        self.position = at
        for name in self._versions if opening else ():
            self._reopen(name, at)

    def advance(self, to: LogPosition) -> None:
        """Move the position to the point up to which the stream was read. Before this call, call `end_altered` for
        every statement before that point."""
        self.position = to

    def end_altered(self, statement: AlteringStatement) -> None:
        """End the versions of the tables that a statement may alter. The stream has reached this statement."""
        if self._statements_here and self._statements_here[0].before.key != statement.before.key:
            self._statements_here.clear()
        self._statements_here.append(statement)
        for name in [name for name in self._open if statement.altered.concerns(name)]:
            version = self._open[name]
            if version.start.key < statement.after.key:
                del self._open[name]
                version.end = statement.before
                self.changed = True
        # A version with a range on both sides of the statement was stored by a stream that skipped the statement.
        for version in self._all():
            spans = version.start.key < statement.before.key < version.end.key
            if spans and statement.altered.concerns(version.name):
                version.end = statement.before
                self.changed = True

    def version_at(self, name: Name, at: LogPosition) -> Version | None:
        """Returns the version for the transaction that begins at `at`, the stream's current point. Returns None if the
        definition must be fetched."""
        version = self._open.get(name)
        return version if version is not None else self._reopen(name, at)

    def _reopen(self, name: Name, at: LogPosition) -> Version | None:
        """Open the newest version that is valid at `at`, and return it. At the position of a statement two versions are
        valid: the old version ends there, and the new version begins there."""
        for version in reversed(self._versions.get(name, ())):
            if not version.holds(at):
                continue
            if version.definition is None:
                return version
            if not any(
                statement.altered.concerns(name) and version.start.key < statement.after.key
                for statement in self._statements_here
            ):
                self._open[name] = version
                self.changed = True
                return version
        return None

    def _close(self) -> None:
        for version in self._open.values():
            if self.position is not None and self.position.key > version.end.key:
                version.end = self.position
        self.changed |= bool(self._open)
        self._open.clear()

    # -- fetched definitions ---------------------------------------------------------------------------------

    def add_fetched(
        self,
        start: LogPosition,
        definitions: Iterable[FetchedDefinition],
        statements: Sequence[AlteringStatement],
    ) -> None:
        """Add fetched definitions. `statements`: all statements between `start` and the points of the definitions."""
        for fetched in definitions:
            name, low = fetched.name, start
            for each in statements:
                if each.altered.concerns(name) and each.before.key < fetched.at.key:
                    sequence = each.sequences.concerns(name)
                    self._add_segment(fetched, low, each.before, last=False, sequence=sequence)
                    low = each.after
            self._add_segment(fetched, low, fetched.at, last=True)
            self._trim(name)
        self.changed = True

    def _add_segment(
        self,
        fetched: FetchedDefinition,
        low: LogPosition,
        high: LogPosition,
        *,
        last: bool,
        sequence: bool = False,
    ) -> None:
        """Record that the table had only one definition from `low` to `high`. The last segment gets the fetched
        definition. An earlier segment, or the last one after a failed fetch, gets the definition of the newest known
        version that begins in the segment; if there is none, that of a sequence if the log says that the name was one
        (`sequence`), otherwise None."""
        versions = self._versions.setdefault(fetched.name, [])
        error = fetched.definition if isinstance(fetched.definition, BinlogError) else None
        current = None if isinstance(fetched.definition, BinlogError) else fetched.definition
        definition, why = (current, None) if last and error is None else (None, error)
        if definition is None:
            same = [v for v in versions if v.definition is not None and _begins_in(v, low, high)]
            known = sequence_definition(*fetched.name) if sequence else None
            definition = same[-1].definition if same else known
        if high.key < low.key:
            # `low` and `high` are of two statements of one transaction, so the segment is empty.
            return
        versions[:] = [
            v for v in versions if not (low.key <= v.start.key and v.end.key <= high.key)
        ]
        versions.append(Version(fetched.name, low, high, definition, why, current))
        versions.sort(key=_start)

    def _trim(self, name: Name) -> None:
        versions = self._versions[name]
        spare = [v for v in versions if self._open.get(name) is not v]  # open versions are in use
        for version in spare[: max(len(versions) - VERSIONS_MAX, 0)]:
            versions.remove(version)

    # -- storing ---------------------------------------------------------------------------------------------

    def to_store(self) -> StoredVersions:
        """Returns all versions that have a definition, for the state store."""
        self.changed = False
        return self.snapshot()

    def snapshot(self) -> StoredVersions:
        versions = tuple(
            (v.name, v.start, v.end, v.definition, self._open.get(v.name) is v)
            for v in self._all()
            if v.definition is not None
        )
        return StoredVersions(self.server, self.position, versions)

    @classmethod
    def from_stored(cls, stored: StoredVersions | None) -> Versions:
        if stored is None:
            return cls()
        self, position = cls(stored.server, stored.position), stored.position
        # A stored open version ends at the stored position. `begin` opens it again if the stream begins within its
        # range.
        self.changed = any(open_ for *_, open_ in stored.versions)
        for name, start, end, definition, open_ in stored.versions:
            version = Version(name, start, end, definition)
            if open_ and position is not None and position.key > end.key:
                version.end = position
            self._versions.setdefault(name, []).append(version)
        for versions in self._versions.values():
            versions.sort(key=_start)
        return self

    def _all(self) -> Iterator[Version]:
        return (version for versions in self._versions.values() for version in versions)

    def __len__(self) -> int:
        return sum(map(len, self._versions.values()))


def _begins_in(version: Version, low: LogPosition, high: LogPosition) -> bool:
    """True if a version begins within [low, high) and its range there is not empty."""
    return low.key <= version.start.key < min(version.end.key, high.key)


def _start(version: Version) -> int:
    return version.start.key


# -- statements in batches ------------------------------------------------------------------------------------


def _altered(
    event: bytes, format_: FormatDescription, lower_case_table_names: int
) -> tuple[AlteredTables, AlteredTables]:
    """Returns `altered` and `sequences` of an `AlteringStatement` for a QUERY event, or MariaDB's compressed QUERY
    event. `format_`: the format of its log. `lower_case_table_names`: the server's setting."""
    none = AlteredTables()
    plain = plain_event(event, checksum=format_.checksum)
    header, body = (
        EventHeader.read(plain),
        plain[HEADER_SIZE : len(plain) - CHECKSUM_SIZE * format_.checksum],
    )
    if header.type != EventType.QUERY:
        return AlteredTables(any=True), none
    statement = read_statement(
        body, header.flags, ServerVersion.of(format_), lower_case_table_names
    )
    if logged_kind(statement) is QueryKind.DDL_WITHOUT_EFFECT:
        return none, none
    parsed = parse_statement(statement, ROUTING_BOUNDS)
    if not parsed.parsed:
        return AlteredTables(any=True), none
    if parsed.kind in _HARMLESS:
        return none, none
    altered = AlteredTables.of(parsed.tables, parsed.databases)
    return altered, altered if parsed.kind is DdlKind.DROP_SEQUENCE else none


@dataclass(slots=True)
class TransactionStarts:
    """Computes where the transactions of consecutive batches begin. The header of a transaction's first event contains
    the event's end and size, from which the beginning is computed."""

    # Beginning of the transaction that continues in the next batch.
    _open: LogPosition | None = None

    def start(self, batch: Batch, created: int, t: int) -> LogPosition:
        if batch.tx.flags[t] & CONTINUED and self._open is not None:
            return self._open
        first = int(batch.tx.first[t])
        off, size = int(batch.ev.off[first]), int(batch.ev.size[first])
        log_pos = int(u32(batch.buf, off + 13))
        end = int(batch.tx.end[t])
        if log_pos and not batch.tx.flags[t] & CONTINUED:
            # The header contains only the low 32 bits of the event's end; `end`, the transaction's end, has all bits.
            return LogPosition(batch.file, end - ((end - (log_pos - size)) & 0xFFFFFFFF), created)
        return LogPosition(batch.file, int(batch.tx.end[t - 1]) if t else end, created)

    def after(self, batch: Batch, created: int) -> LogPosition:
        """Returns where the next transaction begins. If the last transaction of the batch continues in the next batch,
        returns where this last transaction begins. Call `after` once per batch, after all calls of `start`."""
        t = len(batch.tx.first) - 1
        if t >= 0 and batch.tx.flags[t] & OPEN:
            self._open = self.start(batch, created, t)
            return self._open
        self._open = None
        return LogPosition(batch.file, batch.offset, created)


def altering_statement(
    batch: Batch, created: int, starts: TransactionStarts, i: int, t: int
) -> AlteringStatement:
    """Reads the statement that is event `i` of a batch, in its transaction `t`."""
    off, size = int(batch.ev.off[i]), int(batch.ev.size[i])
    altered, sequences = _altered(
        batch.buf[off : off + size].tobytes(), batch.format, batch.lower_case_table_names
    )
    before = after = starts.start(batch, created, t)
    kinds = batch.ev.kind[int(batch.tx.first[t]) : i] & KIND_MASK
    if (kinds == TABLE_MAP).any() or batch.tx.flags[t] & CONTINUED:
        after = replace(before, offset=max(int(batch.tx.end[t]), before.offset))
    return AlteringStatement(before, after, altered, sequences)


def altering_statements(
    batch: Batch, created: int, starts: TransactionStarts, routes: Routes
) -> list[AlteringStatement]:
    """Reads every statement of a batch that may alter a table."""
    statements = []
    for i in (int(n) for n in (batch.ev.kind & KIND_MASK == DDL).nonzero()[0]):
        t = int((batch.tx.first <= i).sum()) - 1
        statements.append(altering_statement(batch, created, starts, i, t))
    if batch.fault and (batch.fault.route == ALL or batch.fault.route < len(routes)):
        at = starts.after(batch, created)
        statements.append(AlteringStatement(at, at, AlteredTables(any=True)))
    return [statement for statement in statements if statement.altered]
