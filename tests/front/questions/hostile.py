"""Names that could break out of a statement, and the form of all statements that the front composes."""

from __future__ import annotations

import re

from dispatcher.front.questions.schema_views import VIEWS

_NAME = r"`(?:[^`\0]|``){1,128}`"
_CONSTANT = r"_utf8mb4 x'(?:[0-9a-f]{2})*'"
_COLUMN = "(?:" + "|".join(sorted({c for v in VIEWS.values() for c in v.columns})).upper() + ")"
_TEST = rf"{_COLUMN} (?:= {_CONSTANT}|IN \({_CONSTANT}(?:, {_CONSTANT})*\))"
STATEMENT = re.compile(
    rf"""
      SHOW\ CREATE\ TABLE\ {_NAME}\.{_NAME}
    | SHOW\ (?:FULL\ )?COLUMNS\ FROM\ {_NAME}\.{_NAME}
    | SHOW\ FULL\ TABLES\ FROM\ {_NAME}
    | SHOW\ DATABASES
    | SELECT\ binlog_gtid_pos\({_CONSTANT.replace(" ", chr(92) + " ")},\ [0-9]+\)
    | SELECT\ {_COLUMN}(?:,\ {_COLUMN})*\ FROM\ information_schema\.[A-Z_]+
      (?:\ WHERE\ {_TEST.replace(" ", chr(92) + " ")}(?:\ AND\ {_TEST.replace(" ", chr(92) + " ")})*)?
      (?:\ ORDER\ BY\ {_COLUMN}(?:,\ {_COLUMN})*)?
    """,
    re.VERBOSE | re.DOTALL,
)
"""All that a server is asked. An even number of backticks is a part of the name."""

HOSTILE = (
    "a`b", "`", "``", "a`; DROP DATABASE shop; --", "a'b", 'a"b', "a\\", "\\'", "a\\`b", "a\nb", "a/*b", "*/", "--",
    "#", ";", "?", "%s", "{}", "ü", "\xbf\x27", "縗'", "\u200b", "x" * 64, "select", "1", "a.b", " a",
)  # fmt: skip
IMPOSSIBLE = ("", "😀", "x" * 65, "a\0b", "a ", "\0")


def client_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
