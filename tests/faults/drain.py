"""Readers in threads that read as fast as they may, and count what they get.

Rows are counted, not decoded, because there may be many. Each reader asserts that its transactions come in order and
none comes twice. When everything has been read, the number of rows shows whether a row is missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import TableSlice
from tests.daemon.harness import DEADLINE_S, Daemon, Problem, Reader, transactions


class Drain:
    """One consumer's reader in a thread of its own. `bytes`, `rows`, `transactions`: everything that it has got so far.

    `markers`: True if the reader requests markers, which report progress without data.

    The reader can be stuck (it does not poll at all), or limited to `bytes_per_s` of acknowledgements. A limited reader
    polls for about as many bytes as it may get in a second, but gets at least a whole transaction.
    """

    def __init__(self, daemon: Daemon, consumer: str, *, markers: bool = True) -> None:
        self.markers = markers
        self.reader = Reader(daemon, consumer).open()
        self.bytes = 0
        self.rows = 0
        self.transactions = 0
        self.answers = 0  # polls that reported progress
        self.bytes_per_s = 0
        self.error: BaseException | None = None
        self._going = threading.Event()
        self._going.set()
        self._ended = threading.Event()
        self._last_seq = -1
        self._thread = threading.Thread(target=self._run, name=consumer)

    @property
    def seq(self) -> int:
        return int(self.reader.position["seq"])

    def stick(self) -> None:
        self._going.clear()

    def wake(self) -> None:
        self.bytes_per_s = 0
        self._going.set()

    def crawl(self, bytes_per_s: int) -> None:
        self.bytes_per_s = bytes_per_s
        self._going.set()

    def end(self) -> None:
        self._ended.set()
        self._going.set()

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._going.wait()
                rate, before, began = self.bytes_per_s, self.bytes, time.monotonic()
                self._step(max(1, rate))
                if rate:
                    due = began + (self.bytes - before) / rate
                    while self.bytes_per_s and time.monotonic() < due and not self._ended.is_set():
                        self._ended.wait(min(0.05, max(0.0, due - time.monotonic())))
        except BaseException as error:  # noqa: BLE001  `join` raises it
            self.error = error

    def _step(self, most: int) -> None:
        before = self.reader.position
        try:
            self.reader.step(
                wait_ms=200 if self.markers else 5000,
                max_bytes=most if self.bytes_per_s else None,
                markers=self.markers,
            )
        except Problem as problem:
            if problem.status != 503:
                raise
        self.answers += self.reader.position != before
        for chunk in self.reader.chunks:
            self.bytes += len(chunk)
            parts = list(delivered.split_by_table(chunk))
            self.rows += sum(part.rows for part in parts if isinstance(part, TableSlice))
            for transaction in transactions(chunk):
                assert transaction.seq > self._last_seq, f"{transaction.seq} after {self._last_seq}"
                self._last_seq = transaction.seq
                self.transactions += 1
        self.reader.chunks.clear()


@contextmanager
def draining(
    daemon: Daemon, consumers: Sequence[str], *, markers: bool = True
) -> Iterator[dict[str, Drain]]:
    """A running reader for each consumer until the block ends."""
    made = {name: Drain(daemon, name, markers=markers) for name in consumers}
    for drain in made.values():
        drain._thread.start()
    try:
        yield made
    finally:
        for drain in made.values():
            drain.end()
        for drain in made.values():
            drain.join()
