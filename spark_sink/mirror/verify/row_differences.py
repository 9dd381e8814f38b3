"""Compares the rows of a table on the server and in the mirror: first the checksums of buckets, then the rows of the
buckets that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from spark_sink.mirror.verify.row_checksums import Buckets, bucket_of, row_hashes
from spark_sink.source.table_rows.source_table import SourceTable
from spark_sink.source.table_rows.text_rows import TextDecoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS = 4096
_KEYS_MAX = 10


def mirror_buckets(frame: DataFrame, source: SourceTable, decoder: TextDecoder) -> Buckets:
    """Returns the buckets of the mirror's rows. The executors compute them."""
    count = partial(_count_rows, decoder.schema, source.key)
    parts = frame.mapInArrow(count, "bucket long, rows long, low long, high long")
    sums = parts.groupBy("bucket").agg(F.sum("rows"), F.sum("low"), F.sum("high")).collect()
    buckets = Buckets.empty(BUCKETS)
    for bucket, rows, low, high in sums:
        buckets.counts[bucket] = rows
        buckets.sums[bucket] = (low + (high << 32)) & (1 << 64) - 1
    return buckets


def _count_rows(
    schema: pa.Schema, key: Sequence[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields the number of rows and the sum of hashes of each bucket. Runs on the executors. A sum of 64 bits is split
    into two halves, because Spark can add the halves without an overflow."""
    buckets = Buckets.empty(BUCKETS)
    for batch in batches:
        buckets.add(cast(batch, schema), key)
    present = np.flatnonzero(buckets.counts)
    sums = buckets.sums[present]
    columns = [
        present,
        buckets.counts[present],
        sums & np.uint64(0xFFFFFFFF),
        sums >> np.uint64(32),
    ]
    names = ["bucket", "rows", "low", "high"]
    yield pa.RecordBatch.from_arrays([pa.array(c.astype(np.int64)) for c in columns], names=names)


def cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns rows of Spark with the types of `schema`."""
    if batch.schema.equals(schema):
        return batch
    arrays = [array.cast(field.type) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


RowHashes = dict[str, list[int]]
"""Maps a key, as text, to the hashes of the rows that have this key."""


def _rows_in(
    batch: pa.RecordBatch, key: Sequence[int], wanted: np.ndarray[Any, Any]
) -> tuple[list[str], list[int]]:
    """Returns (key as text, hash as a signed number) for each row that belongs to one of the buckets."""
    chosen = np.flatnonzero(np.isin(bucket_of(batch, key, BUCKETS), wanted))
    part = batch.take(pa.array(chosen))
    hashes = row_hashes(part.columns, part.num_rows).view(np.int64).tolist()
    columns = [part.column(i) for i in (key or range(part.num_columns))]
    names = [part.schema.names[i] for i in (key or range(part.num_columns))]
    values = zip(*(column.to_pylist() for column in columns), strict=True)
    texts = [", ".join(f"{n}={v!r}" for n, v in zip(names, row, strict=True)) for row in values]
    return texts, hashes


def server_rows(
    batches: Iterator[pa.RecordBatch], key: Sequence[int], wanted: np.ndarray[Any, Any]
) -> RowHashes:
    """Returns the server's rows whose keys belong to one of the buckets."""
    hashes: RowHashes = {}
    for batch in batches:
        for text, number in zip(*_rows_in(batch, key, wanted), strict=True):
            hashes.setdefault(text, []).append(number)
    return hashes


def mirror_rows(
    frame: DataFrame, source: SourceTable, decoder: TextDecoder, wanted: np.ndarray[Any, Any]
) -> RowHashes:
    """Returns the mirror's rows whose keys belong to one of the buckets. The executors select these rows."""
    choose = partial(_choose_rows, decoder.schema, source.key, wanted.tolist())
    hashes: RowHashes = {}
    for text, number in frame.mapInArrow(choose, "key string, hash long").collect():
        hashes.setdefault(text, []).append(number)
    return hashes


def _choose_rows(
    schema: pa.Schema, key: Sequence[int], wanted: list[int], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        texts, hashes = _rows_in(cast(batch, schema), key, np.array(wanted))
        arrays = [pa.array(texts, pa.string()), pa.array(hashes, pa.int64())]
        yield pa.RecordBatch.from_arrays(arrays, names=["key", "hash"])


def different_keys(server: RowHashes, mirror: RowHashes) -> tuple[tuple[str, str], ...]:
    """Returns the first keys whose rows differ, each with a text that describes the difference."""
    different = []
    for key in sorted(server.keys() | mirror.keys()):
        ours, theirs = sorted(server.get(key, [])), sorted(mirror.get(key, []))
        if ours == theirs:
            continue
        if not theirs:
            difference = "missing in the mirror"
        elif not ours:
            difference = "only in the mirror"
        elif len(ours) != len(theirs):
            difference = f"{len(ours)} times on the server, {len(theirs)} times in the mirror"
        else:
            difference = "other values"
        different.append((key, difference))
        if len(different) == _KEYS_MAX:
            break
    return tuple(different)
