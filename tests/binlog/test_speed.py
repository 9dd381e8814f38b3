"""Splitting and decoding keep their speed, as a ratio to a plain pass over the same bytes in numpy.

CPU time of this thread is compared, both sides alternate, and the best of many short rounds counts, so that what else
the machine does changes little. Each limit is half of what was measured when the test was written: it fails if a path
takes twice the time. `make bench` measures the figures themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.stream.routes import Routes
from dispatcher.binlog.stream.splitter import Splitter
from tests.support.event_encoder import LogWriter, Statement
from tests.support.rows_encoder import Delivered, Spec, integer, rows_body, table_map, text

_ROUNDS = 12
_CHUNK_BYTES = 1 << 20
_TABLE = ("shop", "orders")


def reference(data: bytes) -> Callable[[], None]:
    """A running sum over the bytes: one dependent addition for each, as fast as the processor's clock."""
    values: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)
    sums = np.empty(len(values), np.uint32)

    def add_up() -> None:
        np.cumsum(values, dtype=np.uint32, out=sums)

    return add_up


def speed(measured: Callable[[], object], data: bytes) -> float:
    """Returns the reference's CPU time ÷ that of the measured function; 1 means equally fast."""
    compared = reference(data)
    best: dict[Callable[[], object], float] = {}
    for _ in range(_ROUNDS):
        for function in (measured, compared):
            began = time.thread_time()
            function()
            took = time.thread_time() - began
            best[function] = min(best.get(function, took), took)
    return best[compared] / best[measured]


def log_of(transactions: int, statement: Statement) -> bytes:
    log = LogWriter()
    for _ in range(transactions):
        log.begin()
        log.statement(statement)
        log.commit()
    return log.stream()


def split(stream: bytes) -> Callable[[], int]:
    chunks = [stream[at : at + _CHUNK_BYTES] for at in range(0, len(stream), _CHUNK_BYTES)]

    def read() -> int:
        splitter = Splitter(Routes(), packets=True, checksum=True, buffer_bytes=4 << 20)
        return sum(len(splitter.feed(chunk)) for chunk in chunks)

    assert read() > 0  # and kernels are loaded
    return read


@pytest.mark.parametrize(
    ("transactions", "rows", "least"),
    [(100, ((0, 8000),) * 10, 0.6), (6000, ((0, 120),), 0.25)],
    ids=["bulk", "one-row transactions"],
)
def test_splitting(transactions: int, rows: tuple[tuple[int, int], ...], least: float) -> None:
    stream = log_of(transactions, Statement((_TABLE,), rows))
    found = speed(split(stream), stream)
    print(f"splitting {len(stream) / 1e6:.1f} MB: {found:.2f} of a running sum")
    assert found >= least


def test_decoding() -> None:
    log = Delivered()
    columns = [Spec("id", 8), Spec("customer", 3), Spec("name", 15, meta=b"\xf0\0", charset=255)]
    columns += [Spec(f"c{number}", 8) for number in range(5)]
    for transaction in range(40):
        rows = [
            [integer(n, 8), integer(transaction, 4), text(f"customer {n}", 1)]
            + [integer(n * m, 8) for m in range(5)]
            for n in range(1000)
        ]
        body = rows_body(EventType.WRITE_ROWS, rows)
        log.transaction((EventType.TABLE_MAP, table_map(columns)), (EventType.WRITE_ROWS, body))
    data = log.bytes()

    def decode() -> int:
        return sum(
            part.batch.num_rows
            for part in delivered.changes(data)
            if isinstance(part, TableChanges)
        )

    assert decode() == 40_000
    found = speed(decode, data)
    print(f"decoding {len(data) / 1e6:.1f} MB: {found:.2f} of a running sum")
    assert found >= 0.13
