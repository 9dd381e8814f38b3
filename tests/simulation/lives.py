"""Moves that replace a server's log: a RESET, a restore from an older copy of the server, and purges after these moves.

A play may make only changes that the daemon can detect. So at each position of a consumer, and at each position up to
which the consumer may still read the old log, the new log must differ in a value that `history_check.history` compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    Mode,
    executed_set,
    parse_gtids,
    parse_set,
)
from dispatcher.model.gtid import DomainGtids, GtidSet
from dispatcher.model.position import file_number
from tests.simulation.histories import History, following, restored, twin
from tests.support.event_encoder import File
from tests.support.fake_server import Server, between_transactions, executed_by

if TYPE_CHECKING:
    from tests.simulation.world import PlayedWorld

FORKS = (3, 8, 15)  # how many transactions a copy of the server may contain


@dataclass(frozen=True, slots=True)
class Stand:
    """A position of a consumer. `created`: True if the creation time of its file is known. `anchored`: see
    `history_check.history`."""

    consumer: str
    place: ExecutedPosition
    server: str
    created: bool
    anchored: bool


# -- RESET ----------------------------------------------------------------------------------------------------


def reset(world: PlayedWorld) -> None:
    """Make a RESET: a new log with the old file names begins, sometimes in the same second in which the old log
    began."""
    stands = _stands(world)
    if not world.histories or stands is None or not _may_change(world, stands):
        return
    new, rng, same_second = world.histories[0], world.rng, False
    if rng.random() < 0.4:
        shifted = world.scenario.mode is Mode.GTID and rng.random() < 0.6
        other = twin(world.scenario.mode, world.scenario.log, shifted=shifted)
        if same_second := _differs_everywhere(world.server, other, stands):
            new = other
    old = world.server
    _begin(world, new)
    old.successor = world.server
    for server in world.servers:
        write(server, rng.choice((0, 5, 20)))
    # The server does not notify the clients of its dumps about the RESET, so some dumps may continue.
    # If the new log begins in the same second, such a dump would read on to a place that the new log may have, too.
    # Without GTIDs no client could distinguish the two logs.
    survive = rng.random() < 0.6
    _cut(world, old, set(world.readers) if survive and not same_second else set())
    if world.scenario.mode.by_gtid and rng.random() < 0.5:
        write(world.server, 8)
        world.purge()


def _differs_everywhere(old: Server, new: History, stands: list[Stand]) -> bool:
    """True if the new log differs at each position up to which the consumers may read the old log. The files of both
    logs have the same names and creation times."""
    files = {file.name: file for file in new.logs[0].files}
    begins = {(t.file, t.start): (t.source, t.gno) for t in new.transactions}
    return all(
        _differs(stand, place, files, begins)
        for stand in stands
        for place in _places_from(old, stand.place)
    )


def _differs(
    stand: Stand,
    place: ExecutedPosition,
    files: dict[str, File],
    begins: dict[tuple[str, int], tuple[str, int]],
) -> bool:
    file = files.get(place.file)
    if file is None:
        return True
    if place.offset <= 4 or place.offset == file.size:
        return False
    if place.offset not in _event_offsets(file):
        return True
    begun = begins.get((place.file, place.offset))
    if begun is None or not stand.anchored or not isinstance(place.gtids, GtidSet | DomainGtids):
        return False
    return place.gtids.has(*begun)


def _event_offsets(file: File) -> set[int]:
    at, out = 4, set()
    for raw, _ in file.events:
        out.add(at)
        at += len(raw)
    return out


def _places_from(server: Server, place: ExecutedPosition) -> Iterator[ExecutedPosition]:
    """Yields a position and all later positions in a server's log, each with the GTIDs up to this position."""
    yield place
    number, stop = file_number(place.file), server.stop
    done = server.log.transactions[: stop.transactions]
    for index, file in enumerate(server.log.files[: stop.files]):
        end = stop.offset if index == stop.files - 1 else file.size
        for offset in sorted(between_transactions(file)):
            if (number, place.offset) < (file_number(file.name), offset) and offset <= end:
                gtids = place.gtids
                if isinstance(gtids, GtidSet | DomainGtids):
                    at = file_number(file.name), offset
                    before = [t for t in done if (file_number(t.file), t.end) <= at]
                    behind = [
                        t for t in before if (file_number(t.file), t.end) > (number, place.offset)
                    ]
                    gtids = gtids.union(executed_by(server.mode, behind))
                yield ExecutedPosition(gtids, file.name, offset, place.seq)


# -- restore --------------------------------------------------------------------------------------------------


def restore(world: PlayedWorld) -> None:
    """Restore the server from an older copy, including its log files. The server continues in a new file. Consumers
    that have read only transactions of the copy can continue. Sometimes the files of the copy are purged."""
    stands, rng, mode = _stands(world), world.rng, world.scenario.mode
    if not world.histories or stands is None or not world.first_life:
        return
    here = world.server.name
    if world.server is not world.servers[0] or any(stand.server != here for stand in stands):
        return
    new = restored(mode, world.scenario.log, rng.choice(FORKS))
    if world.server.stop.transactions <= new.copied[2] or world.server.oldest > 0:
        return
    copied = {stand: _is_copied(stand, new) for stand in stands}
    beyond = {stand.consumer for stand in stands if copied[stand] is False}
    within = {stand.consumer for stand in stands if copied[stand]}
    if None in copied.values() or beyond & within:
        return
    if not _may_change(world, [stand for stand in stands if stand.consumer in beyond]):
        return
    if any(
        reader.history and name not in beyond | within for name, reader in world.readers.items()
    ):
        return
    if not all(_reader_is_copied(world, consumer, new) for consumer in within):
        return
    old = world.server
    _begin(world, new)
    world.restored = True
    write(world.server, new.copied[2] + 1 + rng.choice((0, 3, 30)))
    for consumer in within:
        world.readers[consumer].history = new
    files = [file.name for file in new.logs[0].files]
    kept = files.index(following(new.copied[0]))
    lies_there = [s for s in stands if s.consumer in beyond and s.place.file in files[:kept]]
    purges = rng.random() < 0.5 and all(stand.anchored for stand in lies_there)
    if purges:
        world.server.purge(kept)
    # The old server now has another address, so a dump from the old server may continue. Without GTIDs, a survey cannot
    # distinguish a position in a purged file from a position in another log; the next login can.
    survives = rng.random() < 0.4 and not (purges and not mode.by_gtid)
    _cut(world, old, beyond if survives else set())
    if rng.random() < 0.3:
        world.crash()  # as if the daemon was down during the restore


def _is_copied(stand: Stand, new: History) -> bool | None:
    """Returns True if the position is within the copy, False if it is beyond the copy, None if file and GTID set
    disagree or the position has no file."""
    file, offset, count = new.copied
    place = stand.place
    within = (file_number(place.file), place.offset) <= (file_number(file), offset)
    if not place.file:
        return None
    if not isinstance(place.gtids, GtidSet | DomainGtids):
        return within
    has_all = executed_by(new.mode, new.transactions[:count]).contains(place.gtids)
    return within if within == has_all else None


def _reader_is_copied(world: PlayedWorld, name: str, new: History) -> bool:
    mode, out = world.scenario.mode, True
    for position in world.readers[name].positions:
        gtids = parse_gtids(mode, position.gtid)
        place = ExecutedPosition(gtids, position.file, position.offset, position.seq)
        here = position.server == world.server.name
        out &= here and _is_copied(Stand(name, place, position.server, True, True), new) is True
    return out


# -- purges of a new log --------------------------------------------------------------------------------------


def purge_would_be_noticed(world: PlayedWorld) -> bool:
    """True if each consumer of the log before a RESET has read a transaction that the new log does not have. Then the
    daemon detects the RESET even if the new log was purged."""
    stands = _stands(world)
    if stands is None or not world.scenario.mode.by_gtid:
        return False
    executed = parse_set(world.scenario.mode, world.server.stop.executed)
    return all(
        stand.anchored and bool(executed_set(stand.place.gtids).subtract(executed))
        for stand in stands
        if world.readers[stand.consumer].history is not world.history
    )


# -- both -----------------------------------------------------------------------------------------------------


def _stands(world: PlayedWorld) -> list[Stand] | None:
    """Returns the positions of all consumers; None if a consumer has read something but its position is not known."""
    mode, out = world.scenario.mode, []
    for name, reader in world.readers.items():
        # The daemon may crash before `to_store` is stored.
        stored = [p for p in (world.store.get(name), world.to_store.get(name)) if p is not None]
        for progress in stored:
            at = progress.covered
            place = ExecutedPosition(parse_gtids(mode, at.gtid), at.file, at.offset, at.seq)
            known = progress.created
            out.append(Stand(name, place, at.server, known != 0, known > 0 or not mode.by_gtid))
        consumer = world.client.consumers.get(name)
        if consumer is None:
            continue
        if not consumer.started:
            if not stored and reader.history is not None:
                return None
            continue
        queue = consumer.queue
        known = bool(queue.files.created_of(queue.queued.file))
        anchored = queue.files.is_anchored(queue.queued)
        out.append(Stand(name, queue.queued, queue.server, known, anchored))
    return out


def _may_change(world: PlayedWorld, stands: list[Stand]) -> bool:
    """True if, for each consumer, the file of its position and this file's creation time are known."""
    if world.server is not world.servers[0]:
        return False
    return all(s.created and s.place.file and s.server == world.server.name for s in stands)


def _begin(world: PlayedWorld, new: History) -> None:
    world.histories.clear()
    world.history = new
    # Only one server: if the replica also had a new log, the daemon could not distinguish the histories.
    world.servers = new.servers()[:1]
    world.server = world.servers[0]
    world.first_life = False


def _cut(world: PlayedWorld, old: Server, survivors: set[str]) -> None:
    """Cut all connections except dumps whose consumers are all in `survivors`."""
    for link in list(world.links.values()):
        if link.number not in world.client.dispatchers:
            continue  # the dispatcher was retired when another connection was cut
        dumps = link.connection is not None and link.server is old
        attached = set(world.client.dispatchers[link.number].consumers)
        if link.server is not None and not (dumps and attached <= survivors):
            world.cut(link)


def write(server: Server, transactions: int) -> None:
    """Let the server write until it has written `transactions` transactions in total, or all of its log."""
    while server.stop.transactions < min(transactions, len(server.log.transactions)):
        server.grow(1)
