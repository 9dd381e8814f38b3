"""The character sets whose text can be converted to UTF-8, grouped by the way in which `transcode` converts them."""

from __future__ import annotations

from dispatcher.binlog.charset import tables
from dispatcher.binlog.charset.collations import CZECH

SINGLE = frozenset((*tables.SINGLE, CZECH))
"""Character sets with one byte for each character."""

NEAREST_CODEC = {
    "big5": "big5", "cp932": "cp932", "eucjpms": "euc_jp", "euckr": "cp949", "gb18030": "gb18030", "gb2312": "gb2312",
    "gbk": "gbk", "sjis": "shift_jis", "ujis": "euc_jp",
}  # fmt: skip
"""For each character set with characters of one or more bytes: the codec of Python that differs least from the
servers."""

UNITS = {
    "ucs2": (2, False, False),
    "utf16": (2, False, True),
    "utf16le": (2, True, True),
    "utf32": (4, False, True),
}
"""For each character set with units of several bytes: the bytes of a unit, True if it is little-endian, True if there
are surrogate pairs."""

GREATEST_UTF8 = {"utf8mb4": 0xFF, "utf8mb3": 0xEF}
"""For each form of UTF-8: the greatest byte that its text may contain."""

CONVERTIBLE = frozenset((*SINGLE, *NEAREST_CODEC, *UNITS, *GREATEST_UTF8))
