"""The kernel that converts a column of MySQL's binary JSON to text. `jsonb` describes the format.

The kernel is one loop without recursion: a stack of at most 100 frames contains the containers around the current
value. The kernel writes into the caller's buffer and stops before a document that may not fit. The text of a document
of n bytes has at most TEXT_FACTOR * n + TEXT_MORE bytes.

The kernel uses each byte of a document at most once. All documents that a server writes satisfy this rule (a document
that was changed in place has holes, but no overlaps). For malformed documents the rule bounds time and memory: if
offsets point to the same value, or form a cycle, the document has no unused bytes left at some point. So no value may
be longer than the number of bytes that are still unused.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.decode.formats import number_format
from dispatcher.binlog.kernel.bytes import I64, U8, Int, little
from dispatcher.binlog.kernel.jit import njit
from dispatcher.binlog.table_map.column_types import Type

LARGE = 1  # bit of a container's type: offsets and sizes of 4 bytes instead of 2
OBJECT, ARRAY = 0, 2
GREATEST_CONTAINER = 3
LITERAL = 4
INT16 = 5
UINT16 = 6
INT32 = 7
UINT32 = 8
INT64 = 9
UINT64 = 10
DOUBLE = 11
STRING = 12
OPAQUE = 15

MAX_DEPTH = 100
GREATEST_UTF8 = np.int64(
    0xFF
)  # the argument `greatest` of `invalid_utf8`: every byte value is allowed

# A container on the stack: type, offset, size in bytes, number of values, values written, offset of the value entries,
# bytes before the first key or value.
KIND, BASE, SIZE, COUNT, DONE, ENTRIES, HEAD = range(7)
FRAME_FIELDS = 7

# Room for the text of a document of n bytes: TEXT_FACTOR * n + TEXT_MORE. The worst case is control characters.
TEXT_FACTOR = 6
TEXT_MORE = 128

# Error codes. Error codes are negative, because the same variables also contain offsets.
CUT_SHORT = -1
NO_TYPE = -2
NO_LITERAL = -3
NO_LENGTH = -4
OUTSIDE = -5
OVERLAP = -6
TOO_DEEP = -7
NO_NUMBER = -8
NO_DECIMAL = -9
NO_TIME = -10

_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_NULL = np.frombuffer(b"null", dtype=np.uint8)
_TRUE = np.frombuffer(b"true", dtype=np.uint8)
_FALSE = np.frombuffer(b"false", dtype=np.uint8)
_LINE = 57  # bytes in a line of 76 base64 characters
_OPAQUE = np.frombuffer(b"base64:type", dtype=np.uint8)


def _escapes() -> U8:
    """Returns for each byte: 0 = not escaped, 117 = escaped as \\\\u00xx, else the letter after the backslash."""
    table = np.zeros(256, dtype=np.uint8)
    table[:32] = ord("u")
    for byte, letter in zip(b'\b\t\n\f\r"\\', b'btnfr"\\', strict=True):
        table[byte] = letter
    return table


_ESCAPES = _escapes()


@njit
def _word(word: U8, out: U8, o: Int) -> Int:
    for k in range(len(word)):
        out[o + k] = word[k]
    return o + len(word)


@njit
def _quoted(data: U8, p: Int, size: Int, out: U8, o: Int) -> Int:
    """Write a string in quotes. Escape only `"`, `\\` and control characters."""
    out[o] = 34
    o += 1
    for k in range(p, p + size):
        byte = data[k]
        letter = _ESCAPES[byte]
        if letter == 0:
            out[o] = byte
            o += 1
            continue
        out[o], out[o + 1] = 92, letter
        o += 2
        if letter == 117:
            out[o], out[o + 1] = 48, 48
            out[o + 2], out[o + 3] = _HEX[byte >> 4], _HEX[byte & 15]
            o += 4
    out[o] = 34
    return o + 1


@njit
def _base64(kind: Int, data: U8, p: Int, size: Int, out: U8, o: Int) -> Int:
    """Write `"base64:type16:AQ=="`, with an escaped line break after each 76 characters, as in the server's output."""
    out[o] = 34
    o = _word(_OPAQUE, out, o + 1)
    o = number_format.unsigned(np.uint64(kind), out, o)
    out[o] = 58
    o += 1
    for k in range(p, p + size, _LINE):
        if k > p:
            out[o], out[o + 1] = 92, 110
            o += 2
        o = number_format.base64(data, k, min(_LINE, p + size - k), out, o)
    out[o] = 34
    return o + 1


@njit
def _length(data: U8, p: Int, limit: Int) -> tuple[Int, Int]:
    """Return (length, offset after the length field) of a string or opaque value. A byte of the field contains 7 bits
    of the length. If the field is invalid, the length is -1."""
    value = np.int64(0)
    for k in range(5):
        if p + k >= limit:
            return np.int64(-1), p
        byte = np.int64(data[p + k])
        value |= (byte & 127) << (7 * k)
        if byte < 128:
            return (value if value <= 0xFFFFFFFF else np.int64(-1)), p + k + 1
    return np.int64(-1), p


@njit
def _opaque(  # noqa: PLR0911 - one branch per type
    data: U8, p: Int, limit: Int, out: U8, o: Int
) -> tuple[Int, Int]:
    if p >= limit:
        return np.int64(CUT_SHORT), np.int64(0)
    kind = np.int64(data[p])
    size, at = _length(data, p + 1, limit)
    if size < 0:
        return np.int64(NO_LENGTH), np.int64(0)
    if size > limit - at:
        return np.int64(CUT_SHORT), np.int64(0)
    used = at + size - p
    if kind == Type.NEWDECIMAL:
        o = number_format.decimal(data, at, size, out, o)
        return (o if o >= 0 else np.int64(NO_DECIMAL)), used
    form = -1
    if kind == Type.DATE:
        form = number_format.DATE
    elif kind == Type.TIME_OLD:
        form = number_format.TIME
    elif kind == Type.DATETIME_OLD or kind == Type.TIMESTAMP_OLD:
        form = number_format.DATETIME
    if form >= 0:
        if size != 8:
            return np.int64(NO_TIME), np.int64(0)
        out[o] = 34
        o = number_format.temporal(data, at, form, out, o + 1)
        if o < 0:
            return np.int64(NO_TIME), np.int64(0)
        out[o] = 34
        return o + 1, used
    if kind == Type.VAR_STRING and transcode.is_utf8(data, at, at + size, GREATEST_UTF8):
        return _quoted(data, at, size, out, o), used
    return _base64(kind, data, at, size, out, o), used


@njit
def _scalar(  # noqa: C901, PLR0911 - one branch per type
    data: U8, kind: Int, p: Int, limit: Int, out: U8, o: Int
) -> tuple[Int, Int]:
    """Write the value of type `kind` at `p`. Return (offset after the text or an error code, size of the value)."""
    if kind == STRING:
        size, at = _length(data, p, limit)
        if size < 0:
            return np.int64(NO_LENGTH), np.int64(0)
        if size > limit - at:
            return np.int64(CUT_SHORT), np.int64(0)
        return _quoted(data, at, size, out, o), at + size - p
    if kind == OPAQUE:
        return _opaque(data, p, limit, out, o)
    if kind == LITERAL:
        if p >= limit:
            return np.int64(CUT_SHORT), np.int64(0)
        if data[p] == 0:
            return _word(_NULL, out, o), np.int64(1)
        if data[p] == 1:
            return _word(_TRUE, out, o), np.int64(1)
        if data[p] == 2:
            return _word(_FALSE, out, o), np.int64(1)
        return np.int64(NO_LITERAL), np.int64(0)
    if kind < LITERAL or kind > DOUBLE:
        return np.int64(NO_TYPE), np.int64(0)
    width = np.int64(2 if kind <= UINT16 else 4 if kind <= UINT32 else 8)
    if width > limit - p:
        return np.int64(CUT_SHORT), np.int64(0)
    value = little(data, p, width)
    if kind == DOUBLE:
        if value >> 52 & 0x7FF == 0x7FF:
            return np.int64(NO_NUMBER), np.int64(0)
        return number_format.double(np.uint64(value), out, o), width
    if kind == INT16 or kind == INT32 or kind == INT64:  # noqa: SIM109
        shift = np.int64(64 - 8 * width)
        return number_format.signed(value << shift >> shift, out, o), width
    return number_format.unsigned(np.uint64(value), out, o), width


@njit
def _open(data: U8, kind: Int, p: Int, limit: Int, frames: I64, depth: Int) -> Int:
    """Push the container at `p` on the stack. Return the size of its head (counts, entries), or an error code."""
    if depth == MAX_DEPTH:
        return np.int64(TOO_DEEP)
    width = np.int64(4 if kind & LARGE else 2)
    if limit - p < 2 * width:
        return np.int64(CUT_SHORT)
    count, size = little(data, p, width), little(data, p + width, width)
    entries = 2 * width + (0 if kind & ARRAY else count * (2 + width))
    head = entries + count * (1 + width)
    if size > limit - p or head > size:
        return np.int64(CUT_SHORT)
    frames[depth, KIND], frames[depth, BASE], frames[depth, SIZE] = kind, p, size
    frames[depth, COUNT], frames[depth, DONE] = count, 0
    frames[depth, ENTRIES], frames[depth, HEAD] = p + entries, head
    return head


@njit
def _key(data: U8, frame: I64, budget: Int, out: U8, o: Int) -> tuple[Int, Int]:
    """Write the next key of an object. Return (offset after the text or an error code, size of the key)."""
    width = np.int64(4 if frame[KIND] & LARGE else 2)
    at = frame[BASE] + 2 * width + frame[DONE] * (2 + width)
    offset, size = little(data, at, width), little(data, at + width, 2)
    if offset < frame[HEAD] or offset + size > frame[SIZE]:
        return np.int64(OUTSIDE), np.int64(0)
    if size > budget:
        return np.int64(OVERLAP), np.int64(0)
    o = _quoted(data, frame[BASE] + offset, size, out, o)
    out[o], out[o + 1] = 58, 32
    return o + 2, size


@njit
def _wrong(code: Int, squeezed: bool) -> Int:
    """Returns the error code of a value: OVERLAP if the value is too long only because other values have already used
    its bytes (`squeezed`), else `code`."""
    return np.int64(OVERLAP) if squeezed and code in (CUT_SHORT, NO_LENGTH) else code


@njit
def _document(  # noqa: C901 - one loop: its state lives in registers
    data: U8, start: Int, stop: Int, frames: I64, out: U8, o: Int
) -> tuple[Int, Int]:
    """Write one document, which is not empty. Return (offset after the text, 0) or (error code, offset of the error in
    the document)."""
    # The current value: its type, its offset, the offset at or before which it must end, and True if it lies in an
    # entry. `left`: the number of unused bytes of the document.
    kind, p, limit, inlined = np.int64(data[start]), start + 1, stop, False
    left = stop - p
    end = stop
    depth = np.int64(0)  # for a literal 0, numba would compile `_open` a second time
    while True:
        if kind <= GREATEST_CONTAINER:
            used = _open(data, kind, p, limit, frames, depth)
            if used < 0:
                return _wrong(used, limit < end), p - start
            depth += 1
            out[o] = 91 if kind & ARRAY else 123
            o += 1
        else:
            behind, used = _scalar(data, kind, p, limit, out, o)
            if behind < 0:
                return _wrong(behind, limit < end), p - start
            o = behind
        if not inlined:
            left -= used
        while depth and frames[depth - 1, DONE] == frames[depth - 1, COUNT]:
            depth -= 1
            out[o] = 93 if frames[depth, KIND] & ARRAY else 125
            o += 1
        if not depth:
            return o, np.int64(0)
        frame = frames[depth - 1]
        if frame[DONE]:
            out[o], out[o + 1] = 44, 32
            o += 2
        if not frame[KIND] & ARRAY:
            behind, used = _key(data, frame, left, out, o)
            if behind < 0:
                return behind, frame[BASE] - start
            o = behind
            left -= used
        large = frame[KIND] & LARGE
        width = np.int64(4 if large else 2)
        p = frame[ENTRIES] + frame[DONE] * (1 + width)
        frame[DONE] += 1
        kind = np.int64(data[p])
        inlined = bool(LITERAL <= kind <= (UINT32 if large else UINT16))
        if inlined:
            p += 1
            end = limit = p + width
            continue
        offset = little(data, p + 1, width)
        if offset < frame[HEAD] or offset > frame[SIZE]:
            return np.int64(OUTSIDE), p - start
        p = frame[BASE] + offset
        end = frame[BASE] + frame[SIZE]
        limit = min(end, p + left)


@njit
def write(  # noqa: PLR0913 - a tuple of arrays costs more to take apart
    data: U8,
    offsets: I64,
    valid: NDArray[np.bool_],
    row: Int,
    out: U8,
    out_offsets: I64,
    bad: I64,
    frames: I64,
) -> Int:
    """Write documents, beginning with document number `row` and at offset out_offsets[row]. Return the number of the
    first document that was not written.

    Document i is data[offsets[i]:offsets[i + 1]], and its text is out[out_offsets[i]:out_offsets[i + 1]]; "" if not
    valid[i]. The kernel stops early if `out` may be too small for the next document (bad[0] = 0), or if that document
    is malformed (bad = [error code, offset in the document]). `frames`: scratch memory of MAX_DEPTH rows with
    FRAME_FIELDS columns.
    """
    bad[0] = 0
    for i in range(row, len(offsets) - 1):
        o = out_offsets[i]
        start, stop = offsets[i], offsets[i + 1]
        if not valid[i]:
            out_offsets[i + 1] = o
            continue
        if len(out) - o < TEXT_FACTOR * (stop - start) + TEXT_MORE:
            return np.int64(i)
        if start == stop:
            o = _word(_NULL, out, o)
        else:
            o, at = _document(data, start, stop, frames, out, o)
            if o < 0:
                bad[0], bad[1] = o, at
                return np.int64(i)
        out_offsets[i + 1] = o
    return np.int64(len(offsets) - 1)
