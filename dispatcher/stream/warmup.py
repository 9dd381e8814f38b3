"""Loads or compiles the daemon's kernels before the first byte is read.

On a machine that has never run the kernels, compiling them takes seconds. On later starts, the daemon loads them from
numba's cache in a fraction of a second. In the middle of a stream, compiling or loading them would delay every consumer
and every health check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import event as numba_event
from numpy.typing import NDArray

from dispatcher.binlog.event import transaction_payload
from dispatcher.binlog.event.header import FormatDescription
from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.stream import copy_kernel, reframe, table_map_rewrite
from dispatcher.stream.batch import Batch, Events, Transactions
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.lanes import Lanes
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.splitter import Splitter

Load = Callable[[], None]


class _NotKept(Exception):
    pass


class _Refusing(numba_event.Listener):
    """Raises at the first kernel that is about to be compiled because the cache lacks it."""

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        raise _NotKept

    def on_end(self, event: Any) -> None:
        pass


def load_kept_kernels(load: Callable[[], None]) -> bool:
    """Call `load`, which runs kernels that the cache should have. Return False if the cache lacks one of these kernels;
    then no kernel is compiled."""
    try:
        with numba_event.install_listener("numba:compile", _Refusing()):
            load()
    except _NotKept:
        return False
    return True


def load_kernels() -> None:
    """Run each kernel once, so that numba compiles the kernel or loads it from the cache."""
    for load in KERNEL_LOADS:
        load()


# Empty arrays are enough, because compilation depends only on the types of the arguments.
_NOTHING: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)


def _empty_batch() -> Batch:
    return Batch(
        _NOTHING, FormatDescription(b"", "", 0, True, False), "", 0, 0, Events.empty(0), Transactions.empty(0), [], 0, 0
    )  # fmt: skip


def _load_splitter() -> None:
    routes = Routes()
    Splitter(routes, packets=True, checksum=True, buffer_bytes=1).split()
    routes.table(b"", b"t")


def _load_copying() -> None:
    ConsumerLog().append(_empty_batch(), _NOTHING, None, epoch=0, seq=0, packed=False)


def _load_dealing() -> None:
    Lanes([ConsumerLog()], [Filter(())], [0]).copy(_empty_batch(), np.zeros(0, dtype=np.int64))


def _load_others() -> None:
    batch = _empty_batch()
    event = np.zeros(64, dtype=np.uint8)
    event[9] = len(event)
    copy_kernel.end_statement(event, 0, 1)
    record = encode_record(Record(0, 0, "", 0, 0, 0), checksum=True)
    copy_kernel.finish_record(np.frombuffer(record, dtype=np.uint8).copy(), 0, len(record), 1, 1, 1)
    none_read = np.frombuffer(b"", dtype=np.uint8)
    transaction_payload.check_payload(none_read)
    reframe.reframe(none_read, _NOTHING, 0, 1)
    reframe.unframe(_NOTHING, batch.ev, 0, 0, _NOTHING, 1)
    seen, tails, none = (
        table_map_rewrite.TableIdCache(),
        table_map_rewrite.MetadataSuffixes(),
        np.empty(0, dtype=np.int32),
    )
    table_map_rewrite.next_unresolved(
        _NOTHING, batch.ev, _NOTHING, seen.ids, seen.sizes, seen.tails, none, 0
    )
    table_map_rewrite.rewrite(_NOTHING, batch.ev, none, tails.data, tails.starts, _NOTHING, 0, 1)
    table_map_rewrite.read_table_id(event, 0)


KERNEL_LOADS: tuple[Load, ...] = (_load_copying, _load_splitter, _load_dealing, _load_others)
"""Each loads some kernels; those that take longest to compile come first."""
KERNEL_PACKAGES = ("dispatcher.stream", "dispatcher.binlog.event", "dispatcher.binlog.kernel")
"""The packages of these kernels and of their parts."""
