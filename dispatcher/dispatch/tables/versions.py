"""Finds the definition of a table that is valid at a point of a server's log.

The TABLE_MAPs of a server without full metadata do not change when columns are renamed, labels of an ENUM or SET are
exchanged, or a key is added. So a fetched definition is valid for an event only if the log contains no statement that
may alter the table between the event and the point of the fetch. A *version* is a definition and the range of the log
in which it is valid.

A point of the log is a `LogPosition`: a file and an offset. Such points have the order in which the server wrote the
log. GTIDs do not have this order: a dump skips some transactions, and GTIDs do not show where the skipped transactions
lie among the transactions that the dump sends. A `LogPosition` lies between two transactions. The version at a
`LogPosition` is the version for the transaction that begins there.

* A fetch asks the server for the definition at one point. It also reads from the log every statement between the event
  that needed the definition and that point. These statements divide this range of the log into segments; within a
  segment, the table has only one definition. In the last segment, this is the fetched definition. If the definition is
  known at one point of a segment, it is valid in the whole segment. A segment without a known definition is recorded,
  too, so that the daemon does not fetch the definition again.
* If the code understands a statement completely, it derives the definition after the statement; for some statements it
  uses the definition before the statement (`table_map.derivation`). Such a *derived* definition is valid after the
  statement. If the server shows another definition for the same segment, neither is used.
* A version is *open* if the stream has reached the version's range and has since then read no statement that may alter
  the table. An open version is valid at the current point of the stream.
* The code compares two points only within one history: on the same server, in files with the expected creation times.

This module does no I/O and reads no clock. `runtime.client.table_lookup` asks the server and reads the log ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, parse_statement
from dispatcher.binlog.table_map.derivation import (
    Server,
    derived_definitions,
    difference,
    with_database_collation,
)
from dispatcher.binlog.table_map.table_kind import sequence_definition
from dispatcher.dispatch.tables.statements import AlteringStatement
from dispatcher.model.errors import SEEK, BinlogError, ErrorKind
from dispatcher.model.position import LogPosition as LogPosition  # noqa: PLC0414 - part of this module's interface

Name = tuple[str, str]  # database, table
Definition = Mapping[str, Any]  # see `mysql.table_schema`

VERSIONS_MAX = 64  # per table; the oldest are dropped first
DERIVED_MAX = (
    1_000  # derived definitions of which no TABLE_MAP was read yet; the oldest are dropped first
)


@dataclass(slots=True, eq=False)
class Version:
    """A table's definition in the range of the log from `start` to `end`. If `definition` is None, no definition is
    known for this range: `why` is the error of the fetch, if there was one, and `current` is the definition that the
    fetch returned for the newest segment. `disputed`: True if the statements and the server show different definitions;
    `why` names both. `asked`: True if a fetch for a derived definition is done, so that another fetch would not add to
    the definition. `may_come`: True if a later fetch may show the definition: no statement has altered the table since,
    but the server did not show it."""

    name: Name
    start: LogPosition
    end: LogPosition
    definition: Definition | None
    why: BinlogError | None = None
    current: Definition | None = None
    disputed: bool = False
    asked: bool = False
    may_come: bool = False

    @property
    def derived(self) -> bool:
        return self.definition is not None and bool(self.definition.get("derived"))

    def holds(self, at: LogPosition) -> bool:
        """True if the version is valid for the transaction that begins at `at`. The log was read up to `end`, so a
        transaction may begin at `end`."""
        if not self.start.key <= at.key <= self.end.key:
            return False
        for own in (self.start, self.end):
            if own.file == at.file and own.created and at.created and own.created != at.created:
                return False
        # A file between the files of `start` and `end` was created after the file of `start` and before the file of
        # `end`, unless the log was reset.
        low, high = self.start.created, self.end.created
        return not at.created or (low <= at.created and (not high or at.created <= high))


@dataclass(frozen=True, slots=True)
class FetchedDefinition:
    """The definition of one table at one point of the log, or the error with which the fetch failed.
    `database_collation`: id of the default collation of the table's database at this point, 0 if the collation is not
    known."""

    name: Name
    at: LogPosition
    definition: Definition | BinlogError
    database_collation: int = 0


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
    # Open versions with a derived definition of which no TABLE_MAP was read yet, the oldest first.
    _unused: dict[Version, None] = field(default_factory=dict)
    # For each database: the default collation, and the point from which it is known.
    _collations: dict[str, tuple[LogPosition, int]] = field(default_factory=dict)

    # -- the stream ------------------------------------------------------------------------------------------

    def login(self, server: str, files: Iterable[str]) -> None:
        """Drop the versions of another server, and the versions that end in purged files. `server`: the server that the
        connection has logged in to; `files`: its files."""
        self._close()
        self._collations.clear()
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
        """Called when the stream has reached a statement. End the versions of the tables that the statement may alter,
        and begin the versions that can be derived from the statement."""
        derived = self._derived(statement)
        if self._statements_here and self._statements_here[0].before.key != statement.before.key:
            self._statements_here.clear()
        self._statements_here.append(statement)
        for name in [name for name in self._open if statement.altered.concerns(name)]:
            version = self._open[name]
            if version.start.key < statement.after.key:
                del self._open[name]
                version.end = statement.before
                self._drop_if_unused(version)
                self.changed = True
        # A version with a range on both sides of the statement was stored by a stream that skipped the statement.
        for version in self._all():
            spans = version.start.key < statement.before.key < version.end.key
            if spans and statement.altered.concerns(version.name):
                version.end = statement.before
                self.changed = True
        for database, (since, _) in list(self._collations.items()):
            if since.key <= statement.before.key and statement.altered.concerns_database(database):
                del self._collations[database]
        for name, definition in derived.items():
            self._begin_derived(name, definition, statement.after)

    def version_at(self, name: Name, at: LogPosition) -> Version | None:
        """Returns the version for the transaction that begins at `at`, the stream's current point. Returns None if the
        definition must be fetched."""
        version = self._open.get(name) or self._reopen(name, at)
        if version is not None:
            self._unused.pop(version, None)
            if version.derived and version.end.key < at.key:
                version.end = at
        return version

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

    # -- derived definitions ---------------------------------------------------------------------------------

    def _derived(self, statement: AlteringStatement) -> dict[Name, Definition]:
        """Returns the definitions after a statement, as far as the statement and the versions before the statement show
        these definitions."""
        if statement.text is None or statement.server is None:
            return {}

        def known(name: Name) -> Definition | None:
            version = self._open.get(name)
            if version is None or version.start.key >= statement.after.key:
                before = (
                    v
                    for v in reversed(self._versions.get(name, ()))
                    if v.start.key < statement.after.key and v.holds(statement.before)
                )
                version = next(before, None)
            return None if version is None else version.definition

        def collation_of(database: str) -> int:
            since, collation = self._collations.get(database, (None, 0))
            return collation if since is not None and since.key <= statement.before.key else 0

        parsed = parse_statement(statement.text, ROUTING_BOUNDS)
        server = Server(statement.server, collation_of)
        return derived_definitions(statement.text, parsed, known, server)

    def _begin_derived(self, name: Name, definition: Definition, at: LogPosition) -> None:
        versions = self._versions.setdefault(name, [])
        same = [v for v in versions if v.start.key == at.key and v.holds(at)]
        if any(v.disputed for v in same):
            return
        version = next((v for v in same if v.definition is not None), None)
        if version is None:
            end = max((v.end for v in same), key=lambda position: position.key, default=at)
            version = Version(name, at, end, definition)
            versions[:] = [v for v in versions if v not in same]
            versions.append(version)
            versions.sort(key=_start)
            self._unused[version] = None
        elif not version.derived and version.definition is not None:
            _compare(version, definition, version.definition)
        if version.definition is not None:
            self._open[name] = version
        self.changed = True
        self._trim(name)
        if len(self._unused) > DERIVED_MAX:
            self._drop_if_unused(next(iter(self._unused)))

    def _drop_if_unused(self, version: Version) -> None:
        if version in self._unused:
            self.discard(version)

    def discard(self, version: Version) -> None:
        """Drop a derived version that is not used, or that contradicts a TABLE_MAP."""
        self._unused.pop(version, None)
        if self._open.get(version.name) is version:
            del self._open[version.name]
        self._versions[version.name].remove(version)
        if not self._versions[version.name]:
            del self._versions[version.name]
        self.changed = True

    def _derived_at(self, name: Name, at: LogPosition) -> Version | None:
        """Returns the derived version that is valid at `at`."""
        versions = reversed(self._versions.get(name, ()))
        return next((v for v in versions if v.derived and v.holds(at)), None)

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
            before = [each for each in statements if each.before.key < fetched.at.key]
            if not any(each.altered.concerns_database(name[0]) for each in before):
                self._collations[name[0]] = start, fetched.database_collation
            derived = self._derived_at(name, start)
            for each in before:
                if each.altered.concerns(name):
                    sequence = each.sequences.concerns(name)
                    self._add_segment(
                        fetched, low, each.before, derived, last=False, sequence=sequence
                    )
                    low, derived = each.after, None
            self._add_segment(fetched, low, fetched.at, derived, last=True)
            self._trim(name)
        self.changed = True

    def _add_segment(
        self,
        fetched: FetchedDefinition,
        low: LogPosition,
        high: LogPosition,
        derived: Version | None,
        *,
        last: bool,
        sequence: bool = False,
    ) -> None:
        """Record that the table had only one definition from `low` to `high`. The last segment gets the fetched
        definition. An earlier segment, or the last segment after a failed fetch, gets the definition of the newest
        known version that begins in the segment. If there is no such version, the segment gets None or, if the log
        shows that the name was that of a sequence (`sequence`), the definition of a sequence. `derived`: a version with
        a derived definition that is valid at `low` and begins before it."""
        versions = self._versions.setdefault(fetched.name, [])
        error = fetched.definition if isinstance(fetched.definition, BinlogError) else None
        current = None if isinstance(fetched.definition, BinlogError) else fetched.definition
        definition, why = (current, None) if last and error is None else (None, error)
        begun = [v for v in versions if v.derived and low.key <= v.start.key < high.key]
        may_come = last and error is not None
        if (version := begun[-1] if begun else derived) is not None:
            self._extend_derived(version, high, definition)
            version.asked, version.may_come = True, may_come
            return
        if definition is None:
            same = [v for v in versions if v.definition is not None and _begins_in(v, low, high)]
            known = sequence_definition(*fetched.name) if sequence else None
            definition = same[-1].definition if same else known
        if high.key < low.key:
            # `low` and `high` belong to two statements of one transaction, so the segment is empty.
            return
        versions[:] = [
            v for v in versions if not (low.key <= v.start.key and v.end.key <= high.key)
        ]
        versions.append(
            Version(fetched.name, low, high, definition, why, current, may_come=may_come)
        )
        versions.sort(key=_start)

    def _extend_derived(
        self, version: Version, high: LogPosition, fetched: Definition | None
    ) -> None:
        """Record that a derived definition is valid up to `high`. `fetched`: the definition that the server shows at
        `high`, None if this definition is not known. The fetch also shows the collation that new tables of the database
        got, if no statement has changed this collation."""
        assert version.definition is not None
        if version.end.key < high.key:
            version.end = high
        since, collation = self._collations.get(version.name[0], (None, 0))
        if since is not None and collation:
            version.definition = with_database_collation(version.definition, collation)
        if fetched is not None:
            _compare(version, version.definition, fetched)

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


def _compare(version: Version, derived: Definition, fetched: Definition) -> None:
    """Give a version the fetched definition if the derived definition equals it. Otherwise the version has no
    definition."""
    what = difference(derived, fetched)
    if not what:
        version.definition = fetched
        return
    version.definition, version.disputed = None, True
    version.why = BinlogError(
        ErrorKind.METADATA_MISSING,
        f"the statements in the log and the server show different columns: {what}",
        remedy="a statement was executed without a trace in the log (sql_log_bin=0), or this is a fault of the daemon:"
        f" please report the statement; move the consumer past the alteration ({SEEK}), and copy the table afresh",
    )


def _begins_in(version: Version, low: LogPosition, high: LogPosition) -> bool:
    """True if a version begins in [low, high) and does not end at its beginning."""
    return low.key <= version.start.key < min(version.end.key, high.key)


def _start(version: Version) -> int:
    return version.start.key
