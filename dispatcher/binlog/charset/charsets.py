"""The character sets whose text can be converted to UTF-8, by how `transcode` converts it."""

from __future__ import annotations

from dispatcher.binlog.charset import tables
from dispatcher.binlog.charset.collations import CZECH

SINGLE = frozenset((*tables.SINGLE, CZECH))
"""With one byte for each character."""

NEAREST_CODEC = {
    "big5": "big5", "cp932": "cp932", "eucjpms": "euc_jp", "euckr": "cp949", "gb18030": "gb18030", "gb2312": "gb2312",
    "gbk": "gbk", "sjis": "shift_jis", "ujis": "euc_jp",
}  # fmt: skip
"""With characters of one or more bytes: Python's codec that differs least."""

UNITS = {
    "ucs2": (2, False, False),
    "utf16": (2, False, True),
    "utf16le": (2, True, True),
    "utf32": (4, False, True),
}
"""With units of several bytes: bytes of a unit, whether it is little-endian, whether there are surrogate pairs."""

GREATEST_UTF8 = {"utf8mb4": 0xFF, "utf8mb3": 0xEF}
"""UTF-8 itself: the greatest byte."""

CONVERTIBLE = frozenset((*SINGLE, *NEAREST_CODEC, *UNITS, *GREATEST_UTF8))
