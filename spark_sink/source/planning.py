"""Divides a range of the log into the slices that tasks read, for streams and batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from dispatcher.model.position import Position
from spark_sink.source.http.client import ConsumerClient, SliceCut
from spark_sink.source.options import PARTITIONS_MAX, SourceOptions
from spark_sink.source.slices import Slice

SLICE_BYTES_MIN = 1 << 20  # with fewer bytes, a further task costs more time than it saves


def slice_count(options: SourceOptions, size: int) -> int:
    """Returns the number of slices for a range of `size` bytes: `maxPartitions`, or more if a slice would be larger
    than `maxBytesPerPartition`."""
    few = min(options.max_partitions, max(1, size // SLICE_BYTES_MIN))
    return min(PARTITIONS_MAX, max(few, -(-size // options.max_partition_bytes)))


def range_cuts(
    client: ConsumerClient,
    options: SourceOptions,
    session: int,
    first: Position,
    last: Position,
    size: int | None,
) -> tuple[list[SliceCut], int]:
    """Returns the cuts of the range (first, last], and its size in bytes. `size`: the size if it is known, else
    None."""
    n = options.max_partitions if size is None else slice_count(options, size)
    if size is not None and n == 1:
        return [], size
    divided = client.slices(session, first, last, n)
    if size is None and (needed := slice_count(options, divided.bytes)) > n:
        divided = client.slices(session, first, last, needed)
    return divided.cuts, divided.bytes


def range_slices(
    options: SourceOptions,
    session: int,
    ends: Sequence[SliceCut],
    size: int,
    *,
    markers: bool = False,
    address: int = 0,
) -> list[Slice]:
    """Returns one slice for each pair of neighbouring `ends`, in order. `size`: the bytes of all slices together;
    `markers`: True if the range is known to hold no data; `address`: see `Slice`."""
    slices = [
        Slice(session, number, *pair, size, markers=markers, address=address)
        for number, pair in enumerate(pairwise(ends))
    ]
    if options.raw:
        first, last = ends[0].position, ends[-1].position
        slices[-1] = replace(slices[-1], batch_end=last, gap=first.epoch != last.epoch)
    return slices
