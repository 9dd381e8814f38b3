"""What the splitter hands on: batches of arrays, faults, the end of a dump."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.binlog.arrays import U8, Events, Transactions
from dispatcher.binlog.events import FormatDescription
from dispatcher.binlog.routes import ALL
from dispatcher.model.errors import BinlogError


@dataclass(slots=True)
class Fault:
    """An event that could carry data and was not understood, and the route of those whom it concerns."""

    error: BinlogError
    route: int = ALL


@dataclass(slots=True)
class Batch:
    """Consecutive events of one file under one FORMAT_DESCRIPTION, and the transactions they belong to.

    Offsets in `ev` point into `buf`; both are valid until the splitter's `compact()`. Carried events come first.
    `file`, `offset`: where the log goes on after the batch. `fault` comes after all of it. `sources`: names of the
    GTID sources that `tx.source` counts: a uuid, or MariaDB's "domain-server".
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

    def own(self) -> Batch:
        """The same with copies of everything that `compact()` would overwrite."""
        return replace(self, buf=self.buf.copy(), ev=self.ev.copy(), tx=self.tx.copy())


@dataclass(slots=True)
class Closed:
    """The server ended the dump: an EOF or an error packet (payload included), or an unknown packet."""

    packet: bytes
