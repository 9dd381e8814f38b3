"""Converts MySQL's binary JSON to the text that the server prints, a column at a time.

A document is a type byte and a value. A container (object or array, each small or large) begins with its number of
values and its size in bytes. A key entry (offset, length) per key and a value entry (type, offset) per value follow.
The entry of a literal, or of an integer that fits into the entry, contains the value in place of the offset. Offsets
count from the container's first byte. Keys are stored and printed in the server's order, by length and then by bytes.
All numbers are little-endian, with 2 bytes, or with 4 in large containers.

A value without a JSON type is opaque, with the code of an SQL type. The server prints a DECIMAL as a number, dates and
times as `"2024-02-29 10:00:00.000000"`, and values of other types (BIT, BLOB, geometry) as `"base64:type16:AQ=="`. An
empty document, which INSERT IGNORE stores in a NOT NULL column, is `null`. Server versions differ only in opaque
VAR_STRING: 5.7 stores it for binary strings and prints it as base64, 8.0 stores it for some texts and prints it as a
string. This module writes an opaque VAR_STRING as a string if it is UTF-8, else as base64.

The server escapes `"`, the backslash and control characters in strings, but neither `/` nor non-ASCII characters.
A string that is not UTF-8 is an error, as in text columns. (MySQL 9.7 stores the bytes of a UTF-16 literal in a JSON
string without conversion.)

MariaDB's JSON is text in the log and needs no conversion.

Source: sql-common/json_binary.{h,cc}, sql-common/json_dom.cc (wrapper_to_string, double_quote).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.arrow.invalid import Invalid
from dispatcher.binlog.decode.jsonb import jsonb_kernels as kernels
from dispatcher.binlog.kernel.bytes import I64, U8

_WHY = {
    kernels.CUT_SHORT: "a value reaches past its end",
    kernels.NO_TYPE: "a value of an unknown type",
    kernels.NO_LITERAL: "a literal that is neither null, true nor false",
    kernels.NO_LENGTH: "an invalid length",
    kernels.OUTSIDE: "an offset that points outside its container",
    kernels.OVERLAP: "values that overlap",
    kernels.TOO_DEEP: f"values nested more than {kernels.MAX_DEPTH} deep",
    kernels.NO_NUMBER: "a double that is not finite",
    kernels.NO_DECIMAL: "an invalid DECIMAL",
    kernels.NO_TIME: "an invalid date or time",
}
_GREATEST_TEXT = 0x7FFFFFFF


def json_strings(data: U8, offsets: I64, valid: NDArray[np.bool_] | None = None) -> pa.StringArray:
    """Convert the documents data[offsets[i]:offsets[i + 1]] to strings; null if not valid[i].

    `data` may begin before the first document and end after the last document. Offsets must not decrease. Raises
    `Invalid` for the first document that no server can have written, or for more than 2 GiB of text.
    """
    if not data.flags.writeable:
        data = data.copy()  # for read-only arrays numba would compile the kernel a second time
    rows = len(offsets) - 1
    present = np.ones(rows, dtype=np.bool_) if valid is None else valid
    out_offsets = np.zeros(rows + 1, dtype=np.int64)
    out: U8 = np.empty(_first_room(offsets), dtype=np.uint8)
    bad = np.zeros(2, dtype=np.int64)
    frames = np.empty((kernels.MAX_DEPTH, kernels.FRAME_FIELDS), dtype=np.int64)
    row = 0
    while (row := kernels.write(data, offsets, present, row, out, out_offsets, bad, frames)) < rows:
        if bad[0]:
            raise Invalid(row, f"not JSON: {_WHY[int(bad[0])]}, at byte {bad[1]}")
        out = _larger(out, int(out_offsets[row]), int(offsets[row + 1] - offsets[row]))
    size = int(out_offsets[rows])
    if size > _GREATEST_TEXT:
        raise Invalid(rows - 1, "more than 2 GiB of text in one batch")
    out.resize(size, refcheck=False)
    if (row := transcode.invalid_utf8(out, out_offsets, 0xFF)) >= 0:
        raise Invalid(row, "not JSON: a string that is not UTF-8")
    return arrow_buffers.varying(pa.string(), out_offsets.astype(np.int32), out, valid)


def _first_room(offsets: I64) -> int:
    """Returns twice the size of the documents, which is enough for nearly all columns, plus the room of the largest
    document."""
    if len(offsets) < 2:
        return 0
    return int(2 * (offsets[-1] - offsets[0]) + _room(int(np.diff(offsets).max())))


def _larger(out: U8, used: int, document: int) -> U8:
    more: U8 = np.empty(2 * len(out) + _room(document), dtype=np.uint8)
    more[:used] = out[:used]
    return more


def _room(document: int) -> int:
    return kernels.TEXT_FACTOR * document + kernels.TEXT_MORE
