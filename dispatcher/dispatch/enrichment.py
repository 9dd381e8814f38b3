"""Batches whose TABLE_MAPs say all that a server with full metadata says.

`Enrichment.of` goes through a batch in order: statements end versions, TABLE_MAPs that lack something get it from the
version that holds (`versions`). Where none is known it says what must be looked up, and is called with the same batch
again when that is; what cannot be known then is a failure of those consumers that want it.

The cost for a server that writes everything is the kernel's comparison per TABLE_MAP (`binlog.replace`).
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
from dispatcher.binlog.table_map.parse import POST_HEADER_SIZE
from dispatcher.dispatch.versions import (
    LogPosition,
    Name,
    Touched,
    TransactionStarts,
    Version,
    Versions,
    touched_in,
)
from dispatcher.model.errors import BinlogError, ErrorKind

TAILS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class SchemaRequirement:
    """Whether a TABLE_MAP's table is wanted by consumers that have not passed its transaction: `strict` ones, which
    take only what is proven, and `lax` ones, which take the current schema where that fits. `later`: by strict ones,
    perhaps not yet."""

    strict: bool
    lax: bool
    later: bool


@dataclass(slots=True)
class Failure:
    """A table's consumers cannot go on at transaction `t` of the batch; `lax` ones either?"""

    route: int
    t: int
    error: BinlogError
    lax: bool


@dataclass(slots=True)
class Outcome:
    """`missing`: tables to be looked up before the batch can be taken, and the log read from `start` on for statements
    on them, or (`gaps`) on any; else `batch` can be."""

    batch: Batch
    missing: tuple[Name, ...] = ()
    start: LogPosition | None = None
    gaps: bool = False
    failures: list[Failure] = field(default_factory=list)


@dataclass(slots=True)
class _Walk:
    """One batch on its way."""

    batch: Batch
    created: int
    need: Callable[[int, int], SchemaRequirement]
    ask: bool
    out: I32
    missing: dict[Name, LogPosition] = field(default_factory=dict)
    failures: dict[tuple[int, int], Failure] = field(default_factory=dict)


class Enrichment:
    """`routes`: of the connection."""

    def __init__(self, routes: Routes, versions: Versions) -> None:
        self.versions = versions
        self._mariadb = False
        self._can_ask = True
        self._routes = routes
        self._seen = TableIdCache()
        self._tails = MetadataSuffixes()
        self._numbers: dict[tuple[bytes, Version], int] = {}
        self._incomplete: dict[bytes, bool] = {}
        self._marks = TransactionStarts()
        self._format: FormatDescription | None = None
        self._begun = False
        self._from: LogPosition | None = None  # where the stream goes on
        self._anew: LogPosition | None = None  # where it goes on after it was read ahead
        self._gaps = False  # may the stream skip transactions that it has not come to yet?
        self._ahead: list[Touched] = []  # statements that lie ahead, where they may be skipped

    # -- a stream --------------------------------------------------------------------------------------------

    def begin(self, place: LogPosition | None, *, mariadb: bool, can_ask: bool, gaps: bool) -> None:
        """A stream begins, at `place` where that is known.

        `can_ask`: is there a server that knows the tables? `gaps`: may the stream leave out transactions that lie
        behind ones that it sends?
        """
        self._mariadb, self._can_ask, self._gaps = mariadb, can_ask, gaps
        self._from = place
        self._anew = None
        self._marks = TransactionStarts()
        self._ahead.clear()
        self._again()

    @property
    def place(self) -> LogPosition | None:
        """Where the stream goes on; None where it does not say yet."""
        return self._from

    def _again(self) -> None:
        self._begun = False
        self._seen.forget()

    def of(
        self,
        batch: Batch,
        created: int,
        wanted: U8,
        need: Callable[[int, int], SchemaRequirement],
        *,
        ask: bool = True,
    ) -> Outcome:
        """`wanted`: one byte per route. `need(route, t)`: who wants it at transaction `t`. `ask`: may anything be
        missing? Else that is a failure."""
        self._prepare(batch, created)
        ask = ask and self._can_ask
        ahead = list(self._ahead)
        walk = _Walk(batch, created, need, ask, np.empty(len(batch.ev.off), dtype=np.int32))
        self._go(walk, wanted)
        if walk.missing and ask:
            # When more is known, this batch comes again.
            self._ahead = ahead
            self._again()
            start = min(walk.missing.values(), key=lambda mark: mark.key)
            return Outcome(batch, tuple(walk.missing), start, self._gaps)
        failures = list(walk.failures.values())
        return Outcome(replace_table_maps(batch, walk.out, self._tails), failures=failures)

    def _prepare(self, batch: Batch, created: int) -> None:
        if (
            batch.format is not self._format
        ):  # the server may have been restarted, and count table ids anew
            self._format = batch.format
            self._seen.forget()
        if len(self._numbers) > TAILS_MAX:
            self._numbers.clear()
            self._incomplete.clear()
            self._tails.clear()
            self._seen.forget()
        self._seen.grow(len(self._routes))
        if not self._begun and len(batch.tx.first):
            self._begun = True
            at, first = self._from, self._marks.start(batch, created, 0)
            at = first if at is None or at.key > first.key else at
            self.versions.begin(self._anew or at, opening=not self._gaps)
            self._anew = None

    def took(self, batch: Batch, created: int) -> None:
        """The batch was taken."""
        after = self._marks.after(batch, created)
        # Before its first transaction a dump by GTIDs passes files that are held already; it goes on at its place.
        if self._begun:
            self._from = after
            self.versions.advance(after)

    def read_ahead(self, start: LogPosition, touches: list[Touched]) -> None:
        """All statements between `start`, where something was missing first, and an end of the log that lies behind all
        that the stream may leave out."""
        if self._gaps:
            self._gaps = False
            self._anew = start  # nothing that was known before it holds there for sure
            self._ahead = sorted(touches, key=lambda touched: touched.place.key)

    # -- a batch ---------------------------------------------------------------------------------------------

    def _go(self, walk: _Walk, wanted: U8) -> None:
        batch, seen = walk.batch, self._seen
        firsts = batch.tx.first
        end = LogPosition(batch.file, batch.offset).key
        i = 0
        while True:
            if self._ahead and self._ahead[0].place.key <= end:
                seen.forget()  # each is looked at
            i = next_unresolved(
                batch.buf, batch.ev, wanted, seen.ids, seen.sizes, seen.tails, walk.out, i
            )
            if i == len(batch.ev.off):
                return
            t = int(np.searchsorted(firsts, i, side="right")) - 1
            self._pass(walk, t)
            if batch.ev.kind[i] & KIND_MASK == DDL:
                self._statement(walk, i, t)
            else:
                walk.out[i] = self._table_map(walk, i, t)
            i += 1

    def _pass(self, walk: _Walk, t: int) -> None:
        """Statements that lie before a transaction and were skipped."""
        if self._ahead:
            at = self._marks.start(walk.batch, walk.created, t)
            while self._ahead and self._ahead[0].place.key < at.key:
                self.versions.touched(self._ahead.pop(0))

    def _statement(self, walk: _Walk, i: int, t: int) -> None:
        touched = touched_in(walk.batch, walk.created, self._marks, i, t)
        if touched.touch:
            self.versions.touched(touched)
            self._seen.forget()

    def _table_map(self, walk: _Walk, i: int, t: int) -> int:
        batch = walk.batch
        off, size, route = int(batch.ev.off[i]), int(batch.ev.size[i]), int(batch.ev.route[i])
        body = batch.buf[off + HEADER_SIZE : off + size - 4 * batch.format.checksum].tobytes()
        layout = blake2b(body[POST_HEADER_SIZE:], digest_size=16).digest()
        if layout not in self._incomplete:
            self._incomplete[layout] = incomplete(body, mariadb=self._mariadb and self._can_ask)
        tail, keep = KEEP, True
        if self._incomplete[layout]:
            need = walk.need(route, t)
            if not (need.strict or need.lax):
                return KEEP
            tail, keep = self._tail(walk, body, layout, route, t, need)
        if keep:
            identity = read_table_id(batch.buf, off + HEADER_SIZE)
            self._seen.remember(route, identity, size, tail)
        return tail

    def _tail(
        self, walk: _Walk, body: bytes, layout: bytes, route: int, t: int, need: SchemaRequirement
    ) -> tuple[int, bool]:
        """(number of the tail, may it be taken for all that follow?)."""
        ((database, table),) = self._routes.targets[route]
        assert table is not None
        name = (database, table)
        at = self._marks.start(walk.batch, walk.created, t)
        version = None if self._gaps else self.versions.at(name, at)
        if version is None:
            walk.missing.setdefault(name, at)
            if not walk.ask:
                why = None if self._can_ask else _nobody_knows()
                self._fail(walk, route, t, _unproven(name, at, why), lax=True)
            return KEEP, False
        if version.definition is not None:
            try:
                return self._number(body, layout, version), True
            except BinlogError as contradiction:
                self._fail(walk, route, t, contradiction.at(str(at)), lax=True)
                return KEEP, False
        error = _unproven(name, at, version.why)
        if need.strict:
            self._fail(walk, route, t, error, lax=False)
        if need.lax:
            try:
                if version.current is not None:
                    return self._number(body, layout, version), not need.later
            except BinlogError as contradiction:
                error = contradiction
            self._fail(walk, route, t, error, lax=True)
        return KEEP, False

    def _number(self, body: bytes, layout: bytes, version: Version) -> int:
        key = layout, version
        if key not in self._numbers:
            definition = version.definition if version.definition is not None else version.current
            assert definition is not None
            new = enriched_body(body, definition, mariadb=self._mariadb)
            self._numbers[key] = KEEP if new == body else self._tails.add(new)
        return self._numbers[key]

    def _fail(self, walk: _Walk, route: int, t: int, error: BinlogError, *, lax: bool) -> None:
        known = walk.failures.get((route, t))
        if known is None or (lax and not known.lax):
            walk.failures[route, t] = Failure(route, t, error, lax)


def _nobody_knows() -> BinlogError:
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
