"""Slices: the parts of a batch, each of which one task reads. Runs on the driver and on the executors.

With the option `raw=slices`, the source yields one row for each slice, and does not fetch the slice. The mirror's log
stage fetches a slice in the Python worker that writes its entries, so the bytes do not pass through the JVM.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from dispatcher.model.position import Position
from spark_sink.source.data_loss import data_loss
from spark_sink.source.http.client import ConsumerClient, SliceCut
from spark_sink.source.http.connections import PROCESS_POOL
from spark_sink.source.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from dispatcher.binlog.decode.changes.metadata import CutTransaction
    from spark_sink.source.snapshot.rules import SnapshotState

SLICE_SCHEMA = StructType().add("number", "long", False).add("slice", "binary", False)


@dataclass(frozen=True)
class Slice(InputPartition):
    """The part of a batch for one task: the delivered bytes of (start, end], read under `session`.

    A slice may begin and end inside of a transaction. The other parts of this transaction are in other slices of the
    same batch. `batch_bytes`: delivered bytes of the whole batch; `batch_end`: the position at which the batch ends,
    set only in the last slice of a raw batch; `gap`: True if the server had purged changes before the batch; `markers`:
    True if the range is known to hold no data and so is not fetched; `address`: the number of the address that answered
    when the batch was planned, so that a task need not search for the leader; `cut`: if the options need them, values
    of the transactions that this slice shares with other slices (see `cut_transactions`); `snapshot`: the state of the
    stream's snapshot, None without one or after its end.
    """

    session: int
    number: int
    start: SliceCut
    end: SliceCut
    batch_bytes: int = 0
    batch_end: Position | None = None
    gap: bool = False
    markers: bool = False
    address: int = 0
    cut: tuple[CutTransaction, ...] = ()
    snapshot: SnapshotState | None = None


def read_bytes(options: SourceOptions, part: Slice) -> tuple[Slice, memoryview]:
    """Returns the delivered bytes of a slice, and the slice with its `gap`. Raises `BinlogError`: POSITION_PURGED if
    the server has purged a part of the slice and `failOnDataLoss` is true.
    """
    if part.markers:
        return part, memoryview(b"")
    client = ConsumerClient(
        options.address, options.consumer, first=part.address, pool=PROCESS_POOL
    )
    try:
        delivered = client.binlog(part.session, part.start, part.end)
    finally:
        client.close()
    if delivered.gap and options.fail_on_data_loss:
        raise data_loss(options.consumer, part.start.position, None)
    if part.batch_end is not None:
        part = replace(part, gap=part.gap or delivered.gap)
    return part, delivered.data


def newest_form(position: Position, head: Position) -> Position:
    """Returns `head` if no transaction lies between `position` and `head`, otherwise `position`. If a file has no
    transaction yet, the beginning and the present end of the file are the same place of the log; a copy that was made
    at this place has the position of the end."""
    return head if head.order == position.order else position


def slice_rows(schema: pa.Schema, part: Slice) -> Iterator[pa.RecordBatch]:
    """Yields one row that contains the pickled slice instead of its changes. Pickle is safe here, because the processes
    that read the row also get the source's pickled partitions."""
    from spark_sink.source.single_row import single_row  # noqa: PLC0415 - loads pyarrow

    yield single_row(schema, {"number": part.number, "slice": pickle.dumps(part)})


def slices_of(rows: Iterable[Any]) -> list[Slice]:
    """Returns the slices of rows of `SLICE_SCHEMA`, in the order of their numbers. `slice_rows` has made these rows in
    this application."""
    return sorted((pickle.loads(row["slice"]) for row in rows), key=lambda part: part.number)  # noqa: S301
