"""Does a file that a dump comes to follow what was read before it?

A dump survives a RESET as long as the new log is shorter than the offset that the dump has come to: the server goes on
to send heartbeats, and when the new log rotates, it goes on with the *second* file of that (so do MySQL and MariaDB,
with GTIDs and without). Hence no place moves into a file, and nothing of it is dealt out, before its head was compared
with what was read:

* The GTIDs that the file says it follows (PREVIOUS_GTIDS, MariaDB's GTID_LIST) must be those that were read.
* Where it says none, and where the file before it was being written when the dump was asked for, the server is asked:
  the file before must still be the one that was read, or have been purged. Files that had been closed by then, as many
  are while a consumer catches up, cost no question.

A log may say something else for a reason: GTIDs that were set by hand, a transaction that a crash has cut off. So what
does not fit ends the connection, and the next login decides, consumer by consumer. A head that does not fit again after
a login that found nothing wrong is believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from dispatcher.binlog.stream.batch import Batch, Head
from dispatcher.dispatch import history_check
from dispatcher.dispatch.executed_position import BatchGtids, ExecutedPosition, Gtids, Mode
from dispatcher.dispatch.server_view import ServerView
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import file_number

# MySQL counts the header of an encrypted file into its size, but not into offsets.
_ENCRYPTION_HEADER_BYTES = 512


class Verdict(Enum):
    FOLLOWS = auto()
    UNKNOWN = auto()  # the head is not whole yet
    ASK = auto()  # the server must say what it has of the file before
    DIFFERS = auto()


@dataclass(frozen=True, slots=True)
class Standing:
    """A place that was read, with what the history check needs; see `checks.history`."""

    mode: Mode
    server: str
    place: ExecutedPosition
    created: int
    anchored: bool


class Continuity:
    """What one dispatcher's streams have in common with what was read. `anchored`: all of what was read lies before its
    file and offset in the server's log."""

    def __init__(self) -> None:
        self.anchored = False
        self._gaps = False  # may transactions that are held lie behind some that are not?
        self._begun: Gtids = GtidSet()  # what was read when the stream began
        self._end = 0, 0  # where the log ended then
        self._can_ask = False  # of a folder of files, its source knows which one follows another
        self._known = ""  # the file whose head was compared
        self._doubted = ("", "")  # a head that did not fit: its file and GTIDs

    def begin(self, read: ExecutedPosition, view: ServerView, *, anchored: bool) -> None:
        """A stream begins at `read`."""
        gaps = False
        if isinstance(read.gtids, GtidSet) and view.mode is Mode.GTID:
            gaps = may_skip(read.gtids, GtidSet.parse(view.executed))
        self._gaps, self.anchored, self._begun = gaps, anchored, read.gtids
        self._end = file_number(view.file), view.offset
        self._can_ask, self._known = view.knows_tables, ""

    def passed(self, place: ExecutedPosition, steps: BatchGtids) -> None:
        """The stream has come to a place.

        It has passed all that was held when it began, where it was sent something that was not and nothing that was
        held lies behind that; or where the log ended then.
        """
        if not self._gaps and steps.ended.any():
            self.anchored = True
        elif place.file:
            self.anchored |= (file_number(place.file), place.offset) >= self._end

    # -- heads of files --------------------------------------------------------------------------------------

    def judge(self, batch: Batch, mode: Mode, read: ExecutedPosition) -> Verdict:
        """Of a batch with a head, before anything of it counts. `read`: what was read before it."""
        head = batch.head
        if head is None or batch.file == self._known or not self._can_ask:
            return Verdict.FOLLOWS
        if mode is not Mode.FILE and head.previous is None and _is_empty(batch):
            return Verdict.UNKNOWN
        moves = bool(head.before) and file_number(batch.file) > file_number(read.file)
        if mode is not Mode.FILE and head.previous is not None:
            fits = self._fits(head.previous, read.gtids, whole=moves)
            if not fits and self._doubts(batch.file, head):
                return Verdict.DIFFERS
        if moves:
            was_open = file_number(head.before) >= self._end[0]
            if mode is Mode.FILE or head.previous is None or was_open:
                return Verdict.ASK
        self._known = batch.file
        return Verdict.FOLLOWS

    def confirm(self, batch: Batch, sizes: dict[str, int]) -> bool:
        """The server has the file before as it was read, or no longer has it; `sizes`: of its files, as of then."""
        head = batch.head
        assert head is not None
        size = sizes.get(head.before)
        if head.closed and size is not None:
            whole = size - head.closed in (0, _ENCRYPTION_HEADER_BYTES)
            if not whole and self._doubts(batch.file, head):
                return False
        self._known = batch.file
        return True

    def _doubts(self, file: str, head: Head) -> bool:
        """False if a login has found nothing wrong since the same was seen before."""
        doubted = file, str(head.previous)
        if doubted == self._doubted:
            return False
        self._doubted = doubted
        return True

    def _fits(self, previous: Gtids, read: Gtids, *, whole: bool) -> bool:
        """`whole`: the file follows all that was read, and not only what a dump by GTIDs begins with."""
        if isinstance(previous, MariadbGtids) or isinstance(read, MariadbGtids):
            assert isinstance(previous, MariadbGtids) and isinstance(read, MariadbGtids)
            return not whole or previous.agrees(read)
        if not read.contains(previous):
            return False
        if not whole:
            return True
        if self.anchored:
            return previous.contains(read)
        assert isinstance(self._begun, GtidSet)
        return previous.contains(read.subtract(self._begun))


def compare(view: ServerView, standings: Sequence[Standing]) -> BinlogError | None:
    """What says that the server's log, as of `view`, is not the one that these places were read from before that.

    What was purged meanwhile, and a mode or server that is another one now, concern the next login only.
    """
    for at in standings:
        if at.mode is not view.mode or at.server != view.server:
            continue
        try:
            history_check.history(
                view, at.mode, at.server, at.place, at.created, anchored=at.anchored
            )
        except BinlogError as error:
            if error.kind is ErrorKind.HISTORY_DIFFERS:
                return error
    return None


def may_skip(held: Gtids, executed: GtidSet) -> bool:
    """May a dump from a set leave out a transaction that lies behind one that it sends?

    Of one source the lower number lies first. Of several the order is not known, unless nothing is missing yet.
    """
    assert isinstance(held, GtidSet)
    missing = executed.subtract(held).sources()
    if not missing:
        return False
    if len(executed.sources()) > 1:
        return True
    ((source, intervals),) = missing.items()
    own = held.sources().get(source, ())
    return any(end > intervals[0][0] for _, end in own)


def _is_empty(batch: Batch) -> bool:
    return not len(batch.tx.flags) and batch.fault is None
