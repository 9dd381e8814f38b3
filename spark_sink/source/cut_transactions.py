"""Reads, on the driver, facts about a transaction that is cut into several slices: the number of the transaction's
rows, its last row, and, for each slice, the text of the statement within which the slice begins. The task of one slice
cannot compute these values, because it reads only its own slice.

The driver reads these facts only if the option `metadata` names one of them. It fetches the bytes of the transaction
one slice at a time, and the tasks fetch the same bytes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from pyspark.sql.types import StructType

from dispatcher.binlog.decode.changes.metadata_names import Metadata
from spark_sink.source.http.client import ConsumerClient, SliceCut
from spark_sink.source.options import SourceOptions
from spark_sink.source.slices import Slice

OF_WHOLE_TRANSACTIONS = {Metadata.QUERY, Metadata.TRANSACTION_ROWS, Metadata.TRANSACTION_END}


def with_cut_transactions(
    client: ConsumerClient, options: SourceOptions, schema: StructType, slices: Sequence[Slice]
) -> list[Slice]:
    """Returns the slices of a batch. If the options need `cut`, sets it in each slice that has a part of a cut
    transaction."""
    completed = list(slices)
    if not OF_WHOLE_TRANSACTIONS.intersection(options.metadata):
        return completed
    inside = [number for number, part in enumerate(slices[:-1]) if part.end.inside is not None]
    for _, numbers in groupby(inside, lambda number: slices[number].end.position):
        first, *others = numbers
        _complete(client, options, schema, completed, range(first, first + len(others) + 2))
    return completed


def _complete(
    client: ConsumerClient,
    options: SourceOptions,
    schema: StructType,
    slices: list[Slice],
    numbers: range,
) -> None:
    """Set `cut` in the slices that hold parts of one transaction. `numbers`: the indices of these slices."""
    # Loads numba and pyarrow.
    from dispatcher.binlog.decode.changes.metadata import CutTransaction  # noqa: PLC0415
    from dispatcher.binlog.decode.selected import cut_share  # noqa: PLC0415
    from spark_sink.source.rows import selection_of  # noqa: PLC0415

    end = slices[numbers[0]].end.position
    selection = selection_of(options, schema)
    query: str | None = None
    begins: dict[int, str | None] = {}
    rows, last = 0, -1
    for number in numbers:
        part = slices[number]
        until = SliceCut(end) if number == numbers[-1] else part.end
        data = client.binlog(part.session, part.start, until).data
        begins[number] = query
        counted, ordinal, query = cut_share(data, selection, end.epoch, end.seq, query)
        rows, last = rows + counted, max(last, ordinal)
    for number in numbers:
        whole = CutTransaction(end.epoch, end.seq, rows, last, begins[number])
        slices[number] = replace(slices[number], cut=(*slices[number].cut, whole))
