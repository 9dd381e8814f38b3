"""The output for programs: one JSON object per event and line. `docs/inspect.md` lists the fields."""

from __future__ import annotations

import json
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.decode.delivered import TableChanges, json_text
from dispatcher.binlog.event.types import type_name
from dispatcher.inspect.entry import ROWS, InspectEntry
from dispatcher.inspect.tables import Table
from dispatcher.inspect.times import seconds_text
from dispatcher.inspect.values import resolved


@lru_cache(64)
def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


class JsonOutput:
    """Renders entries as lines of JSON."""

    def __init__(self, *, hexdump: bool = False) -> None:
        self._hexdump = hexdump

    def head(self, _file: str) -> str:
        return ""

    def render(self, entry: InspectEntry) -> list[bytes]:
        start = (
            f'{{"file":{_text(entry.file)},"offset":{entry.offset},"end_log_pos":{entry.log_pos}'
            f',"timestamp":{entry.timestamp},"time":"{seconds_text(entry.timestamp)}","server_id":{entry.server_id}'
            f',"size":{entry.size},"flags":{entry.flags},"type":"{type_name(entry.kind)}"'
        )
        if entry.inside >= 0:
            start += f',"payload_index":{entry.inside}'
        start += entry.fields.json()
        if self._hexdump and entry.raw is not None:
            start += f',"hex":"{entry.raw.hex()}"'
        if entry.error:
            start += f',"error":{json.dumps(entry.error, ensure_ascii=False)}'
        elif entry.kind in ROWS and entry.row_count >= 0:
            rows = b"".join(entry.rows)[:-1]  # each row ends in a comma
            return [
                start.encode("utf-8", "backslashreplace"),
                b',"row_count":%d,"rows":[' % entry.row_count,
                rows,
                b"]}\n",
            ]
        return [start.encode("utf-8", "backslashreplace"), b"}\n"]

    def rows(self, part: TableChanges, table: Table) -> pa.StringArray:
        """Each row as `{"before":{...},"after":{...}},`; what an operation does not have is left out."""
        batch = part.batch
        if table.no_charset:
            columns = [
                resolved(column, table) if pa.types.is_struct(column.type) else column
                for column in batch.columns
            ]
            batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        images = json_text(batch)
        before, after = images.column("before"), images.column("after")
        both = pc.binary_join_element_wise('{"before":', before, ',"after":', after, "},", "")
        if before.null_count == 0 and after.null_count == 0:
            return both
        return pc.coalesce(
            both,
            pc.binary_join_element_wise('{"before":', before, "},", ""),
            pc.binary_join_element_wise('{"after":', after, "},", ""),
        )
