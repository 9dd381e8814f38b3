"""Writes rows in the form of the text output. Prepares the data about each table for the kernels, and decodes values.

`row_kernels` writes columns of common types from their cells. Arrow first decodes the other columns, the extra columns
(`Extras`), for many rows of a table together. Extra columns are JSON, geometries, vectors, FLOAT, character sets other
than UTF-8, compressed columns and addresses. Dates are extra columns, too, unless invalid dates are shown as text.
pyarrow is imported only for extra columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.charset.charsets import GREATEST_UTF8
from dispatcher.binlog.charset.collations import BINARY, charset_of
from dispatcher.binlog.decode.columns import temporals
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.kernel.bytes import I64, U8
from dispatcher.binlog.table_map import inet
from dispatcher.binlog.table_map.column_types import (
    Column,
    InvalidDates,
    Type,
    cell_width,
)
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.inspect import row_kernels as kernels
from dispatcher.inspect.entry import Table
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.printable import printable

if TYPE_CHECKING:
    from dispatcher.binlog.decode.columns.table_decoder import TableDecoder

_Form = tuple[int, int, int, int]  # FORM, A, B and C of a column

_FIRST_BYTES = 1 << 20
_TABLES_MAX = 4096
_INTEGER_BYTES = {Type.TINY: 1, Type.SHORT: 2, Type.INT24: 3, Type.LONG: 4, Type.LONGLONG: 8}
_TEMPORALS: dict[int, int] = {
    Type.DATE: temporals.DATE,
    Type.NEWDATE: temporals.DATE,
    Type.DATETIME2: temporals.DATETIME2,
    Type.DATETIME_OLD: temporals.DATETIME_OLD,
    Type.TIMESTAMP2: temporals.TIMESTAMP2,
    Type.TIMESTAMP_OLD: temporals.TIMESTAMP_OLD,
}
_FRACTIONS = (Type.TIMESTAMP2, Type.DATETIME2)
INSTANTS = (Type.TIMESTAMP2, Type.TIMESTAMP_OLD)
_TIMES: dict[int, int] = {Type.TIME2: temporals.TIME2, Type.TIME_OLD: temporals.TIME_OLD}
_TEXTS = (Type.STRING, Type.VARCHAR, Type.VAR_STRING, Type.BLOB)
NO_EXTRAS = kernels.Extras(np.empty((0, 2), np.int64), np.frombuffer(b"", dtype=np.uint8))


class RowsEvents(NamedTuple):
    """Rows events of one table. `events`: for each event in `buf` a line of `row_walk`, with OFFSET, END and TYPE."""

    table: Table
    buf: U8
    events: I64


class Grown:
    """An array to which lines can be appended. `used`: the number of lines in use; `array` may have more lines."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.used = 0

    def append(self, lines: NDArray[Any]) -> int:
        """Returns the number of the first line appended."""
        start, end = self.used, self.used + len(lines)
        if end > len(self.array):
            larger = np.zeros((2 * end, *self.array.shape[1:]), self.array.dtype)
            larger[:start] = self.array[:start]
            self.array = larger
        self.array[start:end] = lines
        self.used = end
        return start

    def append_bytes(self, text: bytes) -> int:
        return self.append(np.frombuffer(text, dtype=np.uint8))


class RowTexts:
    """Writes rows. `arrays`: the data of all tables so far, for the kernels; `scratch`: large enough for the widest of
    these tables."""

    def __init__(self, invalid_dates: InvalidDates) -> None:
        self._invalid_dates = invalid_dates
        self.forget()

    def forget(self) -> None:
        """Forget all tables."""
        self._numbers: dict[Table, int] = {}
        # The decoder of a table's extra columns and these columns, by the table's line in `arrays`.
        self._decoders: dict[int, tuple[TableDecoder, list[Column]]] = {}
        self._tables = Grown(np.zeros((8, kernels.TABLE_FIELDS), np.int64))
        self._columns = Grown(np.zeros((64, kernels.COLUMN_FIELDS), np.int64))
        self._widths = Grown(np.zeros(64, np.int32))
        self._labels = Grown(np.zeros((8, 2), np.int64))
        self._texts = Grown(np.zeros(4096, np.uint8))
        self.scratch = kernels.Scratch.room(1)

    @property
    def arrays(self) -> kernels.RowTables:
        return kernels.RowTables(
            self._tables.array,
            self._columns.array,
            self._widths.array,
            self._labels.array,
            self._texts.array,
        )

    def number(self, table: Table) -> int:
        """Returns the table's line in `arrays`. Raises `BinlogError` if the table's rows cannot be decoded."""
        if table not in self._numbers:
            table_map = TableMap.parse(table.body)
            table_map.require_names()
            self._numbers[table] = self._add(table, table_map)
        return self._numbers[table]

    def has_extras(self, number: int) -> bool:
        return number in self._decoders

    def _add(self, table: Table, table_map: TableMap) -> int:
        forms = [self._form(column, i, table) for i, column in enumerate(table_map.columns)]
        extra = [i for i, form in enumerate(forms) if form[0] >= kernels.EXTRA]
        decoder = self._decoder(table, table_map, extra, forms) if extra else None
        lines = []
        label = printable(table.label).encode()
        room = kernels.HEAD_ROOM + len(label)
        for column, form in zip(table_map.columns, forms, strict=True):
            name = printable(f"###   `{column.name.replace('`', '``')}`=").encode()
            lines.append((*form, self._texts.append_bytes(name), len(name)))
            room += 2 * (len(name) + _room(column) + 1)
        first = self._columns.append(np.array(lines, np.int64).reshape(-1, kernels.COLUMN_FIELDS))
        self._widths.append(row_walk.cell_widths(table_map.columns))
        line = (first, len(lines), len(extra), self._texts.append_bytes(label), len(label), room)
        number = self._tables.append(np.array([line], np.int64))
        if decoder is not None:
            self._decoders[number] = decoder, [table_map.columns[i] for i in extra]
        if len(lines) > len(self.scratch.before):
            self.scratch = kernels.Scratch.room(len(lines))
        return number

    def _decoder(
        self, table: Table, table_map: TableMap, extra: list[int], forms: list[_Form]
    ) -> TableDecoder:
        """Returns the decoder of the extra columns, and sets their `forms`."""
        from dispatcher.binlog.decode.columns.table_decoder import TableDecoder  # noqa: PLC0415
        from dispatcher.inspect.values import extra_form  # noqa: PLC0415

        decoder = TableDecoder(table_map.with_all_versions(), self._invalid_dates, extra)
        for number, (i, field) in enumerate(zip(extra, decoder.fields, strict=True)):
            form = extra_form(field.type, no_charset=i in table.no_charset)
            forms[i] = form, number, kernels.ANY if form == kernels.EXTRA_TEXT else 0, 0
        return decoder

    def _form(self, column: Column, number: int, table: Table) -> _Form:  # noqa: PLR0911
        """Returns FORM, A, B and C of a column."""
        kind, meta = column.type, column.meta
        if (size := _INTEGER_BYTES.get(kind)) is not None:  # type: ignore[call-overload]
            signed = kernels.BOTH_SIGNS if number in table.no_sign else kernels.SIGNED
            return kernels.UNSIGNED if column.unsigned else signed, size, 0, 0
        if kind in _TEMPORALS and self._invalid_dates is InvalidDates.TEXT:
            digits = meta if kind in _FRACTIONS else 0
            return kernels.TEMPORAL, _TEMPORALS[kind], digits, int(kind in INSTANTS)
        if kind in _TIMES:
            return kernels.TIME, _TIMES[kind], meta if kind == Type.TIME2 else 0, 0
        if kind == Type.DOUBLE:
            return kernels.DOUBLE, 0, 0, 0
        if kind == Type.NEWDECIMAL:
            return kernels.DECIMAL, meta >> 8, meta & 0xFF, cell_width(kind, meta)
        if kind == Type.YEAR:
            return kernels.YEAR, 0, 0, 0
        if kind == Type.BIT:
            return kernels.BITS, cell_width(kind, meta), 0, 0
        if kind in (Type.ENUM, Type.SET) and column.labels:
            return self._labels_form(column)
        if kind in _TEXTS and column.declared not in inet.SIZES:
            return _text_form(column, no_charset=number in table.no_charset)
        return kernels.EXTRA, 0, 0, 0

    def _labels_form(self, column: Column) -> _Form:
        if column.type == Type.ENUM:
            # The number 0 means an invalid value, which the server shows as ''.
            labels = [b"'%b'" % escaped(label) for label in ("", *column.labels)]
        else:
            labels = [escaped(label) for label in column.labels]
        places = [(self._texts.append_bytes(label), len(label)) for label in labels]
        first = self._labels.append(np.array(places, np.int64))
        form = kernels.ENUM if column.type == Type.ENUM else kernels.SET
        return form, column.meta, first, len(labels)

    def extras(self, rows: RowsEvents, number: int) -> tuple[kernels.Extras, I64]:
        """Decode the extra columns of the rows. Returns the values, and for each event the line of `cuts` where its
        first row begins. Raises `BinlogError`."""
        starts = np.zeros(len(rows.events) + 1, np.int64)
        if number not in self._decoders:
            return NO_EXTRAS, starts[:-1]
        from dispatcher.inspect.values import extra_texts  # noqa: PLC0415

        decoder, columns = self._decoders[number]
        extras, counts = extra_texts(rows.buf, rows.events, decoder, columns)
        np.cumsum(2 * len(columns) * counts, out=starts[1:])
        return extras, starts[:-1]

    def write(self, rows: RowsEvents) -> list[tuple[int, bytes]]:
        """Returns for each event the number of its rows and their text. Raises `BinlogError` if an event cannot be
        decoded."""
        if len(self._numbers) >= _TABLES_MAX:
            self.forget()
        number, events = self.number(rows.table), rows.events
        extras, _ = self.extras(rows, number)
        counts, ends = np.zeros(len(events), np.int64), np.zeros(len(events), np.int64)
        out: U8 = np.empty(_FIRST_BYTES, np.uint8)
        line = 0
        while (
            line := kernels.put_events(
                rows.buf, events, line, number, self.arrays, extras, self.scratch, counts, ends, out
            )
        ) < len(events):
            if counts[line] == kernels.REFUSED:
                self._refuse(RowsEvents(rows.table, rows.buf, events[line : line + 1]))
            larger: U8 = np.empty(2 * len(out) + int(events[line, row_walk.END]), np.uint8)
            used = int(ends[line - 1]) if line else 0
            larger[:used] = out[:used]
            out = larger
        view, starts = out.data, [0, *ends[:-1].tolist()]
        return [
            (count, bytes(view[start:end]))
            for count, start, end in zip(counts.tolist(), starts, ends.tolist(), strict=True)
        ]

    def _refuse(self, rows: RowsEvents) -> NoReturn:
        """Raises the decoder's `BinlogError` for rows that a kernel has refused."""
        from dispatcher.binlog.decode.columns.table_decoder import TableDecoder  # noqa: PLC0415
        from dispatcher.inspect.values import decoded  # noqa: PLC0415

        table_map = TableMap.parse(rows.table.body)
        decoder = TableDecoder(table_map.with_all_versions(), self._invalid_dates)
        for _ in decoded(rows.buf, rows.events, decoder):
            pass
        why = f"rows of table {table_map.label} that cannot be shown"
        raise BinlogError(ErrorKind.INVALID_VALUE, why)


def escaped(text: str) -> bytes:
    """Returns a text as it is written in a literal, without the quotes."""
    out = bytearray()
    for character in text:
        hidden = character > "\x7f" and printable(character) != character
        for byte in character.encode("utf-8", "surrogatepass"):
            letter = ord("x") if hidden else int(kernels.ESCAPES[byte])
            if letter == ord("x"):
                out += b"\\x%02x" % byte
            else:
                out += bytes((ord("\\"), letter) if letter else (byte,))
    return bytes(out)


def _room(column: Column) -> int:
    """Returns the most bytes of a literal of the column, not counting the bytes of a text."""
    if column.type == Type.NEWDECIMAL:
        return kernels.NUMBER_ROOM + (column.meta >> 8)
    if column.type in (Type.ENUM, Type.SET):
        return kernels.NUMBER_ROOM + sum(len(escaped(label)) + 1 for label in column.labels)
    return kernels.NUMBER_ROOM


def _text_form(column: Column, *, no_charset: bool) -> _Form:
    prefix = -cell_width(column.type, column.meta)
    if no_charset:
        return kernels.TEXT_OR_BYTES, prefix, 0, 0
    if column.charset == BINARY:
        # A row image omits the trailing zero bytes of BINARY(n); SELECT shows them.
        return kernels.BYTES, prefix, column.meta if column.type == Type.STRING else 0, 0
    greatest = GREATEST_UTF8.get(charset_of(column.charset) if column.charset else "")
    if greatest is None:
        return kernels.EXTRA, 0, 0, 0
    return kernels.TEXT, prefix, greatest, 0
