"""The columns of the control table, its files, and the rows with people's requests. Loads no Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from spark_sink.mirror.rules.control_rows import Row, control_row
from spark_sink.mirror.rules.table_record import Wish
from spark_sink.mirror.values.names import TableName

TYPES = {"serial": "bigint", "at": "timestamp", "epoch": "bigint", "from_lsn": "bigint"}
NAMES = (
    ("serial", "at", "kind", "consumer", "table_id", "database", "table", "folder", "state", "server")
    + ("epoch", "from_lsn", "signature", "reason", "request", "detail")
)  # fmt: skip


def request_row(table_id: str, wish: Wish) -> dict[str, Any]:
    """Returns the row of a request about a table."""
    asked = json.dumps({"id": uuid.uuid4().hex})
    return control_row("request", table_id=table_id, request=str(wish), detail=asked)


def copy_rows(tables: Iterable[tuple[str, TableName]]) -> list[dict[str, Any]]:
    """Returns the rows of requests for copies, by consumer and name."""
    rows = []
    for consumer, (database, table) in tables:
        asked = json.dumps({"id": uuid.uuid4().hex})
        names = {"consumer": consumer, "database": database, "table": table}
        rows.append(control_row("request", **names, request=str(Wish.COPY), detail=asked))
    return rows


def file_of(rows: Sequence[Row]) -> bytes:
    """Returns a Parquet file of rows."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    types = {"bigint": pa.int64(), "timestamp": pa.timestamp("us", "UTC"), "string": pa.string()}
    schema = pa.schema([(name, types[TYPES.get(name, "string")]) for name in NAMES])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema), sink)
    return bytes(sink.getvalue())
