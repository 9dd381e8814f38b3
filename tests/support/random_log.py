"""Random logs, and a simple second implementation that computes what a consumer gets from these logs.

A log is made from a seed. It has transactions over several databases, statements with several tables and events, DDL,
SAVEPOINTs, empty transactions, rotations that switch checksums on or off, and crashes that leave a file without its
end.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from uuid import UUID

from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.binlog.event.types import EventType
from tests.support.event_encoder import (
    IGNORABLE,
    SERVER,
    LogWriter,
    Part,
    Statement,
    Table,
    Transaction,
    status_variables,
)
from tests.support.spelling import NameSpeller

OTHER_SERVER = UUID("0a9d88f8-c14e-11ec-bb36-244bfedf7766")
TABLES: tuple[Table, ...] = (
    ("shop", "orders"), ("shop", "items"), ("shop", "größe"), ("billing", "invoices"), ("crm", "people"),
    ("crm", "x" * 64),
)  # fmt: skip
Targets = tuple[tuple[str, str | None], ...] | None

# Each entry: statement, default database, updated databases, the tables that the statement concerns (None = all).
DDLS: tuple[tuple[str, str, tuple[str, ...] | None, Targets], ...] = (
    ("CREATE TABLE orders (id int)", "shop", ("shop",), (("shop", "orders"),)),
    ("ALTER TABLE shop.items ADD c int", "crm", None, (("shop", "items"),)),
    (
        "DROP TABLE `shop`.`orders`, billing.invoices",
        "",
        None,
        (("billing", "invoices"), ("shop", "orders")),
    ),
    ("DROP DATABASE crm", "", ("crm",), (("crm", None),)),
    (
        "RENAME TABLE crm.people TO billing.people",
        "",
        None,
        (("billing", "people"), ("crm", "people")),
    ),
    (
        "TRUNCATE TABLE crm.people",
        "",
        ("crm", "billing"),
        (("billing", None), ("crm", "people")),
    ),
    ("FROBNICATE everything", "shop", None, None),
    ("FROBNICATE something", "shop", ("billing",), (("billing", None),)),
)


# Spells the names of these statements as people type them on a server that folds names.
spelled_names = NameSpeller(
    ["shop", "billing", "crm", "orders", "items", "größe", "invoices", "people", "x" * 64]
)


def random_statement(rng: random.Random, size_max: int) -> Statement:
    tables = tuple(rng.sample(TABLES, rng.choice((1, 1, 1, 2, 3))))
    rows = tuple(
        (rng.randrange(len(tables)), rng.choice((0, 5, rng.randrange(1, size_max))))
        for _ in range(rng.choice((1, 1, 2, 5)))
    )
    text = rng.choice((None, "INSERT INTO t VALUES (1)", "x" * 300))
    kind = rng.choice(
        (EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS, EventType.WRITE_ROWS_V1)
    )  # fmt: skip
    return Statement(tables, rows, text, kind)


def random_transaction(rng: random.Random, log: LogWriter, source: UUID, size_max: int) -> None:
    log.compress, log.compression = rng.random() < 0.2, rng.choice((0, 0, 255))
    log.begin(source)
    names: list[str] = []
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        what = rng.random()
        if what < 0.15:
            name = rng.choice("ab")
            names = [other for other in names if other != name] + [name]
            log.savepoint(name, query=rng.choice(("SAVEPOINT `{}`", "savepoint {}")))
        elif what < 0.3 and names:
            name = rng.choice(names)
            names = names[: names.index(name) + 1]
            log.undo(name, query=rng.choice(("ROLLBACK TO `{}`", "rollback work to savepoint {}")))
        elif what < 0.35 and names:
            log.ignored("RELEASE SAVEPOINT a")
        if rng.random() < 0.05:
            query, database, updated, tables = rng.choice(DDLS)
            log.query(query, database, status_variables(updated_databases=updated), tables)
        log.statement(random_statement(rng, size_max))
    log.commit(rng.choice(("xid", "xid", "COMMIT", "ROLLBACK", "commit")))


def random_crash(rng: random.Random, log: LogWriter, source: UUID, size_max: int) -> None:
    log.compress = False
    if rng.random() < 0.7:
        log.begin(source)
        for _ in range(rng.choice((0, 1, 2))):
            log.statement(random_statement(rng, size_max))
        events = list(log.statement_events(random_statement(rng, size_max)))
        for kind, body, *_ in events[: rng.randrange(len(events))]:
            log.add(kind, body)
    log.crash()


def random_log(
    rng: random.Random,
    *,
    transactions: int = 20,
    gtid: str = "mysql",
    size_max: int = 200,
    checksum: bool | None = None,
    files: bool = True,
    far: bool = False,
) -> LogWriter:
    """Returns a random log. `checksum`: None for a random choice that changes from file to file; `files`: False for
    neither rotations nor crashes; `far`: the first file begins shortly before 4 GiB, the largest offset of an event."""
    log = LogWriter(
        gtid=gtid, checksum=rng.random() < 0.7 if checksum is None else checksum, first_file=8
    )
    if far:
        log.jump((1 << 32) - 3000)
    while len(log.transactions) < transactions:
        source = rng.choice((SERVER, SERVER, OTHER_SERVER))
        what = rng.random()
        if what < 0.12:
            query, database, updated, tables = rng.choice(DDLS)
            status = status_variables(updated_databases=updated)
            log.ddl(query, database, status=status, tables=tables, source=source)
        elif what < 0.18 and files:
            flip = rng.random() < 0.5 if checksum is None else checksum
            log.rotate(checksum=flip)
        elif what < 0.22 and files:
            random_crash(rng, log, source, size_max)
        elif what < 0.26:
            log.add(200, b"of a later version", flags=IGNORABLE)
        else:
            random_transaction(rng, log, source, size_max)
    return log


# -- the reference --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """A subscription of names or patterns, as in `ConsumerSpec`."""

    databases: tuple[str, ...]
    tables: tuple[Table, ...] | None = None
    exclude_tables: tuple[Table, ...] = ()

    def table(self, database: str, table: str | None) -> bool:
        if not any(fnmatchcase(database, name) for name in self.databases):
            return False
        if any(
            fnmatchcase(database, of_database) and fnmatchcase(table or "", of_table)
            for of_database, of_table in self.exclude_tables
            if table is not None or of_table == "*"
        ):
            return False
        return (
            table is None
            or self.tables is None
            or any(fnmatchcase(database, d) and fnmatchcase(table, t) for d, t in self.tables)
        )

    def part(self, part: Part) -> bool:
        return part.tables is None or any(self.table(*target) for target in part.tables)


def random_wanted(rng: random.Random) -> Wanted:
    databases = tuple(rng.sample(("shop", "billing", "crm", "nowhere"), rng.randrange(1, 4)))
    own = [table for table in TABLES if table[0] in databases]
    tables = tuple(rng.sample(own, rng.randrange(len(own) + 1))) if rng.random() < 0.4 else None
    return in_patterns(Wanted(databases, tables))


def spelled(wanted: Wanted, speller: Callable[[str], str]) -> Wanted:
    """Returns the subscription with each name in the spelling that `speller` returns."""

    def tables(chosen: tuple[Table, ...]) -> tuple[Table, ...]:
        return tuple((speller(database), speller(table)) for database, table in chosen)

    return Wanted(
        tuple(map(speller, wanted.databases)),
        None if wanted.tables is None else tables(wanted.tables),
        tables(wanted.exclude_tables),
    )


def in_patterns(wanted: Wanted) -> Wanted:
    """Returns the subscription with patterns instead of names, or unchanged. The choice depends only on the names, not
    on the random generator."""
    choice = zlib.crc32(repr(wanted).encode()) % 4
    databases, tables = wanted.databases, wanted.tables
    if choice in (1, 3):
        databases = tuple(f"{name[:2]}*" for name in databases)
    if choice == 2:
        databases = tuple(f"?{name[1:]}" for name in databases)
    if tables is None or choice == 0:
        return Wanted(databases, tables)
    if choice == 1:
        return Wanted(databases, tuple((f"{d[0]}*", f"{t[:-1]}[{t[-1]}]") for d, t in tables))
    own = [table for table in TABLES if table[0] in wanted.databases]
    others = [table for table in own if table not in tables]
    # If no table of a database is read, the whole database is excluded.
    whole = {database for database, _ in own} - {database for database, _ in tables}
    excluded = [(d, "*") if d in whole else (d, f"{t[:3]}*{t[3:]}") for d, t in others]
    return Wanted(databases, None, tuple(dict.fromkeys(excluded)))


def delivered_parts(transaction: Transaction, wanted: Wanted) -> list[bytes]:
    """Returns the events of one transaction that a consumer gets, in complete statements; [] if the consumer gets
    none."""
    parts = transaction.happened
    if not any(part.role in ("rows", "ddl") and wanted.part(part) for part in parts):
        return []
    out = []
    for statement in _statements(parts):
        rows = [part for part in statement if part.role == "rows" and wanted.part(part)]
        for part in statement:
            if part.role == "frame" or (part.role == "ddl" and wanted.part(part)):
                out.append(part.raw)
            elif part.role == "text" and rows:
                if all(wanted.part(other) for other in statement if other.role == "map"):
                    out.append(part.raw)
            elif part.role == "map" and rows and wanted.part(part):
                out.append(part.raw)
            elif part.role == "rows" and wanted.part(part):
                last = part is rows[-1]
                out.append(ended(part.raw, transaction.checksum) if last else part.raw)
    return out


def _statements(parts: Iterable[Part]) -> Iterator[list[Part]]:
    statement: list[Part] = []
    for part in parts:
        statement.append(part)
        if part.role in ("frame", "ddl", "savepoint") or part.ends:
            yield statement
            statement = []
    yield statement


def ended(raw: bytes, checksum: bool) -> bytes:
    """Returns the rows event with the flag STMT_END_F."""
    raw = raw[:25] + bytes((raw[25] | 1,)) + raw[26:]
    return raw[:-4] + zlib.crc32(raw[:-4]).to_bytes(4, "little") if checksum else raw


def delivered(transaction: Transaction, wanted: Wanted, *, epoch: int, seq: int) -> bytes:
    """Returns the bytes of one transaction in a consumer's log."""
    parts = delivered_parts(transaction, wanted)
    return record_of(transaction, epoch, seq) + b"".join(parts) if parts else b""


def record_of(transaction: Transaction, epoch: int, seq: int) -> bytes:
    """Returns the record event before a transaction. The record contains facts that a filtered log does not show."""
    done = transaction
    record = Record(epoch, seq, done.file, done.end, done.commit_us, 0, done.lower_case)
    return encode_record(
        record, checksum=transaction.checksum, timestamp=transaction.timestamp, server_id=1
    )
