"""Decodes what a reader selects: some tables, some of their columns, and metadata. Everything else is skipped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from dispatcher.binlog.decode.arrow.arrow_types import images_schema
from dispatcher.binlog.decode.changes.metadata import COUNTED, CutTransaction, MetadataColumns
from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.changes.row_batches import (
    BATCH_BYTES,
    DecodedRows,
    decoded_rows,
    envelope,
    row_counts_of,
)
from dispatcher.binlog.decode.columns.table_decoder import TableDecoder
from dispatcher.binlog.decode.delivered import Ddl, read_ddl
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.events.index_kernels import EPOCH, FILE, POSITION, SEQ
from dispatcher.binlog.decode.events.parts import Layouts, Part, log_parts
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """How rows of one layout are decoded. `columns`: indexes of the columns of `before` and `after`, in this order.
    `key`: indexes of the columns of `Metadata.KEY`, which need not be among `columns`."""

    columns: tuple[int, ...]
    key: tuple[int, ...] = ()


class Selection(Protocol):
    """What a reader selects."""

    def layout_plan(self, table_map: TableMap) -> LayoutPlan | None:
        """Called once for each layout. Returns None to leave the rows of the layout out. May raise `BinlogError`, to
        which the caller adds the place of the first row."""

    def selects_statement(self, ddl: Ddl) -> bool: ...


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """Rows of one layout. `batch`: the columns of `change_schema` for the plan's columns. `metadata`: the requested
    columns, without `KEY` if the plan has no key."""

    table_map: TableMap
    batch: pa.RecordBatch
    metadata: Mapping[Metadata, pa.Array]


@dataclass(frozen=True, slots=True)
class SelectedDdl:
    """A statement, and its metadata."""

    ddl: Ddl
    metadata: Mapping[str, Any]


def selected_changes(
    data: bytes | memoryview,
    selection: Selection,
    metadata: Collection[Metadata] = (),
    *,
    cut: Sequence[CutTransaction] = (),
    invalid_dates: InvalidDates = InvalidDates.NULL,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[SelectedRows | SelectedDdl]:
    """Decode delivered bytes in the order of `delivered.changes`. Raises `BinlogError` as that function does.

    `cut`: the facts about transactions of which `data` holds only a part. `query` of the first entry is the text of the
    statement in which `data` begins. `batch_bytes`: about the size of the rows events in a batch.
    """
    selected = _Selected(data, selection)
    columns = MetadataColumns(selected.log, metadata, cut)
    if columns.wanted & COUNTED:
        selected.count(columns)
        columns.settle()
    decoders: dict[int, TableDecoder] = {}
    for part in selected.parts():
        if not isinstance(part, Part):
            ddl, txn = part
            yield SelectedDdl(ddl, columns.of_statement(txn, ddl.ordinal, ddl.query))
            continue
        plan = selected.plan(part)
        if part.layout not in decoders:
            chosen = [*plan.columns, *(i for i in plan.key if i not in plan.columns)]
            table_map = selected.layouts.table_map(part.layout)
            decoders[part.layout] = TableDecoder(table_map, invalid_dates, chosen)
        decoder = decoders[part.layout]
        for rows in decoded_rows(selected.log, part.events, decoder, batch_bytes=batch_bytes):
            yield _selected_rows(rows, decoder, plan, columns)


def cut_share(
    data: bytes | memoryview, selection: Selection, epoch: int, seq: int, begins_in: str | None
) -> tuple[int, int, str | None]:
    """Returns three facts about the part of a transaction in `data`: the number of its selected rows and statements,
    the ordinal of the last one (-1 if there are none), and the text of the statement in which `data` ends. `begins_in`:
    text of the statement in which `data` begins."""
    selected = _Selected(data, selection)
    columns = MetadataColumns(selected.log, [Metadata.QUERY])
    selected.count(columns)
    return *columns.counted(epoch, seq), columns.ends_in(begins_in)


class _Selected:
    """The selected parts of a log."""

    def __init__(self, data: bytes | memoryview, selection: Selection) -> None:
        self.log = Index.of(data)
        self.layouts = Layouts(self.log)
        self._selection = selection
        self._plans: dict[int, LayoutPlan | None] = {}

    def parts(self) -> Iterator[Part | tuple[Ddl, int]]:
        """Yields parts, and statements with their transactions' lines in the transactions array."""
        for part in log_parts(self.log, self.layouts, self._statement):
            if not isinstance(part, Part) or self._plan(part) is not None:
                yield part

    def plan(self, part: Part) -> LayoutPlan:
        plan = self._plan(part)
        assert plan is not None
        return plan

    def count(self, columns: MetadataColumns) -> None:
        for part in self.parts():
            if isinstance(part, Part):
                table_map = self.layouts.table_map(part.layout)
                columns.count(part.events, row_counts_of(self.log, part.events, table_map))
            else:
                columns.count_statement(part[1], part[0].ordinal)

    def _statement(self, log: Index, line: int) -> tuple[Ddl, int] | None:
        ddl = read_ddl(log, line)
        if ddl is None or not self._selection.selects_statement(ddl):
            return None
        return ddl, int(log.events[line, row_walk.TXN])

    def _plan(self, part: Part) -> LayoutPlan | None:
        if part.layout not in self._plans:
            table_map = self.layouts.table_map(part.layout)
            try:
                self._plans[part.layout] = self._selection.layout_plan(table_map)
            except BinlogError as error:
                txn = self.log.txns[part.events[0, row_walk.TXN]]
                file = self.log.files[txn[FILE]]
                place = f"epoch {txn[EPOCH]}, seq {txn[SEQ]}, before {file}:{txn[POSITION]}"
                raise error.at(place) from None
        return self._plans[part.layout]


def _selected_rows(
    rows: DecodedRows, decoder: TableDecoder, plan: LayoutPlan, columns: MetadataColumns
) -> SelectedRows:
    fields = decoder.fields[: len(plan.columns)]
    names = [field.name for field in decoder.fields]
    table_map = decoder.table_map
    key = [names.index(table_map.columns[i].name) for i in plan.key]
    images = [_narrowed(image, fields) for image in (rows.before, rows.after)]
    arrays = [*envelope(rows.walked, table_map), *images]
    batch = pa.RecordBatch.from_arrays(arrays, schema=images_schema(fields))
    return SelectedRows(table_map, batch, columns.of_rows(rows, decoder, key))


def _narrowed(image: pa.Array, fields: Sequence[pa.Field]) -> pa.Array:
    """Return structs with only the first `fields`, without the fields that only the key needs."""
    if image.type.num_fields == len(fields):
        return image
    children = [image.field(i) for i in range(len(fields))]
    kind = pa.struct(fields)
    return pa.Array.from_buffers(kind, len(image), [image.buffers()[0]], children=children)
