"""Decodes slices in the tasks of a user's program. The program's Python workers write the decoded rows. A slice is the
part of a micro-batch for one task.

A stream with `raw=slices` returns one row for each slice, and does not fetch the slice. In a function of Spark's
`mapInArrow`, a worker fetches the slice and writes its rows, so the rows do not pass through the JVM.
`examples/parquet_history.py` is such a program.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.position import Position
from spark_sink.source.cut_transactions import OF_WHOLE_TRANSACTIONS
from spark_sink.source.data_source import BinlogDataSource
from spark_sink.source.options import SourceOptions
from spark_sink.source.slice_reader import slice_batches
from spark_sink.source.slices import Slice, read_bytes

if TYPE_CHECKING:
    import pyarrow as pa


class SliceDecoder:
    """Reads slices as rows, in the form that the options select. A decoder is picklable, so a function for `mapInArrow`
    may contain one.

    `schema`: the columns of the rows. With the option `table`, the constructor asks the daemon for these columns.
    """

    def __init__(self, **options: str) -> None:
        """`options`: the options of the source, including the stream's `url` and `consumer`, but without `raw`.

        Raises `UserError` for wrong options, and for values of `metadata` that need the whole transaction.
        """
        self._options = SourceOptions.parse(options)
        unknown = sorted(OF_WHOLE_TRANSACTIONS.intersection(self._options.metadata))
        if self._options.raw or unknown:
            what = "raw" if self._options.raw else f"metadata ({', '.join(unknown)})"
            raise UserError(
                ErrorKind.SETTINGS,
                f"a slice cannot be decoded with the option {what}",
                remedy="leave it out, or read the stream without raw=slices",
            )
        schema = BinlogDataSource(options).schema()
        assert isinstance(schema, StructType)
        self.schema = schema

    def batches(self, slice_: bytes) -> Iterator[pa.RecordBatch]:
        """Fetch a slice and yield its rows in Arrow batches, each of about 1 MiB of the log: some 10,000 rows of 100
        bytes. `slice_`: a value of the stream's column `slice`.

        Raises the `BinlogError` that the source would raise. A slice can be fetched again until the stream plans its
        next micro-batch.
        """
        part = _part(slice_)
        if part.markers:
            return iter(())
        return slice_batches(self._options, self.schema, part, read_bytes)


def slice_ends(slice_: bytes) -> tuple[Position, Position]:
    """Returns the positions between which a slice lies: its rows belong to the transactions after the first position,
    up to the second position. If a slice begins or ends within a transaction, that position is the end of this
    transaction."""
    part = _part(slice_)
    return part.start.position, part.end.position


def _part(slice_: bytes) -> Slice:
    part = pickle.loads(slice_)  # noqa: S301 - made by this application's stream
    assert isinstance(part, Slice)
    return part
