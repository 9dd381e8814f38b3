"""Reads a slice as rows, in the form that the options select. Runs on the executors.

This module imports the decoder only when it is needed, because this import takes longer than all other imports of a
task.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from spark_sink.source.options import SourceOptions
from spark_sink.source.slices import Slice, slice_rows
from spark_sink.source.spark_abilities import expected_schema
from spark_sink.source.worker_objects import PROCESS_OBJECTS

if TYPE_CHECKING:
    import pyarrow as pa


_DECODER = "spark_sink.source.rows"


def slice_batches(
    options: SourceOptions,
    schema: StructType,
    part: Slice,
    read: Callable[[SourceOptions, Slice], tuple[Slice, memoryview]],
) -> Iterator[pa.RecordBatch]:
    """Returns the rows of a slice, in the form that the options select. `read`: `read_bytes`, or a function with the
    same parameters and result."""
    if options.unread:
        return slice_rows(expected_schema(schema), part)
    if _DECODER in sys.modules:
        part, data = read(options, part)
    else:
        # For the first slice of a process, numba and the decoder are imported while the daemon answers.
        with ThreadPoolExecutor(1) as executor:
            reading = executor.submit(read, options, part)
            importlib.import_module(_DECODER)
            part, data = reading.result()
    from spark_sink.source import rows  # noqa: PLC0415 - loads pyarrow and numba

    return _then_freeze(rows.read_slice(options, schema, part, data))


def _then_freeze(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    PROCESS_OBJECTS.freeze()  # by now, the kernels that the rows needed are loaded, too
