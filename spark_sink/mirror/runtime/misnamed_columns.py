"""Warns of columns that the settings of a table name, in `mask` or `omit_columns`, and that the table lacks. The values
of the column that is meant are readable in the mirrored table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from dispatcher.binlog.table_map.parse import TableMap
from spark_sink.mirror.rules.omitted import has_column, lacking_text
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.schema.signature import Signature
from spark_sink.mirror.values.names import TableName

log = logging.getLogger("spark_sink.mirror")


class MisnamedColumns:
    """Logs one warning for each such column of a table. Threads may share this object."""

    def __init__(self, own_columns: Callable[[TableName], Sequence[tuple[str, str]]]) -> None:
        """`own_columns`: see `ApplyOptions`. A pattern of tables may fit tables that lack the column."""
        self._own_columns = own_columns
        self._compared: set[tuple[str, str]] = set()
        self._logged: set[tuple[str, str, str]] = set()

    def of_rows(self, record: TableRecord, layout: str, table_map: bytes) -> None:
        """Compare the settings with the columns of rows. `layout`: identifies the columns; each layout of a table is
        compared once, because this is called for each step."""
        place = record.table_id + record.label, layout
        if place in self._compared:
            return
        self._compared.add(place)
        if self._own_columns(record.name):
            names = [column.name for column in TableMap.parse(table_map).columns]
            self._compare(record, names, ("mask", "omit_columns"))

    def of_signature(self, record: TableRecord, signature: str) -> None:
        """Compare the settings with the columns of a mirrored table. `signature`: the table's; if it is "", the columns
        are not known."""
        if not signature or not self._own_columns(record.name):
            return
        known = Signature.from_json(signature)
        # Without the order, it is not known which columns were left out.
        keys = ("mask", "omit_columns") if known.order else ("mask",)
        names = [*(column.name for column in known.columns), *known.order]
        self._compare(record, names, keys)

    def _compare(self, record: TableRecord, names: Sequence[str], keys: Collection[str]) -> None:
        for key, column in self._own_columns(record.name):
            named = record.label, key, column
            if key not in keys or named in self._logged or has_column(column, names):
                continue
            self._logged.add(named)
            text = lacking_text(f"table {record.label} has no", key, column, names)
            log.warning("tables.%s.%s: %s", record.label, key, text)
