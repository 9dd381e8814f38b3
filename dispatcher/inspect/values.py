"""What both outputs know of single columns: which are absent from an image, and which the log tells too little of."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.decode import arrow_buffers
from dispatcher.inspect.tables import Table

_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


def absent_masks(batch: pa.RecordBatch, name: str) -> dict[str, pa.Array] | None:
    """Column name to a mask of the rows whose image does not hold it; None where all images hold all columns. `name`:
    `before_absent` or `after_absent`."""
    if name not in batch.schema.names or batch.column(name).null_count == len(batch):
        return None
    absent = batch.column(name)
    masks: dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
    rows = pc.list_parent_indices(absent).to_numpy(zero_copy_only=False).tolist()
    for row, column in zip(rows, absent.flatten().to_pylist(), strict=True):
        masks.setdefault(column, np.zeros(len(batch), dtype=np.bool_))[row] = True
    return {column: arrow_buffers.booleans(mask) for column, mask in masks.items()}


def readable(values: pa.Array) -> pa.Array:
    """Bytes as strings; null where they are null, or not UTF-8."""
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


def resolved(image: pa.StructArray, table: Table) -> pa.StructArray:
    """The image for JSON: bytes of columns whose character set the log does not tell are text where they are UTF-8, and
    base64 where not, as bytes are."""
    if image.null_count == len(image):
        return image
    arrays = [image.field(i) for i in range(image.type.num_fields)]
    for i in table.no_charset:
        values = arrays[i]
        if pa.types.is_binary(values.type):
            plain = [
                None if v is None else base64.b64encode(v).decode() for v in values.to_pylist()
            ]
            arrays[i] = pc.coalesce(readable(values), pa.array(plain, pa.string()))
    names = [field.name for field in image.type]
    mask = image.is_null() if image.null_count else None
    return pa.StructArray.from_arrays(arrays, names=names, mask=mask)


def both_signs(values: pa.Array, shown: pa.Array) -> pa.Array:
    """`-1 (4294967295)` for a column whose sign the log does not tell."""
    if values.type not in _BITS or not pc.any(pc.less(values, 0)).as_py():
        return shown
    bits = _BITS[values.type]
    texts = [
        other if value is None or value >= 0 else f"{other} ({value + (1 << bits)})"
        for value, other in zip(values.to_pylist(), shown.to_pylist(), strict=True)
    ]
    return pa.array(texts, pa.string())
