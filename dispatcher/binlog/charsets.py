"""Collation ids, as TABLE_MAP events carry them, to the character set of the column's bytes.

Only the character sets that are decoded are told apart; the names of the others serve error messages. The ranges were
compared with `information_schema.collations` of the servers that the tests run. MariaDB numbers its NO PAD variants
1024 above the plain ones, and its UCA 14.0.0 collations 2048 + 256 * n, n naming the character set.
"""

from __future__ import annotations

BINARY = 63

# Default collation per character set: also how a character set known by name only is written as an id.
_DEFAULTS = {
    "big5": 1, "dec8": 3, "cp850": 4, "hp8": 6, "koi8r": 7, "latin1": 8, "latin2": 9, "swe7": 10, "ascii": 11,
    "ujis": 12, "sjis": 13, "hebrew": 16, "tis620": 18, "euckr": 19, "koi8u": 22, "gb2312": 24, "greek": 25,
    "cp1250": 26, "gbk": 28, "latin5": 30, "armscii8": 32, "utf8mb3": 33, "ucs2": 35, "cp866": 36, "keybcs2": 37,
    "macce": 38, "macroman": 39, "cp852": 40, "latin7": 41, "utf8mb4": 45, "cp1251": 51, "utf16": 54, "utf16le": 56,
    "cp1256": 57, "cp1257": 59, "utf32": 60, "binary": BINARY, "geostd8": 92, "cp932": 95, "eucjpms": 97,
    "gb18030": 248,
}  # fmt: skip
_NAMES = {collation: name for name, collation in _DEFAULTS.items()}

_UTF8MB4 = frozenset((45, 46, *range(224, 248), *range(255, 324), 608, 609, 610, 611))
_UTF8MB3 = frozenset((33, 76, 83, *range(192, 216), 223, 576, 577, 578, 579))
_LATIN1 = frozenset((5, 8, 15, 31, 47, 48, 49, 94))
_ASCII = frozenset((11, 65))
_UCA1400 = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")

DECODED = frozenset(("utf8mb4", "utf8mb3", "ascii", "latin1", "binary"))


def charset_of(collation: int) -> str:
    """`utf8mb4`, `latin1` ...; for ids outside the table a text like `of collation 248`."""
    if collation >= 2048:
        family = (collation - 2048) >> 8
        return _UCA1400[family] if family < len(_UCA1400) else f"of collation {collation}"
    plain = collation - 1024 if collation >= 1024 else collation
    if plain in _UTF8MB4:
        return "utf8mb4"
    if plain in _UTF8MB3:
        return "utf8mb3"
    if plain in _LATIN1:
        return "latin1"
    if plain in _ASCII:
        return "ascii"
    return _NAMES.get(plain, f"of collation {collation}")


def collation_named(charset: str | None) -> int:
    """A collation id that stands for a character set known by name; 0 where the name is not known."""
    if charset is None:
        return BINARY
    return _DEFAULTS.get("utf8mb3" if charset == "utf8" else charset, 0)


def python_text(data: bytes, collation: int) -> str | None:
    """Text of a label or name in the character set of `collation`; None where that is not decoded.

    Raises UnicodeDecodeError. MySQL's latin1 is cp1252 whose five holes hold the C1 control characters.
    """
    charset = charset_of(collation)
    if charset in ("utf8mb4", "utf8mb3", "ascii") or collation == 0:
        return data.decode()
    if charset == "latin1":
        return "".join(map(LATIN1.__getitem__, data))
    if charset == "binary":
        return data.decode("latin-1")
    return None


def _latin1_char(byte: int) -> str:
    try:
        return bytes((byte,)).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)


LATIN1 = tuple(map(_latin1_char, range(256)))
