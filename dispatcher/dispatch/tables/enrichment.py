"""Rewrites TABLE_MAPs so that they hold everything that a server with full metadata would write.

`Enrichment.enrich` goes through a batch in order. A statement ends the versions of the tables that it may alter, and a
TABLE_MAP that lacks metadata gets it from the version of its table that is valid there (module `versions`). If no
version is known, the result lists the tables to be fetched, and the caller calls `enrich` with the same batch again
after the fetch. If the definition is still unknown then, the consumers that need the table fail.

With a server that writes full metadata, this costs only the kernel's comparison of each TABLE_MAP
(`binlog.stream.table_map_rewrite`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from dispatcher.binlog.event.header import HEADER_SIZE, FormatDescription
from dispatcher.binlog.kernel.bytes import I32, U8
from dispatcher.binlog.stream.batch import DDL, KIND_MASK, Batch
from dispatcher.binlog.stream.routes import Routes
from dispatcher.binlog.stream.table_map_rewrite import (
    KEEP,
    MetadataSuffixes,
    TableIdCache,
    next_unresolved,
    read_table_id,
    replace_table_maps,
)
from dispatcher.binlog.table_map.enrich import enriched_body, incomplete
from dispatcher.binlog.table_map.wire import POST_HEADER_SIZE
from dispatcher.dispatch.tables.versions import (
    AlteringStatement,
    LogPosition,
    Name,
    TransactionStarts,
    Version,
    Versions,
    altering_statement,
)
from dispatcher.model.errors import BinlogError, ErrorKind

SUFFIXES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class SchemaRequirement:
    """What the consumers that still need a transaction require of the table definition for one of its TABLE_MAPs.

    `proven`: True if at least one consumer accepts only a proven definition; `current`: True if at least one accepts
    the current definition, provided that it fits; `later`: True if at least one needs a proven definition, but perhaps
    only for later transactions.
    """

    proven: bool
    current: bool
    later: bool


@dataclass(slots=True)
class SchemaFailure:
    """Consumers of a table cannot go on at transaction `t` of the batch. `even_current`: True if the consumers that
    accept the current definition cannot go on either."""

    route: int
    t: int
    error: BinlogError
    even_current: bool


@dataclass(slots=True)
class Outcome:
    """What `enrich` returns: the rewritten batch with its failures or, if `missing` is not empty, what must be fetched
    before the batch can be delivered.

    `missing`: the tables whose definitions must be fetched; `start`: the point from which the log must be read to find
    statements that alter these tables; `gaps`: True if statements that alter any table are needed.
    """

    batch: Batch
    missing: tuple[Name, ...] = ()
    start: LogPosition | None = None
    gaps: bool = False
    failures: list[SchemaFailure] = field(default_factory=list)


@dataclass(slots=True)
class _Walk:
    """The state of one pass over a batch."""

    batch: Batch
    created: int
    requirement: Callable[[int, int], SchemaRequirement]
    ask: bool
    suffixes: I32  # by event
    missing: dict[Name, LogPosition] = field(default_factory=dict)
    failures: dict[tuple[int, int], SchemaFailure] = field(default_factory=dict)

    def fail(self, route: int, t: int, error: BinlogError, *, even_current: bool) -> None:
        earlier = self.failures.get((route, t))
        if earlier is None or (even_current and not earlier.even_current):
            self.failures[route, t] = SchemaFailure(route, t, error, even_current)


class Enrichment:
    """Enriches one connection's batches. `routes`: the connection's routes; `position`: where its stream goes on, None
    if that is not known yet."""

    def __init__(self, routes: Routes, versions: Versions) -> None:
        self.versions = versions
        self.position: LogPosition | None = None
        self._mariadb = False
        self._can_ask = True
        self._routes = routes
        self._tables = TableIdCache()
        self._suffixes = MetadataSuffixes()
        self._numbers: dict[tuple[bytes, Version], int] = {}  # the numbers of suffixes
        self._incomplete: dict[bytes, bool] = {}  # by layout
        self._starts = TransactionStarts()
        self._format: FormatDescription | None = None
        self._begun = False  # True once a transaction of the stream was read
        # If the log was read ahead: the position from which on versions are valid.
        self._known_from: LogPosition | None = None
        # True if the stream may leave out a transaction although it sends an earlier one.
        self._gaps = False
        self._statements_ahead: list[
            AlteringStatement
        ] = []  # recorded, because the stream may skip them

    # -- a stream --------------------------------------------------------------------------------------------

    def begin(
        self, position: LogPosition | None, *, mariadb: bool, can_ask: bool, gaps: bool
    ) -> None:
        """Prepare for a new stream.

        `position`: where the stream begins, None if that is not known; `can_ask`: True if there is a server that knows
        the tables; `gaps`: True if the stream may leave out a transaction although it sends an earlier one.
        """
        self._mariadb, self._can_ask, self._gaps = mariadb, can_ask, gaps
        self.position = position
        self._known_from = None
        self._starts = TransactionStarts()
        self._statements_ahead.clear()
        self._begin_again()

    def _begin_again(self) -> None:
        self._begun = False
        self._tables.forget()

    def enrich(
        self,
        batch: Batch,
        created: int,
        route_mask: U8,
        requirement: Callable[[int, int], SchemaRequirement],
        *,
        ask: bool = True,
    ) -> Outcome:
        """Rewrite the TABLE_MAPs of a batch.

        `route_mask`: one byte per route; `requirement(route, t)`: returns the requirement for a TABLE_MAP of a route in
        transaction `t`; `ask`: True if the outcome may ask for missing tables, False if each missing table is a
        failure.
        """
        self._prepare(batch, created)
        ask = ask and self._can_ask
        ahead = list(self._statements_ahead)
        suffixes = np.empty(len(batch.ev.off), dtype=np.int32)
        walk = _Walk(batch, created, requirement, ask, suffixes)
        self._walk(walk, route_mask)
        if walk.missing and ask:
            # `enrich` will be called with the same batch again.
            self._statements_ahead = ahead
            self._begin_again()
            start = min(walk.missing.values(), key=lambda position: position.key)
            return Outcome(batch, tuple(walk.missing), start, self._gaps)
        rewritten = replace_table_maps(batch, walk.suffixes, self._suffixes)
        return Outcome(rewritten, failures=list(walk.failures.values()))

    def _prepare(self, batch: Batch, created: int) -> None:
        if batch.format is not self._format:
            # The server may have been restarted, and may assign table ids anew.
            self._format = batch.format
            self._tables.forget()
        if len(self._numbers) > SUFFIXES_MAX:
            self._numbers.clear()
            self._incomplete.clear()
            self._suffixes.clear()
            self._tables.forget()
        self._tables.grow(len(self._routes))
        if not self._begun and len(batch.tx.first):
            self._begun = True
            at, first = self.position, self._starts.start(batch, created, 0)
            at = first if at is None or at.key > first.key else at
            self.versions.begin(self._known_from or at, opening=not self._gaps)
            self._known_from = None

    def advance(self, batch: Batch, created: int) -> None:
        """Move the position behind a batch that was delivered."""
        after = self._starts.after(batch, created)
        # A dump by GTIDs may pass files whose transactions are all executed, before it sends its first transaction.
        # Until that transaction, the position stays where the stream began.
        if self._begun:
            self.position = after
            self.versions.advance(after)

    def read_ahead(self, start: LogPosition, statements: list[AlteringStatement]) -> None:
        """Add the statements that were found by reading the log ahead.

        The log was read from `start`, where a definition was first missing, to its end. Everything that the stream may
        leave out lies before that end.
        """
        if self._gaps:
            self._gaps = False
            self._known_from = start  # earlier versions may have ended before
            self._statements_ahead = sorted(statements, key=lambda each: each.before.key)

    # -- a batch ---------------------------------------------------------------------------------------------

    def _walk(self, walk: _Walk, route_mask: U8) -> None:
        batch, tables = walk.batch, self._tables
        end = LogPosition(batch.file, batch.offset).key
        i = 0
        while True:
            if self._statements_ahead and self._statements_ahead[0].before.key <= end:
                tables.forget()  # so that the kernel stops at each TABLE_MAP
            i = next_unresolved(
                batch.buf, batch.ev, route_mask, tables.ids, tables.sizes, tables.tails, walk.suffixes, i
            )  # fmt: skip
            if i == len(batch.ev.off):
                return
            t = int(np.searchsorted(batch.tx.first, i, side="right")) - 1
            self._end_skipped(walk, t)
            if batch.ev.kind[i] & KIND_MASK == DDL:
                self._end_altered(walk, i, t)
            else:
                walk.suffixes[i] = self._table_map(walk, i, t)
            i += 1

    def _end_skipped(self, walk: _Walk, t: int) -> None:
        """End the versions of the tables that were altered before transaction `t` by statements that the stream has
        left out."""
        if self._statements_ahead:
            at = self._starts.start(walk.batch, walk.created, t)
            while self._statements_ahead and self._statements_ahead[0].before.key < at.key:
                self.versions.end_altered(self._statements_ahead.pop(0))

    def _end_altered(self, walk: _Walk, i: int, t: int) -> None:
        statement = altering_statement(walk.batch, walk.created, self._starts, i, t)
        if statement.altered:
            self.versions.end_altered(statement)
            self._tables.forget()

    def _table_map(self, walk: _Walk, i: int, t: int) -> int:
        """Returns the number of the suffix for the TABLE_MAP that is event `i` in transaction `t`."""
        batch = walk.batch
        off, size, route = int(batch.ev.off[i]), int(batch.ev.size[i]), int(batch.ev.route[i])
        body = batch.buf[off + HEADER_SIZE : off + size - 4 * batch.format.checksum].tobytes()
        layout = blake2b(body[POST_HEADER_SIZE:], digest_size=16).digest()
        if layout not in self._incomplete:
            self._incomplete[layout] = incomplete(body, mariadb=self._mariadb and self._can_ask)
        suffix, reusable = KEEP, True
        if self._incomplete[layout]:
            requirement = walk.requirement(route, t)
            if not (requirement.proven or requirement.current):
                return KEEP
            suffix, reusable = self._suffix(walk, body, layout, route, t, requirement)
        if reusable:
            table_id = read_table_id(batch.buf, off + HEADER_SIZE)
            self._tables.remember(route, table_id, size, suffix)
        return suffix

    def _suffix(
        self,
        walk: _Walk,
        body: bytes,
        layout: bytes,
        route: int,
        t: int,
        requirement: SchemaRequirement,
    ) -> tuple[int, bool]:
        """Returns the number of the suffix, and True if later TABLE_MAPs with the same content may get it, too."""
        ((database, table),) = self._routes.targets[route]
        assert table is not None
        name = (database, table)
        at = self._starts.start(walk.batch, walk.created, t)
        version = None if self._gaps else self.versions.version_at(name, at)
        if version is None:
            walk.missing.setdefault(name, at)
            if not walk.ask:
                why = None if self._can_ask else _no_server()
                walk.fail(route, t, _unproven(name, at, why), even_current=True)
            return KEEP, False
        if version.definition is not None:
            try:
                return self._number(body, layout, version), True
            except BinlogError as contradiction:
                walk.fail(route, t, contradiction.at(str(at)), even_current=True)
                return KEEP, False
        error = _unproven(name, at, version.why)
        if requirement.proven:
            walk.fail(route, t, error, even_current=False)
        if requirement.current:
            try:
                if version.current is not None:
                    return self._number(body, layout, version), not requirement.later
            except BinlogError as contradiction:
                error = contradiction
            walk.fail(route, t, error, even_current=True)
        return KEEP, False

    def _number(self, body: bytes, layout: bytes, version: Version) -> int:
        key = layout, version
        if key not in self._numbers:
            definition = version.definition if version.definition is not None else version.current
            assert definition is not None
            enriched = enriched_body(body, definition, mariadb=self._mariadb)
            self._numbers[key] = KEEP if enriched == body else self._suffixes.add(enriched)
        return self._numbers[key]


def _no_server() -> BinlogError:
    return BinlogError(
        ErrorKind.METADATA_MISSING,
        "the log does not name its columns, and there is no server to be asked",
        remedy="read the log through the server that wrote it (mysql: instead of files:), which knows the table; SET"
        " PERSIST binlog_row_metadata=FULL on the server (MySQL 8.0.14, MariaDB 10.5 or newer) lets later events name"
        " them",
    )


def _unproven(name: Name, at: LogPosition, why: BinlogError | None) -> BinlogError:
    label = f"{name[0]}.{name[1]}"
    if why is not None:
        return BinlogError(
            why.kind, f"table {label} at {at}: {why.what}", where=why.where, remedy=why.remedy
        )
    return BinlogError(
        ErrorKind.METADATA_MISSING,
        f"the log does not name the columns of table {label} at {at}, and the table may have been altered since",
        remedy="start the consumer after the statement that altered it; or, if you know that its columns were the same"
        " then, set assume_current_schema: true; SET PERSIST binlog_row_metadata=FULL on the server (MySQL 8.0.14,"
        " MariaDB 10.5 or newer) lets later events name them",
    )
