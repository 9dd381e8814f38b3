"""Short forms of the starts that a log is searched for."""

from __future__ import annotations

from dispatcher.dispatch.values.specs import AtFile, AtGtid, AtTime, Start


def at_moment(us: int) -> Start:
    return AtTime(us)


def at_offset(file: str, at: int) -> Start:
    return AtFile(file, at)


def at_gtids(text: str) -> Start:
    return AtGtid(text)
