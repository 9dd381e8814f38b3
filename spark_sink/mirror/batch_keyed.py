"""Decoded changes as a MERGE needs them: for each key that a change touches, the row after it or its removal.

An insert or update writes a row under the key of its after-image. A delete removes the row under the key of its
before-image. An update that changes the key does both, the removal first. `(seq, ordinal, part)` orders these events,
and the last event of a key decides the target's row. Keys are compared byte by byte, which is stricter than a column's
collation: both images of a change are written in full, so two spellings of a key that are equal in MySQL give one
removal and one row here.

Pure, on Arrow columns; runs on the executors in `mapInArrow`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.model.errors import BinlogError, ErrorKind

FIELDS = ("key", "row", "seq", "ordinal", "part", "deleted")


def event_schema(changes: pa.Schema, key: Sequence[str]) -> pa.Schema:
    """Returns the schema of `key_events` for changes of the schema `changes` and the key columns `key`."""
    row = changes.field("after").type
    return pa.schema(
        [
            pa.field("key", pa.struct([row.field(name) for name in key])),
            pa.field("row", row),
            pa.field("seq", pa.int64()),
            pa.field("ordinal", pa.int64()),
            pa.field("part", pa.int32()),
            pa.field("deleted", pa.bool_()),
        ]
    )


def require_columns(changes: pa.RecordBatch, key: Sequence[str]) -> None:
    """Raises `BinlogError` ROW_IMAGE if an after-image lacks a column, or a before-image a column of the key: then the
    row to write, or the row to remove, is not known.
    """
    before, after = changes.column("before_absent"), changes.column("after_absent")
    incomplete = after.is_valid()
    if before.null_count < len(before):
        absent = [bool(set(names or ()) & set(key)) for names in before.to_pylist()]
        incomplete = pc.or_(incomplete, pa.array(absent, pa.bool_()))
    if not pc.any(incomplete).as_py():
        return
    row = pc.index(incomplete, True).as_py()
    label = ".".join(changes.column(name)[row].as_py() for name in ("database", "table"))
    raise BinlogError(
        ErrorKind.ROW_IMAGE,
        f"rows of table {label} do not hold all columns, so the mirrored row is not known",
        where=f"seq {changes.column('seq')[row].as_py()}",
    )


def key_events(changes: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Returns one or two events per change. `part`: 0 = removal, 1 = row."""
    schema = event_schema(changes.schema, key)
    op, before, after = (changes.column(name) for name in ("op", "before", "after"))
    deletes = pc.equal(op, "delete")
    moved = pc.and_(pc.equal(op, "update"), _differ(before, after, key))
    removals, rows = changes.filter(pc.or_(deletes, moved)), changes.filter(pc.invert(deletes))
    parts = [
        _events(rows, rows.column("after"), rows.column("after"), schema),
        _events(removals, removals.column("before"), None, schema),
    ]
    (batch,) = pa.Table.from_batches(parts, schema).combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], schema)
    ]
    return batch


def _differ(before: pa.Array, after: pa.Array, key: Sequence[str]) -> pa.Array:
    """True where the keys of the two images differ; False where one image is missing."""
    result = pa.array([False] * len(before)) if not key else None
    for name in key:
        differs = pc.fill_null(
            pc.not_equal(pc.struct_field(before, name), pc.struct_field(after, name)), False
        )
        result = differs if result is None else pc.or_(result, differs)
    return result


def _events(
    changes: pa.RecordBatch, image: pa.Array, row: pa.Array | None, schema: pa.Schema
) -> pa.RecordBatch:
    fields = list(schema.field("key").type)
    values = [pc.struct_field(image, field.name) for field in fields]
    for field, value in zip(fields, values, strict=True):
        if value.null_count:
            raise BinlogError(
                ErrorKind.INVALID_VALUE,
                f"key column {field.name!r} has an invalid date (like '0000-00-00'), so its rows cannot be told apart",
                where=f"seq {changes.column('seq')[0].as_py()} or later",
            )
    n = changes.num_rows
    columns = [
        pa.StructArray.from_arrays(values, fields=fields),
        pa.nulls(n, schema.field("row").type) if row is None else row,
        changes.column("seq"),
        changes.column("ordinal"),
        pa.array([0 if row is None else 1], pa.int32()).take(pa.array([0] * n, pa.int64())),
        pa.array([row is None]).take(pa.array([0] * n, pa.int64())),
    ]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )
