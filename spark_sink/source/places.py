"""Parses the options that say where a query begins or ends: a position, or a place for which the daemon determines the
position.

The forms are those of the daemon's `start` and of `binlog-dispatcher consumers seek --to`: `earliest`, `latest`, a GTID
set, a file and offset, a time. This module checks only the form of a value, before the source opens a connection. Later
the daemon asks the server and determines the position.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dispatcher.model.errors import UserError
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import Position

FORMS = "a position as JSON, a GTID set, a time like 2026-11-21T12:00:00Z, or a file and offset like binlog.000003:1234"
_MARIADB = re.compile(r"\d+-\d+-\d+(?:\s*,\s*\d+-\d+-\d+)*\Z", re.ASCII)
_MYSQL = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-", re.ASCII | re.IGNORECASE)
_FILE = re.compile(r"([^/{}\s]+\.\d{1,18}):(\d{1,18})\Z", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)  # a MariaDB GTID of this form is given in JSON
_MILLISECONDS = re.compile(r"\d{1,15}\Z", re.ASCII)
_OFFSET_MIN = 4  # where the first event of a file begins
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Place:
    """A place of the server's log. `to`: the place as JSON, a parameter of the daemon's call `resolve`."""

    to: str

    def __str__(self) -> str:
        value = json.loads(self.to)
        return value if isinstance(value, str) else self.to


EARLIEST, LATEST = Place('"earliest"'), Place('"latest"')


def parse_place(text: str, words: Sequence[str]) -> Position | Place:
    """Parses the value of an option. `words`: the words that the option accepts; the caller handles words that are not
    places, such as `stored`. Raises `ValueError` with a description of the fault."""
    text = text.strip()
    if text in ("earliest", "latest") and text in words:
        return Place(json.dumps(text))
    if text.startswith("{"):
        return _of_json(text)
    if _DATE.match(text) and (moment := _moment(text)) is not None:
        return moment
    if _MARIADB.match(text) or _MYSQL.match(text):
        return _gtids(text)
    if match := _FILE.match(text):
        return _file(match[1], int(match[2]))
    if not _MILLISECONDS.match(text) and (moment := _moment(text)) is not None:
        return moment
    near = difflib.get_close_matches(text.lower(), words, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"must be {', '.join(words)}, {FORMS}, not {text[:100]!r}{hint}")


def parse_moment(text: str) -> Place:
    """Returns the place of the first transaction that was committed at or after a time. `text`: the time, in ISO 8601
    or in milliseconds since 1970. Raises `ValueError`."""
    if (moment := _moment(text.strip())) is None:
        raise ValueError(
            "must be a time like 2026-11-21T12:00:00Z, in 1970 or later, or milliseconds since 1970,"
            f" not {text[:100]!r}"
        )
    return moment


def _moment(text: str) -> Place | None:
    try:
        if _MILLISECONDS.match(text):
            moment = _EPOCH + timedelta(milliseconds=int(text))
        else:
            moment = datetime.fromisoformat(text)
            moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    if moment < _EPOCH:
        return None
    return Place(json.dumps({"timestamp": moment.isoformat()}))


def _gtids(text: str) -> Place:
    try:
        MariadbGtids.parse(text) if _MARIADB.match(text) else GtidSet.parse(text)
    except UserError as error:
        raise ValueError(f"{error.what}; {error.remedy}") from None
    return Place(json.dumps({"gtid": text}))


def _file(file: str, offset: int) -> Place:
    if offset < _OFFSET_MIN:
        what = (
            f"offset {offset} of {file}: the first event of a binlog file begins at {_OFFSET_MIN}"
        )
        raise ValueError(what)
    return Place(json.dumps({"file": file, "offset": offset}))


def _of_json(text: str) -> Position | Place:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    match value:
        case {"gtid": str(gtids), **rest} if not rest:
            return _gtids(gtids)
        case {"timestamp": str() | int() as moment, **rest} if not rest:
            return parse_moment(str(moment))
        case {"file": str(file), "offset": int(offset), **rest} if not rest:
            return _file(file, offset)
    try:
        return Position.from_dict(value)
    except UserError as error:
        raise ValueError(error.what) from None
