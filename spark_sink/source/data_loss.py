"""The error for changes that the consumer will not get, and the text of a position in messages."""

from __future__ import annotations

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position


def data_loss(consumer: str, after: Position, continues_at: Position | None) -> BinlogError:
    """Returns the error for changes that the consumer will not get. `after`: the position after which these changes
    begin; `continues_at`: the position at which the consumer continues, None if it is not known."""
    what = f"the server has purged changes after {position_text(after)}"
    if continues_at is not None:
        what += f", or the consumer was moved: it continues at {position_text(continues_at)}"
    return BinlogError(
        ErrorKind.POSITION_PURGED,
        what,
        where=f"consumer {consumer}",
        remedy="copy the tables afresh and start there; or set the option failOnDataLoss to false to continue without"
        " these changes",
    )


def position_text(position: Position) -> str:
    return f"epoch {position.epoch}, seq {position.seq} ({position.file}:{position.offset})"
