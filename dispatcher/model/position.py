"""A position: a point between two transactions in one server's history.

Spark compares offsets as text, so equal positions must have the same JSON text: all keys, in a fixed order, with
canonical values. (`epoch`, `seq`) orders the positions of one consumer. A dump from a position sends the transactions
that are not in its GTID set. Without GTIDs, a dump begins at the file and offset of the position.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dispatcher.model.errors import ErrorKind, UserError

KEYS = ("server", "gtid", "file", "offset", "seq", "epoch")

# Limits in characters. `server` is a uuid, or "mariadb-<server id>". `file` is a name without a folder. A GTID set of 4
# MiB has about 100,000 intervals.
SERVER_MAX, FILE_MAX, GTID_MAX = 64, 255, 4 << 20
# The name of a server of MariaDB, which has no uuid, is this prefix and its server id.
MARIADB_SERVER = "mariadb-"

# The first epoch is the time in seconds since 1970. A delivered record has 32 bits for an epoch.
EPOCH_MAX = 2**32 - 1

# Without GTIDs, `seq` consists of the file's number and the offset, so it grows with the log. 40 bits of offset allow
# 1 TiB per file, more than any server writes. 23 bits of a signed 64-bit integer remain for the file's number.
SEQ_OFFSET_BITS = 40
FILE_NUMBER_MAX = (1 << 63 - SEQ_OFFSET_BITS) - 1

_JSON = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Position:
    """`server`: the server's uuid. `gtid`: the canonical executed set, or "". `file`, `offset`: where the next
    transaction begins."""

    server: str
    gtid: str
    file: str
    offset: int
    seq: int
    epoch: int

    @property
    def order(self) -> tuple[int, int]:
        return self.epoch, self.seq

    def as_dict(self) -> dict[str, str | int]:
        return {
            "server": self.server,
            "gtid": self.gtid,
            "file": self.file,
            "offset": self.offset,
            "seq": self.seq,
            "epoch": self.epoch,
        }

    def to_json(self) -> str:
        return _JSON.encode(self.as_dict())

    @classmethod
    def from_dict(cls, value: Any) -> Position:
        """Returns the position that `as_dict` has converted. Raises a `UserError` that names the first key that is
        unknown, is missing or has the wrong type."""
        if not isinstance(value, dict):
            raise _bad(
                f"a position is an object with the keys {', '.join(KEYS)}, not {type(value).__name__}"
            )
        if unknown := [key for key in value if key not in KEYS]:
            raise _bad(f"unknown key {unknown[0]!r}")
        for key in KEYS:
            expected = str if key in ("server", "gtid", "file") else int
            if key not in value:
                raise _bad(f"key {key!r} is missing")
            if not isinstance(value[key], expected) or isinstance(value[key], bool):
                raise _bad(f"{key!r} must be {'text' if expected is str else 'an integer'}")
            if expected is int and not 0 <= value[key] < 2**63:
                raise _bad(f"{key!r} lies outside 0..2^63-1")
        position = cls(**value)
        position.check()
        return position

    def check(self) -> None:
        """Raise `UserError` for an epoch above `EPOCH_MAX`, and for a text that is too long or not printable, such as a
        lone surrogate."""
        if self.epoch > EPOCH_MAX:
            raise _bad("'epoch' lies outside 0..2^32-1")
        for key, most in (("server", SERVER_MAX), ("gtid", GTID_MAX), ("file", FILE_MAX)):
            text = getattr(self, key)
            if len(text) > most:
                raise _bad(f"{key!r} has {len(text)} characters, at most {most} are possible")
            if not text.isprintable():
                raise _bad(f"{key!r} holds a character that cannot be printed")

    @classmethod
    def from_json(cls, text: str) -> Position:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad(f"not JSON: {error}") from None
        return cls.from_dict(value)


@lru_cache(maxsize=1024)
def file_number(file: str) -> int:
    """The number in a file name: `binlog.000123` -> 123. 0 if the name has no number, or a number of more than 18
    digits, which no server writes."""
    suffix = file.rpartition(".")[2]
    return int(suffix) if len(suffix) <= 18 and suffix.isascii() and suffix.isdigit() else 0


def has_file_number(file: str) -> bool:
    """True if the number of this binlog file fits into a `seq`. A name without a number has the number 0."""
    suffix = file.rpartition(".")[2]
    return not suffix.isdigit() or (len(suffix) <= 18 and file_number(file) <= FILE_NUMBER_MAX)


def packed_seq(file: str, offset: int) -> int:
    """The `seq` of a position that has no GTIDs."""
    return file_number(file) << SEQ_OFFSET_BITS | offset


@dataclass(frozen=True, slots=True)
class EventPoint:
    """A point inside a transaction, before one of its events. It is always used together with the position after the
    transaction.

    `index`: the number of the event in the delivered transaction. `offset`: the number of delivered bytes from the
    first event after BEGIN to this event. The daemon checks the `offset`, because the transaction may have other
    events if the daemon reads it again from another server. Without this check, a reader that already has parts of the
    transaction could miss rows.
    """

    index: int
    offset: int

    def as_dict(self) -> dict[str, int]:
        return {"index": self.index, "offset": self.offset}

    @classmethod
    def from_dict(cls, value: Any) -> EventPoint:
        """Raises `UserError` if the value is not an object of two non-negative integers."""
        if isinstance(value, dict) and value.keys() == {"index", "offset"}:
            point = cls(**value)
            if all(type(n) is int and 0 <= n < 2**63 for n in (point.index, point.offset)):
                return point
        raise _bad("a point inside of a transaction is an object with the keys index, offset")


def _bad(why: str) -> UserError:
    return UserError(
        ErrorKind.POSITION_UNKNOWN,
        f"not a position: {why}",
        remedy="pass back a position as it was returned",
    )


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in one server's log. `created`: when the server created the file, in seconds since 1970, 0 =
    unknown."""

    file: str
    offset: int
    created: int = 0

    @property
    def key(self) -> int:
        """A sort key, which orders the positions of one log as the server wrote them."""
        return packed_seq(self.file, self.offset)

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"
