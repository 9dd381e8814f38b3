"""Writes delivered bytes as lines of JSON: a line per changed row and per statement, in the order of the log.

A row's line has the keys `op`, `database`, `table`, `before`, `after`, `gtid`, `committed_at`, `file`, `pos`, `epoch`,
`seq` and `ordinal`. `json_render` describes the values of `before` and `after`. A statement's line has the op "ddl" and
the keys `database` (the session's default database) and `query` in place of `table`, `before` and `after`. A line with
the op "schema" names the columns of the rows that follow it.

(`epoch`, `seq`, `ordinal`) identifies a change: a change that is read again has the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dispatcher.binlog.decode.changes.json_render import IMAGES, json_objects, json_text
from dispatcher.binlog.decode.changes.ops import Op
from dispatcher.binlog.decode.delivered import Ddl, TableChanges, changes
from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, parse_statement
from dispatcher.binlog.table_map.column_rules import ColumnRules, hides_key
from dispatcher.binlog.table_map.column_types import InvalidDates, Mask
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.binlog.table_map.type_text import type_text
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.nearest import nearest_name
from dispatcher.model.subscription import NamePatterns, is_pattern

_KEYS = ("op", "database", "table", "before", "after", "gtid", "committed_at", "file", "pos")
LINE_ORDER = ("epoch", "seq", "ordinal")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MaskedColumn(NamedTuple):
    """A column to mask. `table`: `database.table`, or a pattern."""

    table: str
    column: str
    mask: Mask


class LineForm(Protocol):
    """The form of the lines."""

    def row_lines(self, part: TableChanges) -> pa.RecordBatch:
        """Returns the columns `line`, `epoch`, `seq` and `ordinal` of a batch of rows, in the order of the rows."""

    def statement_line(self, ddl: Ddl) -> str:
        """Returns the line of a statement."""


class ChangeLines:
    """Writes the changes of one consumer.

    `tables`: names and patterns like `shop.order_*`; () for all tables. A statement is written if it names one of these
    tables, or if it is not known which tables it touches. `lower_case_table_names`: the server's setting. `schemas`:
    True to write a line with the columns before a table's first row, and after each change of its columns; `masks`: the
    columns whose values are masked; `masks_may_lack`: False to refuse a table that lacks a column of `masks`; `form`:
    by default `PlainForm`.
    """

    def __init__(
        self,
        tables: Iterable[str] = (),
        *,
        lower_case_table_names: int = 0,
        schemas: bool = False,
        invalid_dates: InvalidDates = InvalidDates.NULL,
        masks: Sequence[MaskedColumn] = (),
        masks_may_lack: bool = False,
        form: LineForm | None = None,
    ) -> None:
        self._masks = masks
        self._masks_may_lack = masks_may_lack
        # Labels of tables with the names of columns that a mask has covered.
        self._covered: set[tuple[str, str]] = set()
        self._form = form or PlainForm()
        patterns = tuple(tables)
        self._tables = NamePatterns(patterns, lower_case_table_names) if patterns else None
        self._schemas: dict[str, str] | None = {} if schemas else None
        self._invalid_dates = invalid_dates

    def of(self, data: bytes | memoryview) -> Iterator[bytes | memoryview]:
        """Yield the lines of whole transactions, each with its line feed, many lines at a time. `data`: a delivered
        binlog. The rows between two statements are in memory together. Raises `BinlogError`, and `UserError` for a
        mask that does not fit a table, before it yields a row with these columns."""
        rows: list[pa.RecordBatch] = []
        for change in changes(data, invalid_dates=self._invalid_dates, ruled=self._masked):
            if isinstance(change, Ddl):
                yield from _in_order(rows)
                rows = []
                if self._has_statement(change):
                    yield self._form.statement_line(change).encode()
            elif self._has(change.table_map.label):
                lines = self._form.row_lines(change)
                if (schema := self._schema_line(change.table_map)) is not None:
                    # The sort is stable, so the line keeps its place before the first row.
                    rows.append(lines.slice(0, 1).set_column(0, "line", _texts([schema])))
                rows.append(lines)
        yield from _in_order(rows)

    def _masked(self, table_map: TableMap) -> TableMap:
        """Returns the table with the masks of its columns. Raises `UserError` for a mask that hides the key, and for a
        mask of a column that the table lacks."""
        label = table_map.label
        chosen = [each for each in self._masks if fnmatchcase(label, each.table)]
        if chosen and not self._masks_may_lack and self._has(label):
            self._require_columns(table_map, chosen)
        rules = ColumnRules(masks=tuple((each.column, each.mask) for each in chosen))
        masked = rules.table_map(table_map)
        if name := hides_key(masked.columns, masked.key):
            raise UserError(
                ErrorKind.REQUEST,
                f"--mask: {label}.{name} is a part of the key, so its rows could not be told apart",
                remedy="mask it with keyed",
            )
        return masked

    def _require_columns(self, table_map: TableMap, masks: Sequence[MaskedColumn]) -> None:
        """Raises `UserError` if the table lacks a column of a mask: after a misspelt name or a rename, the values would
        be readable. A pattern of tables may fit tables that never had the column."""
        label, names = table_map.label, [column.name for column in table_map.columns]
        folded = {name.casefold() for name in names}
        for mask in masks:
            place = label, mask.column.casefold()
            if place[1] in folded:
                self._covered.add(place)
            elif place in self._covered:
                raise UserError(
                    ErrorKind.REQUEST,
                    f"--mask: table {label} no longer has the column {mask.column}: it was dropped or renamed",
                    remedy="if another column has its values now, add a --mask for this column; then pass"
                    " --mask-if-exists, so that the table may lack a masked column",
                )
            elif not is_pattern(mask.table):
                close = nearest_name(mask.column, names)
                raise UserError(
                    ErrorKind.REQUEST,
                    f"--mask: table {label} has no column {mask.column}",
                    remedy=f"{f'did you mean {close}? ' if close else ''}correct --mask; or, if the table has the"
                    " column only in another part of the log, pass --mask-if-exists",
                )

    def _has(self, label: str) -> bool:
        return self._tables is None or self._tables.match(label)

    def _has_statement(self, ddl: Ddl) -> bool:
        if self._tables is None:
            return True
        parsed = parse_statement(ddl.statement, ROUTING_BOUNDS)
        if not parsed.parsed or parsed.databases:
            return True
        return any(self._has(f"{database}.{table}") for database, table in parsed.tables)

    def _schema_line(self, table_map: TableMap) -> str | None:
        """Returns the line with the columns of a table; None if this line was written last for the table, or if schemas
        are not written."""
        if self._schemas is None:
            return None
        columns = [
            {"name": c.name, "type": type_text(c)}
            | ({} if c.mask is None else {"mask": c.mask.form.value})
            for c in table_map.columns
        ]
        key = [table_map.columns[i].name for i in table_map.key]
        line = json_line(
            {
                "op": "schema",
                "database": table_map.database,
                "table": table_map.table,
                "columns": columns,
                "primary_key": key,
            }
        )
        if self._schemas.get(table_map.label) == line:
            return None
        self._schemas[table_map.label] = line
        return line


def json_line(value: dict[str, Any]) -> str:
    """Returns a value as JSON with a line feed."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def _texts(values: list[str]) -> pa.Array:
    return pa.array(values, pa.large_string())


class PlainForm:
    """The lines that the module's docstring describes."""

    def row_lines(self, part: TableChanges) -> pa.RecordBatch:
        """Returns the columns of `LineForm.row_lines`."""
        batch = json_text(part.batch)
        names = (*_KEYS, *LINE_ORDER)
        fields = [batch.schema.field(name) for name in names]
        rows = pa.StructArray.from_arrays([batch.column(name) for name in names], fields=fields)
        return finished_lines(json_objects(rows, {}, IMAGES), batch)

    def statement_line(self, ddl: Ddl) -> str:
        """Returns the line of a statement."""
        committed_at = _EPOCH + timedelta(microseconds=ddl.committed_at)
        return json_line(
            {
                "op": Op.DDL,
                "database": ddl.statement.database,
                "query": ddl.statement.text,
                "gtid": ddl.gtid or None,
                "committed_at": f"{committed_at:%Y-%m-%dT%H:%M:%S.%f}Z",
                "file": ddl.file,
                "pos": ddl.pos,
                "epoch": ddl.epoch,
                "seq": ddl.seq,
                "ordinal": ddl.ordinal,
            }
        )


def finished_lines(objects: pa.Array, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the columns of `LineForm.row_lines`. `objects`: the rows as JSON; `rows`: contains `LINE_ORDER`."""
    lines = pc.binary_join_element_wise(objects, "\n", "")
    return pa.RecordBatch.from_arrays(
        [lines.cast(pa.large_string()), *(rows.column(name) for name in LINE_ORDER)],
        names=["line", *LINE_ORDER],
    )


def _in_order(batches: list[pa.RecordBatch]) -> Iterator[memoryview]:
    """Yield the lines of batches of several tables in the order of the log."""
    if not batches:
        return
    rows = pa.Table.from_batches(batches).combine_chunks()
    keys = [rows.column(name).to_numpy() for name in reversed(LINE_ORDER)]
    lines = rows.column("line").chunk(0)
    order: NDArray[np.int64] = np.lexsort(keys)
    if len(batches) > 1 and (order[1:] < order[:-1]).any():
        lines = lines.take(pa.array(order))
    _, offsets, data = lines.buffers()
    ends: NDArray[np.int64] = np.frombuffer(offsets, dtype=np.int64)
    first, last = ends[lines.offset], ends[lines.offset + len(lines)]
    yield memoryview(data)[int(first) : int(last)]
