"""Queues and reads one transaction of many rows events of 100 kB, for two consumers, in a process of its own.

Arguments: folder for the spill, number of events. Prints the bytes by which the peak of resident memory grew, the most
that a queue held, and seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from dispatcher.dispatch.queue.queue import Queue
from dispatcher.dispatch.values.executed_position import BatchGtids, Mode, make_executed
from dispatcher.state.spill import Spill
from dispatcher.stream.batch import Batch
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.segments import release_pages
from dispatcher.stream.splitter import Splitter
from tests.support.event_encoder import LogWriter, Statement

MIB = 1 << 20
SIZE = 100_000


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def events(count: int) -> Iterator[bytes]:
    log = LogWriter()
    log.begin()
    log.statement(Statement((("shop", "orders"),), ((0, SIZE), (0, 5))))
    log.commit()
    for raw, _ in log.file.events:
        for _ in range(count if len(raw) > SIZE else 1):
            yield raw


def run(spill: Spill, count: int) -> int:
    routes = Routes()
    split = Splitter(routes, packets=False, checksum=True, buffer_bytes=MIB)
    queues = [Queue(Filter(("shop",)), MIB, spill.allocate) for _ in range(2)]
    start = make_executed(Mode.GTID, "", "binlog.000001", 4)
    for queue in queues:
        queue.reset("server", Mode.GTID, 0, start, 0)
    held = 0
    for raw in events(count):
        for batch in split.feed(raw):
            assert isinstance(batch, Batch)
            steps = BatchGtids.of(batch)
            for queue in queues:
                queue.push(batch, steps, routes, 0, queue.queued, in_sync=False)
                held = max(held, queue.held_bytes)
    for queue in queues:
        assert queue.spilled_bytes >= count * SIZE - MIB
    for queue in queues:
        read(queue, count)
        assert queue.spilled_bytes == queue.held_bytes == 0
    assert spill.bytes == 0
    return held


def read(queue: Queue, count: int) -> None:
    assert queue.full
    start = queue.position(queue.acknowledged)
    answer = queue.readable(start, 1)
    assert answer.transactions == 1 and answer.bytes > count * SIZE
    size = 0
    for part in queue.read(start, answer.end):
        size += len(bytes(part))
        release_pages(part)
    assert size > answer.bytes
    queue.acknowledge(answer.end)


def main() -> None:
    spill = Spill(Path(sys.argv[1]), 1 << 40)
    run(spill, 20)
    before, begun = peak_bytes(), time.monotonic()
    held = run(spill, int(sys.argv[2]))
    print(peak_bytes() - before, held, time.monotonic() - begun)


if __name__ == "__main__":
    main()
