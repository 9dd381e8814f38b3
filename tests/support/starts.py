"""Short names for the starts that are searched for in a log."""

from __future__ import annotations

from dispatcher.dispatch.values.specs import AtFile, AtGtid, AtTime, Start


def at_moment(us: int) -> Start:
    return AtTime(us)


def at_offset(file: str, at: int, *, inside: bool = False) -> Start:
    return AtFile(file, at, inside)


def at_gtids(text: str) -> Start:
    return AtGtid(text)
