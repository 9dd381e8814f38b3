"""Decodes what a reader selects: some tables, some of their columns, and metadata. The module skips everything else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog.decode.arrow.arrow_types import images_schema, newest_schema
from dispatcher.binlog.decode.changes.metadata import (
    COUNTED,
    CutTransaction,
    MetadataColumns,
    key_column,
)
from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.changes.row_batches import (
    BATCH_BYTES,
    DecodedRows,
    decoded_rows,
    envelope,
    newest_envelope,
    newest_image,
    oldest_image,
    row_counts_of,
    walked_rows,
)
from dispatcher.binlog.decode.changes.walked_rows import WalkedRows
from dispatcher.binlog.decode.columns.table_decoder import TableDecoder
from dispatcher.binlog.decode.delivered import Ddl, read_ddl
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.events.index_kernels import EPOCH, FILE, POSITION, SEQ
from dispatcher.binlog.decode.events.parts import Layouts, Part, log_parts
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.binlog.table_map.table_kind import TableKind
from dispatcher.model.errors import BinlogError


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """How rows of one layout are decoded. `columns`: indexes of the columns of `before` and `after`, in this order.
    `key`: indexes of the columns of `Metadata.KEY`, which need not be among `columns`. `newest`: True if only the
    newest image of each row is decoded: the image after the change, or for a deletion the image before it."""

    columns: tuple[int, ...]
    key: tuple[int, ...] = ()
    newest: bool = False


@dataclass(frozen=True, slots=True)
class LayoutEvents:
    """Rows events of one layout, before they are decoded."""

    table_map: TableMap
    lines: NDArray[np.int64]

    @property
    def operations(self) -> NDArray[np.int64]:
        """`row_walk.INSERT`, `UPDATE` or `DELETE` for each event."""
        return row_walk.operations(self.lines[:, row_walk.TYPE])


class Selection(Protocol):
    """What a reader selects."""

    def chosen_events(self, events: LayoutEvents) -> NDArray[np.bool_]:
        """Returns a mask of the events whose rows are selected, if `layout_plan` selects their layout."""

    def layout_plan(self, table_map: TableMap) -> LayoutPlan | None:
        """Called once for each layout of which `chosen_events` has selected events. Returns None to omit the rows of
        the layout. May raise `BinlogError`, to which the caller adds the place of the first row."""

    def selects_statement(self, ddl: Ddl) -> bool: ...


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """Rows of one layout. `batch`: the columns of `change_schema` for the plan's columns, or of `newest_schema`.
    `metadata`: the requested metadata columns, without `KEY` if the plan has no key."""

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

    `cut`: the facts about transactions of which `data` contains only a part. `query` of the first entry is the text of
    the statement in which `data` begins. `batch_bytes`: about the size of the rows events in a batch.
    """
    selected = _Selected(data, selection)
    columns = MetadataColumns(selected.log, metadata, cut)
    if columns.wanted & COUNTED:
        selected.count(columns)
        columns.settle()
    decoders: dict[int, _BothImages | _NewestImage] = {}
    for part in selected.parts():
        if not isinstance(part, Part):
            ddl, txn = part
            yield SelectedDdl(ddl, columns.of_statement(txn, ddl.ordinal, ddl.statement.text))
            continue
        if part.layout not in decoders:
            table_map = selected.layouts.table_map(part.layout)
            decoders[part.layout] = _decoder(table_map, selected.plan(part), invalid_dates)
        yield from decoders[part.layout].rows(selected.log, part.events, columns, batch_bytes)


def cut_share(
    data: bytes | memoryview, selection: Selection, epoch: int, seq: int, begins_in: str | None
) -> tuple[int, int, str | None]:
    """Returns three facts about the part of a transaction in `data`: the number of its selected rows and statements,
    the ordinal of the last of them (-1 if there are none), and the text of the statement in which `data` ends.
    `begins_in`: text of the statement in which `data` begins."""
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
        """Yields parts, and pairs of a statement and the index of its transaction in the transactions array."""
        for part in log_parts(self.log, self.layouts, self._statement):
            if not isinstance(part, Part):
                yield part
                continue
            left = self._chosen(part)
            if len(left.events) and self._plan(left) is not None:
                yield left

    def _chosen(self, part: Part) -> Part:
        if not len(part.events):
            return part
        events = LayoutEvents(self.layouts.table_map(part.layout), part.events)
        mask = self._selection.chosen_events(events)
        return part if mask.all() else replace(part, events=part.events[mask])

    def plan(self, part: Part) -> LayoutPlan:
        plan = self._plan(part)
        assert plan is not None
        return plan

    def count(self, columns: MetadataColumns) -> None:
        for part in self.parts():
            if isinstance(part, Part):
                table_map = self.layouts.table_map(part.layout)
                if table_map.kind is not TableKind.VERSIONED:
                    columns.count(part.events, row_counts_of(self.log, part.events, table_map))
                    continue
                for rows in walked_rows(self.log, part.events, TableDecoder(table_map, columns=())):
                    columns.count_rows(rows)
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


def _decoder(
    table_map: TableMap, plan: LayoutPlan, invalid_dates: InvalidDates
) -> _BothImages | _NewestImage:
    if plan.newest:
        key = TableDecoder(table_map, invalid_dates, plan.key)
        return _NewestImage(TableDecoder(table_map, invalid_dates, plan.columns), key)
    chosen = [*plan.columns, *(i for i in plan.key if i not in plan.columns)]
    return _BothImages(TableDecoder(table_map, invalid_dates, chosen), plan)


@dataclass(frozen=True, slots=True)
class _BothImages:
    """Decodes the rows of a layout with the images before and after each change."""

    decoder: TableDecoder
    plan: LayoutPlan

    def rows(
        self, log: Index, events: NDArray[np.int64], columns: MetadataColumns, batch_bytes: int
    ) -> Iterator[SelectedRows]:
        for rows in decoded_rows(log, events, self.decoder, batch_bytes=batch_bytes):
            yield self._selected(rows, columns)

    def _selected(self, rows: DecodedRows, columns: MetadataColumns) -> SelectedRows:
        decoder, plan = self.decoder, self.plan
        fields = decoder.fields[: len(plan.columns)]
        names = [field.name for field in decoder.fields]
        table_map = decoder.table_map
        numbers = [names.index(table_map.columns[i].name) for i in plan.key]
        key = None
        if numbers and Metadata.KEY in columns.wanted:
            key = key_column(rows, decoder, numbers)
        images = [_narrowed(image, fields) for image in (rows.before, rows.after)]
        arrays = [*envelope(rows.walked, table_map), *images]
        batch = pa.RecordBatch.from_arrays(arrays, schema=images_schema(fields))
        return SelectedRows(table_map, batch, columns.of_rows(rows.walked, decoder, key))


@dataclass(frozen=True, slots=True)
class _NewestImage:
    """Decodes the rows of a layout with their newest images. `key`: decodes the columns of the key."""

    decoder: TableDecoder
    key: TableDecoder

    def rows(
        self, log: Index, events: NDArray[np.int64], columns: MetadataColumns, batch_bytes: int
    ) -> Iterator[SelectedRows]:
        for walked in walked_rows(log, events, self.decoder, batch_bytes=batch_bytes):
            yield self._selected(walked, columns)

    def _selected(self, walked: WalkedRows, columns: MetadataColumns) -> SelectedRows:
        decoder, table_map = self.decoder, self.decoder.table_map
        key = None
        if self.key.fields and Metadata.KEY in columns.wanted:
            key = oldest_image(walked, self.key)
        arrays = [*newest_envelope(walked, table_map), newest_image(walked, decoder)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=newest_schema(decoder.fields))
        return SelectedRows(table_map, batch, columns.of_rows(walked, decoder, key))


def _narrowed(image: pa.Array, fields: Sequence[pa.Field]) -> pa.Array:
    """Return structs with only `fields`, the first fields of `image`: the others were decoded only for the key."""
    if image.type.num_fields == len(fields):
        return image
    children = [image.field(i) for i in range(len(fields))]
    kind = pa.struct(fields)
    return pa.Array.from_buffers(kind, len(image), [image.buffers()[0]], children=children)
