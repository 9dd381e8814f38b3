"""Who may ride on which dispatcher: the one predicate that serves attaching, merging and restarting.

A consumer may ride where the dispatcher has read nothing that the consumer has not queued, for that would never come
again; and where the two are near in the log, for it waits until the dispatcher has come to its place. What a consumer
has *queued* counts. By what was delivered or acknowledged it could ride where it is given transactions twice.

A dispatcher may stand inside a transaction, some of which was dealt out already. Then only who has that transaction may
come along, because it passes over the rest; on a stream that never pauses this is the usual case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from dispatcher.dispatch.executed_position import ExecutedPosition, Gtids, Mode, make_executed
from dispatcher.dispatch.server_view import ServerView
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import file_number

# Places that no file is known of, as after a failover, are near if so few transactions tell them apart.
UNKNOWN_TRANSACTIONS_MAX = 1000

Inside = tuple[str, int] | int | None
"""The transaction that a dispatcher stands in: source and number, or (without MySQL's GTIDs) seq reached in it."""

T = TypeVar("T")


class ServerFiles:
    """The files of a server's log, as far as they are known: how many bytes lie between two places?"""

    def __init__(self) -> None:
        self.server = ""
        self.looks = 0  # how often a server was asked
        self._sizes: dict[int, int] = {}  # by number

    def saw(self, view: ServerView, *, late: bool = False) -> None:
        """What a server says replaces what another one, or the same one before a reset, has said.

        `late`: it was asked before something that is known already, so what is known stays.
        """
        known = self._sizes if late and view.server == self.server else {}
        self.looks += 1
        self.server = view.server
        self._sizes = {file_number(name): size for name, size in view.files}
        for number, size in known.items():
            self._sizes[number] = max(self._sizes.get(number, 0), size)
        self.grew(view.file, view.offset)

    def grew(self, file: str, offset: int) -> None:
        """A stream has come to an offset of a file."""
        number = file_number(file)
        self._sizes[number] = max(self._sizes.get(number, 0), offset)

    def has(self, place: ExecutedPosition) -> bool:
        """Does a place lie within a file, as far as it was written?"""
        return place.offset <= self._sizes.get(file_number(place.file), -1)

    def between(self, mode: Mode, a: ExecutedPosition, b: ExecutedPosition) -> int | None:
        """Bytes of the log between two places of this server, whichever comes first; None: not known."""
        if a.seq == b.seq and (mode is not Mode.GTID or a.gtids == b.gtids):
            return 0
        if not a.file or not b.file:
            return None
        (low, start), (high, end) = sorted(
            (file_number(place.file), place.offset) for place in (a, b)
        )
        numbers = range(low, high)
        if any(number not in self._sizes for number in numbers):
            return None
        if low < high and start > self._sizes[low]:  # what was heard last is older than that place
            return None
        return sum(self._sizes[number] for number in numbers) - start + end


def contained(mode: Mode, read: ExecutedPosition, queued: ExecutedPosition) -> bool:
    """Has a consumer that queued up to one place everything that was read up to the other?"""
    if mode is not Mode.GTID:
        return read.seq <= queued.seq
    assert isinstance(read.gtids, GtidSet) and isinstance(queued.gtids, GtidSet)
    if read.seq > queued.seq:
        return False  # a larger set: no need to look into it
    return queued.gtids.contains(read.gtids)


def has_transaction(queued: ExecutedPosition, inside: Inside) -> bool:
    """Has a consumer the transaction that a dispatcher stands in? One that stands in none keeps nobody away."""
    if inside is None:
        return True
    if isinstance(inside, int):
        return queued.seq > inside
    source, gno = inside
    assert isinstance(queued.gtids, GtidSet)
    return bool(source) and queued.gtids.has(source, gno)


def near(
    files: ServerFiles | None, mode: Mode, a: ExecutedPosition, b: ExecutedPosition, bytes_max: int
) -> bool:
    """May a and b begin on one dump? `files`: None where those of their server are not known."""
    distance = files.between(mode, a, b) if files is not None else None
    if distance is not None:
        return distance <= bytes_max
    if mode is not Mode.GTID:
        return False
    assert isinstance(a.gtids, GtidSet) and isinstance(b.gtids, GtidSet)
    apart = len(a.gtids.subtract(b.gtids)) + len(b.gtids.subtract(a.gtids))
    return apart <= UNKNOWN_TRANSACTIONS_MAX


def front(
    files: ServerFiles, mode: Mode, placed: Sequence[tuple[T, ExecutedPosition]], bytes_max: int
) -> list[T]:
    """Of consumers with their places, the one furthest ahead and those that are near to it and to each other."""
    ordered = sorted(placed, key=lambda one: one[1].seq, reverse=True)
    group: list[tuple[T, ExecutedPosition]] = []
    for one, place in ordered:
        if all(near(files, mode, place, other, bytes_max) for _, other in group):
            group.append((one, place))
    return [one for one, _ in group]


def start_of(mode: Mode, places: Sequence[ExecutedPosition]) -> ExecutedPosition:
    """The place from which one dump serves all of them: what all have."""
    if mode is not Mode.GTID:
        return min(places, key=lambda place: place.seq)
    gtids: Gtids = places[0].gtids
    for place in places[1:]:
        assert isinstance(gtids, GtidSet) and isinstance(place.gtids, GtidSet)
        gtids = gtids.intersection(place.gtids)
    same = [place for place in places if place.gtids == gtids]
    if same:
        return max(same, key=lambda place: (file_number(place.file), place.offset))
    # None of them stands there; the log goes on at the first of their places, or somewhat before it.
    first = _first(places)
    return make_executed(mode, str(gtids), first.file, first.offset)


def _first(places: Iterable[ExecutedPosition]) -> ExecutedPosition:
    return min(places, key=lambda place: (file_number(place.file), place.offset))
