"""What a position that a reader brings means on the server; decided before anything is changed or stored.

A reader whose position lies outside of what its consumer has queued *seeks*: back, to read again, or forward, because
its own checkpoint is newer than the stored position. Only the server can say whether it has that place. So a seek comes
with a `ServerView` that was asked for after the reader had come, and is refused by an error unless that view shows it:

* MySQL's GTIDs: what was purged is in the set, and the set is in what was executed. A set means the same on all
  replicas. File and offset are a hint only; they are dropped where the server does not list them.
* Files and offsets: the file is there and the offset within it, and a search of the log (`starts`) has found that a
  transaction begins there. A dump from the middle of a transaction would fail every consumer that shares it.

Where it is in doubt whether the position is of this server's present log, because the consumer failed by
HISTORY_DIFFERS or what is stored of it cannot be read, the set alone proves nothing: after a RESET the same numbers
name other transactions. Then the search must find that very set at the position's file and offset.

So it is with a position of another epoch. A state store that was lost begins a new epoch, and the first reader that
comes to a consumer (`fresh`) may go on in the one that its checkpoint is of.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from dispatcher.dispatch import history_check
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.executed_position import (
    ExecutedPosition,
    Mode,
    executed_of,
    make_executed,
    without_file,
)
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import AtFile, Start
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import EPOCH_MAX, Position

_UNCHANGED = (
    "nothing was changed: a session without a position goes on at the stored one (Spark: a new checkpoint with"
    " startingOffsets 'stored'); what lies between must be copied afresh"
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a consumer is moved to. `created`: creation time of `place.file`, s since 1970, 0 = unknown; `anchored`:
    all of the place is known to lie before its file and offset."""

    server: str
    mode: Mode
    epoch: int
    place: ExecutedPosition
    created: int
    anchored: bool = False


def holds(consumer: Consumer, position: Position) -> bool:
    """True if the position lies within what the consumer has queued, so that it need not be moved."""
    queue = consumer.queue
    if not consumer.started or position.epoch != queue.epoch:
        return False
    return queue.acknowledged.seq <= position.seq <= queue.queued.seq


def starts(consumer: Consumer, after: Position, view: ServerView) -> list[Start]:
    """What the server's log must be searched for before `target` can decide; often nothing."""
    if not after.file or after.server != view.server:
        return []
    if view.mode is Mode.GTID and not _in_doubt(consumer, after):
        return []
    return [_start(after)]


def target(consumer: Consumer, after: Position, view: ServerView, *, fresh: bool = False) -> Target:
    """Raises BinlogError unless the view shows that the server has the position:

    POSITION_UNKNOWN (not a position of this consumer), POSITION_PURGED, HISTORY_DIFFERS (the server never had it), or
    RANGE_UNAVAILABLE (another server has taken over and may not have it yet).
    """
    try:
        _check_epoch(consumer, after, view, fresh=fresh)
        return _target(consumer, after, view)
    except BinlogError as error:
        remedy = (
            _UNCHANGED
            if error.kind in (ErrorKind.POSITION_PURGED, ErrorKind.HISTORY_DIFFERS)
            else None
        )
        where = f"consumer {consumer.name}"
        raise type(error)(error.kind, error.what, where=where, remedy=remedy) from None


def may_be_committing(after: Position, view: ServerView) -> bool:
    """True if the server has written what the position says, but does not count all of it as executed yet.

    A server sends a transaction when it has written it, and counts it as executed a moment later.
    """
    if view.mode is not Mode.GTID or after.server != view.server or after.file != view.file:
        return False
    lacking = GtidSet.parse(after.gtid).subtract(GtidSet.parse(view.executed))
    return bool(lacking) and after.offset <= view.offset


def move(consumer: Consumer, to: Target) -> None:
    """Begin again at a place, with an empty queue; the consumer is on no dispatcher."""
    consumer.queue.reset(to.server, to.mode, to.epoch, to.place, to.created, anchored=to.anchored)
    consumer.started = True
    consumer.failed = None
    consumer.attach_after = 0.0


def _target(consumer: Consumer, after: Position, view: ServerView) -> Target:
    queue = consumer.queue
    if consumer.started and queue.mode is not view.mode:
        what = f"the server's mode is {view.mode}, the consumer has read it in mode {queue.mode}"
        raise BinlogError(ErrorKind.HISTORY_DIFFERS, what)
    _check_server(consumer, after, view)
    _wait_for_replica(consumer, after, view)
    place = _place(after, view)
    history_check.history(view, view.mode, after.server, place, _created(consumer, after))
    if view.mode is not Mode.GTID or (_in_doubt(consumer, after) and after.server == view.server):
        place = _searched(after, place, view)
        return Target(view.server, view.mode, after.epoch, place, view.created.get(place.file, 0))
    server = queue.server if consumer.started else view.server
    if after.server != server or after.file not in dict(view.files):
        place = without_file(place)
    # That all of the set lies before its file and offset is the reader's word, so no creation time belongs to it.
    return Target(server, view.mode, after.epoch, place, 0)


def _place(after: Position, view: ServerView) -> ExecutedPosition:
    """The position's own parts, if they fit each other."""
    place = executed_of(view.mode, after)
    if place.seq != make_executed(view.mode, after.gtid, after.file, after.offset).seq:
        parts = "GTID set" if view.mode is Mode.GTID else "file and offset"
        raise _unknown(f"its seq does not fit its {parts}")
    return place


def _searched(after: Position, place: ExecutedPosition, view: ServerView) -> ExecutedPosition:
    """The place that a search of the server's log has found at the position's file and offset."""
    found = view.starts.get(_start(after))
    if not isinstance(found, ExecutedPosition):
        where = (
            f"{after.file}:{after.offset}"
            if after.file
            else "the position's file, which it does not name"
        )
        raise _unknown(f"the server's log has no transaction boundary at {where}")
    same = found.gtids == place.gtids
    if isinstance(found.gtids, MariadbGtids) and isinstance(place.gtids, MariadbGtids):
        same = found.gtids.contains(place.gtids)
    if not same:
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"at {after.file}:{after.offset} the server had executed {str(found.gtids)[:200] or 'nothing'},"
            f" the position says {after.gtid[:200] or 'nothing'}",
        )
    return found


def _check_server(consumer: Consumer, after: Position, view: ServerView) -> None:
    """Raises UserError for a position of a server that has nothing to do with this one."""
    known = view.server
    if consumer.started:
        known = consumer.queue.server
    elif consumer.progress is not None:
        known = consumer.progress.covered.server
    if after.server == known or (view.mode is Mode.GTID and after.server == view.server):
        return
    # With GTIDs another server may have been read before: it is known by what it wrote, or by a set of this log.
    if view.mode is Mode.GTID and _is_uuid(after.server):
        wrote = (source.partition(":")[0] for source in GtidSet.parse(view.executed).sources())
        if after.gtid or after.server in wrote:
            return
    raise _unknown(f"it is of server {after.server[:64]!r}; this consumer reads {known!r}")


def _wait_for_replica(consumer: Consumer, after: Position, view: ServerView) -> None:
    """Raises BinlogError where another server has taken over, and may not have executed all of the set yet."""
    if view.mode is not Mode.GTID or consumer.failed is not None or not consumer.started:
        return
    if consumer.queue.server == view.server:
        return
    lacking = GtidSet.parse(after.gtid).subtract(GtidSet.parse(view.executed))
    if lacking:
        what = f"server {view.server} has not executed {history_check.short(lacking)} yet"
        raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, what)


def _check_epoch(consumer: Consumer, after: Position, view: ServerView, *, fresh: bool) -> None:
    epoch = _epoch_of(consumer)
    if epoch in (None, after.epoch):
        return
    if not fresh or after.epoch > EPOCH_MAX or after.server != view.server:
        raise _unknown(f"it belongs to epoch {after.epoch}; this consumer reads epoch {epoch}")


def _epoch_of(consumer: Consumer) -> int | None:
    """None where nothing is stored."""
    if consumer.started:
        return consumer.queue.epoch
    return None if consumer.progress is None else consumer.progress.covered.epoch


def _in_doubt(consumer: Consumer, after: Position) -> bool:
    """True if the set alone does not show that the position is of the server's present log."""
    doubts = (ErrorKind.HISTORY_DIFFERS, ErrorKind.STORED_POSITION)
    failed = consumer.failed is not None and consumer.failed.kind in doubts
    return failed or _epoch_of(consumer) not in (None, after.epoch)


def _created(consumer: Consumer, after: Position) -> int:
    """When the position's file was created, where the daemon has seen that itself; 0 = unknown."""
    queue, stored = consumer.queue, consumer.progress
    if consumer.started:
        return queue.created_of(after.file) if after.server == queue.server else 0
    if stored is None or stored.covered.server != after.server:
        return 0
    return abs(stored.created) if stored.covered.file == after.file else 0


def _start(after: Position) -> Start:
    return AtFile(after.file, after.offset)


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _unknown(why: str) -> UserError:
    return UserError(ErrorKind.POSITION_UNKNOWN, why)
