"""Where the output begins and ends: `--start` and `--stop` by position, GTID or time.

One rule for all of them: what is shown is [start, stop). A position is compared with where events begin; a GTID is
found when a transaction with a GTID of the set begins; a time is compared with the time in the header at the beginning
of a transaction, or of an event outside of any, so that no transaction is cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from dispatcher.inspect.entry import InspectEntry
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.gtid import GtidSet

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MARIADB = re.compile(r"\d+-\d+-\d+(\s*,\s*\d+-\d+-\d+)*\Z")
_MYSQL = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\s*:")
_POSITION = re.compile(r"(?:(.+):)?(\d+)\Z")


@dataclass(frozen=True, slots=True)
class PositionBound:
    """`file`: as SHOW BINARY LOGS names it; "": the first (a start) or the last (a stop); of a server the first."""

    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class GtidBound:
    """`gtids`: a MySQL set, or (domain, server) to sequence number of MariaDB."""

    text: str
    gtids: GtidSet | dict[tuple[int, int], int]

    def holds(self, gtid: str) -> bool:
        if isinstance(self.gtids, GtidSet):
            source, _, number = gtid.rpartition(":")
            return bool(source) and self.gtids.has(source, int(number))
        parts = gtid.split("-")
        if len(parts) != 3:
            return False
        domain, server, sequence = map(int, parts)
        return self.gtids.get((domain, server)) == sequence


@dataclass(frozen=True, slots=True)
class TimeBound:
    seconds: float  # since 1970


Bound: TypeAlias = PositionBound | GtidBound | TimeBound


def parse_bound(text: str, option: str) -> Bound:
    """`1234`, `binlog.000003:1234`, a GTID or a set (`gtid:` may stand before it), or a time. Raises UserError."""
    value = text.strip()
    named = value.removeprefix("gtid:")
    if named != value or _MYSQL.match(value):
        return _gtid(named, option)
    if _DATE.match(value):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError as error:
            raise UserError(
                ErrorKind.SETTINGS, f"{option}: {text!r}: {error}", remedy=_HOW
            ) from None
        return TimeBound((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    if _MARIADB.match(value):
        return _gtid(value, option)
    if match := _POSITION.match(value):
        return PositionBound(match[1] or "", int(match[2]))
    raise UserError(
        ErrorKind.SETTINGS, f"{option}: {text!r} is no position, GTID or time", remedy=_HOW
    )


_HOW = "write a position like 1234 or binlog.000003:1234, a GTID or a set of them, or a time like 2026-01-31T12:00:00Z"


def _gtid(text: str, option: str) -> GtidBound:
    if _MARIADB.match(text):
        found = {}
        for one in text.split(","):
            domain, server, sequence = map(int, one.strip().split("-"))
            found[domain, server] = sequence
        return GtidBound(text, found)
    try:
        return GtidBound(text, GtidSet.parse(text))
    except UserError as error:
        raise UserError(ErrorKind.SETTINGS, f"{option}: {error.what}", remedy=_HOW) from None


class Range:
    """Says of each event, in order, whether it lies in [start, stop). `done`: none that follows does."""

    def __init__(self, start: Bound | None, stop: Bound | None) -> None:
        self._start = start
        self._stop = stop
        self._numbers: dict[str, int] = {}
        self._start_number = 0
        self._stop_number = 0
        self.started = start is None
        self.done = False

    def files(self, names: Sequence[str], *, more: bool) -> None:
        """The files that are read, in order; `more`: others may follow. UserError where a bound names another."""
        self._numbers = {name: number for number, name in enumerate(names)}
        self._stop_number = 0 if more else len(names) - 1
        for option, bound in (("--start", self._start), ("--stop", self._stop)):
            if not isinstance(bound, PositionBound) or not bound.file:
                continue
            if bound.file not in self._numbers and not (more and option == "--stop"):
                raise UserError(
                    ErrorKind.SETTINGS,
                    f"{option} names {bound.file}, which is not read",
                    remedy=f"what is read is {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}",
                )
        if isinstance(self._start, PositionBound) and self._start.file:
            self._start_number = self._numbers[self._start.file]

    def first_offset(self, file: str) -> int | None:
        """Where reading of a file has to begin: 4, further on, or None for a file that lies before the start."""
        if not isinstance(self._start, PositionBound) or self.started:
            return 4
        number = self._number(file)
        if number < self._start_number:
            return None
        return self._start.offset if number == self._start_number else 4

    def holds(self, entry: InspectEntry) -> bool:
        """Call it for every event, in order."""
        if not self.started and self._begins(entry):
            self.started = True
        if self.started and self._stop is not None and self._ends(entry):
            self.done = True
        return self.started and not self.done

    def finish(self) -> None:
        """All was read. Raises UserError where a start by position or GTID was not found."""
        if self.started or self._start is None or isinstance(self._start, TimeBound):
            return
        if isinstance(self._start, GtidBound):
            what = f"no transaction of {self._start.text[:80]} in what was read"
        else:
            what = f"no event at or after offset {self._start.offset} of {self._start.file or 'the first file'}"
        raise UserError(
            ErrorKind.SETTINGS,
            f"--start: {what}",
            remedy="compare it with what is printed without --start",
        )

    def _number(self, file: str) -> int:
        return self._numbers.setdefault(file, len(self._numbers))

    def _begins(self, entry: InspectEntry) -> bool:
        start = self._start
        if isinstance(start, PositionBound):
            number = self._number(entry.file)
            return number > self._start_number or (
                number == self._start_number and entry.offset >= start.offset
            )
        if isinstance(start, GtidBound):
            return bool(entry.fields.gtid) and start.holds(entry.fields.gtid)
        assert start is not None
        return entry.begins and bool(entry.timestamp) and entry.timestamp >= start.seconds

    def _ends(self, entry: InspectEntry) -> bool:
        stop = self._stop
        if isinstance(stop, PositionBound):
            number = self._number(entry.file)
            last = self._numbers.get(stop.file) if stop.file else self._stop_number
            return last is not None and (
                number > last or (number == last and entry.offset >= stop.offset)
            )
        if isinstance(stop, GtidBound):
            return bool(entry.fields.gtid) and stop.holds(entry.fields.gtid)
        assert stop is not None
        return entry.begins and bool(entry.timestamp) and entry.timestamp >= stop.seconds
