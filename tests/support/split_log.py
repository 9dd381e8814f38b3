"""Joins the batches that a splitter has made from a log, so that tests can compare them with the records of the log's
writer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from dispatcher.model.errors import BinlogError
from dispatcher.stream import batch as a
from dispatcher.stream.batch import Batch, Closed
from dispatcher.stream.routes import ALL, NO_ROUTE, Routes
from dispatcher.stream.splitter import Splitter
from tests.support import event_encoder as e

ROLES = {
    a.FRAME: "frame", a.TABLE_MAP: "map", a.ROWS: "rows", a.ROWS_END: "rows", a.TEXT: "text", a.DDL: "ddl",
    a.SAVEPOINT: "savepoint", a.ROLLBACK_TO: "undo",
}  # fmt: skip


def splitter(
    *,
    packets: bool = True,
    checksum: bool = True,
    buffer: int = 1 << 14,
    own_statements: Sequence[str] = (),
) -> Splitter:
    return Splitter(Routes(own_statements), packets=packets, checksum=checksum, buffer_bytes=buffer)


def cuts(rng: random.Random, data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = rng.choice((1, 7, 19, 100, 5000, 40_000))
        yield data[at : at + size]
        at += size


class Flat:
    """The joined batches: transactions as (source, gno, end, commit_us, parts); faults; the files."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.done: list[tuple[Any, ...]] = []
        self.aborted: list[list[tuple[Any, ...]]] = []
        self.open: list[tuple[Any, ...]] = []
        self.faults: list[BinlogError] = []
        self.events = self.bytes = 0
        self.closed: list[bytes] = []
        self.places: list[tuple[str, int]] = []
        self.checked = True  # True if the events of all batches have checksums
        self._inside = False

    def add(self, batches: Sequence[Batch | Closed]) -> Flat:
        for batch in batches:
            if isinstance(batch, Closed):
                self.closed.append(batch.packet)
                continue
            self.places.append((batch.file, batch.offset))
            self.checked &= batch.format.checksum
            self.events += batch.events
            self.bytes += batch.bytes
            if batch.fault:
                self.faults.append(batch.fault.error)
            for t in range(len(batch.tx.first)):
                self._transaction(batch, t)
        return self

    def _transaction(self, batch: Batch, t: int) -> None:
        flags = int(batch.tx.flags[t])
        assert bool(flags & a.CONTINUED) == self._inside
        parts = self.open if flags & a.CONTINUED else []
        for i in range(batch.tx.first[t], batch.tx.last[t]):
            off, size, kind = int(batch.ev.off[i]), int(batch.ev.size[i]), int(batch.ev.kind[i])
            raw = batch.buf[off : off + size].tobytes()
            part = (
                ROLES[kind & a.KIND_MASK],
                raw,
                None if kind & a.KIND_MASK >= a.SAVEPOINT else self._tables(int(batch.ev.route[i])),
                kind & a.KIND_MASK == a.ROWS_END,
            )
            if kind & a.CARRIED:
                assert part in parts, "carried, but never seen"
            else:
                parts.append(part)
        source = int(batch.tx.source[t])
        head = (
            batch.file,
            batch.sources[source] if source >= 0 else "",
            int(batch.tx.gno[t]) if source >= 0 else 0,
            int(batch.tx.end[t]),
            int(batch.tx.commit_us[t]),
        )
        self._inside = bool(flags & a.OPEN)
        self.open = parts if self._inside else []
        if flags & a.ABORTED:
            self.aborted.append(parts)
        elif not self._inside:
            self.done.append((*head, parts))
        else:
            assert t == len(batch.tx.first) - 1

    def _tables(self, route: int) -> Any:
        return None if route == ALL else () if route == NO_ROUTE else self.routes.targets[route]


def expected(log: e.LogWriter) -> list[tuple[Any, ...]]:
    return [
        (
            t.file,
            t.source,
            t.gno,
            t.end,
            t.commit_us,
            [
                (
                    p.role,
                    p.raw,
                    tuple(p.tables or ()) if p.role in ("map", "rows") else p.tables if p.role == "ddl" else None,
                    p.ends,
                )
                for p in t.parts
            ],
        )
        for t in log.transactions
    ]  # fmt: skip


def check(flat: Flat, log: e.LogWriter) -> None:
    assert not flat.faults
    for got, want in zip(flat.done, expected(log), strict=False):
        assert got == want
    assert len(flat.done) == len(log.transactions)


def feed(split: Splitter, chunks: Iterator[bytes] | Sequence[bytes]) -> Flat:
    flat = Flat(split.routes)
    for chunk in chunks:
        flat.add(split.feed(chunk))
    return flat
