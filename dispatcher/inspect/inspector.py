"""Reads the blocks of a log, and writes the lines of the output.

A block contains a few megabytes of events. `Inspection` parses all events of a block, then decodes their rows together,
and then renders and writes them. So the memory depends only on the sizes of a block and of the largest event. The
events of a compressed transaction become further blocks, which are shown after the TRANSACTION_PAYLOAD event and before
the next event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.binlog.event import transaction_payload as payloads
from dispatcher.binlog.event.file import LOG_POS, OFFSET, SIZE, START, Block, frame_events
from dispatcher.binlog.event.header import HEADER_SIZE, FormatDescription
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.inspect.bodies import BodyParser
from dispatcher.inspect.bounds import Bound, Range
from dispatcher.inspect.entry import InspectEntry, error_text
from dispatcher.inspect.event_text import EventTexts, KnownBodies
from dispatcher.inspect.output import JsonOutput, Output, TextOutput
from dispatcher.inspect.rows import RowsRenderer, counted
from dispatcher.inspect.sources import InspectSource
from dispatcher.inspect.summary import Summary
from dispatcher.inspect.transactions import EntryFilter, TransactionTracker
from dispatcher.model.errors import BinlogError

_TRANSACTION_PAYLOAD = int(EventType.TRANSACTION_PAYLOAD)
_ROWS_BYTES_MAX = 8 << 20  # the most bytes of rows events that are decoded together

Write = Callable[[bytes | memoryview], object]


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """The options of the command line. `tables`: `database.table` or `table`."""

    as_json: bool = False
    summary: bool = False
    hexdump: bool = False
    databases: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    start: Bound | None = None
    stop: Bound | None = None
    invalid_dates: InvalidDates = InvalidDates.TEXT


class Inspection:
    """One run of the command. `unread`: the number of events whose content could not be shown; `first_unread`: the
    place and the error of the first such event."""

    def __init__(self, options: InspectOptions, write: Write) -> None:
        self._options = options
        self._write = write
        self._bodies = BodyParser()
        self._transactions = TransactionTracker()
        self._filter = EntryFilter(options.databases, options.tables)
        self._range = Range(options.start, options.stop)
        make = JsonOutput if options.as_json else TextOutput
        self._output: Output = make(options.invalid_dates, hexdump=options.hexdump)
        self._summary = Summary() if options.summary else None
        self._rows = RowsRenderer(counted if options.summary else self._output.rows)
        self._texts = self._event_texts()
        self._entries: list[InspectEntry] = []
        self._file = ""
        self.unread = 0
        self.first_unread = ""

    def run(self, source: InspectSource) -> None:
        """Write the whole output. At the first damage in the log, writes everything before the damage and then raises
        `BinlogError`."""
        self._range.set_files(source.names, more=source.more)
        try:
            for block in source.blocks(self._range):
                self._show(block)
                if self._range.done:
                    return
            self._range.finish()
        finally:
            self._flush()
            if self._summary is not None:
                text = self._summary.json() if self._options.as_json else self._summary.text()
                self._write(text.encode("utf-8", "backslashreplace"))

    def _event_texts(self) -> EventTexts | None:
        """Returns the fast writer, which makes no Python object per event. Returns None if the options select only some
        events, an output other than text, or the hexdump, because this writer supports none of them."""
        options, output = self._options, self._output
        if options.summary or options.hexdump or not self._filter.selects_all:
            return None
        if not isinstance(output, TextOutput):
            return None
        known = KnownBodies(self._bodies, output, options.invalid_dates)
        return EventTexts(known, self._read, self._write)

    def _show(self, block: Block) -> None:
        if self._texts is None or not self._range.holds_the_rest:
            self._read(block)
            return
        self._flush()  # if these events are in a payload, first write the TRANSACTION_PAYLOAD event
        self._begin(block.file)
        self._texts.show(block)

    def _read(self, block: Block) -> None:
        self._block(block)
        self._flush()

    def _begin(self, file: str) -> None:
        if file != self._file:
            self._file = file
            self._write(self._output.head(file).encode())

    def _block(self, block: Block) -> None:
        """Parse each event in order, and collect the events to show."""
        buf, tail, log = block.buf, block.tail, block.format
        inside = block.payload
        parse, step, holds = self._bodies.parse, self._transactions.step, self._range.holds
        for line in block.events.tolist():
            start, size, kind, flags = line[0], line[1], line[2], line[6]
            raw = buf[start : start + size]
            entry = InspectEntry(block.file, line, parse(kind, raw, tail, flags, log), inside)
            if inside >= 0:
                inside += 1
            step(entry)
            if holds(entry):
                self._admit(entry, raw, tail, log)
                if kind == _TRANSACTION_PAYLOAD and not entry.error:
                    self._payload(block, entry, raw[HEADER_SIZE : size - tail])
            elif self._range.done:
                return

    def _admit(self, entry: InspectEntry, raw: bytes, tail: int, log: FormatDescription) -> None:
        if self._options.hexdump:
            entry.raw = raw
        before = len(self._entries)
        if self._filter.selects_all:
            self._entries.append(entry)
        else:
            self._entries += self._filter.admit(entry)
        table = entry.fields.rows_of  # None if the event has no rows
        if table is not None and not entry.error and len(self._entries) > before:
            self._rows.add(entry, table, raw, tail, log)
            if self._rows.bytes > _ROWS_BYTES_MAX:
                self._flush()

    def _payload(self, block: Block, entry: InspectEntry, body: bytes) -> None:
        """Show the events of a compressed transaction as further blocks."""
        number = 0
        try:
            for buf in payloads.event_runs(
                payloads.decompressed_chunks(payloads.parse_payload(body))
            ):
                data, at = buf.tobytes(), 0
                while len(events := frame_events(buf, at, checksum=False, base=0)[0]):
                    at = int(events[-1, START] + events[-1, SIZE])
                    events[:, OFFSET], events[:, LOG_POS] = entry.offset, entry.log_pos
                    self._show(Block(block.file, block.format, data, events, number))
                    number += len(events)
        except BinlogError as error:
            raise error.at(f"{entry.file}, offset {entry.offset}") from None

    def _flush(self) -> None:
        """Decode the rows collected so far, and write all entries."""
        self._rows.flush()
        entries, self._entries = self._entries, []
        out: list[bytes] = []
        for entry in entries:
            if self._summary is None and entry.fields.complete_later is not None:
                try:
                    entry.fields.complete()
                except BinlogError as error:
                    entry.error = error_text(error)
            if entry.error:
                self.unread += 1
                where = f"{entry.file}, offset {entry.offset}"
                self.first_unread = self.first_unread or f"{entry.error} ({where})"
            if self._summary is not None:
                self._summary.add(entry)
                continue
            if entry.file != self._file:
                self._file = entry.file
                out.append(self._output.head(entry.file).encode())
            out += self._output.render(entry)
        if out:
            self._write(b"".join(out))
