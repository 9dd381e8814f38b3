"""Delivered ranges as a queue gives them, made by the daemon's own splitter and consumer log."""

from __future__ import annotations

from dispatcher.binlog.event.header import MAGIC, FormatDescription
from dispatcher.dispatch.queue.queue_ranges import RangeEnd, formatted_bytes
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.stream.batch import Batch
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.splitter import Splitter

Parts = list[bytes | memoryview]


class Delivered:
    """What a consumer of some databases has in its queue. `executed`: all GTIDs that were read; `file`, `offset`: the
    place up to which the log was read; `ends`: logical offsets of the transactions' ends."""

    def __init__(self, *databases: str, executed: GtidSet | MariadbGtids) -> None:
        self.log = ConsumerLog(1 << 16)
        self.executed = executed
        self.file, self.offset = "", 0
        self.ends: list[int] = []
        self._formats: list[tuple[int, FormatDescription]] = []
        self._filter = Filter(databases)
        self._seq = 0

    def take(self, batch: Batch, routes: Routes) -> None:
        assert batch.fault is None, batch.fault
        if not self._formats or self._formats[-1][1].raw != batch.format.raw:
            self._formats.append((self.log.committed, batch.format))
        mask = self._filter.route_mask(routes)
        done, self._seq = self.log.append(batch, mask, None, epoch=1, seq=self._seq, packed=False)
        self.ends += done.end.tolist()
        for source, number in zip(batch.tx.source.tolist(), batch.tx.gno.tolist(), strict=True):
            if source >= 0:
                self.executed = self.executed.add(batch.sources[source], number)
        self.file, self.offset = batch.file, batch.offset

    def parts(self, start: int = 0, end: int | None = None) -> Parts:
        """The range between two logical offsets, which lie between transactions."""
        hi = self.log.committed if end is None else end
        return [MAGIC, *formatted_bytes(self._formats, self.log, RangeEnd(start), hi)]


def delivered(
    stream: bytes,
    *databases: str,
    executed: GtidSet | MariadbGtids | None = None,
    checksum: bool = True,
) -> Delivered:
    """What a consumer gets of the packets of a server's dump.

    `executed`: before the dump. `checksum`: True if its first ROTATE has a checksum.
    """
    splitter = Splitter(Routes(), packets=True, checksum=checksum, buffer_bytes=1 << 16)
    out = Delivered(*databases, executed=GtidSet() if executed is None else executed)
    for batch in splitter.feed(stream):
        if isinstance(batch, Batch):
            out.take(batch, splitter.routes)
    return out
