"""Sizes as people write them. The daemon's settings and the options of the Spark source read them by one rule."""

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
    """Returns the bytes of `16MB` (16,000,000), `16MiB` (16,777,216), `1.5 GiB` or `4096B`, in any case; None
    for anything else, such as a number without a unit, or `16M`, which is ambiguous."""
    match = _SIZE.match(text.strip())
    # A float cannot represent all large sizes exactly.
    return int(Decimal(match[1]) * _UNITS[match[2].upper()]) if match else None


def nearest_size(text: str) -> str:
    """Returns what `text`, which is no size, may mean, as part of a message: `: write 16MB or 16MiB`, or nothing."""
    match = _WITHOUT_B.match(text.strip())
    if not match:
        return ""
    number, letter = match[1], match[2].upper()
    sizes = [f"{number}{letter}iB"] if match[3] else [f"{number}{letter}B", f"{number}{letter}iB"]
    return f": write {' or '.join(sizes)}"
