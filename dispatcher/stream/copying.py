"""Copies the shares of many consumers. A consumer's share is the bytes that it gets of a batch. The kernel copies them;
for the rest, this module calls the consumer's log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.binlog.kernel.bytes import I32, I64, U8
from dispatcher.model.errors import BinlogError
from dispatcher.stream import copy_kernel as k
from dispatcher.stream.batch import ABORTED, CONTINUED, ROLLED_BACK, Batch

I64Matrix = NDArray[np.int64]


class Appended(NamedTuple):
    """Transactions that became complete. The array `columns` has a column for each; `copy_kernel` defines its rows
    (`END`, `SEQ` ...)."""

    columns: I64Matrix

    @property
    def tx(self) -> I64:
        """The indexes of these transactions in the batch."""
        row: I64 = self.columns[k.TX]
        return row

    @property
    def end(self) -> I64:
        row: I64 = self.columns[k.END]
        return row

    @property
    def seq(self) -> I64:
        row: I64 = self.columns[k.SEQ]
        return row

    @property
    def events(self) -> I64:
        row: I64 = self.columns[k.EVENTS]
        return row

    @property
    def commit_us(self) -> I64:
        row: I64 = self.columns[k.COMMIT_US]
        return row


class Dealt(NamedTuple):
    """The result of `deal_kernel.deal`: which transactions the kernel must process for each lane (consumer)."""

    starts: I32
    visits: I32
    todo: I32


@dataclass(slots=True)
class CopiedShares:
    """What `append_shares` passes to `copy_kernel.copy_shares` and gets back. `visits`, `done`: arguments of the
    kernel. `starts`, `totals`: the kernel's values of each lane that has visits. `failures`: the error of each lane
    that failed."""

    seqs: I64
    record: U8
    starts: dict[int, int]
    visits: I32
    done: I64Matrix
    totals: dict[int, list[int]] = field(default_factory=dict)
    failures: dict[int, BinlogError] = field(default_factory=dict)

    def appended(self, lane: int) -> Appended:
        begin = self.starts[lane]
        return Appended(self.done[:, begin : begin + self.totals[lane][k.COUNT]])


class Log(Protocol):
    """The log of a lane's consumer."""

    def answer(self, code: int, batch: Batch, copying: CopiedShares, begin: int) -> None: ...

    def finish(self, copying: CopiedShares, lane: int) -> None: ...

    def rollback(self) -> None: ...


def roll_back_aborted(batch: Batch, logs: Sequence[Log]) -> None:
    """If the first transaction of a batch continues an earlier batch and was aborted or rolled back, drop the bytes
    that were copied from the earlier batch. The kernel does not copy the transaction's events in this batch."""
    flags = batch.tx.flags
    if len(flags) and flags[0] & CONTINUED and flags[0] & (ABORTED | ROLLED_BACK):
        for log in logs:
            log.rollback()


@lru_cache(maxsize=64)
def _record_of(file: str, lower_case_table_names: int, checksum: bool) -> U8:
    """The record for all transactions of a file. The kernel writes each transaction's epoch, seq, offset and times into
    a copy of this record."""
    return np.frombuffer(
        encode_record(Record(0, 0, file, 0, 0, 0, lower_case_table_names), checksum=checksum),
        dtype=np.uint8,
    )


def append_shares(
    batch: Batch,
    seqs: I64,
    logs: Sequence[Log],
    lanes: I64Matrix,
    dealt: Dealt,
    cut_bytes: int,
) -> CopiedShares:
    """Copy the shares of many consumers; the arguments are those of `copy_kernel.copy_shares`.

    If a log lacks room on disk, the error is in `failures`. Then the log's `committed` is unchanged, and the caller
    must call the log's `rollback()`.
    """
    starts, visits, todo = dealt
    record = _record_of(batch.file, batch.lower_case_table_names, batch.format.checksum)
    done = np.empty((k.DONE_SIZE, len(visits)), dtype=np.int64)
    totals = np.zeros((len(logs), k.TOTALS_SIZE), dtype=np.int64)
    codes = np.empty(len(logs), dtype=np.int32)
    # Of a thousand lanes, few may have visits. So Python makes no object for a lane without visits.
    busy = todo.tolist()
    copying = CopiedShares(
        seqs, record, dict(zip(busy, starts[todo].tolist(), strict=True)), visits, done
    )
    resumed, going = False, todo
    while k.copy_shares(
        batch.buf, batch.ev, batch.tx, seqs, lanes, going, resumed, starts, visits, record,
        int(batch.format.checksum), cut_bytes, done, codes, totals,
    ):  # fmt: skip
        resumed, going = True, going[codes[going] != k.DONE]
        for lane in going.tolist():
            try:
                logs[lane].answer(int(codes[lane]), batch, copying, copying.starts[lane])
            except BinlogError as error:
                copying.failures[lane] = error
        if copying.failures:
            going = going[~np.isin(going, list(copying.failures))]
    copying.totals = dict(zip(busy, totals[todo].tolist(), strict=True))
    for lane in busy:
        if lane not in copying.failures:
            logs[lane].finish(copying, lane)
    return copying
