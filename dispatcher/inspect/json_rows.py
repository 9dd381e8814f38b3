"""Renders the rows of rows events as JSON, with the kernels and Arrow functions that also render JSON for Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.changes.json_render import absent_masks, json_objects
from dispatcher.binlog.decode.changes.row_batches import DecodedRows, absent_columns
from dispatcher.binlog.decode.columns.table_decoder import TableDecoder
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.inspect.entry import Table
from dispatcher.inspect.row_text import RowsEvents
from dispatcher.inspect.values import decoded, with_texts
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.printable import json_escaped


def json_rows(events: RowsEvents, invalid_dates: InvalidDates) -> list[tuple[int, bytes]]:
    """Returns for each event the number of its rows and their JSON objects, each followed by a comma. Raises
    `BinlogError`."""
    table_map = TableMap.parse(events.table.body)
    decoder = TableDecoder(table_map.with_all_versions(), invalid_dates)
    counts, texts = [0] * len(events.events), [b""] * len(events.events)
    for batch in decoded(events.buf, events.events, decoder):
        lines = batch.walked.cells.event[: batch.walked.n]
        starts = np.flatnonzero(np.diff(lines, prepend=-1))
        bounds = [*starts.tolist(), len(lines)]
        try:
            offsets, data = arrow_buffers.cuts_of(_objects(batch, table_map, events.table))
        except pa.ArrowException as error:  # for example more than 2 GiB of text
            why = f"cannot be shown: {error}"
            raise BinlogError(ErrorKind.INVALID_VALUE, why) from None
        ends, view = offsets[bounds].tolist(), data.data
        for i, line in enumerate(lines[starts].tolist()):
            counts[line] += bounds[i + 1] - bounds[i]
            texts[line] += _escaped(bytes(view[ends[i] : ends[i + 1]]))
    return list(zip(counts, texts, strict=True))


def _escaped(data: bytes) -> bytes:
    """Escape the control characters in JSON to which a terminal would react. The C0 characters are already escaped."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return json_escaped(data.decode()).encode()


def _objects(batch: DecodedRows, table_map: TableMap, table: Table) -> pa.StringArray:
    """Returns each row as `{"before":{...},"after":{...}},`."""
    images = []
    lists = absent_columns(batch.walked, table_map)
    for image, absent in zip((batch.before, batch.after), lists, strict=True):
        texts = with_texts(image, table) if table.no_charset else image
        images.append(json_objects(texts, absent_masks(absent)))
    before, after = images
    both = pc.binary_join_element_wise('{"before":', before, ',"after":', after, "},", "")
    if before.null_count == 0 and after.null_count == 0:
        return both
    return pc.coalesce(
        both,
        pc.binary_join_element_wise('{"before":', before, "},", ""),
        pc.binary_join_element_wise('{"after":', after, "},", ""),
    )
