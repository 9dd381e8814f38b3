"""Makes text from outside safe to show to people: on a terminal, in a log line, in an error.

Text in names and messages may come from servers, tables, files and other programs. Some characters in this text control
a terminal or end a log line. These functions replace them by escapes such as \\x1b, \\u202e or \\n:

* control characters: C0, DEL and C1, which begin escape sequences or end a line;
* line and paragraph separators, and halves of surrogate pairs, which no output can encode;
* format characters (Unicode's category Cf), which change the order of the shown characters or are invisible. The two
  joiners, U+200C and U+200D, are part of words and are not replaced.

`BinlogError` (`dispatcher.model.errors`) calls these functions for the text that it gets. `dispatcher.terminal`,
`dispatcher.telemetry.logs`, `dispatcher.telemetry.systemd`, `dispatcher.inspect` and `spark_sink.log_lines` call them
for the text that they write.

For JSON text, `json_escaped` replaces the same characters by JSON escapes, so the JSON value does not change.
"""

from __future__ import annotations

import re
from typing import Any

# First and last code point of each range.
UNSAFE = (
    (0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F),
    (0x890, 0x891), (0x8E2, 0x8E2), (0x180E, 0x180E), (0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E),
    (0x2060, 0x206F), (0xD800, 0xDFFF), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0x110BD, 0x110BD), (0x110CD, 0x110CD),
    (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0001, 0xE0001), (0xE0020, 0xE007F),
)  # fmt: skip
_CLASS = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in UNSAFE)
_ANY = re.compile(f"[{_CLASS}]")
# For texts with several lines, such as statements: line feeds and tabs are not replaced.
_BUT_LINES = re.compile(rf"(?![\n\t])[{_CLASS}]")
_LETTERS = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    """Returns the text in one line, with the unsafe characters escaped."""
    # `isprintable` is much faster than the regular expression, and is True for nearly all texts.
    return text if text.isprintable() else _ANY.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Returns the text with the unsafe characters escaped, except line feeds and tabs."""
    return text if text.isprintable() else _BUT_LINES.sub(_escape, text)


def indented(text: str) -> str:
    """Returns a text of several lines that follows a log line. The lines are indented, so that they cannot be mistaken
    for log lines."""
    return "\n".join(f"  {printable_lines(line)}" for line in text.split("\n"))


def printable_values(value: Any) -> Any:
    """Returns a JSON value in which each text, at any depth, has the form of `printable`."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable_values(key): printable_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable_values(item) for item in value]
    return value


def json_escaped(json_text: str) -> str:
    """Returns JSON text of the same value in which escapes replace the characters that control a terminal. Line feeds
    between values are not replaced."""
    return json_text if json_text.isprintable() else _BUT_LINES.sub(_json_escape, json_text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if letter := _LETTERS.get(character):
        return letter
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
