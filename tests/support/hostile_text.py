"""Text with control characters that change a terminal or a log, and the forms in which this text may be printed."""

from __future__ import annotations

import re

# A colour, a window title, a cursor movement in C1, a bidi override, a separator, a line of a log.
HOSTILE = (
    "a\x1b[31mb\x1b]0;title\x07c\x9b2Jd\u202ee\u2028f\x7fg\u2066h\r\n2026-01-01 error forged\x85i"
)
SHOWN = (
    r"a\x1b[31mb\x1b]0;title\x07c\x9b2Jd\u202ee\u2028f\x7fg\u2066h\r\n2026-01-01 error forged\x85i"
)
_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


def acts(text: str) -> list[str]:
    """Returns the characters of an output that control a terminal, except line feed and tab."""
    return _ACTS.findall(text)
