"""Appends the changes of a table to Parquet files, which Spark's Python workers write; docs/append-only.md explains it.

    python examples/parquet_history.py http://127.0.0.1:8085 shop shop.orders /data/orders

Each batch becomes a folder in /data/orders, which appears once, when the batch is complete. /data/orders must be on a
file system that the driver and all executors share, and that renames a folder in one step.
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from spark_sink.source.slice_decoder import SliceDecoder, slice_ends

ROWS_IN_GROUP = 131_072
WRITTEN = pa.schema(
    [
        ("number", pa.int64()),  # of the slice in its batch
        ("file", pa.string()),  # None if the slice has no rows
        ("epoch", pa.int64()),
        ("after", pa.int64()),  # the slice has the transactions behind this one,
        ("last", pa.int64()),  # up to this one
    ]
)

Batches = Iterator[pa.RecordBatch]


def write_slices(decoder: SliceDecoder, folder: Path) -> Callable[[Batches], Batches]:
    """Returns the function of a task: it writes each slice as a file, and yields a row of `WRITTEN` for it."""

    def write(batches: Batches) -> Batches:
        for batch in batches:
            for slice_ in batch.to_pylist():
                file = folder / f"{uuid.uuid4().hex}.parquet"
                rows = write_file(decoder, slice_["slice"], file)
                first, last = slice_ends(slice_["slice"])
                line = {
                    "number": slice_["number"],
                    "file": str(file) if rows else None,
                    "epoch": last.epoch,
                    "after": first.seq,
                    "last": last.seq,
                }
                yield pa.RecordBatch.from_pylist([line], WRITTEN)

    return write


def write_file(decoder: SliceDecoder, slice_: bytes, file: Path) -> int:
    """Write the rows of a slice, and return how many there are. Without rows there is no file."""
    schema = to_arrow_schema(decoder.schema, timezone="UTC")
    rows = 0
    with file.open("wb") as out:
        with pq.ParquetWriter(out, schema, compression="zstd") as writer:
            for group in groups(decoder.batches(slice_)):
                writer.write_table(pa.Table.from_batches(group))
                rows += sum(batch.num_rows for batch in group)
        out.flush()
        os.fsync(out.fileno())
    if not rows:
        file.unlink()
    return rows


def groups(batches: Batches) -> Iterator[list[pa.RecordBatch]]:
    """Collects batches until they have the rows of a row group."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(each.num_rows for each in group) >= ROWS_IN_GROUP:
            yield group
            group = []
    if group:
        yield group


def append(decoder: SliceDecoder, target: Path) -> Callable[[DataFrame, int], None]:
    """Returns the function for `foreachBatch`."""

    def append_batch(batch: DataFrame, _number: int) -> None:
        staging = target / "_staging"  # Spark does not read folders whose names begin with _
        shutil.rmtree(staging, ignore_errors=True)
        complete = staging / "complete"
        complete.mkdir(parents=True)
        written = batch.mapInArrow(write_slices(decoder, staging), from_arrow_schema(WRITTEN))
        lines = written.collect()
        files = [line for line in lines if line.file is not None]
        for line in files:  # those of tasks that failed or were repeated are not among them
            Path(line.file).rename(complete / f"{line.number:03}.parquet")
        if files:
            after, last = min(line.after for line in lines), max(line.last for line in lines)
            published = target / f"batch={files[0].epoch}_{after:012}_{last:012}"
            # After a crash Spark repeats a batch that it has not recorded as done, with the same ends.
            if not published.exists():
                complete.rename(published)
        shutil.rmtree(staging)

    return append_batch


def main(url: str, consumer: str, table: str, target: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    options = {"url": url, "consumer": consumer}
    decoder = SliceDecoder(**options, table=table, flat="after", flatPrefix="_")
    stream = spark.readStream.format("binlog").options(**options, raw="slices").load()
    query = (
        stream.writeStream.foreachBatch(append(decoder, Path(target)))
        .option("checkpointLocation", f"{target}/_checkpoint")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
