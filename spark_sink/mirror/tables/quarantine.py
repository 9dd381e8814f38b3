"""The quarantine TARGET/_binlog/quarantine: a Delta table with the values that are invalid for their columns' types.
Mirrored rows have NULL in their place (policy `on_invalid: quarantine`).

A value of the log is identified by the table's id, the change's number and the column. A value that a copy has read is
identified by the copy's id, the row's key, the column and the value's bytes. A value is added only if the quarantine
lacks it. So the quarantine contains each value once, even if a step, or a part of a copy, is repeated with other limits
after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable

from dispatcher.binlog.decode.arrow.invalid import InvalidCell
from dispatcher.binlog.decode.delivered import TableChanges
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.faults import is_conflict
from spark_sink.mirror.values.invalid_values import copied_value_id, logged_value_id
from spark_sink.mirror.values.names import own_path
from spark_sink.source.schemas import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_ATTEMPTS = 5
_OF_CHANGE = ("epoch", "seq", "ordinal", "gtid", "file", "pos", "committed_at")


def found_schema() -> pa.Schema:
    """Returns the schema of invalid values. Its columns are `key` (the values of the row's key as JSON, or of the whole
    row if the table has no key), `column`, `why`, `bytes`, and columns that identify the change with the value (NULL
    for a copied row)."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.schema(
        [
            pa.field("key", pa.string()),
            pa.field("column", pa.string()),
            pa.field("why", pa.string()),
            pa.field("bytes", pa.binary()),
            pa.field("lsn", pa.int64()),
            *(pa.field(name, pa.int64()) for name in _OF_CHANGE[:3]),
            *(pa.field(name, pa.string()) for name in _OF_CHANGE[3:5]),
            pa.field("pos", pa.int64()),
            pa.field("committed_at", pa.timestamp("us", "UTC")),
        ]
    )


def of_changes(
    lsn: int, changes: TableChanges, columns: Sequence[str], key: Sequence[str]
) -> pa.RecordBatch:
    """Returns the invalid values of changes. `columns`, `key`: the columns and the key of the mirrored table."""
    cells = [cell for cell in changes.invalid if cell.column in columns]
    batch = changes.batch.take([cell.row for cell in cells])
    found = _found(cells, batch.column("after").to_pylist(), key)
    about = batch.select(_OF_CHANGE).to_pylist()
    return _batch(
        [value | {"lsn": lsn} | change for value, change in zip(found, about, strict=True)]
    )


def of_rows(
    rows: pa.RecordBatch, cells: Sequence[InvalidCell], key: Sequence[str]
) -> pa.RecordBatch:
    """Returns the invalid values of copied rows."""
    return _batch(list(_found(cells, rows.take([cell.row for cell in cells]).to_pylist(), key)))


def _found(
    cells: Iterable[InvalidCell], rows: Iterable[dict[str, Any]], key: Sequence[str]
) -> Iterator[dict[str, Any]]:
    for cell, row in zip(cells, rows, strict=True):
        values = {name: row[name] for name in key or row}
        yield {
            "key": json.dumps(values, ensure_ascii=False, default=_text),
            "column": cell.column,
            "why": cell.why,
            "bytes": cell.data,
        }


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _batch(values: list[dict[str, Any]]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    return pa.RecordBatch.from_pylist(values, schema=found_schema())


def invalid_table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Joins batches of the schema `found_schema` to a table."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.Table.from_batches(batches, found_schema())


class Quarantine:
    """Adds values to the quarantine of a target."""

    def __init__(self, target: str) -> None:
        self.path = own_path(target, "quarantine")

    def add(
        self, spark: SparkSession, record: TableRecord, found: pa.Table, copy_id: str = ""
    ) -> None:
        """Add invalid values of a table. `found`: of the schema `found_schema`; `copy_id`: the copy that has read these
        values, "" for values of the log."""
        import pyarrow as pa  # noqa: PLC0415

        about = {
            "consumer": record.consumer,
            "table_id": record.table_id,
            "database": record.database,
            "table": record.table,
            "origin": "copy" if copy_id else "log",
        }
        ids = [_id(record.table_id, value, copy_id) for value in found.to_pylist()]
        rows = found.add_column(0, "id", pa.array(ids, pa.string()))
        for name, value in about.items():
            rows = rows.append_column(name, pa.array([value] * len(rows), pa.string()))
        frame = spark.createDataFrame(rows, spark_schema(rows.schema)).dropDuplicates(["id"])
        frame = frame.selectExpr("*", "current_timestamp() AS found_at")
        table = DeltaTable.createIfNotExists(spark).location(self.path).addColumns(frame.schema)
        table.execute()
        for attempt in range(_ATTEMPTS):
            try:
                merge = (
                    DeltaTable.forPath(spark, self.path)
                    .alias("t")
                    .merge(frame.alias("s"), "t.id = s.id")
                )
                merge.whenNotMatchedInsertAll().execute()
            except Exception as error:
                if attempt + 1 == _ATTEMPTS or not is_conflict(error):
                    raise
            else:
                return


def _id(table_id: str, value: dict[str, Any], copy_id: str) -> str:
    if copy_id:
        return copied_value_id(copy_id, value["key"], value["column"], value["bytes"])
    change = f"{value['epoch']}/{value['seq']}/{value['ordinal']}"
    return logged_value_id(table_id, change, value["column"])
