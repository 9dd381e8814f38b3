"""What the splitter hands on: batches of arrays, faults, the end of a dump."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.binlog.arrays import U8, Events, Transactions
from dispatcher.binlog.events import FormatDescription
from dispatcher.binlog.routes import ALL
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import GtidSet, MariadbGtids


@dataclass(slots=True)
class Fault:
    """An event that could carry data and was not understood, and the route of those whom it concerns."""

    error: BinlogError
    route: int = ALL


@dataclass(frozen=True, slots=True)
class Head:
    """How a file began, as far as it was read. `before`: the file that was read before it, "" for the first one of a
    stream; `closed`: bytes of that file up to its end, 0 where it does not end in a ROTATE; `previous`: the GTIDs that
    the file says it follows, None where it has not said so (yet)."""

    before: str
    closed: int
    previous: GtidSet | MariadbGtids | None = None


@dataclass(slots=True)
class Batch:
    """Consecutive events of one file under one FORMAT_DESCRIPTION, and the transactions they belong to.

    Offsets in `ev` point into `buf`; both are valid until the splitter's `compact()`. Carried events come first.
    `file`, `offset`: where the log goes on after the batch. `fault` comes after all of it. `sources`: names of the
    GTID sources that `tx.source` counts: a uuid, or MariaDB's "domain-server". `head`: of a batch that begins a file,
    and of those that follow it until one has transactions or the head's GTIDs.
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

    def own(self) -> Batch:
        """The same with copies of everything that `compact()` would overwrite."""
        return replace(self, buf=self.buf.copy(), ev=self.ev.copy(), tx=self.tx.copy())


@dataclass(slots=True)
class Closed:
    """The server ended the dump: an EOF or an error packet (payload included), or an unknown packet."""

    packet: bytes
