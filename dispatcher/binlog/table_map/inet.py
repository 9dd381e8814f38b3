"""Formats MariaDB's UUID, INET4 and INET6 values as SELECT shows them.

In a row image these values are BINARY(16) and BINARY(4), in the byte order of the text, whatever the order on disk is.

Source: MariaDB source, plugin/type_uuid/sql_type_uuid.h, plugin/type_inet/sql_type_inet.cc (to_string).
"""

from __future__ import annotations

SIZES = {"uuid": 16, "inet6": 16, "inet4": 4}


def address_text(kind: str, value: bytes) -> str:
    """Returns the text of a value of `SIZES[kind]` bytes."""
    if kind == "uuid":
        digits = value.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    if kind == "inet4":
        return _dotted(value)
    return _inet6(value)


def _dotted(value: bytes) -> str:
    return ".".join(map(str, value))


def _inet6(value: bytes) -> str:
    """Write an IPv6 address without its longest run of zero words (the first one, if several are equally long). Write
    the last four bytes of an IPv4-compatible or IPv4-mapped address in decimal."""
    words = [int.from_bytes(value[i : i + 2], "big") for i in range(0, 16, 2)]
    gap, length = _longest_gap(words)
    head = [f"{word:x}" for word in words[:gap]]
    if gap == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        mapped = ["ffff"] if length == 5 else []
        return "::" + ":".join([*mapped, _dotted(value[12:])])
    tail = [f"{word:x}" for word in words[gap + length :]]
    return ":".join(head) + "::" + ":".join(tail) if length else ":".join(head + tail)


def _longest_gap(words: list[int]) -> tuple[int, int]:
    """Return (first word, number of words) of the longest run of zero words; (8, 0) if no word is zero."""
    best = (8, 0)
    start = 0
    for at, word in enumerate([*words, 1]):
        if word:
            if at - start > best[1]:
                best = (start, at - start)
            start = at + 1
    return best
