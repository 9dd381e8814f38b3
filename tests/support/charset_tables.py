"""The conversion tables of the servers. `python -m tests.support.charset_tables` generates them.

For each non-Unicode character set, the generator lets the server convert each byte, and each sequence of several bytes
that is a character of the set, to utf8mb4. For a single-byte set, the file contains the upper half of the table. For
other sets, the file contains the characters that the server and Python's codec convert differently.
"""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from textwrap import wrap

from dispatcher.binlog.charset.transcode import characters
from tests.servers import Server, start_server

WIDE = ("big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis")
UNICODE = ("binary", "ucs2", "utf16", "utf16le", "utf32", "utf8", "utf8mb3", "utf8mb4")
_MODULE = Path(__file__).parents[2] / "dispatcher/binlog/charset/tables.py"
_UNKNOWN = "?"

Table = dict[bytes, str]


# The codes that may be characters, by table: all codes of one and two bytes, the codes of three bytes that begin with
# 0x8F, and the codes of four bytes that denote a character of the BMP.
_CODES = {
    "one": [bytes((a,)) for a in range(256)],
    "two": [bytes((a, b)) for a in range(0x80, 256) for b in range(0x30, 256)],
    "three": [bytes((0x8F, a, b)) for a in range(0xA0, 256) for b in range(0xA0, 256)],
    "four": [
        bytes(code)
        for code in itertools.product(
            range(0x81, 0x85), range(0x30, 0x3A), range(0x81, 0xFF), range(0x30, 0x3A)
        )
    ],
}


def of_server(server: Server, charsets: Sequence[str]) -> dict[str, Table]:
    """Returns the characters of each set in the server's UTF-8, and "?" for a character that it cannot convert."""
    found: dict[str, Table] = {}
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', group_concat_max_len = 4000000")
        for name, codes in _CODES.items():
            if name == "four" and "gb18030" not in charsets:
                continue
            cursor.execute(f"CREATE TEMPORARY TABLE mysql.{name} (code VARBINARY(4)) ENGINE=MyISAM")
            values = ",".join(f"(0x{code.hex()})" for code in codes)
            cursor.execute(f"INSERT INTO mysql.{name} VALUES {values}")
        for charset in charsets:
            found[charset] = {}
            for name in _tables(charset):
                # The server replaces invalid characters. All characters are in one long text, because one row per
                # character would be ten times slower.
                cursor.execute(
                    "SELECT GROUP_CONCAT(HEX(code), ' ', HEX(CONVERT(CONVERT(code USING"
                    f" {charset}) USING utf8mb4)) SEPARATOR ' ') FROM mysql.{name}"
                    f" WHERE HEX(code) = HEX(CONVERT(code USING {charset}))"
                )
                words = str(cursor.fetchall()[0][0] or "").split(" ")
                texts = (bytes.fromhex(word).decode() for word in words[1::2])
                found[charset] |= {
                    code: text
                    for code, text in zip(map(bytes.fromhex, words[::2]), texts, strict=True)
                    if _is_character(charset, code, text)
                }
    return found


def _tables(charset: str) -> list[str]:
    if charset not in WIDE:
        return ["one"]
    more = {"ujis": ["three"], "eucjpms": ["three"], "gb18030": ["four"]}
    return ["one", "two", *more.get(charset, [])]


def _is_character(charset: str, code: bytes, text: str) -> bool:
    if len(text) != 1:  # several characters, or no character
        return False
    # MySQL 9 converts a single byte of a character of eucjpms, but does not store it.
    return charset not in WIDE or len(code) > 1 or code[0] < 0x80 or text != _UNKNOWN


def differences(charset: str, table: Mapping[bytes, str]) -> bytes:
    """Returns the code (4 bytes, zero-padded) and the code point (2 bytes) of each character for which Python's codec
    differs."""
    known = characters(charset)
    return b"".join(
        code.rjust(4, b"\0") + ord(text).to_bytes(2, "big")
        for code, text in sorted(table.items())
        if chr(known.get(code, ord(_UNKNOWN))) != text
    )


def upper_half(table: Mapping[bytes, str]) -> bytes:
    """Returns the code points (2 bytes each) of all 256 byte values."""
    return b"".join(ord(table.get(bytes((a,)), _UNKNOWN)).to_bytes(2, "big") for a in range(256))


def module(single: Mapping[str, bytes], differing: Mapping[str, bytes]) -> str:
    def literal(raw: bytes) -> str:
        lines = wrap(base64.b85encode(zlib.compress(raw, 9)).decode(), 110, break_on_hyphens=False)
        return "\n".join(f'    "{line}"' for line in lines)

    names = "\n".join(f"    {row}" for row in wrap(" ".join(f'"{name}",' for name in single), 110))
    sizes = "\n".join(f'    "{name}": {len(raw) // 6},' for name, raw in differing.items())
    return f'''"""Facts about the servers' character sets.

`tests.support.charset_tables` writes this file; the tests compare it with the servers. `SINGLE`: the single-byte sets,
in the order in which `SINGLE_CODES` (base85, zlib) holds 256 code points of two bytes for each. `DIFFERING`: how many
characters of each multi-byte set differ from Python's codec; `DIFFERING_CODES` holds these one after another, the
character's bytes (four, zeros in front) and its code point (two). A question mark stands for a character that the
server cannot convert, as in SELECT.
"""

SINGLE = (
{names}
)  # fmt: skip
SINGLE_CODES = (
{literal(b"".join(single.values()))}
)
DIFFERING = {{
{sizes}
}}
DIFFERING_CODES = (
{literal(b"".join(differing.values()))}
)
'''


def main() -> None:
    with start_server("mysql97") as server:
        names = sorted(
            str(row[0]) for row in server.execute("SHOW CHARACTER SET") if row[0] not in UNICODE
        )
        tables = of_server(server, names)
    single = {name: upper_half(table) for name, table in tables.items() if name not in WIDE}
    differing = {name: differences(name, tables[name]) for name in WIDE}
    _MODULE.write_text(module(single, differing))


if __name__ == "__main__":
    main()
