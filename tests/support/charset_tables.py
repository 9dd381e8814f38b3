"""The servers' own conversion tables, and the module that keeps them: `python -m tests.support.charset_tables`.

Every character set but the Unicode ones is asked for whole: each byte, and each pair and triple of bytes that the set
takes for a character, converted to utf8mb4 by the server. What is written down is what cannot be had elsewhere: the
upper halves of the sets of one byte, and for the others the characters in which the server differs from Python's codec.
"""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from textwrap import wrap

from dispatcher.binlog import texts
from tests.servers import Server, start_server

WIDE = ("big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis")
UNICODE = ("binary", "ucs2", "utf16", "utf16le", "utf32", "utf8", "utf8mb3", "utf8mb4")
_MODULE = Path(__file__).parents[2] / "dispatcher/binlog/charset_tables.py"
_UNKNOWN = "?"

Table = dict[bytes, str]


def candidates(charset: str) -> list[bytes]:
    """What could be a character: all of one and two bytes, those of three behind 0x8F, those of four of the BMP."""
    found = [bytes((a,)) for a in range(256)]
    if charset in WIDE:
        found += (bytes((a, b)) for a in range(0x80, 256) for b in range(0x30, 256))
    if charset in ("ujis", "eucjpms"):
        found += (bytes((0x8F, a, b)) for a in range(0xA0, 256) for b in range(0xA0, 256))
    if charset == "gb18030":
        quads = itertools.product(
            range(0x81, 0x85), range(0x30, 0x3A), range(0x81, 0xFF), range(0x30, 0x3A)
        )
        found += map(bytes, quads)  # fmt: skip
    return found


def of_server(server: Server, charset: str) -> Table:
    """Each character of the set in the server's UTF-8, "?" for what it cannot convert."""
    found: Table = {}
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for part in _chunks(candidates(charset), 60_000):
            union = ",".join(f"(0x{code.hex()})" for code in part)
            cursor.execute("CREATE TEMPORARY TABLE mysql.codes (code VARBINARY(4)) ENGINE=MyISAM")
            cursor.execute(f"INSERT INTO mysql.codes VALUES {union}")
            cursor.execute(
                f"SELECT code, HEX(CONVERT(code USING {charset})),"
                f" CONVERT(CONVERT(code USING {charset}) USING utf8mb4) FROM mysql.codes"
            )
            for code, own, text in cursor.fetchall():
                # What is none is changed on the way, or taken for several characters.
                if own is None or bytes.fromhex(own) != code or len(text) != 1:
                    continue
                # MySQL 9 converts half a character of eucjpms, and does not store it.
                if charset not in WIDE or len(code) > 1 or code[0] < 0x80 or text != _UNKNOWN:
                    found[code] = text
            cursor.execute("DROP TEMPORARY TABLE mysql.codes")
    return found


def _chunks(codes: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(codes), size):
        yield codes[start : start + size]


def differences(charset: str, table: Mapping[bytes, str]) -> bytes:
    """Code (4 bytes, zeros in front) and code point (2 bytes) of each character that Python's codec has otherwise."""
    known = texts.characters(charset)
    return b"".join(
        code.rjust(4, b"\0") + ord(text).to_bytes(2, "big")
        for code, text in sorted(table.items())
        if chr(known.get(code, ord(_UNKNOWN))) != text
    )


def upper_half(table: Mapping[bytes, str]) -> bytes:
    """Code points (2 bytes) of all 256 bytes."""
    return b"".join(ord(table.get(bytes((a,)), _UNKNOWN)).to_bytes(2, "big") for a in range(256))


def module(single: Mapping[str, bytes], differing: Mapping[str, bytes]) -> str:
    def literal(raw: bytes) -> str:
        lines = wrap(base64.b85encode(zlib.compress(raw, 9)).decode(), 110, break_on_hyphens=False)
        return "\n".join(f'    "{line}"' for line in lines)

    names = "\n".join(f'    "{name}",' for name in single)
    sizes = "\n".join(f'    "{name}": {len(raw) // 6},' for name, raw in differing.items())
    return f'''"""Facts about the servers' character sets.

Written by `tests.support.charset_tables`, compared with the servers by the tests. `SINGLE`: the sets of one byte, in
the order in which `SINGLE_CODES` (base85, zlib) holds 256 code points of two bytes each. `DIFFERING`: how many
characters of each other set differ from Python's codec; `DIFFERING_CODES` holds them one after another, the character's
bytes (four, zeros in front) and its code point (two). A question mark stands for what the server cannot convert, as
SELECT shows it.
"""

SINGLE = (
{names}
)
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
        tables = {name: of_server(server, name) for name in names}
    single = {name: upper_half(table) for name, table in tables.items() if name not in WIDE}
    differing = {name: differences(name, tables[name]) for name in WIDE}
    _MODULE.write_text(module(single, differing))


if __name__ == "__main__":
    main()
