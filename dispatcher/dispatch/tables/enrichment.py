"""Rewrites TABLE_MAPs so that they contain everything that a server with binlog_row_metadata=FULL would write.

`Enrichment.enrich` goes through a batch in order. At a statement that may alter tables, it ends the versions of these
tables (module `versions`). A TABLE_MAP without metadata gets the metadata of the table version that is valid at this
point of the log. If no version is known, `enrich` returns the names of the tables whose definitions must be fetched.
The caller fetches these definitions and calls `enrich` again with the same batch. If a definition is still unknown
after the last fetch that the caller may make (`ask=False`), the consumers that need the table fail. If no later fetch
can show the definition, the TABLE_MAP is also *marked* (`table_map.wire`, UNKNOWN_DEFINITION): consumers whose readers
understand the mark do not fail. All consumers get the same batch. So if one of them has `assume_current_schema` and the
table's current definition fits, the TABLE_MAP gets this definition and no mark. Then all consumers of the table without
`assume_current_schema` fail, even if their readers understand the mark.

If the server writes full metadata, enrichment costs only one comparison per TABLE_MAP, in a kernel
(`stream.table_map_rewrite`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np

from dispatcher.binlog.event.header import HEADER_SIZE, FormatDescription
from dispatcher.binlog.kernel.bytes import I32, U8
from dispatcher.binlog.table_map.enrich import (
    IncompleteError,
    Lacks,
    enriched_body,
    lacks,
    lacks_only_declared_types,
    marked_unknown,
    names_columns,
)
from dispatcher.binlog.table_map.wire import POST_HEADER_SIZE
from dispatcher.dispatch.tables.statements import (
    AlteringStatement,
    TransactionStarts,
    altering_statement,
)
from dispatcher.dispatch.tables.versions import LogPosition, Name, Version, Versions
from dispatcher.model.errors import BinlogError, ErrorKind, full_metadata
from dispatcher.stream.batch import DDL, KIND_MASK, Batch
from dispatcher.stream.routes import ALL, Routes
from dispatcher.stream.table_map_rewrite import (
    KEEP,
    MetadataSuffixes,
    TableIdCache,
    next_unresolved,
    read_table_id,
    replace_table_maps,
)

SUFFIXES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class SchemaRequirement:
    """What consumers require of the table definition for one TABLE_MAP. Consumers whose queues already contain the
    TABLE_MAP's transaction require nothing.

    `proven`: True if at least one consumer accepts only a proven definition; `current`: True if at least one consumer
    also accepts the table's current definition if it fits the TABLE_MAP; `later`: True if at least one consumer needs a
    proven definition for this transaction or may need one for a later transaction.
    """

    proven: bool
    current: bool
    later: bool


@dataclass(slots=True)
class SchemaFailure:
    """The definition of a table is missing or wrong for transaction `t` of the batch, so consumers of the table fail
    there. `even_current`: True if the consumers that accept the current definition fail, too. `marked`: True if the
    TABLE_MAP is marked, so that consumers whose readers understand the mark do not fail."""

    route: int
    t: int
    error: BinlogError
    even_current: bool
    marked: bool = False


@dataclass(slots=True)
class Outcome:
    """What `enrich` returns. If `missing` is empty: the rewritten batch and the failures. Otherwise: what the caller
    must fetch before it calls `enrich` again.

    `missing`: the tables whose definitions must be fetched; `start`: the point from which the log must be read to find
    statements that alter these tables; `gaps`: True if the caller must read the statements for all tables, not only for
    the missing ones.
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
    suffixes: I32  # for each event: the number of its new body in `Enrichment._suffixes`, or KEEP
    missing: dict[Name, LogPosition] = field(default_factory=dict)
    failures: dict[tuple[int, int], SchemaFailure] = field(default_factory=dict)

    def fail(
        self, route: int, t: int, error: BinlogError, *, even_current: bool, marked: bool = False
    ) -> None:
        earlier = self.failures.get((route, t))
        if earlier is None:
            self.failures[route, t] = SchemaFailure(route, t, error, even_current, marked)
            return
        earlier.marked = earlier.marked and marked
        if even_current and not earlier.even_current:
            earlier.error, earlier.even_current = error, True


class Enrichment:
    """Enriches one connection's batches. `routes`: the connection's routes; `position`: where the next batch of the
    connection's stream begins, None if that is not known yet."""

    def __init__(self, routes: Routes, versions: Versions) -> None:
        self.versions = versions
        self.position: LogPosition | None = None
        self._mariadb = False
        self._can_ask = True
        self._routes = routes
        self._tables = TableIdCache()
        self._suffixes = MetadataSuffixes()
        self._numbers: dict[tuple[bytes, Version], int] = {}  # the numbers of suffixes
        self._marks: dict[
            tuple[bytes, str], int
        ] = {}  # the numbers of the suffixes of marked TABLE_MAPs, by layout and reason
        # What a TABLE_MAP lacks, by its layout (a hash of its body).
        self._lacks: dict[bytes, Lacks] = {}
        self._starts = TransactionStarts()
        self._format: FormatDescription | None = None
        self._begun = False  # True once a transaction of the stream was read
        # If the log was read ahead of the stream: the point where this reading began. The next `versions.begin` reopens
        # the versions that are valid there.
        self._known_from: LogPosition | None = None
        # True if the stream may skip a transaction that lies between two transactions that it sends.
        self._gaps = False
        # The stream and the log that was read ahead together contain every statement after this point. None if the
        # stream alone contains every statement.
        self._complete_from: LogPosition | None = None
        self._statements_ahead: list[
            AlteringStatement
        ] = []  # statements that the stream may skip, found by reading ahead

    # -- a stream --------------------------------------------------------------------------------------------

    def begin(
        self, position: LogPosition | None, *, mariadb: bool, can_ask: bool, gaps: bool
    ) -> None:
        """Prepare for a new stream.

        `position`: where the stream begins, None if that is not known; `can_ask`: True if there is a server that knows
        the tables; `gaps`: True if the stream may skip a transaction that lies between two transactions that it sends.
        """
        self._mariadb, self._can_ask, self._gaps = mariadb, can_ask, gaps
        self.position = position
        self._known_from = self._complete_from = None
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
            # The caller will call `enrich` again with the same batch, so this call's changes are undone.
            self._statements_ahead = ahead
            self._begin_again()
            start = min(walk.missing.values(), key=lambda position: position.key)
            return Outcome(batch, tuple(walk.missing), start, self._gaps)
        rewritten = replace_table_maps(batch, walk.suffixes, self._suffixes)
        return Outcome(rewritten, failures=list(walk.failures.values()))

    def _prepare(self, batch: Batch, created: int) -> None:
        if batch.format is not self._format:
            # After a restart, a server assigns new table ids.
            self._format = batch.format
            self._tables.forget()
        if len(self._numbers) + len(self._marks) > SUFFIXES_MAX:
            self._numbers.clear()
            self._marks.clear()
            self._lacks.clear()
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
        """Move the position to the end of a batch that was put into the queues."""
        after = self._starts.after(batch, created)
        # Before its first transaction, a dump by GTIDs may pass through files of which the daemon has all transactions.
        # Until that transaction, the position stays where the stream began.
        if self._begun:
            self.position = after
            self.versions.advance(after)

    def read_ahead(self, start: LogPosition, statements: list[AlteringStatement]) -> None:
        """Add the statements that were found by reading the log ahead.

        The log was read from `start`, the first point where a definition was missing, to the log's end. All
        transactions that the stream may skip lie before that end.
        """
        if self._gaps:
            self._gaps = False
            # Before `start`, the stream may have skipped statements that end versions.
            self._known_from = self._complete_from = start
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
                ddl_route = batch.ev.route[i]
                wanted = ddl_route == ALL or bool(route_mask[ddl_route])
                self._end_altered(walk, i, t, wanted)
            else:
                walk.suffixes[i] = self._table_map(walk, i, t)
            i += 1

    def _end_skipped(self, walk: _Walk, t: int) -> None:
        """End the versions of the tables that skipped statements before transaction `t` may alter."""
        if self._statements_ahead:
            at = self._starts.start(walk.batch, walk.created, t)
            while self._statements_ahead and self._statements_ahead[0].before.key < at.key:
                self.versions.end_altered(self._statements_ahead.pop(0))

    def _end_altered(self, walk: _Walk, i: int, t: int, wanted: bool) -> None:
        """`wanted`: True if a consumer reads one of the statement's tables."""
        statement = altering_statement(walk.batch, walk.created, self._starts, i, t)
        since = self._complete_from
        skipped = self._gaps or (since is not None and statement.before.key < since.key)
        if skipped or not wanted:
            statement = replace(statement, text=None)
        if statement.altered:
            self.versions.end_altered(statement)
            self._tables.forget()

    def _table_map(self, walk: _Walk, i: int, t: int) -> int:
        """Returns the number of the metadata suffix (the new body after the table id and flags) for the TABLE_MAP that
        is event `i` in transaction `t`; KEEP if the TABLE_MAP stays unchanged."""
        batch = walk.batch
        off, size, route = int(batch.ev.off[i]), int(batch.ev.size[i]), int(batch.ev.route[i])
        body = batch.buf[off + HEADER_SIZE : off + size - 4 * batch.format.checksum].tobytes()
        layout = blake2b(body[POST_HEADER_SIZE:], digest_size=16).digest()
        if layout not in self._lacks:
            self._lacks[layout] = lacks(body, mariadb=self._mariadb and self._can_ask)
        suffix, reusable = KEEP, True
        if self._lacks[layout] is not Lacks.NOTHING:
            requirement = walk.requirement(route, t)
            if not (requirement.proven or requirement.current):
                return KEEP
            if self._lacks[layout] is Lacks.KIND:
                suffix, reusable = self._kind_suffix(walk, body, layout, route, t)
            else:
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
        """Returns the number of the metadata suffix, and True if later TABLE_MAPs with the same content may get the
        same suffix."""
        ((database, table),) = self._routes.targets[route]
        assert table is not None
        name = (database, table)
        at = self._starts.start(walk.batch, walk.created, t)
        version = None if self._gaps else self.versions.version_at(name, at)
        version, lacking = self._usable(version, at, body, layout)
        if version is None:
            walk.missing.setdefault(name, at)
            if not walk.ask and not lacks_only_declared_types(body):
                why = lacking if self._can_ask else _no_server(self._mariadb)
                error = _unproven(name, str(at), why, body, self._mariadb)
                walk.fail(route, t, error, even_current=True)
            return KEEP, False
        why = lacking or version.why
        if version.definition is not None and lacking is None:
            try:
                return self._number(body, layout, version), True
            except BinlogError as contradiction:
                why = contradiction
        elif lacks_only_declared_types(body):
            return KEEP, False
        error = _unproven(name, str(at), why, body, self._mariadb)
        unknown = version.definition is None and requirement.current
        if unknown and version.current is not None:
            try:
                suffix = self._number(body, layout, version)
            except BinlogError as contradiction:
                why = contradiction
                error = _unproven(name, str(at), why, body, self._mariadb)
            else:
                if requirement.proven:
                    walk.fail(route, t, error, even_current=False)
                return suffix, not requirement.later
        even_current = version.definition is not None or requirement.current
        walk.fail(route, t, error, even_current=even_current, marked=not version.may_come)
        if version.may_come:
            return KEEP, False
        return self._mark(body, layout, _unproven(name, "", why, body, self._mariadb).what), False

    def _mark(self, body: bytes, layout: bytes, reason: str) -> int:
        """Returns the number of the suffix that marks a TABLE_MAP, and contains the reason why its definition is
        unknown."""
        key = layout, reason
        if key not in self._marks:
            self._marks[key] = self._suffixes.add(marked_unknown(body, reason))
        return self._marks[key]

    def _kind_suffix(
        self, walk: _Walk, body: bytes, layout: bytes, route: int, t: int
    ) -> tuple[int, bool]:
        """Returns what `_suffix` returns, for a TABLE_MAP that lacks only the table's kind. If the kind is not known,
        no consumer fails: the TABLE_MAP stays unchanged, and readers of the table decide."""
        ((database, table),) = self._routes.targets[route]
        assert table is not None
        name = (database, table)
        at = self._starts.start(walk.batch, walk.created, t)
        version = None if self._gaps else self.versions.version_at(name, at)
        if version is None:
            walk.missing.setdefault(name, at)
            return KEEP, False
        if version.definition is None:
            return KEEP, False
        try:
            return self._number(body, layout, version), True
        except BinlogError:  # the definition is of another version of the table
            return KEEP, False

    def _usable(
        self, version: Version | None, at: LogPosition, body: bytes, layout: bytes
    ) -> tuple[Version | None, BinlogError | None]:
        """Returns the version for a TABLE_MAP at `at`, and an error or None. The version is `version`, unless this is a
        derived version that contradicts the TABLE_MAP; such a version is dropped. The version is None if the table must
        be fetched: either no version is left, or a derived definition is incomplete, and the error names what it lacks.
        If a fetch could not complete this definition, returns both its version and the error."""
        while version is not None and version.derived:
            try:
                self._number(body, layout, version)
                return version, None
            except IncompleteError as lacking:
                return version if version.asked else None, lacking
            except BinlogError:
                self.versions.discard(version)
                version = self.versions.version_at(version.name, at)
        return version, None

    def _number(self, body: bytes, layout: bytes, version: Version) -> int:
        key = layout, version
        if key not in self._numbers:
            definition = version.definition if version.definition is not None else version.current
            assert definition is not None
            enriched = enriched_body(body, definition, mariadb=self._mariadb)
            self._numbers[key] = KEEP if enriched == body else self._suffixes.add(enriched)
        return self._numbers[key]


def _no_server(mariadb: bool) -> BinlogError:
    return BinlogError(
        ErrorKind.METADATA_MISSING,
        "the log does not name its columns, and there is no server to be asked",
        remedy="read the log through the server that wrote it (mysql: instead of files:), because the server knows the"
        f" columns; or {full_metadata(mariadb)}, which lets later events name the columns",
    )


def _unproven(
    name: Name, at: str, why: BinlogError | None, body: bytes, mariadb: bool
) -> BinlogError:
    """Returns the error for a definition that is not proven. `at`: the position that the text names; "" for the text of
    marks, which is the same at all positions."""
    label = f"{name[0]}.{name[1]}" + (f" at {at}" if at else "")
    if why is not None:
        return BinlogError(
            why.kind, f"table {label}: {why.what}", where=why.where, remedy=why.remedy
        )
    remedy = (
        "start the consumer after the statement that altered the table; or, if you know that the table had the same"
        " columns at this position, set assume_current_schema: true for the consumer in the daemon's settings"
    )
    if names_columns(body):
        what = (
            f"the log does not show the fractional digits of the temporal columns of table {label}"
        )
        more = "ALTER TABLE ... FORCE with mysql56_temporal_format=ON lets later events show them"
    else:
        what = f"the log does not name the columns of table {label}, and the table may have been altered since"
        more = f"{full_metadata(mariadb)}, which lets later events name the columns"
    return BinlogError(
        ErrorKind.METADATA_MISSING,
        what,
        remedy=f"{remedy}; {more}",
    )
