"""What a replication client reads: rows in transactions, with the places in the server's log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from dispatcher.model.gtid import GtidSet, MariadbGtids

MARKS = "marks"
DDL = "ddl"
Key = tuple[str, str, str, int | None]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a client reads. `tls`: the client must use TLS; otherwise it must not, and asks for the server's RSA
    key."""

    host: str
    port: int
    user: str
    password: str
    mariadb: bool = False
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """The place to begin at: an offset in a file, or after a GTID set ("uuid:1-5", or "0-1-5" of MariaDB).

    `gtids` is None for a client that reads by file. The empty text is the empty set.
    """

    file: str
    offset: int = 4
    gtids: str | None = None


@dataclass(frozen=True, slots=True)
class Until:
    """When a client is killed: after the transaction that inserts the row `mark` into `marks`, or, if `rows` is not 0,
    as soon as it has printed that many rows, even inside a transaction."""

    database: str
    mark: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A row that was changed, or a statement (`op` is "ddl", `after` its text).

    `before` and `after` are the values as the client printed them; long values are digests. `key` is the value of the
    first column. `offset`: the end of the row's event in the source's file, or None if the client does not tell it.
    """

    database: str
    table: str
    op: str
    key: int | None
    before: str | None
    after: str | None
    offset: int | None = None

    @property
    def identity(self) -> Key:
        return self.database, self.table, self.op, self.key


@dataclass(frozen=True, slots=True)
class Transaction:
    """A complete transaction; `offset` is its end in the source's file, `gtid` is empty if the client tells none."""

    rows: tuple[Row, ...]
    file: str
    offset: int
    gtid: str = ""


@dataclass(slots=True)
class Reading:
    """All transactions with rows that a client has read, and the place from which it would go on.

    `repeated`: how many rows the client has delivered again after a restart, because it promises at least once. They
    are left out of `transactions`; a row that differs from its first delivery is an error.
    """

    transactions: list[Transaction]
    stored: Start
    repeated: int = 0

    @property
    def rows(self) -> list[Row]:
        return [row for transaction in self.transactions for row in transaction.rows]

    @property
    def keys(self) -> list[Key]:
        """The database, table, operation and key of each row, without statements."""
        return [row.identity for row in self.rows if row.op != DDL]

    def only(self, *databases: str) -> Reading:
        """Returns the part of this reading that a consumer of these databases has to read."""
        kept = []
        for one in self.transactions:
            rows = tuple(row for row in one.rows if row.database in databases)
            if rows:
                kept.append(Transaction(rows, one.file, one.offset, one.gtid))
        return Reading(kept, self.stored, self.repeated)

    def then(self, later: Reading) -> Reading:
        """Returns this reading, joined with a reading that went on from its stored place."""
        return Reading(
            [*self.transactions, *later.transactions],
            later.stored,
            self.repeated + later.repeated,
        )


class Client(Protocol):
    """A consumer with a stored place of its own. `begin` sets that place; each `read` goes on from there, at any
    endpoint."""

    @property
    def name(self) -> str: ...

    def begin(self, at: Endpoint, start: Start, /) -> None: ...

    def read(self, at: Endpoint, until: Until, /) -> Reading: ...


@dataclass(slots=True)
class Collector:
    """Groups rows into transactions, and knows when to stop. Rows of an incomplete transaction are dropped.

    `place` is the place after the last complete transaction. If the client reads by GTID, the set in it grows with
    each transaction, unless the client tells its own set.
    """

    until: Until
    place: Start
    mariadb: bool = False
    transactions: list[Transaction] = field(default_factory=list)
    done: bool = False
    _rows: list[Row] = field(default_factory=list)
    _count: int = 0
    _marked: bool = False

    def row(self, row: Row) -> None:
        self._rows.append(row)
        self._count += row.op != DDL
        if (row.database, row.table) == (self.until.database, MARKS):
            self._marked |= row.key == self.until.mark
        self.done |= 0 < self.until.rows <= self._count

    def end(self, file: str, offset: int, gtid: str = "", gtids: str | None = None) -> None:
        """A transaction is complete, or was empty."""
        if self._rows:
            self.transactions.append(Transaction(tuple(self._rows), file, offset, gtid))
        self._rows.clear()
        held = self.place.gtids
        if held is not None:
            held = gtids if gtids is not None else add_gtid(held, gtid, mariadb=self.mariadb)
        self.place = Start(file, offset, held)
        self.done |= self._marked

    def rollback(self) -> None:
        self._rows.clear()

    @property
    def reading(self) -> Reading:
        return Reading(self.transactions, self.place)


def add_gtid(gtids: str, gtid: str, *, mariadb: bool) -> str:
    """Returns a set with one GTID more."""
    if not gtid:
        return gtids
    if mariadb:
        domain, _, _ = gtid.partition("-")
        kept = [one for one in gtids.split(",") if one and one.partition("-")[0] != domain]
        return str(MariadbGtids.parse(",".join([*kept, gtid])))
    return str(GtidSet.parse(f"{gtids},{gtid}" if gtids else gtid))


def identities(rows: Iterable[Row]) -> list[Key]:
    return [row.identity for row in rows]
