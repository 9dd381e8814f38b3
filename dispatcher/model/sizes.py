"""Parses sizes that people write, and formats sizes and durations for people to read.

The daemon's settings and the options of the Spark source both use these functions.
"""

from __future__ import annotations

import re
from decimal import Decimal

_SIZE = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s*([KMGT]i?B|B)\Z", re.IGNORECASE | re.ASCII)
_WITHOUT_B = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s*([KMGT])(i?)\Z", re.IGNORECASE | re.ASCII)
_UNITS = {"B": 1} | {
    f"{letter}{infix}B".upper(): base**power
    for power, letter in enumerate("KMGT", 1)
    for infix, base in (("", 1000), ("i", 1024))
}


def size_in_bytes(text: str) -> int | None:
    """Returns the number of bytes of a size with a unit in upper or lower case: `16MB` (16,000,000), `16MiB`
    (16,777,216), `1.5 GiB`, `4096B`. Returns None for any other text, such as a number without a unit, or the ambiguous
    `16M`."""
    match = _SIZE.match(text.strip())
    # A float cannot represent all large sizes exactly.
    return int(Decimal(match[1]) * _UNITS[match[2].upper()]) if match else None


def nearest_size(text: str) -> str:
    """Returns a hint for a message about an invalid size: `: write 16MB or 16MiB`; empty if there is no hint."""
    match = _WITHOUT_B.match(text.strip())
    if not match:
        return ""
    number, letter = match[1], match[2].upper()
    sizes = [f"{number}{letter}iB"] if match[3] else [f"{number}{letter}B", f"{number}{letter}iB"]
    return f": write {' or '.join(sizes)}"


def size_text(count: float) -> str:
    """A number of bytes, such as `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration_text(seconds: float | None) -> str:
    """A duration in one unit. `-` for None, which means unknown or unlimited."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
