"""A batch: the arrays that describe its events and transactions, how its file began, and its fault if it has one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.event.header import FormatDescription
from dispatcher.binlog.kernel.bytes import I32, I64, U8
from dispatcher.binlog.sql.lexer import Name
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.stream.routes import ALL

# The kinds of events that routing distinguishes.
FRAME = 0  # GTID, BEGIN, XID, COMMIT: copied for each consumer that gets the transaction
TABLE_MAP = 1
ROWS = 2
ROWS_END = 3  # rows with STMT_END_F
TEXT = 4  # the statement's SQL text
DDL = 5
SAVEPOINT = 6  # the event's route is the savepoint's number
ROLLBACK_TO = 7  # the route is the savepoint's number; undoes all events after the savepoint
CARRIED = 0x40  # flag: an earlier batch listed the event already
KIND_MASK = 0x3F

# Flags of a transaction in a batch.
CONTINUED = 1  # the transaction began in an earlier batch
OPEN = 2  # the transaction does not end in this batch
ABORTED = 4  # the server crashed before the commit: the transaction's copied bytes are dropped
# The transaction ends with ROLLBACK: its copied bytes are dropped, and it counts as executed, without events.
ROLLED_BACK = 8


class Events(NamedTuple):
    """One entry per event: offset in the buffer, size with header and checksum, kind, route."""

    off: I64
    size: I64
    kind: U8
    route: I32

    @classmethod
    def empty(cls, n: int) -> Events:
        i64 = np.empty((2, n), np.int64)
        return cls(i64[0], i64[1], np.empty(n, np.uint8), np.empty(n, np.int32))

    def slice(self, lo: int, hi: int) -> Events:
        return Events._make(column[lo:hi] for column in self)

    def select(self, which: NDArray[np.bool_]) -> Events:
        return Events._make(column[which] for column in self)

    def copy(self) -> Events:
        return Events._make(column.copy() for column in self)


class Transactions(NamedTuple):
    """One entry per transaction: its events [first, last), its flags, its GTID's source (index, -1 = none) and number,
    its end offset in the file, and its commit time in microseconds since 1970 UTC."""

    first: I32
    last: I32
    flags: U8
    source: I32
    gno: I64
    end: I64
    commit_us: I64

    @classmethod
    def empty(cls, n: int) -> Transactions:
        return cls(
            np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.uint8), np.empty(n, np.int32),
            np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64),
        )  # fmt: skip

    def slice(self, lo: int, hi: int, first_event: int) -> Transactions:
        """Entries [lo, hi), with event indexes counted from `first_event`."""
        part, offset = Transactions._make(column[lo:hi] for column in self), np.int32(first_event)
        return part._replace(first=part.first - offset, last=part.last - offset)

    def select(self, which: NDArray[np.bool_]) -> Transactions:
        return Transactions._make(column[which] for column in self)

    def copy(self) -> Transactions:
        return Transactions._make(column.copy() for column in self)


@dataclass(slots=True)
class Fault:
    """An event that could hold data and that the daemon does not understand. The consumers of `route` must stop at this
    event. `altered`: the tables whose definitions the event may have changed; None: any table."""

    error: BinlogError
    route: int = ALL
    altered: tuple[Name, ...] | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """How a file began.

    `before`: the file that was read before this one, "" if this is the first file of a stream. `closed`: size in bytes
    of the file `before`, 0 if it does not end in a ROTATE. `previous`: the GTIDs of this file's PREVIOUS_GTIDS or
    GTID_LIST event, None if that event was not read (yet).
    """

    before: str
    closed: int
    previous: GtidSet | MariadbGtids | None = None


@dataclass(slots=True)
class Batch:
    """Consecutive events of one file under one FORMAT_DESCRIPTION, and the transactions to which they belong.

    Offsets in `ev` point into `buf`; both are valid until the splitter's `compact()`. Carried events come first.
    `file`, `offset`: where the next batch begins. `lower_case_table_names`: the setting of the log's server. `fault`: a
    fault that lies in the log after all events of the batch. `sources`: names of the GTID sources, indexed by
    `tx.source`: a uuid, or MariaDB's "domain-server". `head`: how the file began. `head` is set in the file's first
    batches, up to and including the first that has a transaction, a fault, or `Head.previous`. In the file's other
    batches `head` is None.
    """

    buf: U8
    format: FormatDescription
    file: str
    offset: int
    timestamp: int
    ev: Events
    tx: Transactions
    sources: list[str]
    events: int
    bytes: int
    fault: Fault | None = None
    head: Head | None = None
    lower_case_table_names: int = 0

    def copy(self) -> Batch:
        """Returns this batch with copies of everything that `compact()` would overwrite."""
        return replace(self, buf=self.buf.copy(), ev=self.ev.copy(), tx=self.tx.copy())


@dataclass(slots=True)
class Closed:
    """The server ended the dump. `packet`: the payload of its EOF, error or unknown packet."""

    packet: bytes
