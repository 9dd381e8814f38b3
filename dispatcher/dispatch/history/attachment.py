"""Decides to which dispatcher a consumer may attach, which consumers may share a dump, and where that dump begins.

A consumer may attach to a dispatcher under two conditions. First, the consumer's queue has passed everything that the
dispatcher has read, because the dispatcher will not read this again. Second, the two are near each other in the log,
because the dispatcher delivers nothing to the consumer before it has reached the consumer's position. The rule uses the
*queued* position: with the delivered or the acknowledged position, the consumer would get some transactions twice.

A dispatcher may be inside a transaction, and may have copied a part of it to its consumers. Then another consumer may
attach only if it has already queued this transaction: otherwise it would get only the end of the transaction. (A
dispatcher whose stream never pauses is nearly always inside a transaction, because a batch ends wherever the received
bytes end.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    Mode,
    executed_set,
    make_executed,
)
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.position import file_number

# If the distance of two positions in bytes is not known, as after a failover, they are near if they differ by at most
# this many transactions.
UNKNOWN_TRANSACTIONS_MAX = 1000

OpenTransaction = tuple[str, int] | int | None
"""The transaction that a dispatcher has read in part: its source and number, or (without MySQL's GTIDs) the `seq` that
the dispatcher has reached in it. None: there is no such transaction."""

T = TypeVar("T")


class ServerFiles:
    """The files of a server's log and their sizes, as far as they are known."""

    def __init__(self) -> None:
        self.server = ""
        self.updates = 0
        self._sizes: dict[int, int] = {}  # by the number of the file

    def update(self, view: ServerView, *, late: bool = False) -> None:
        """Replace the known files by those of a view, which may be of another server.

        `late`: True if a dispatcher has read beyond the end of the log in `view`; then a known size is kept if it is
        larger than the size in `view`.
        """
        sizes_before = self._sizes if late and view.server == self.server else {}
        self.updates += 1
        self.server = view.server
        self._sizes = {file_number(name): size for name, size in view.files}
        for number, size in sizes_before.items():
            self._sizes[number] = max(self._sizes.get(number, 0), size)
        self.extend(view.file, view.offset)

    def extend(self, file: str, offset: int) -> None:
        """Record that a stream has reached an offset of a file."""
        number = file_number(file)
        self._sizes[number] = max(self._sizes.get(number, 0), offset)

    def contains(self, executed: ExecutedPosition) -> bool:
        """True if a position lies within the written part of a file."""
        return executed.offset <= self._sizes.get(file_number(executed.file), -1)

    def distance(self, mode: Mode, a: ExecutedPosition, b: ExecutedPosition) -> int | None:
        """Returns the bytes of the log between two positions of this server, in either order; None: not known."""
        if a.seq == b.seq and (not mode.by_gtid or a.gtids == b.gtids):
            return 0
        if not a.file or not b.file:
            return None
        (low, start), (high, end) = sorted((a.log_order, b.log_order))
        numbers = range(low, high)
        if any(number not in self._sizes for number in numbers):
            return None
        if low < high and start > self._sizes[low]:  # the file has grown since its size was read
            return None
        return sum(self._sizes[number] for number in numbers) - start + end


def has_all_read(mode: Mode, read: ExecutedPosition, queued: ExecutedPosition) -> bool:
    """True if a consumer that has queued up to `queued` has everything up to `read`."""
    if not mode.by_gtid:
        return read.seq <= queued.seq
    if read.seq > queued.seq:
        return False  # `read` has more transactions, so the sets need no comparison
    return queued.contains(read)


def has_transaction(queued: ExecutedPosition, transaction: OpenTransaction) -> bool:
    """True if a consumer has queued the transaction that a dispatcher has read in part, or if there is no such
    transaction."""
    if transaction is None:
        return True
    if isinstance(transaction, int):
        return queued.seq > transaction
    source, gno = transaction
    return bool(source) and executed_set(queued.gtids).has(source, gno)


def is_near(
    files: ServerFiles | None, mode: Mode, a: ExecutedPosition, b: ExecutedPosition, bytes_max: int
) -> bool:
    """True if the positions are near enough for one dump to serve both consumers. `files`: None if the server's files
    are not known."""
    distance = files.distance(mode, a, b) if files is not None else None
    if distance is not None:
        return distance <= bytes_max
    if not mode.by_gtid:
        return False
    ours, theirs = executed_set(a.gtids), executed_set(b.gtids)
    differing = ours.missing(theirs) + theirs.missing(ours)
    return differing <= UNKNOWN_TRANSACTIONS_MAX


def group_ahead(
    files: ServerFiles,
    mode: Mode,
    positions: Sequence[tuple[T, ExecutedPosition]],
    bytes_max: int,
) -> list[T]:
    """Returns a group of consumers that are near each other. The consumer furthest ahead is one of them."""
    ordered = sorted(positions, key=lambda pair: pair[1].seq, reverse=True)
    group: list[tuple[T, ExecutedPosition]] = []
    for consumer, queued in ordered:
        if all(is_near(files, mode, queued, other, bytes_max) for _, other in group):
            group.append((consumer, queued))
    return [consumer for consumer, _ in group]


def dump_start(mode: Mode, positions: Sequence[ExecutedPosition]) -> ExecutedPosition:
    """Returns the position from which one dump serves all consumers: the intersection of their GTID sets; without
    GTIDs, the first of their positions."""
    if not mode.by_gtid:
        return min(positions, key=lambda executed: executed.seq)
    gtids = executed_set(positions[0].gtids)
    for executed in positions[1:]:
        gtids = gtids.intersection(executed_set(executed.gtids))
    same = [executed for executed in positions if executed.gtids == gtids]
    if same:
        return max(same, key=lambda executed: executed.log_order)
    # No consumer's set equals the intersection. The transactions after the intersection begin at the first of the
    # consumers' positions in the log, or before it.
    first = min(positions, key=lambda executed: executed.log_order)
    return make_executed(mode, str(gtids), first.file, first.offset)
