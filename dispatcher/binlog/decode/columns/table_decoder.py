"""Decodes the columns of row images to Arrow arrays, a whole batch at a time: no Python runs per cell.

An invalid date such as '0000-00-00' becomes NULL and is counted, unless `InvalidDates` says otherwise: no target can
store such a date, and an invalid date must not stop the mirroring of a table. For any other value that Arrow cannot
represent, the decoder raises an error with the value's offset, unless `Column.nulls_invalid` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.arrow.arrow_types import Unsupported, unsupported
from dispatcher.binlog.decode.arrow.invalid import Invalid, InvalidCell, invalid_rows
from dispatcher.binlog.decode.arrow.masks import masked
from dispatcher.binlog.decode.columns import column_decoders
from dispatcher.binlog.decode.columns.column_decoders import Bytes, Decode, Decoded, Offsets
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.table_map.column_types import Column, InvalidDates, Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError


def _type_and_decoder(
    column: Column, table: str, invalid_dates: InvalidDates
) -> tuple[pa.DataType, Decode]:
    try:
        return column_decoders.column_decoder(column, invalid_dates)
    except Unsupported as error:
        raise unsupported(column, table, error) from None


_ALL = slice(None)


def _part(decode: Decode, buf: Bytes, at: Offsets, part: slice) -> Decoded:
    return decode(buf, at[part])


def _part_of_documents(buf: Bytes, before: Offsets, at: Offsets, part: slice) -> Decoded:
    return column_decoders.decode_partial_json(buf, at[part], before[part])


class TableDecoder:
    """Decodes the cells of one layout. `fields`: the Arrow fields of the decoded columns, all nullable. `widths`: the
    widths of all columns, for `row_walk.walk`."""

    def __init__(
        self,
        table_map: TableMap,
        invalid_dates: InvalidDates = InvalidDates.NULL,
        columns: Sequence[int] | None = None,
    ) -> None:
        """`columns`: indexes of the columns to decode, in this order; None for all. The other columns may have any
        type, because the decoder skips their cells.

        Raises `BinlogError` METADATA_MISSING or UNSUPPORTED_TYPE with table and column.
        """
        table_map.require_names()
        self.table_map = table_map
        self._columns = range(len(table_map.columns)) if columns is None else tuple(columns)
        chosen = [table_map.columns[i] for i in self._columns]
        decoders = [_type_and_decoder(c, table_map.label, invalid_dates) for c in chosen]
        self.fields = tuple(
            pa.field(c.name, target) for c, (target, _) in zip(chosen, decoders, strict=True)
        )
        self.widths = row_walk.cell_widths(table_map.columns)
        self._json = [column.type == Type.JSON for column in chosen]
        self._decoders = [decode for _, decode in decoders]

    def decode(
        self,
        buf: Bytes,
        at: Offsets,
        base: int,
        missing: NDArray[np.bool_] | None,
        before: Offsets | None = None,
    ) -> Decoded:
        """Decode one image of each row to a struct array. Raises `BinlogError` for an invalid cell.

        `at`: (columns, rows) offsets in `buf`. `base`: the offset of `buf` in the log, for messages. `missing`: True
        for rows without this image; None if all rows have it. `before`: offsets of the before-images' cells, needed if
        cells of `at` contain only changes to the cells of the before-images.
        """
        arrays, invalid_dates, cells = [], 0, list[InvalidCell]()
        for i, decode, json in zip(self._columns, self._decoders, self._json, strict=True):
            part_of = partial(_part, decode, buf)
            if before is not None and json and (at[i] <= row_walk.DIFF).any():
                part_of = partial(_part_of_documents, buf, before[i])
            try:
                decoded = self._decoded(i, buf, at[i], part_of, cells)
            except Invalid as error:
                offset = base + row_walk.cell_offset(int(at[i, error.row]))
                raise self._error(i, error, offset) from None
            mask = self.table_map.columns[i].mask
            arrays.append(decoded.array if mask is None else masked(decoded.array, mask))
            invalid_dates += decoded.invalid_dates
        valid = None if missing is None else arrow_buffers.bitmap(~missing)
        kind = pa.struct(self.fields)
        structs = pa.Array.from_buffers(kind, at.shape[1], [valid], children=arrays)
        return Decoded(structs, invalid_dates, tuple(cells))

    def _decoded(
        self,
        column: int,
        buf: Bytes,
        at: Offsets,
        part_of: Callable[[Offsets, slice], Decoded],
        cells: list[InvalidCell],
    ) -> Decoded:
        """Decode a column. If invalid cells may become NULL, add them to `cells`; else raise `Invalid`."""
        definition, kept = self.table_map.columns[column], at.copy()
        try:
            return part_of(at, _ALL)
        except Invalid:
            if not definition.nulls_invalid:
                raise
        for row, why in invalid_rows(partial(part_of, at), len(at)):
            kept[row] = row_walk.NULL
            start = row_walk.cell_offset(int(at[row]))
            data = b"" if definition.mask else column_decoders.shown_bytes(definition, buf, start)
            cells.append(InvalidCell(definition.name, row, why, data))
        return part_of(kept, _ALL)

    def _error(self, column: int, error: Invalid, offset: int) -> BinlogError:
        name = self.table_map.columns[column].name
        return BinlogError(
            error.kind,
            f"table {self.table_map.label}, column {name!r}: {error.why}",
            where=f"offset {offset}",
            remedy=error.remedy,
        )
