"""Where the output begins and ends: `--start` and `--stop` by position, GTID or time.

The output contains the events in [start, stop). A position is compared with the offset of each event. A GTID bound is
reached at the first transaction whose GTID is in the set. A time is compared with the time in the header of an event
that begins a transaction or lies outside of transactions, so a time never splits a transaction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from dispatcher.binlog.event.file import FIRST_OFFSET
from dispatcher.inspect.entry import InspectEntry
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.gtid import GtidSet

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MARIADB = re.compile(r"\d+-\d+-\d+(\s*,\s*\d+-\d+-\d+)*\Z")
_MYSQL = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\s*:")
_POSITION = re.compile(r"(?:(.+):)?(\d+)\Z")
_REMEDY = (
    "write a position like 1234 or binlog.000003:1234, a GTID or a set of them, or a time like"
    " 2026-01-31T12:00:00Z"
)


@dataclass(frozen=True, slots=True)
class PositionBound:
    """`file`: the name in SHOW BINARY LOGS. "" means the first file for a start, and the last file for a stop. For a
    server's log, "" means the first file for both."""

    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class GtidBound:
    """`gtids`: a MySQL GTID set or, for MariaDB, the sequence numbers by (domain, server)."""

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
    """Parses `1234`, `binlog.000003:1234`, a time, or a GTID or GTID set with or without the prefix `gtid:`. Raises
    `UserError`."""
    value = text.strip()
    gtids = value.removeprefix("gtid:")
    if gtids != value or _MYSQL.match(value):
        return _gtid_bound(gtids, option)
    if _DATE.match(value):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError as error:
            raise _wrong(option, f"{text!r}: {error}") from None
        return TimeBound((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    if _MARIADB.match(value):
        return _gtid_bound(value, option)
    if match := _POSITION.match(value):
        return PositionBound(match[1] or "", int(match[2]))
    raise _wrong(option, f"{text!r} is not a position, a GTID or a time")


def _gtid_bound(text: str, option: str) -> GtidBound:
    if _MARIADB.match(text):
        sequences = {}
        for gtid in text.split(","):
            domain, server, sequence = map(int, gtid.strip().split("-"))
            sequences[domain, server] = sequence
        return GtidBound(text, sequences)
    try:
        return GtidBound(text, GtidSet.parse(text))
    except UserError as error:
        raise _wrong(option, error.what) from None


def _wrong(option: str, what: str, remedy: str = _REMEDY) -> UserError:
    return UserError(ErrorKind.SETTINGS, f"{option}: {what}", remedy=remedy)


class Range:
    """Decides for each event, in the order of the log, whether the event lies in [start, stop). `done`: True once the
    stop is reached."""

    def __init__(self, start: Bound | None, stop: Bound | None) -> None:
        self._start = start
        self._stop = stop
        self._numbers: dict[str, int] = {}
        self._stop_number = 0  # the number of the file of a stop that names no file
        self.started = start is None
        self.done = False

    def set_files(self, names: Sequence[str], *, more: bool) -> None:
        """Set the files to be read, in order. `more`: True if the log may continue in further files.

        Raises `UserError` if a bound names another file.
        """
        self._numbers = {name: number for number, name in enumerate(names)}
        self._stop_number = 0 if more else len(names) - 1
        for option, bound in (("--start", self._start), ("--stop", self._stop)):
            if not isinstance(bound, PositionBound) or not bound.file:
                continue
            if bound.file not in self._numbers and not (more and option == "--stop"):
                files = f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
                raise _wrong(
                    option, f"{bound.file} is not among the files", f"the files are {files}"
                )

    @property
    def holds_the_rest(self) -> bool:
        """True if the reading has reached the start of the range and the range has no stop, so that all further events
        lie in the range."""
        return self.started and self._stop is None

    def first_offset(self, file: str) -> int | None:
        """Returns the offset at which to begin reading a file, or None if the whole file lies before the start."""
        if not isinstance(self._start, PositionBound) or self.started:
            return FIRST_OFFSET
        number = self._number(file)
        start_number = self._numbers[self._start.file] if self._start.file else 0
        if number < start_number:
            return None
        return self._start.offset if number == start_number else FIRST_OFFSET

    def holds(self, entry: InspectEntry) -> bool:
        """True if the event lies in the range. The caller must call `holds` for every event, in the order of the
        log."""
        if not self.started and self._start is not None:
            self.started = self._reached(self._start, 0, entry)
        if self.started and self._stop is not None and not self.done:
            self.done = self._reached(self._stop, self._stop_number, entry)
        return self.started and not self.done

    def finish(self) -> None:
        """Call this method at the end of the log. Raises `UserError` if a start by position or GTID was not reached."""
        if self.started or self._start is None or isinstance(self._start, TimeBound):
            return
        if isinstance(self._start, GtidBound):
            what = f"no transaction of {self._start.text[:80]} in the range that was read"
        else:
            what = f"no event at or after offset {self._start.offset} of {self._start.file or 'the first file'}"
        raise _wrong("--start", what, "compare the value with the output without --start")

    def _number(self, file: str) -> int:
        return self._numbers.setdefault(file, len(self._numbers))

    def _reached(self, bound: Bound, default_number: int, entry: InspectEntry) -> bool:
        """True if the event is at or after the bound. `default_number`: the number of the file of a position that
        names no file."""
        if isinstance(bound, PositionBound):
            number = self._number(entry.file)
            last = self._numbers.get(bound.file) if bound.file else default_number
            return last is not None and (
                number > last or (number == last and entry.offset >= bound.offset)
            )
        if isinstance(bound, GtidBound):
            return bool(entry.fields.gtid) and bound.holds(entry.fields.gtid)
        return entry.begins and bool(entry.timestamp) and entry.timestamp >= bound.seconds
