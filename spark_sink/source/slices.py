"""Slices: the parts of a batch that tasks read on their own, and how one is read. Runs on the executors, too.

With the option `raw=slices` the source yields its slices, one row for each, and does not read them: the mirror's log
reads them where it writes them, so their bytes do not pass through the JVM.
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

    A slice may begin and end inside of a transaction, whose other slices belong to the same batch. `batch_bytes`:
    delivered bytes of the whole batch; `batch_end`: in a batch's last slice, if it is read raw, the position that the
    batch ends with; `gap`: True if the server had purged the changes before the batch; `markers`: the range is known to
    hold no data, so it is not read; `address`: the number of the daemon's address that answered when the batch was
    planned, so that a task need not search for the leader; `cut`: of transactions that lie in this and other slices,
    the values that one slice does not tell, if the options ask for them; `snapshot`: how far the snapshot is, if the
    stream begins with one and it is not over.
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
    """Returns the delivered bytes of a slice, and the slice with its `gap`. Raises `BinlogError`, POSITION_PURGED if
    the server has purged a part of it and `failOnDataLoss` is true.
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
    """Returns `head` if no transaction lies between it and `position`, else `position`. Without a transaction between
    them, a file's beginning and its present end are one place in the log, and a copy that is made there has the
    position of the end."""
    return head if head.order == position.order else position


def slice_rows(schema: pa.Schema, part: Slice) -> Iterator[pa.RecordBatch]:
    """Yields the row of a slice that is not read. The slice is pickled: the processes that read the row also get the
    source's partitions, which are pickled, too."""
    from spark_sink.source.single_row import single_row  # noqa: PLC0415 - loads pyarrow

    yield single_row(schema, {"number": part.number, "slice": pickle.dumps(part)})


def slices_of(rows: Iterable[Any]) -> list[Slice]:
    """Returns the slices of rows of `SLICE_SCHEMA`, which `slice_rows` has made in this application, in order."""
    return sorted((pickle.loads(row["slice"]) for row in rows), key=lambda part: part.number)  # noqa: S301
