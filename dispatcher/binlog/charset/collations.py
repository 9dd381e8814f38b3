"""Maps collation ids, as in TABLE_MAP events, to character sets.

The tests compare the table with `information_schema` of all servers. The id of MariaDB's NO PAD variant of a collation
is the id of the plain collation + 1024. MariaDB's UCA 14.0.0 collations have ids of 2048 + 256 * n and above, where n
is the number of the character set.
"""

from __future__ import annotations

BINARY = 63
CZECH = "latin2_czech_cs"
_CZECH_ID = 2

# The default collation of each character set, for text of which only the character set's name is known.
_DEFAULTS = {
    "big5": 1, "dec8": 3, "cp850": 4, "hp8": 6, "koi8r": 7, "latin1": 8, "latin2": 9, "swe7": 10, "ascii": 11,
    "ujis": 12, "sjis": 13, "hebrew": 16, "tis620": 18, "euckr": 19, "koi8u": 22, "gb2312": 24, "greek": 25,
    "cp1250": 26, "gbk": 28, "latin5": 30, "armscii8": 32, "utf8mb3": 33, "ucs2": 35, "cp866": 36, "keybcs2": 37,
    "macce": 38, "macroman": 39, "cp852": 40, "latin7": 41, "utf8mb4": 45, "cp1251": 51, "utf16": 54, "utf16le": 56,
    "cp1256": 57, "cp1257": 59, "utf32": 60, "binary": BINARY, "geostd8": 92, "cp932": 95, "eucjpms": 97,
    "gb18030": 248,
}  # fmt: skip
_NAMES = {collation: name for name, collation in _DEFAULTS.items()}

# The other collations of each character set.
_OTHERS = {
    "big5": (84,), "latin2": (2, 21, 27, 77), "dec8": (69,), "cp850": (80,),
    "latin1": (5, 15, 31, *range(47, 50), 94), "hp8": (72,), "koi8r": (74,), "swe7": (82,), "ascii": (65,),
    "ujis": (91,), "sjis": (88,), "cp1251": (14, 23, 50, 52), "hebrew": (71,), "tis620": (89,), "euckr": (85,),
    "latin7": (20, 42, 79), "koi8u": (75,), "gb2312": (86,), "greek": (70,), "cp1250": (34, 44, 66, 99),
    "gbk": (87,), "cp1257": (29, 58), "latin5": (78,), "armscii8": (64,),
    "utf8mb3": (76, 83, *range(192, 224), *range(576, 608)), "ucs2": (90, *range(128, 160), *range(640, 672)),
    "cp866": (68,), "keybcs2": (73,), "macce": (43,), "macroman": (53,), "cp852": (81,),
    "utf8mb4": (46, *range(224, 248), *range(255, 400), *range(608, 640)),
    "utf16": (55, *range(101, 128), *range(672, 704)), "utf16le": (62,), "cp1256": (67,),
    "utf32": (61, *range(160, 192), *range(736, 768)), "geostd8": (93,), "cp932": (96,), "eucjpms": (98,),
    "gb18030": (249, 250),
}  # fmt: skip
_NAMES |= {collation: name for name, others in _OTHERS.items() for collation in others}
_UCA1400 = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")


def charset_of(collation: int) -> str:
    """Return the name of a collation's character set: `utf8mb4`, `latin1` ...; `of collation 999` for an unknown id."""
    if collation >= 2048:
        family = (collation - 2048) >> 8
        return _UCA1400[family] if family < len(_UCA1400) else f"of collation {collation}"
    plain = collation - 1024 if collation >= 1024 else collation
    return _NAMES.get(plain, f"of collation {collation}")


def conversion_of(collation: int) -> str:
    """Return the name of the conversion for text in a collation. The name is that of the character set, except for
    `latin2_czech_cs`, which has its own table without the control characters 0x80 to 0x9F."""
    return CZECH if collation == _CZECH_ID else charset_of(collation)


def collation_named(charset: str | None) -> int:
    """Return the default collation id of a character set; 0 if the name is unknown, BINARY for None."""
    if charset is None:
        return BINARY
    return _DEFAULTS.get("utf8mb3" if charset == "utf8" else charset, 0)
