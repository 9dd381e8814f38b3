"""Renders values that Arrow has decoded, a whole column at a time. For the text output, these are the columns that no
kernel can write from their cells. For JSON, these are the columns whose character set the log does not contain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.changes.json_render import base64_strings
from dispatcher.binlog.decode.changes.row_batches import DecodedRows, decoded_rows
from dispatcher.binlog.decode.columns.table_decoder import TableDecoder
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.kernel.bytes import I64, U8
from dispatcher.binlog.table_map.column_types import Column, Type
from dispatcher.inspect import row_kernels as kernels
from dispatcher.inspect.entry import Table

_NONE = np.empty(0, np.int64)


def decoded(buf: U8, events: I64, decoder: TableDecoder) -> Iterator[DecodedRows]:
    """Decode rows events of one table. `events`: lines of `row_walk`. Raises `BinlogError`."""
    return decoded_rows(index_of(buf, events), events, decoder)


def index_of(buf: U8, events: I64) -> Index:
    """Returns an index that contains only these events, without transactions."""
    return Index(buf, events, _NONE, _NONE, _NONE, ())


def extra_form(kind: pa.DataType, *, no_charset: bool) -> int:
    """Returns the form in which a kernel writes a column that `_written` has rendered. `kind`: the column's type in
    Arrow; `no_charset`: True if the column's character set is unknown."""
    if pa.types.is_string(kind):
        return kernels.EXTRA_TEXT
    if pa.types.is_binary(kind):
        return kernels.EXTRA_TEXT_OR_BYTES if no_charset else kernels.EXTRA_BYTES
    return kernels.EXTRA


def extra_texts(
    buf: U8, events: I64, decoder: TableDecoder, columns: Sequence[Column]
) -> tuple[kernels.Extras, I64]:
    """Decode the extra columns of rows events. Returns the values, and the number of rows of each event. Raises
    `BinlogError`."""
    counts = np.zeros(len(events), np.int64)
    cuts: list[I64] = [np.empty((0, 2), np.int64)]
    texts: list[U8] = [np.empty(0, np.uint8)]
    used = 0
    for batch in decoded(buf, events, decoder):
        counts += np.bincount(batch.walked.cells.event[: batch.walked.n], minlength=len(events))
        pairs = np.full((batch.walked.n, 2, len(columns), 2), -1, np.int64)
        for which, image in enumerate((batch.before, batch.after)):
            if image.null_count == len(image):
                continue
            for i, column in enumerate(columns):
                offsets, data = arrow_buffers.cuts_of(written := _written(image.field(i), column))
                pairs[:, which, i, 0], pairs[:, which, i, 1] = (
                    offsets[:-1] + used,
                    offsets[1:] + used,
                )
                if (valid := arrow_buffers.valid_of(written)) is not None:
                    pairs[~valid, which, i] = -1
                texts.append(data)
                used += len(data)
        cuts.append(pairs.reshape(-1, 2))
    data = np.concatenate(texts)
    # Read-only like the bytes of a log, so that each kernel is compiled for one signature.
    data.flags.writeable = False
    return kernels.Extras(np.concatenate(cuts), data), counts


def _written(values: pa.Array, column: Column) -> pa.Array:
    """Returns the values as strings or bytes that a kernel can write. A null stays null."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return values
    if pa.types.is_floating(kind):
        return values.cast(pa.string())
    if pa.types.is_timestamp(kind):
        shown = _fraction(values.view(pa.timestamp("us")).cast(pa.string()), column)
        return _quoted(shown, " UTC'" if kind.tz else "'")
    if pa.types.is_date(kind):
        return _quoted(values.cast(pa.string()), "'")
    return pa.array([_literal(value) for value in values.to_pylist()], pa.string())


def _quoted(texts: pa.Array, end: str) -> pa.Array:
    return pc.binary_join_element_wise("'", texts, end, "")


def _fraction(texts: pa.Array, column: Column) -> pa.Array:
    """Cuts the fractions of texts from six digits to the number of digits of the column."""
    digits = column.meta if column.type in (Type.TIMESTAMP2, Type.DATETIME2) else 0
    return pc.utf8_slice_codeunits(texts, 0, digits - 6 if digits else -7) if digits < 6 else texts


def _literal(value: object) -> str | None:
    """Returns the literal of a GEOMETRY (a dict of SRID and WKB) or a VECTOR (a list of floats)."""
    if value is None:
        return None
    if isinstance(value, dict):
        return f"ST_GeomFromWKB(0x{value['wkb'].hex().upper()}, {value['srid']})"
    if isinstance(value, list):
        return f"[{','.join(np.format_float_positional(np.float32(n), trim='-') for n in value)}]"
    return repr(value)


def _utf8_or_null(values: pa.Array) -> pa.Array:
    """Returns bytes as strings. Bytes that are not UTF-8 become null."""
    cuts, data = arrow_buffers.cuts_of(values)
    offsets = (cuts - cuts[0]).astype(np.int64)
    if transcode.invalid_utf8(data[cuts[0] : cuts[-1]], offsets, 0xFF) < 0:
        return values.view(pa.string())
    return pa.array([_decoded(value) for value in values.to_pylist()], pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def with_texts(image: pa.StructArray, table: Table) -> pa.StructArray:
    """Returns a row image for JSON. A value of unknown character set becomes text if it is valid UTF-8, otherwise
    base64."""
    if image.null_count == len(image):
        return image
    arrays = [image.field(i) for i in range(image.type.num_fields)]
    for i in table.no_charset:
        if pa.types.is_binary(arrays[i].type):
            arrays[i] = pc.coalesce(_utf8_or_null(arrays[i]), base64_strings(arrays[i]))
    names = [field.name for field in image.type]
    mask = image.is_null() if image.null_count else None
    return pa.StructArray.from_arrays(arrays, names=names, mask=mask)
