"""Writes blocks of events as text. The kernels of `event_kernels` write common events, and `Inspection` writes the
others.

After Python has written a statement or table map whose body may occur again, it registers the body with the kernel: the
body's text and, for a table map, the data for writing the table's rows. At most `_BODIES_MAX` bodies are registered;
when this limit is reached, all of them are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.event.file import SIZE, START, TYPE, Block
from dispatcher.binlog.event.header import HEADER_SIZE, TABLE_ID_SIZE
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.kernel.bytes import I64, U8
from dispatcher.inspect import event_kernels as kernels
from dispatcher.inspect.entry import Table
from dispatcher.inspect.row_kernels import Extras
from dispatcher.inspect.row_text import NO_EXTRAS, Grown, RowsEvents, RowTexts
from dispatcher.model.errors import BinlogError

if TYPE_CHECKING:
    from dispatcher.binlog.table_map.column_types import InvalidDates
    from dispatcher.inspect.bodies import BodyParser
    from dispatcher.inspect.output import TextOutput

_BODIES_MAX = 4096
_SLOTS = 1 << 14
_FIRST_BYTES = 1 << 20
_TABLE_MAP, _QUERY, _FORMAT = EventType.TABLE_MAP, EventType.QUERY, EventType.FORMAT_DESCRIPTION


class KnownBodies:
    """The bodies that the kernel writes without Python."""

    def __init__(self, bodies: BodyParser, output: TextOutput, invalid_dates: InvalidDates) -> None:
        self._parsed = bodies
        self._output = output
        self.rows = RowTexts(invalid_dates)
        self._forget()

    def _forget(self) -> None:
        self.rows.forget()
        self._lines: dict[tuple[int, bytes], int] = {}
        # By database and table name: the line of the TABLE_MAP body whose columns were shown last.
        self._shown: dict[tuple[str, str], int] = {}
        self.tables: dict[int, Table] = {}  # by the line of the body
        self._bodies = Grown(np.zeros((64, kernels.BODY_FIELDS), np.int64))
        self._store = Grown(np.zeros(1 << 16, np.uint8))
        self._slots = np.zeros(_SLOTS, np.int64)
        self._ids = np.zeros((_SLOTS, 2), np.int64)
        self._memory: U8 = np.zeros(kernels.MEMORY_BYTES, np.uint8)

    @property
    def arrays(self) -> kernels.BodyArrays:
        return kernels.BodyArrays(
            self._slots, self._bodies.array, self._store.array, self._ids, self._memory
        )

    def clear_ids(self) -> None:
        """Forget the table map of each table id, because in another file an id may mean another table."""
        self._ids[:, 1] = 0

    def bring_into_force(self, body: int) -> None:
        """Set the TABLE_MAP of the rows event that the parser reads next. `body`: the line of the TABLE_MAP's body, or
        -1 if the parser already has the TABLE_MAP."""
        if body >= 0:
            self._parsed.tables.bring_into_force(self.tables[body])

    def learn(self, kind: int, body: bytes) -> None:
        """Register a body that Python has just written with the kernel."""
        fields = self._parsed.repeated(kind, body)
        line = -1
        if fields is not None and not fields.error:
            line = self._lines.get((kind, body), -1)
            if line < 0:
                if self._bodies.used >= _BODIES_MAX:
                    self._forget_all()
                line = self._add(kind, body, self._output.tail(kind, fields))
                if kind == _TABLE_MAP and (table := self._parsed.tables.cached(body)) is not None:
                    self._add_table(line, table)
            if kind == _TABLE_MAP:
                self._show(line, (fields.database, fields.table))
        if kind == _TABLE_MAP:
            table_id = int.from_bytes(body[:TABLE_ID_SIZE], "little")
            slot = kernels.find_id(table_id, self._ids)
            if line >= 0 or self._ids[slot, 0]:
                self._ids[slot] = table_id + 1, line + 1

    def _forget_all(self) -> None:
        for line in self._ids[:, 1].tolist():
            self.bring_into_force(line - 1)
        self._forget()

    def _show(self, line: int, name: tuple[str, str]) -> None:
        """Record that the columns of the TABLE_MAP `line` are the last columns that were shown for the table `name`."""
        before = self._shown.get(name, line)
        self._bodies.array[before, kernels.SHOWN] = 0
        self._bodies.array[line, kernels.SHOWN] = 1
        self._shown[name] = line

    def _add(self, kind: int, body: bytes, text: bytes) -> int:
        buf: U8 = np.frombuffer(body, dtype=np.uint8)
        key = kernels.hash_of(buf, 0, len(body), kind)
        fields = np.zeros((1, kernels.BODY_FIELDS), np.int64)
        fields[0, [kernels.HASH, kernels.KIND, kernels.BODY_SIZE, kernels.TEXT_SIZE]] = (
            key, kind, len(body), len(text)
        )  # fmt: skip
        fields[0, kernels.BODY] = self._store.append(buf)
        fields[0, kernels.TEXT] = self._store.append_bytes(text)
        fields[0, kernels.SHOWN] = 1
        line = self._bodies.append(fields)
        slot = key & (_SLOTS - 1)
        while self._slots[slot]:
            slot = (slot + 1) & (_SLOTS - 1)
        self._slots[slot] = line + 1
        self._lines[kind, body] = line
        return line

    def _add_table(self, line: int, table: Table) -> None:
        fields = self._bodies.array[line]
        name = self._output.rows_name(table.database, table.name)
        fields[kernels.ROWS], fields[kernels.ROWS_SIZE] = self._store.append_bytes(name), len(name)
        fields[kernels.TABLE_ID] = table.id
        self.tables[line] = table
        try:
            fields[kernels.TABLE] = self.rows.number(table)
        except BinlogError:
            # Python then reads the rows events of the table and reports the error for each of them.
            fields[kernels.TABLE] = -1

    def decoded_extras(self, block: kernels.BlockEvents, first: int) -> Extras:
        """Decode the extra columns of the rows events, beginning at line `first`, up to a TABLE_MAP whose body is not
        known. Sets `block.extra_at` for these events."""
        found = np.zeros(len(block.lines), np.int64)
        end = kernels.bodies_in_force(block, first, self.arrays, self._ids.copy(), found)
        found[:first] = found[end:] = 0
        # Replaced below if the event's extra columns can be decoded.
        block.extra_at[first] = kernels.BY_PYTHON
        cuts, texts, used, pairs = [NO_EXTRAS.cuts], [NO_EXTRAS.data], 0, 0
        for body in np.unique(found[found > 0]).tolist():
            number = int(self._bodies.array[body - 1, kernels.TABLE])
            if number < 0 or not self.rows.has_extras(number):
                continue
            lines = np.flatnonzero(found == body)
            rows = _rows_events(block, lines, self.tables[body - 1])
            try:
                extras, starts = self.rows.extras(rows, number)
            except BinlogError:  # Python reads these events one by one
                block.extra_at[lines] = kernels.BY_PYTHON
                continue
            block.extra_at[lines] = pairs + starts
            cuts.append(np.where(extras.cuts < 0, extras.cuts, extras.cuts + used))
            texts.append(extras.data)
            used, pairs = used + len(extras.data), pairs + len(extras.cuts)
        data = np.concatenate(texts)
        data.flags.writeable = False
        return Extras(np.concatenate(cuts), data)


def _rows_events(block: kernels.BlockEvents, lines: I64, table: Table) -> RowsEvents:
    events = np.zeros((len(lines), row_walk.EVENT_FIELDS), np.int64)
    events[:, row_walk.OFFSET] = block.lines[lines, START]
    events[:, row_walk.END] = block.lines[lines, START] + block.lines[lines, SIZE] - block.tail
    events[:, row_walk.TYPE] = block.lines[lines, TYPE]
    return RowsEvents(table, block.buf, events)


class EventTexts:
    """Writes blocks of events. `read`: writes a block of one event that the kernel cannot write."""

    def __init__(
        self,
        known: KnownBodies,
        read: Callable[[Block], None],
        write: Callable[[memoryview], object],
    ) -> None:
        self._known = known
        self._read = read
        self._write = write
        self._out: U8 = np.empty(_FIRST_BYTES, np.uint8)

    def show(self, block: Block) -> None:
        if block.format.short_table_ids:  # MySQL before 5.1.4
            self._read(block)
            return
        buf: U8 = np.frombuffer(block.buf, dtype=np.uint8)
        extra_at = np.full(len(block.events), kernels.NOT_DECODED, np.int64)
        events = kernels.BlockEvents(buf, block.events, block.tail, block.payload, extra_at)
        state = np.zeros(kernels.STATE_FIELDS, np.int64)
        state[kernels.SECONDS] = -1
        extras = NO_EXTRAS
        while True:
            rows = self._known.rows
            why = kernels.write_events(
                events, self._known.arrays, rows.arrays, extras, rows.scratch, state, self._out
            )
            if why == kernels.NO_EXTRAS:
                extras = self._known.decoded_extras(events, int(state[kernels.LINE]))
                continue
            if why == kernels.NO_ROOM and not state[kernels.WRITTEN]:
                self._out = np.empty(2 * len(self._out), np.uint8)
            self._flush(state)
            if why == kernels.DONE:
                return
            if why == kernels.PYTHON:
                self._read_one(block, int(state[kernels.LINE]), int(state[kernels.BODY_IN_FORCE]))
                state[kernels.LINE] += 1
                # While Python showed a payload's events, the kernel may have overwritten the text of the time.
                state[kernels.SECONDS] = -1

    def _flush(self, state: I64) -> None:
        if state[kernels.WRITTEN]:
            self._write(self._out.data[: int(state[kernels.WRITTEN])])
        state[kernels.WRITTEN] = 0

    def _read_one(self, block: Block, line: int, body_in_force: int) -> None:
        event = block.events[line : line + 1]
        inside = block.payload + line if block.payload >= 0 else -1
        self._known.bring_into_force(body_in_force)
        self._read(Block(block.file, block.format, block.buf, event, inside))
        start, size, kind = event[0, :3].tolist()
        if kind == _FORMAT:
            self._known.clear_ids()
        elif kind in (_TABLE_MAP, _QUERY):
            body = block.buf[start + HEADER_SIZE : start + size - block.tail]
            self._known.learn(kind, body)
