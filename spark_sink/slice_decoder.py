"""Decodes slices in tasks of a user's own program, whose Python workers write what they have decoded.

A stream with `raw=slices` gives a row for each slice, and does not read it. With Spark's `mapInArrow` a worker reads
the slice and writes its rows, so they do not pass through the JVM. `examples/parquet_history.py` is such a program.
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
    """Reads slices as rows, in the form that options select. Picklable, so a function of `mapInArrow` may hold one.

    `schema`: the columns of the rows. With the option `table`, the decoder asks the daemon for them when it is made.
    """

    def __init__(self, **options: str) -> None:
        """`options`: those of the source, with the `url` and `consumer` of the stream, without `raw`.

        Raises `UserError` for wrong options, and for `metadata` that a slice alone cannot tell.
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
        """Fetch a slice and yield its rows, some 10,000 in a batch. `slice_`: the column `slice` of the stream.

        Raises `BinlogError` as the source does. A slice can be read again until the stream's next batch is planned.
        """
        part = _part(slice_)
        if part.markers:
            return iter(())
        return slice_batches(self._options, self.schema, part, read_bytes)


def slice_ends(slice_: bytes) -> tuple[Position, Position]:
    """Returns the positions between which a slice lies: its rows belong to the transactions behind the first position,
    up to the second position. If a slice begins or ends within a transaction, that position is the end of this
    transaction."""
    part = _part(slice_)
    return part.start.position, part.end.position


def _part(slice_: bytes) -> Slice:
    part = pickle.loads(slice_)  # noqa: S301 - made by this application's stream
    assert isinstance(part, Slice)
    return part
