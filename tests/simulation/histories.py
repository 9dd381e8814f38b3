"""The logs of a play: the same transactions in the logs of a primary and a replica, and the bytes that readers get.

A `History` is the history of a server from its first transaction to a RESET. After a RESET, the same file names and
GTIDs denote other transactions. Writing a log takes longer than a play, so several plays use the same log.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID

from dispatcher.dispatch.values.executed_position import Mode, parse_set
from dispatcher.model.gtid import ExecutedSet
from dispatcher.model.position import Position, file_number, packed_seq
from tests.support.event_encoder import (
    IGNORABLE,
    SERVER,
    TIME,
    LogWriter,
    Statement,
    Transaction,
    status_variables,
)
from tests.support.fake_server import (
    SERVER_NAME,
    Server,
    between_transactions,
    executed_by,
    stops_of,
)
from tests.support.random_log import (
    DDLS,
    OTHER_SERVER,
    TABLES,
    Wanted,
    delivered_parts,
    random_crash,
    random_transaction,
    record_of,
    spelled_names,
)

WRITER = {
    Mode.GTID: "mysql",
    Mode.FILE: "anonymous",
    Mode.MARIADB: "mariadb",
    Mode.DOMAINS: "domains",
}
REPLICA_NAME = "9f3a4c1e-0c5d-11ec-8b1a-0242ac130003"
TRANSACTIONS, TRANSACTIONS_LONG = 26, 90
LOWER_CASE = (0, 0, 1, 1, 2)
_HEADER_BYTES = 19  # the size of an event's header
_CREATED_APART_S = 1_000_000  # the files of two histories have different creation times


class History:
    """`logs`: the log of the primary and, with GTIDs, of a replica. `largest`: the bytes of the largest transaction.

    `twin_of`: another history whose files have the same creation times, as after a RESET within one second. `shifted`:
    True if the transactions have the sizes of the twin's transactions but lower numbers, because an event of equal size
    replaces the twin's first transaction. `lower_case`: the `lower_case_table_names` of all servers of the seed; with
    1 and 2 people type names in any case. `fork`: the server was restored from a copy that contained this number of
    transactions, and then began a new file. `copied`: the end of the copy, as file, offset and number of transactions.
    """

    def __init__(
        self,
        mode: Mode,
        seed: int,
        life: int,
        *,
        long: bool = False,
        twin_of: History | None = None,
        shifted: bool = False,
        fork: int | None = None,
    ) -> None:
        self.mode = mode
        self.copied = ("", 0, 0)
        self.lower_case = random.Random(f"names {seed}").choice(LOWER_CASE)
        rng = random.Random(seed + 1_000_003 * (0 if shifted else life))
        size_max = 40 if long else rng.choice((40, 40, 300, 300, 2500))
        sources = rng.choice(((SERVER,), (SERVER, SERVER, OTHER_SERVER)))
        contents = [rng.random() for _ in range(TRANSACTIONS_LONG if long else TRANSACTIONS)]
        # The log after a RESET begins with the same file number as the log before the RESET.
        first = random.Random(seed).choice((1, 1, 7))
        self.logs: list[LogWriter] = []
        for n in range(2 if mode.by_gtid and fork is None else 1):
            began = TIME + _CREATED_APART_S * (2 * life + n)
            times = {f.name: f.created for f in twin_of.logs[0].files} if twin_of and n == 0 else {}
            log = LogWriter(
                gtid=WRITER[mode],
                checksum=rng.random() < 0.8,
                first_file=first if n == 0 else rng.choice((1, 1, 7)),
                now=began,
                created=times,
            )
            if self.lower_case:
                log.lower_case, log.spelled = self.lower_case, spelled_names
            first_bytes = 0
            if twin_of and shifted:
                replaced = twin_of.logs[n].transactions[0]
                first_bytes = replaced.end - replaced.start
            _fill(log, rng, contents[:fork], sources, size_max, first_bytes=first_bytes)
            if fork is not None:
                self.copied = (log.file.name, log.file.size, len(log.transactions))
                rng = random.Random(f"{seed} {fork}")
                times[following(log.file.name)] = began + 10 * _CREATED_APART_S
                log.crash()
                _fill(log, rng, [rng.random() for _ in contents[fork:]], sources, size_max)
            self.logs.append(log)
        # By file name: the creation times of the files with this name, on all servers.
        self.created: dict[str, set[int]] = {}
        for file in (file for log in self.logs for file in log.files):
            self.created.setdefault(file.name, set()).add(file.created)
        # By file name: the offsets at which no transaction is open, on all servers.
        self.offsets: dict[str, set[int]] = {}
        for file in (file for log in self.logs for file in log.files):
            self.offsets.setdefault(file.name, set()).update(between_transactions(file))
        self._stops = [stops_of(log, mode) for log in self.logs]
        self.transactions = self.logs[0].transactions
        self.largest = max(t.end - t.start for log in self.logs for t in log.transactions)
        self.indices = {(t.source, t.gno): i for i, t in enumerate(self.transactions)}
        self._parts: dict[tuple[int, int, Wanted], bytes] = {}
        self._sets: dict[str, ExecutedSet] = {}

    def servers(self) -> list[Server]:
        names = names_of(self.mode)
        servers = [
            Server(log, self.mode, name, stops)
            for log, name, stops in zip(self.logs, names, self._stops, strict=False)
        ]
        for server in servers:
            server.late_commits = itertools.cycle((0, 1, 1, 0, 2, 2, 2, 1, 0))
        return servers

    def parse(self, gtids: str) -> ExecutedSet:
        gtid_set = self._sets.get(gtids)
        if gtid_set is None:
            gtid_set = self._sets[gtids] = parse_set(self.mode, gtids)
        return gtid_set

    def after(self, count: int, more: Sequence[Transaction] = ()) -> Position:
        """Returns the position after the first `count` transactions of the primary's log. Its GTID set also contains
        the transactions `more`."""
        executed = self.transactions[:count]
        first = self.logs[0].files[0].name
        file, offset = (executed[-1].file, executed[-1].end) if executed else (first, 4)
        if self.mode.by_gtid:
            gtids = executed_by(self.mode, [*executed, *more])
            return Position(names_of(self.mode)[0], str(gtids), file, offset, len(gtids), 0)
        gtid = f"0-1-{executed[-1].gno}" if executed and self.mode is Mode.MARIADB else ""
        return Position(SERVER_NAME, gtid, file, offset, packed_seq(file, offset), 0)

    def between(self, start: Position, end: Position) -> list[int]:
        """Returns the indices of the transactions in (start, end], in the log's order."""
        if self.mode.by_gtid:
            a, b = self.parse(start.gtid), self.parse(end.gtid)
            return [
                i
                for i, t in enumerate(self.transactions)
                if b.has(t.source, t.gno) and not a.has(t.source, t.gno)
            ]
        lo, hi = (packed_seq(p.file, p.offset) for p in (start, end))
        return [i for i, t in enumerate(self.transactions) if lo < packed_seq(t.file, t.end) <= hi]

    def share(self, server: int, index: int, wanted: Wanted, epoch: int, seq: int) -> bytes:
        """Returns the part of a server's transaction that a consumer gets; empty if no event matches the consumer's
        filter."""
        key = (server, index, wanted)
        parts = self._parts.get(key)
        transaction = self.logs[server].transactions[index]
        if parts is None:
            parts = self._parts[key] = b"".join(delivered_parts(transaction, wanted))
        return record_of(transaction, epoch, seq) + parts if parts else b""


def names_of(mode: Mode) -> tuple[str, str]:
    """Returns the names of the primary and of its replica."""
    if mode is Mode.DOMAINS:
        return "mariadb-1", "mariadb-2"
    return SERVER_NAME, REPLICA_NAME


def following(file: str) -> str:
    """Returns the name of the file that follows `file`."""
    return f"binlog.{file_number(file) + 1:06}"


def _fill(
    log: LogWriter,
    rng: random.Random,
    contents: Sequence[float],
    sources: tuple[UUID, ...],
    size_max: int,
    *,
    first_bytes: int = 0,
) -> None:
    """Write transactions. If `first_bytes` is not 0, an event of this size replaces the first transaction."""
    checksum = log.file.checksum
    for content in contents:
        choice = rng.random()
        if choice < 0.07:
            log.rotate(checksum=checksum if rng.random() < 0.7 else not checksum)
        elif choice < 0.09:
            random_crash(rng, log, SERVER, size_max)
        elif choice < 0.12:
            log.add(200, b"of a later version", flags=IGNORABLE)
        if first_bytes:
            body = first_bytes - _HEADER_BYTES - 4 * log.file.checksum
            log.add(200, bytes(body), flags=IGNORABLE)
            first_bytes = 0
        else:
            _transaction(random.Random(content), log, sources, size_max)


def _transaction(
    rng: random.Random, log: LogWriter, sources: tuple[UUID, ...], size_max: int
) -> None:
    """Write a transaction, mostly with simple events, because rare events are slow to read and other tests cover
    them."""
    source, choice = rng.choice(sources), rng.random()
    if choice < 0.08:
        query, database, updated, tables = rng.choice(DDLS)
        status = status_variables(updated_databases=updated)
        log.ddl(query, database, status=status, tables=tables, source=source)
    elif choice < 0.16:
        random_transaction(rng, log, source, size_max)
    else:
        log.compress = False
        log.begin(source)
        for _ in range(rng.choice((0, 1, 1, 2))):
            tables = tuple(rng.sample(TABLES, rng.choice((1, 1, 2))))
            rows = tuple(
                (rng.randrange(len(tables)), rng.choice((5, rng.randrange(1, size_max))))
                for _ in range(rng.choice((1, 1, 2, 4)))
            )
            log.statement(Statement(tables, rows, rng.choice((None, None, "INSERT"))))
        log.commit()


@lru_cache(maxsize=64)
def history(mode: Mode, seed: int, life: int, *, long: bool = False) -> History:
    return History(mode, seed, life, long=long)


@lru_cache(maxsize=16)
def twin(mode: Mode, seed: int, *, shifted: bool) -> History:
    """Returns the history of a server after a RESET in the same second in which its first history began."""
    return History(mode, seed, 1, twin_of=history(mode, seed, 0), shifted=shifted)


@lru_cache(maxsize=16)
def restored(mode: Mode, seed: int, fork: int) -> History:
    """Returns a history: the first history up to a copy, then the transactions that the server wrote after it was
    restored from that copy."""
    return History(mode, seed, 0, fork=fork)
