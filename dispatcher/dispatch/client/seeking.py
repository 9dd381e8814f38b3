"""Decides to which position a reader or an administrator moves a consumer, before anything is changed or stored.

A reader whose position lies outside of its consumer's queue *seeks*: it seeks back to read again, or forward because
its own checkpoint is newer than the stored position. An administrator *relocates* a consumer to a start, in an epoch
that was never used before. Only the server knows whether it has the position. So, after either kind of request has
come, the daemon asks the server for a `ServerView`, and passes both to this module. If the view does not prove that the
server has the position, this module refuses the request with an error and changes nothing. The proof depends on the
kind of position:

* MySQL's GTIDs: the set contains everything that was purged, and the server has executed all of the set. A set means
  the same on all replicas. The position's file and offset are only a hint: they are dropped if the server does not list
  the file, or if they belong to another server.
* Files and offsets: the file exists and the offset lies within it, and a search of the log (`seek_starts`) has found
  that a transaction begins there. A dump from the middle of a transaction would fail every consumer that shares the
  dump.

If the consumer has failed with HISTORY_DIFFERS, or if its stored progress cannot be read, the set alone does not prove
that the position belongs to the server's present log: after a RESET the same numbers name other transactions. Then the
search must find exactly this set at the position's file and offset. The search is also necessary for a position of
another epoch. Such a position is accepted only from the first reader of a consumer after the loss of the state store
(`fresh`), which continues in the epoch of its checkpoint.

The daemon finds the position of an administrator's start as it does for a new consumer. The result does not depend on
the stored position, so a relocation also helps a consumer whose stored position has become useless.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.history import history_check
from dispatcher.dispatch.history.continuity import QueuedPosition, history_error
from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    Mode,
    executed_of,
    parse_set,
    without_file,
)
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import AtFile, AtGtid, Start
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import EPOCH_MAX, MARIADB_SERVER, Position

# The errors after which a set of GTIDs, or a file and offset, may name transactions other than those in the queue.
_DOUBTS = (ErrorKind.HISTORY_DIFFERS, ErrorKind.STORED_POSITION)
_SEEK_REFUSED = (
    "nothing was changed: a session without a position continues at the stored one (Spark: a new checkpoint with"
    " startingOffsets 'stored'); what lies between must be copied afresh"
)
_RELOCATION_REFUSED = (
    "nothing was changed; name a place that the server has, such as earliest or latest"
)


@dataclass(frozen=True, slots=True)
class Target:
    """The position to which a consumer is moved. `created`: creation time of `executed.file`, s since 1970, 0 =
    unknown; `anchored`: True if all transactions of the position are known to lie before its file and offset."""

    server: str
    mode: Mode
    epoch: int
    executed: ExecutedPosition
    created: int
    anchored: bool = False


def move(consumer: Consumer, to: Target) -> None:
    """Begin again at a position, with an empty queue. The consumer must not be attached to a dispatcher."""
    consumer.queue.reset(
        to.server, to.mode, to.epoch, to.executed, to.created, anchored=to.anchored
    )
    consumer.started = True
    consumer.failed = None
    consumer.attach_after = 0.0


# -- an administrator's start ---------------------------------------------------------------------------------


def relocation_target(consumer: Consumer, start: Start, view: ServerView, epoch_min: int) -> Target:
    """Returns the position of `start` on the server. Its epoch is at least `epoch_min`, and higher than the consumer's
    present epoch.

    Raises BinlogError if the server does not have the position: POSITION_PURGED, HISTORY_DIFFERS (the server never had
    it), or another kind for a faulty start.
    """
    try:
        executed = history_check.resolve_start(view, start)
    except BinlogError as error:
        raise _refused(consumer, error, _RELOCATION_REFUSED) from None
    present = _epoch_of(consumer)
    epoch = max(epoch_min, 0 if present is None else present + 1)
    created = view.created.get(executed.file, 0)
    # If the start is a file and offset, the server's log shows which transactions lie before it. If the start is a GTID
    # set, nothing but the administrator's claim shows that the set's transactions lie before a certain place in the
    # log.
    anchored = not isinstance(start, AtGtid)
    return Target(view.server, view.mode, epoch, executed, created, anchored)


def reader_position(consumer: Consumer, start: Start, view: ServerView, epoch_new: int) -> Position:
    """Returns the position of `start` on the server, in the consumer's present epoch, or in `epoch_new` if the consumer
    has none.

    A reader may open a session at the position. Raises BinlogError as `relocation_target` does.
    """
    try:
        executed = history_check.resolve_start(view, start)
    except BinlogError as error:
        raise _refused(consumer, error, _RELOCATION_REFUSED) from None
    epoch = _epoch_of(consumer)
    return executed.position(view.server, epoch_new if epoch is None else epoch)


def has_left_log(consumer: Consumer, view: ServerView) -> bool:
    """True if the server's log is not the log that the consumer has read: after a RESET, the numbers and files of the
    queue name other transactions. `view` must contain the creation time of the queue's newest file."""
    if consumer.failed is not None:
        return consumer.failed.kind in _DOUBTS
    queue = consumer.queue
    if not consumer.started:
        return False
    queued = queue.queued
    created, anchored = queue.files.created_of(queued.file), queue.files.is_anchored(queued)
    at = QueuedPosition(queue.mode, queue.server, queued, created, anchored)
    return history_error(view, [at]) is not None


# -- a reader's position --------------------------------------------------------------------------------------


def holds(consumer: Consumer, position: Position) -> bool:
    """True if the position lies within the consumer's queue, so that the consumer need not be moved."""
    queue = consumer.queue
    if not consumer.started or position.epoch != queue.epoch:
        return False
    return queue.acknowledged.seq <= position.seq <= queue.queued.seq


def is_beside_queue(consumer: Consumer, position: Position) -> bool:
    """True if the seq of a position lies within the consumer's queue, but the queue never had the position's set."""
    if not holds(consumer, position):
        return False
    try:
        consumer.queue.locate(position)
    except UserError:
        return True
    return False


def seek_starts(consumer: Consumer, after: Position, view: ServerView) -> list[Start]:
    """Returns the starts that must be searched for in the server's log before `seek_target` can decide. The list is
    often empty."""
    if view.mode is Mode.DOMAINS:
        found = history_check.continuation(view.mode, after.server, executed_of(view.mode, after))
        if found is not None and found.read_from != view.server:
            return [found]
    if not after.file or after.server != view.server:
        return []
    if view.mode.by_gtid and not _in_doubt(consumer, after):
        return []
    return [AtFile(after.file, after.offset)]


def seek_target(
    consumer: Consumer, after: Position, view: ServerView, *, fresh: bool = False
) -> Target:
    """Returns the target of a seek. If the view does not show that the server has the position, raises BinlogError:

    POSITION_UNKNOWN (not a position of this consumer), POSITION_PURGED, HISTORY_DIFFERS (the server never had it), or
    RANGE_UNAVAILABLE (another server has taken over and may not have it yet).
    """
    try:
        _check_epoch(consumer, after, view, fresh=fresh)
        return _target(consumer, after, view)
    except BinlogError as error:
        lost = error.kind in (ErrorKind.POSITION_PURGED, ErrorKind.HISTORY_DIFFERS)
        raise _refused(consumer, error, _SEEK_REFUSED if lost else None) from None


def _target(consumer: Consumer, after: Position, view: ServerView) -> Target:
    queue = consumer.queue
    if consumer.started and queue.mode is not view.mode:
        text = f"the server's mode is {view.mode}, the consumer has read it in mode {queue.mode}"
        raise BinlogError(ErrorKind.HISTORY_DIFFERS, text)
    _check_server(consumer, after, view)
    _check_replica(consumer, after, view)
    executed = executed_of(view.mode, after)
    if not executed.seq_fits(view.mode):
        parts = "GTID set" if view.mode.by_gtid else "file and offset"
        raise _unknown(f"its seq does not fit its {parts}")
    created = _created(consumer, after)
    history_check.check_history(view, view.mode, after.server, executed, created)
    if not view.mode.by_gtid or (_in_doubt(consumer, after) and after.server == view.server):
        executed = _searched(after, executed, view)
        created = view.created.get(executed.file, 0)
        return Target(view.server, view.mode, after.epoch, executed, created)
    server = queue.server if consumer.started else view.server
    if after.server != server or after.file not in dict(view.files):
        executed = without_file(executed)
    # The reader claims that the whole set lies before the file and offset, but nothing has checked this. So no creation
    # time is recorded, and the position does not count as anchored.
    return Target(server, view.mode, after.epoch, executed, 0)


def _searched(after: Position, executed: ExecutedPosition, view: ServerView) -> ExecutedPosition:
    """Returns the position that a search of the server's log has found at the file and offset of `after`. Raises
    BinlogError if the search found no position, or a position with another set."""
    at_offset = view.starts.get(AtFile(after.file, after.offset))
    at = f"{after.file}:{after.offset}"
    if not isinstance(at_offset, ExecutedPosition):
        where = at if after.file else "the position's file, which it does not name"
        raise _unknown(f"the server's log has no transaction boundary at {where}")
    same = at_offset.gtids == executed.gtids
    if isinstance(at_offset.gtids, MariadbGtids) and isinstance(executed.gtids, MariadbGtids):
        same = at_offset.gtids.contains(executed.gtids)
    if not same:
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"at {at} the server had executed {str(at_offset.gtids)[:200] or 'nothing'},"
            f" the position says {after.gtid[:200] or 'nothing'}",
        )
    return at_offset


def _check_server(consumer: Consumer, after: Position, view: ServerView) -> None:
    """Raises UserError for a position of a server that is not known to be related to the server of `view`."""
    server = view.server
    if consumer.started:
        server = consumer.queue.server
    elif consumer.progress is not None:
        server = consumer.progress.covered.server
    if after.server == server or (view.mode.by_gtid and after.server == view.server):
        return
    # With GTIDs, the position may belong to a server that the daemon read before a failover. The position is accepted
    # if this log contains transactions of that server, or if the position contains a GTID set.
    if view.mode is Mode.DOMAINS and after.server.startswith(MARIADB_SERVER) and after.gtid:
        return  # the search shows whether this log contains the position
    written = view.written if view.mode is Mode.GTID else None
    if isinstance(written, GtidSet) and _is_uuid(after.server):
        wrote = (source.partition(":")[0] for source in written.sources())
        if after.gtid or after.server in wrote:
            return
    raise _unknown(f"it is of server {after.server[:64]!r}; this consumer reads {server!r}")


def _check_replica(consumer: Consumer, after: Position, view: ServerView) -> None:
    """Raises BinlogError if another server has taken over and has not executed the whole set yet."""
    if not view.mode.by_gtid or consumer.failed is not None or not consumer.started:
        return
    if consumer.queue.server == view.server:
        return
    if lacking := history_check.unwritten(view, parse_set(view.mode, after.gtid)):
        text = f"server {view.server} has not executed {history_check.abbreviated(lacking)} yet"
        raise BinlogError(ErrorKind.RANGE_UNAVAILABLE, text)


def _check_epoch(consumer: Consumer, after: Position, view: ServerView, *, fresh: bool) -> None:
    epoch = _epoch_of(consumer)
    if epoch in (None, after.epoch):
        return
    if not fresh or after.epoch > EPOCH_MAX or after.server != view.server:
        raise _unknown(f"it belongs to epoch {after.epoch}; this consumer reads epoch {epoch}")


def _in_doubt(consumer: Consumer, after: Position) -> bool:
    """True if the set alone does not prove that the position belongs to the server's present log."""
    failed = consumer.failed is not None and consumer.failed.kind in _DOUBTS
    return failed or _epoch_of(consumer) not in (None, after.epoch)


def _created(consumer: Consumer, after: Position) -> int:
    """Returns the creation time of the position's file, if the daemon itself has read it; 0 = unknown."""
    queue, stored = consumer.queue, consumer.progress
    if consumer.started:
        return queue.files.created_of(after.file) if after.server == queue.server else 0
    if stored is None or stored.covered.server != after.server:
        return 0
    return abs(stored.created) if stored.covered.file == after.file else 0


def _epoch_of(consumer: Consumer) -> int | None:
    """Returns the consumer's present epoch; None if no progress is stored."""
    if consumer.started:
        return consumer.queue.epoch
    return None if consumer.progress is None else consumer.progress.covered.epoch


def _refused(consumer: Consumer, error: BinlogError, remedy: str | None) -> BinlogError:
    where = f"consumer {consumer.name}"
    return type(error)(error.kind, error.what, where=where, remedy=remedy)


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _unknown(why: str) -> UserError:
    return UserError(ErrorKind.POSITION_UNKNOWN, why)
