"""Decodes the columns of row images to Arrow arrays, a whole batch at a time: no Python runs per cell.

An invalid date such as '0000-00-00' becomes NULL and is counted, unless `InvalidDates` says otherwise: no target can
store such a date, and an invalid date must not stop the mirroring of a table. For any other value that Arrow cannot
represent, the decoder raises an error with the value's offset.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.arrow.arrow_types import Unsupported, unsupported
from dispatcher.binlog.decode.arrow.invalid import Invalid
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
        arrays, invalid_dates = [], 0
        for i, decode, json in zip(self._columns, self._decoders, self._json, strict=True):
            try:
                if before is not None and json and (at[i] <= row_walk.DIFF).any():
                    decoded = column_decoders.decode_partial_json(buf, at[i], before[i])
                else:
                    decoded = decode(buf, at[i])
            except Invalid as error:
                raise self._error(
                    i, error, base + row_walk.cell_offset(int(at[i, error.row]))
                ) from None
            arrays.append(decoded.array)
            invalid_dates += decoded.invalid_dates
        valid = None if missing is None else arrow_buffers.bitmap(~missing)
        kind = pa.struct(self.fields)
        structs = pa.Array.from_buffers(kind, at.shape[1], [valid], children=arrays)
        return Decoded(structs, invalid_dates)

    def _error(self, column: int, error: Invalid, offset: int) -> BinlogError:
        name = self.table_map.columns[column].name
        return BinlogError(
            error.kind,
            f"table {self.table_map.label}, column {name!r}: {error.why}",
            where=f"offset {offset}",
            remedy=error.remedy,
        )
