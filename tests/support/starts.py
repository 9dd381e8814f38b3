"""Starts that a log is searched for, in short."""

from __future__ import annotations

from dispatcher.dispatch.specs import Start


def at_moment(us: int) -> Start:
    return Start("timestamp", timestamp_us=us)


def at_offset(file: str, at: int) -> Start:
    return Start("file", file=file, offset=at)


def at_gtids(text: str) -> Start:
    return Start("gtid", gtid=text)
