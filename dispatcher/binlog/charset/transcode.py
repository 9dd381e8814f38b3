"""Converts text from any character set of the servers to UTF-8, a column at a time, exactly as the servers do.

Single-byte sets use a table of UTF-8 sequences. Multi-byte sets use tables of code points, indexed by the last two
bytes of a character. The Unicode sets need no table: a kernel computes the code points. The tables of a set are built
when the set is first used: for single-byte sets from `tables`, for multi-byte sets from Python's codec, corrected by
`tables`. A character that the server cannot convert becomes a question mark, as in SELECT. Bytes that are not a
character of the set are an error; no server stores them.

Source: MySQL source, strings/ctype-*.cc (which bytes form a character). The tests compare the tables with the servers'
own conversion, character by character.
"""

from __future__ import annotations

import base64
import zlib
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.charset import tables
from dispatcher.binlog.charset.charsets import (
    CONVERTIBLE,
    GREATEST_UTF8,
    NEAREST_CODEC,
    SINGLE,
    UNITS,
)
from dispatcher.binlog.charset.collations import CZECH, conversion_of
from dispatcher.binlog.kernel.bytes import I64, U8, Int
from dispatcher.binlog.kernel.jit import njit

U16 = NDArray[np.uint16]

# The kinds of multi-byte sets, by the lengths of their multi-byte characters.
PAIRS = 0  # two bytes
TRIPLES = 1  # two bytes, or three if the first one is 0x8F
QUADS = 2  # two bytes, or four if the second one is a digit

# The code point of the first character in rows 0xF5-0xFE of the EUC sets. The code points of the two-byte characters
# come first, then those of the three-byte characters.
_USER_DEFINED = 0xE000
# The entry in a table of code points for bytes that are not a character.
_ILL_FORMED = 0
# The entry for 0x8E 0xA0 of the EUC sets, which MySQL accepts as a character and shows as two question marks.
_TWO_UNKNOWN = 1
_QUAD_CODES = 39_420  # codes of four bytes that lie in the BMP


class Wide(NamedTuple):
    """Tables of code points of one multi-byte set. `first`: indexed by a single byte; `_ILL_FORMED` if the byte alone
    is not a character. `pairs`: indexed by two bytes. `more`: indexed by the last two of three bytes, or by the number
    of a four-byte code."""

    form: int
    first: U16
    pairs: U16
    more: U16


def to_utf8(charset: str, data: U8, offsets: I64) -> tuple[int, I64, U8]:
    """Convert adjacent values to UTF-8. Return (row of the first invalid value or -1, offsets, UTF-8).

    `charset`: one of `CONVERTIBLE`.
    """
    if charset in GREATEST_UTF8:
        return int(invalid_utf8(data, offsets, GREATEST_UTF8[charset])), offsets, data
    if charset in UNITS:
        width, little, pairs = UNITS[charset]
        out_offsets, out = _room(offsets, 2 * len(data) + 4)
        row = int(from_units(data, offsets, width, little, pairs, out_offsets, out))
        return row, out_offsets, _fitted(out, out_offsets)
    if charset != "swe7" and (not len(data) or data.max() < 0x80):
        return -1, offsets, data
    out_offsets, out = _room(offsets, 3 * len(data))
    if charset in SINGLE:
        from_single(data, offsets, single_table(charset), out_offsets, out)
        row = -1
    else:
        row = int(from_wide(data, offsets, *wide_table(charset), out_offsets, out))
    return row, out_offsets, _fitted(out, out_offsets)


def label(raw: bytes, collation: int) -> str | None:
    """Decode a label or a default from the character set of `collation`. Return None if the character set is unknown.

    Raises ValueError for bytes that are invalid in the character set.
    """
    charset = conversion_of(collation)
    if charset in GREATEST_UTF8 or collation == 0:
        return raw.decode()
    if charset == "binary":
        return raw.decode("latin-1")
    if charset not in CONVERTIBLE:
        return None
    data: U8 = np.frombuffer(raw, dtype=np.uint8)
    row, _, out = to_utf8(charset, data, np.array([0, len(raw)], dtype=np.int64))
    if row >= 0:
        raise ValueError(f"bytes that are not valid {charset}")
    return out.tobytes().decode()


def _room(offsets: I64, size: int) -> tuple[I64, U8]:
    return np.zeros(len(offsets), dtype=np.int64), np.empty(size, dtype=np.uint8)


def _fitted(out: U8, offsets: I64) -> U8:
    return out[: offsets[-1]].copy()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))


@cache
def single_table(charset: str) -> U8:
    """Return the table for `from_single`: for each byte, (length, up to 3 bytes of UTF-8)."""
    at = 512 * tables.SINGLE.index("latin2" if charset == CZECH else charset)
    codes = np.frombuffer(_unpacked(tables.SINGLE_CODES), dtype=">u2", offset=at, count=256)
    if charset == CZECH:
        codes = codes.copy()
        codes[0x80:0xA0] = ord("?")
    table = np.zeros((256, 4), dtype=np.uint8)
    for byte, code in enumerate(codes.tolist()):
        text = chr(code).encode()
        table[byte, 0] = len(text)
        table[byte, 1 : 1 + len(text)] = tuple(text)
    return table


def characters(charset: str) -> dict[bytes, int]:
    """Returns a map from the bytes of each character of a multi-byte set to its code point. The code points come from
    Python's codec and from the rule for user-defined characters."""
    codec, points = NEAREST_CODEC[charset], {}
    codes = [bytes((a,)) for a in range(256)]
    codes += [bytes((a, b)) for a in range(0x80, 256) for b in range(0x40, 256)]
    if codec == "euc_jp":
        codes += [bytes((0x8F, a, b)) for a in range(0xA1, 0xFF) for b in range(0xA1, 0xFF)]
    if charset == "gb18030":
        codes += map(_quad, range(_QUAD_CODES))
    for code in codes:
        try:
            text = code.decode(codec)
        except UnicodeDecodeError:
            continue
        if len(text) == 1:
            points[code] = ord(text)
    if codec == "euc_jp":
        cells_of_rows = [bytes((a, b)) for a in range(0xF5, 0xFF) for b in range(0xA1, 0xFF)]
        user_defined = (*cells_of_rows, *(b"\x8f" + code for code in cells_of_rows))
        points |= {code: _USER_DEFINED + i for i, code in enumerate(user_defined)}
    return points


def _quad(number: int) -> bytes:
    rest, d = divmod(number, 10)
    rest, c = divmod(rest, 126)
    a, b = divmod(rest, 10)
    return bytes((0x81 + a, 0x30 + b, 0x81 + c, 0x30 + d))


def well_formed(charset: str) -> list[bytes]:
    """Return the codes of two and three bytes that the servers accept as characters, even if they cannot convert
    them."""
    first, second = {
        "big5": ((0xA1, 0xF9), ((0x40, 0x7E), (0xA1, 0xFE))),
        "euckr": ((0x81, 0xFE), ((0x41, 0x5A), (0x61, 0x7A), (0x81, 0xFE))),
        "gb18030": ((0x81, 0xFE), ((0x40, 0x7E), (0x80, 0xFE))),
        "gb2312": ((0xA1, 0xF7), ((0xA1, 0xFE),)),
        "gbk": ((0x81, 0xFE), ((0x40, 0x7E), (0x80, 0xFE))),
        "ujis": ((0xA1, 0xFE), ((0xA1, 0xFE),)),
        "eucjpms": ((0xA1, 0xFE), ((0xA1, 0xFE),)),
        "sjis": ((0x81, 0xFC), ((0x40, 0x7E), (0x80, 0xFC))),
        "cp932": ((0x81, 0xFC), ((0x40, 0x7E), (0x80, 0xFC))),
    }[charset]
    kana = range(0xA0, 0xE0) if charset in ("sjis", "cp932") else ()  # single bytes
    leads = [a for a in range(first[0], first[1] + 1) if a not in kana]
    trails = [b for low, high in second for b in range(low, high + 1)]
    codes = [bytes((a, b)) for a in leads for b in trails]
    if NEAREST_CODEC[charset] == "euc_jp":
        codes += [b"\x8e" + bytes((b,)) for b in range(0xA1, 0xE0)]
        codes += [b"\x8f" + code for code in codes if code[0] != 0x8E]
    return codes


@cache
def wide_table(charset: str) -> Wide:
    form = {"ujis": TRIPLES, "eucjpms": TRIPLES, "gb18030": QUADS}.get(charset, PAIRS)
    wide = Wide(
        form,
        np.arange(256, dtype=np.uint16) * (np.arange(256) < 0x80).astype(np.uint16),
        np.zeros(1 << 16, dtype=np.uint16),
        np.full(_QUAD_CODES if form == QUADS else 1 << 16, ord("?") if form == QUADS else 0, np.uint16),
    )  # fmt: skip
    known = characters(charset) | _differing(charset)
    for code in well_formed(charset):
        _put(wide, code, known.get(code, ord("?")))
    if form == TRIPLES:
        _put(wide, b"\x8e\xa0", _TWO_UNKNOWN)
    for code, point in known.items():
        if len(code) in (1, 4) and code[0] >= 0x80:
            _put(wide, code, point)
    return wide


def _put(wide: Wide, code: bytes, point: int) -> None:
    match len(code):
        case 1:
            wide.first[code[0]] = point
        case 2:
            wide.pairs[code[0] << 8 | code[1]] = point
        case 3:
            wide.more[code[1] << 8 | code[2]] = point
        case _:
            wide.more[quad_number(*(np.int64(byte) for byte in code))] = point


def _differing(charset: str) -> dict[bytes, int]:
    sizes = tables.DIFFERING
    start = 6 * sum(list(sizes.values())[: list(sizes).index(charset)])
    raw = _unpacked(tables.DIFFERING_CODES)[start : start + 6 * sizes[charset]]
    return {
        raw[i : i + 4].lstrip(b"\0"): int.from_bytes(raw[i + 4 : i + 6], "big")
        for i in range(0, len(raw), 6)
    }


@njit
def is_utf8(data: U8, start: Int, end: Int, greatest: Int) -> bool:  # noqa: C901 - the table of RFC 3629
    """True if data[start:end] is UTF-8 (RFC 3629, without bytes above `greatest`)."""
    k = np.int64(start)
    while k < end:
        byte = np.int64(data[k])
        k += 1
        if byte < 0x80:
            continue
        if byte > greatest:
            return False
        more, low, high = 0, 0x80, 0xBF
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        if more == 0 or k + more > end or not low <= data[k] <= high:
            return False
        for j in range(1, more):
            if data[k + j] & 0xC0 != 0x80:
                return False
        k += more
    return True


@njit
def invalid_utf8(data: U8, offsets: I64, greatest: Int) -> Int:
    """Return the index of the first value for which `is_utf8` is False, or -1."""
    seen = np.uint8(0)
    for k in range(len(data)):
        seen |= data[k]
    if seen < 128:
        return -1
    for i in range(len(offsets) - 1):
        if not is_utf8(data, offsets[i], offsets[i + 1], greatest):
            return i
    return -1


@njit
def from_single(data: U8, offsets: I64, table: U8, out_offsets: I64, out: U8) -> None:
    """Convert a one-byte character set to UTF-8. table[byte] = (length, up to 3 bytes). `out` must have room for 3
    bytes per byte."""
    o = np.int64(0)
    for i in range(len(offsets) - 1):
        for k in range(offsets[i], offsets[i + 1]):
            byte = data[k]
            for j in range(table[byte, 0]):
                out[o] = table[byte, 1 + j]
                o += 1
        out_offsets[i + 1] = o


@njit
def quad_number(a: Int, b: Int, c: Int, d: Int) -> Int:
    return ((a - 0x81) * 10 + b - 0x30) * 1260 + (c - 0x81) * 10 + d - 0x30


@njit
def put_utf8(out: U8, o: Int, point: Int) -> Int:
    """Write a code point. Return the offset after its bytes."""
    if point < 0x80:
        out[o] = point
        return o + 1
    if point < 0x800:
        out[o] = 0xC0 | point >> 6
        out[o + 1] = 0x80 | point & 63
        return o + 2
    if point < 0x10000:
        out[o] = 0xE0 | point >> 12
        out[o + 1] = 0x80 | point >> 6 & 63
        out[o + 2] = 0x80 | point & 63
        return o + 3
    out[o] = 0xF0 | point >> 18
    out[o + 1] = 0x80 | point >> 12 & 63
    out[o + 2] = 0x80 | point >> 6 & 63
    out[o + 3] = 0x80 | point & 63
    return o + 4


@njit
def from_wide(  # noqa: PLR0913 - a tuple of arrays costs more to take apart
    data: U8, offsets: I64, form: Int, first: U16, pairs: U16, more: U16, out_offsets: I64, out: U8
) -> Int:
    """Convert characters of one to four bytes. Return the row of the first invalid value, or -1. `out` must have room
    for 3 bytes per byte."""
    o = np.int64(0)
    for i in range(len(offsets) - 1):
        k = offsets[i]
        end = offsets[i + 1]
        while k < end:
            a = np.int64(data[k])
            point = np.int64(first[a])
            size = np.int64(1)
            if point == _ILL_FORMED and a >= 0x80 and k + 1 < end:
                b = np.int64(data[k + 1])
                size = np.int64(2)
                if form == TRIPLES and a == 0x8F:
                    size = np.int64(3)
                    if k + 2 < end:
                        point = np.int64(more[b << 8 | np.int64(data[k + 2])])
                elif form == QUADS and 0x30 <= b <= 0x39:
                    size = np.int64(4)
                    if k + 3 < end:
                        point = quad_point(a, b, np.int64(data[k + 2]), np.int64(data[k + 3]), more)
                else:
                    point = np.int64(pairs[a << 8 | b])
            if point == _ILL_FORMED and a:
                return i
            if point == _TWO_UNKNOWN and size == 2:
                o = put_utf8(out, o, np.int64(63))
                point = np.int64(63)
            o = put_utf8(out, o, point)
            k += size
        out_offsets[i + 1] = o
    return np.int64(-1)


@njit
def quad_point(a: Int, b: Int, c: Int, d: Int, more: U16) -> Int:
    """Return the code point of a four-byte code. Code points in the BMP come from the table. The code points in the
    other planes are computed, because their codes are in the order of the code points."""
    if a < 0x81 or a > 0xFE or c < 0x81 or c > 0xFE or d < 0x30 or d > 0x39:
        return np.int64(_ILL_FORMED)
    number = quad_number(a, b, c, d)
    if number < len(more):
        return np.int64(more[number])
    beyond = number - 189_000 + 0x10000
    return beyond if 0x10000 <= beyond <= 0x10FFFF else np.int64(63)


@njit
def from_units(
    data: U8, offsets: I64, width: Int, little: bool, pairs: bool, out_offsets: I64, out: U8
) -> Int:
    """Convert UCS-2, UTF-16 (`pairs`: True for surrogate pairs) or UTF-32. Return the row of the first invalid value,
    or -1. `out` must have room for 2 bytes per byte."""
    o = np.int64(0)
    for i in range(len(offsets) - 1):
        k = offsets[i]
        end = offsets[i + 1]
        if (end - k) % width:
            return i
        while k < end:
            point = np.int64(0)
            for j in range(width):
                point = point << 8 | np.int64(data[k + (width - 1 - j if little else j)])
            k += width
            if 0xD800 <= point <= 0xDFFF:
                if not pairs or width == 4 or point >= 0xDC00 or k + 2 > end:
                    return i
                low = np.int64(data[k + 1 if little else k]) << 8 | np.int64(data[k if little else k + 1])  # fmt: skip
                if low < 0xDC00 or low > 0xDFFF:
                    return i
                point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
                k += 2
            elif point > 0x10FFFF:
                return i
            o = put_utf8(out, o, point)
        out_offsets[i + 1] = o
    return np.int64(-1)
