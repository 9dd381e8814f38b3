"""Checks whether a file that a dump reaches follows the log that was read before it.

A dump survives a RESET as long as the new log is shorter than the offset that the dump has reached. The server keeps
sending heartbeats, and when the new log rotates, the server continues the dump with the *second* file of the new log
(MySQL and MariaDB, with GTIDs and without). So before a position moves into a file, and before an event of the file is
delivered, the dispatcher compares the file's head (its first events) with the log that it has read:

* The GTIDs that the head lists as executed before the file (PREVIOUS_GTIDS, MariaDB's GTID_LIST) must be the GTIDs that
  were read.
* If the head lists no GTIDs, or if the server was still writing the previous file when the dump began, the daemon asks
  the server: the previous file must have the size that the dispatcher has read, or the server must have purged it. The
  daemon does not ask about files that were closed when the dump began, because there are many of them while a consumer
  catches up.

A head may differ for a valid reason: GTIDs that were set by hand, or a transaction that a crash has cut off. So a head
that does not fit ends the connection, and the next login checks every consumer's position. If that login finds no fault
and the same head comes again, the dispatcher accepts the head.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from dispatcher.dispatch.history import history_check
from dispatcher.dispatch.values.executed_position import (
    BatchGtids,
    ExecutedPosition,
    Gtids,
    Mode,
    executed_set,
)
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import DomainGtids, ExecutedSet, GtidSet, MariadbGtids
from dispatcher.model.position import file_number
from dispatcher.stream.batch import Batch, Head

# MySQL counts the header of an encrypted file in its size, but not in offsets.
_ENCRYPTION_HEADER_BYTES = 512


class HeadVerdict(Enum):
    """Whether the head of a file follows the log that was read before it."""

    FOLLOWS = auto()
    UNKNOWN = auto()  # the head is not complete yet
    ASK = auto()  # the server must be asked about the previous file
    DIFFERS = auto()


@dataclass(frozen=True, slots=True)
class QueuedPosition:
    """A consumer's queued position, with the arguments of `history_check.check_history`."""

    mode: Mode
    server: str
    executed: ExecutedPosition
    created: int
    anchored: bool


class Continuity:
    """Checks whether a dispatcher's stream continues the log that was read before it. `anchored`: True if all
    transactions that were read lie before the file and offset that the stream has reached. `can_ask`: True if the
    source is a server."""

    def __init__(self) -> None:
        self.anchored = False
        # True if the dump may send a transaction that precedes a transaction of `_begun` in the log.
        self._may_skip = False
        self._begun: Gtids = GtidSet()  # the set that was read when the stream began
        self._end = 0, 0  # the end of the log when the stream began
        # False for a folder of files: the code that reads it checks the order of its files itself.
        self.can_ask = False
        self._accepted = ""  # the file whose head was accepted
        self._doubted = ("", "")  # file and GTIDs of a head that did not fit

    def begin(self, read: ExecutedPosition, view: ServerView, *, anchored: bool) -> None:
        """Record that a stream begins at `read`."""
        self._may_skip = view.mode.by_gtid and may_skip(read.gtids, view.written)
        self.anchored, self._begun = anchored, read.gtids
        self._end = file_number(view.file), view.offset
        self.can_ask, self._accepted = view.knows_tables, ""

    def advance(self, read: ExecutedPosition, gtids: BatchGtids) -> None:
        """Record that the stream has reached `read`.

        The stream becomes `anchored` when it has passed all transactions of the set at which it began. If `_may_skip`
        is False, the stream has passed them when it reaches its first new transaction. Otherwise the stream has passed
        them when it reaches the place that was the end of the log at the beginning of the stream.
        """
        if not self._may_skip and gtids.count:
            self.anchored = True
        elif read.file:
            self.anchored |= read.log_order >= self._end

    # -- heads of files --------------------------------------------------------------------------------------

    def judge(self, batch: Batch, mode: Mode, read: ExecutedPosition) -> HeadVerdict:
        """Compare the head of a batch, if the batch has one, with `read`, the position before the batch."""
        head = batch.head
        if head is None or batch.file == self._accepted or not self.can_ask:
            return HeadVerdict.FOLLOWS
        if mode is not Mode.FILE and head.previous is None and _is_empty(batch):
            return HeadVerdict.UNKNOWN
        moves = bool(head.before) and file_number(batch.file) > file_number(read.file)
        if mode is not Mode.FILE and head.previous is not None:
            fits = self._fits(head.previous, read.gtids, whole=moves)
            if not fits and self._doubts(batch.file, head):
                return HeadVerdict.DIFFERS
        if moves:
            was_open = file_number(head.before) >= self._end[0]
            if mode is Mode.FILE or head.previous is None or was_open:
                return HeadVerdict.ASK
        self._accepted = batch.file
        return HeadVerdict.FOLLOWS

    def confirm(self, batch: Batch, sizes: dict[str, int]) -> bool:
        """True if the previous file has the size that was read, if the server no longer has that file, or if the
        dispatcher has doubted the same head before.

        `sizes`: the present sizes of the server's files.
        """
        head = batch.head
        assert head is not None
        size = sizes.get(head.before)
        if head.closed and size is not None:
            whole = size - head.closed in (0, _ENCRYPTION_HEADER_BYTES)
            if not whole and self._doubts(batch.file, head):
                return False
        self._accepted = batch.file
        return True

    def _doubts(self, file: str, head: Head) -> bool:
        """Record a head that does not fit.

        Returns True if the head is new, False if the same head comes again: then the login between the two heads has
        found no fault.
        """
        doubted = file, str(head.previous)
        if doubted == self._doubted:
            return False
        self._doubted = doubted
        return True

    def _fits(self, previous: Gtids, read: Gtids, *, whole: bool) -> bool:
        """True if the head's GTIDs `previous` fit the set `read`. `whole`: True if the file must follow everything that
        was read; False for the first file of a dump by GTIDs."""
        if isinstance(previous, MariadbGtids) and not isinstance(read, DomainGtids):
            assert isinstance(read, MariadbGtids)
            return not whole or previous.agrees(read)
        held = executed_set(read)
        listed = DomainGtids.of(previous) if isinstance(previous, MariadbGtids) else previous
        if not held.contains(listed):
            return False
        if not whole:
            return True
        if self.anchored:
            return listed.contains(held)
        return listed.contains(held.subtract(executed_set(self._begun)))


def history_error(view: ServerView, positions: Iterable[QueuedPosition]) -> BinlogError | None:
    """Returns an error if, according to `view`, the server's log is not the one from which these positions were read.

    This function ignores a purge after the positions were read, and a view in another mode or of another server: the
    next login checks these.
    """
    for at in positions:
        if at.mode is not view.mode or at.server != view.server:
            continue
        try:
            history_check.check_history(
                view, at.mode, at.server, at.executed, at.created, anchored=at.anchored
            )
        except BinlogError as error:
            if error.kind is ErrorKind.HISTORY_DIFFERS:
                return error
    return None


def may_skip(held: Gtids, written: ExecutedSet) -> bool:
    """True if a dump from the set `held` may send a transaction and leave out a later one.

    `written`: the transactions that the log may hold (`ServerView.written`). The executed set does not suffice: a dump
    may send a transaction that is still being committed, and a transaction of `held` may lie after it.

    Transactions of one source lie in the order of their numbers. The order of transactions of several sources is not
    known. If `held` has all transactions of the log, the order does not matter.
    """
    if isinstance(written, DomainGtids):
        return len(written.domains()) > 1 and bool(written.subtract(executed_set(held)))
    assert isinstance(held, GtidSet)
    missing = written.subtract(held).sources()
    if not missing:
        return False
    if len(written.sources()) > 1:
        return True
    ((source, intervals),) = missing.items()
    own = held.sources().get(source, ())
    return any(end > intervals[0][0] for _, end in own)


def _is_empty(batch: Batch) -> bool:
    return not len(batch.tx.flags) and batch.fault is None
