"""Reads an offset of a checkpoint, and refuses an offset that a query with other options has written.

The forms of offsets are: a position; a position with the key `consumer` (option `databases`); a position with the key
`snapshot` (`startingOffsets=snapshot`). Spark passes the offsets of a checkpoint to the source even if the query now
has other options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.position import Position

CONSUMER, SNAPSHOT = "consumer", "snapshot"
_NEW = "or begin with a new checkpoint"


def checkpoint_offset(offset: Mapping[str, Any], own: str | None = None) -> Mapping[str, Any]:
    """Returns an offset whose keys fit the query's options. `own`: the key that the offsets of this query have in
    addition to the keys of a position, None if they have no such key.

    Raises `UserError` for the offset of a query with other options. The message names the options that fit the
    checkpoint.
    """
    if CONSUMER in offset and own != CONSUMER:
        raise _other(
            "the query had the option databases, and its checkpoint has the consumer that the source declared for it",
            f"set the option databases in place of consumer, and the options as they were, {_NEW}",
        )
    if SNAPSHOT in offset and own != SNAPSHOT:
        raise _other(
            "the query had startingOffsets=snapshot, and its snapshot is not over",
            "set startingOffsets to snapshot, with the options of the snapshot as they were, until all rows are read,"
            f" {_NEW}",
        )
    if own == CONSUMER and CONSUMER not in offset:
        raise _other(
            "the query had the option consumer, not databases, and its checkpoint names no declared consumer",
            f"set the option consumer in place of databases, {_NEW}",
        )
    return offset


def checkpoint_position(offset: Mapping[str, Any]) -> Position:
    """Returns the position of an offset that is only a position. Raises `UserError` for any other offset."""
    given = checkpoint_offset(offset)
    why = ""
    try:
        return Position.from_dict(given)
    except UserError as error:
        why = error.what
    raise _other(
        f"its offset is {why}",
        f"use the checkpoint with the source and the version that wrote it, {_NEW}",
    )


def _other(what: str, remedy: str) -> UserError:
    return UserError(
        ErrorKind.POSITION_UNKNOWN,
        f"the checkpoint does not fit the options of the query: {what}",
        remedy=remedy,
    )
