"""The assertions of the simulation. They use the true time, the contents of the database, and the answers that each
daemon has received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.leadership_simulation.daemon import is_of
from tests.leadership_simulation.database import IDLE_S, LOCK_WAIT_S, Contents

if TYPE_CHECKING:
    from tests.leadership_simulation.daemon import Process
    from tests.leadership_simulation.reader import Reader
    from tests.leadership_simulation.world import World

LATE_S = 1.0  # how long after the end of its lease a running daemon may still lead


class Judge:
    def __init__(self, world: World) -> None:
        self._world = world
        self._writers: dict[int, str] = {}  # by term: the holder that has committed writes
        self._acknowledged: dict[str, int] = {}  # by consumer: the highest committed position
        self._confirmed: dict[str, int] = {}  # by consumer: the highest confirmed position
        self._led: set[tuple[str, int]] = set()
        self._free_since: float | None = 0.0

    # -- the database ----------------------------------------------------------------------------------------

    def committed(self, owner: str, looked_s: float, before: Contents, after: Contents) -> None:
        self._check_lease(owner, looked_s, before, after)
        if (before.acknowledged, before.sessions) != (after.acknowledged, after.sessions):
            self._check_write(owner, before, after)

    def _check_lease(self, owner: str, looked_s: float, before: Contents, after: Contents) -> None:
        """Assert that a daemon takes the lease only when the lease is free by the database's clock, and that only the
        holder changes it."""
        old, new = (before.holder, before.term), (after.holder, after.term)
        if old != new:
            free = before.lease(looked_s).free
            assert free, f"{owner} has taken the lease of {before.holder}"
            assert is_of(after.holder, owner), f"{owner} has written {after.holder}"
            assert after.term == before.term + 1, f"{owner} has made it {new} after {old}"
        elif before.expires_s != after.expires_s:
            assert is_of(before.holder, owner), f"{owner} has changed the lease of {before.holder}"

    def _check_write(self, owner: str, before: Contents, after: Contents) -> None:
        assert owner == after.holder, f"{owner} has stored while {after.holder} holds the lease"
        writer = self._writers.setdefault(after.term, owner)
        assert writer == owner, f"{writer} and {owner} have stored in term {after.term}"
        for consumer, position in after.acknowledged.items():
            stored = before.acknowledged.get(consumer, 0)
            assert position >= stored, f"{consumer} went back from {stored} to {position}"
            self._acknowledged[consumer] = max(position, self._acknowledged.get(consumer, 0))

    def lost(self) -> None:
        """Handle that the server has lost its newest commits: a reader without its own checkpoint may then get the same
        transactions again."""
        contents = self._world.database.contents
        self._writers = {
            term: holder for term, holder in self._writers.items() if term <= contents.term
        }
        if contents.term in self._writers:
            self._writers[contents.term] = contents.holder
        self._confirmed = {
            consumer: min(position, contents.acknowledged.get(consumer, 0))
            for consumer, position in self._confirmed.items()
        }

    # -- the daemons -----------------------------------------------------------------------------------------

    def leads(self, holder: str, term: int) -> None:
        assert (holder, term) not in self._led, f"{holder} leads term {term} twice"
        self._led.add((holder, term))

    def acknowledgement_answered(self, consumer: str, position: int) -> None:
        stored = self._acknowledged.get(consumer, 0)
        assert position <= stored, f"{consumer} is told that {position} is stored, but {stored} is"
        # A position that the server has lost in a crash is no longer stored.
        kept = min(position, self._world.database.contents.acknowledged.get(consumer, 0))
        self._confirmed[consumer] = max(kept, self._confirmed.get(consumer, 0))

    def delivered(self, process: Process) -> None:
        """Assert that a leader that delivers has confirmed its lease within the last lease duration."""
        silent_s = process.now - process.confirmed_s
        assert silent_s < process.lease_s, f"{process.name} delivers {silent_s:.3f} s later"

    def flushed(self, process: Process, queued: int) -> None:
        """Assert that a daemon that hands over has stored all queued acknowledgements before."""
        world = self._world
        leaving_since = process.leaving_since
        assert leaving_since is not None
        sound = world.calm_since <= leaving_since - calm_s(process.lease_s)
        if sound and world.database.lease.holder == process.holder:
            assert not queued, f"{process.name} has not stored {queued}"

    def exited(self, process: Process) -> None:
        """Assert that a daemon that hands over gives its lease back."""
        assert process.leaving_since is not None, f"{process.name} has exited by itself"
        # After a more recent fault, the session of a client that has gone may still hold the lock.
        sound = self._world.calm_since <= process.leaving_since - calm_s(process.lease_s)
        lease = self._world.database.lease
        # A daemon uses a new holder name after its term, so a lease that it has kept contains an older holder name with
        # the same id.
        assert not sound or lease.free or not is_of(lease.holder, process.id), (
            f"{process.name} has kept the lease for {lease.remaining_s:.3f} s"
        )

    def look(self) -> None:
        """Check the state. The world calls this after each event."""
        world = self._world
        now = world.agenda.now
        database = world.database
        # Each fault may leave a session that locks without purpose, and these sessions get the lock one after the
        # other. This check ignores their time; `finished` limits the total time.
        if not (database.up and database.lease.free) or database.locked_for_nothing:
            self._free_since = None
        elif self._free_since is None:
            self._free_since = now
        able = [p for p in world.processes.values() if p.able_since < now and not p.leaving_since]
        if self._free_since is not None and able:
            since = max(self._free_since, min(p.able_since for p in able))
            assert now - since < world.bound_s, f"the lease has been free for {now - since:.3f} s"
        for process in world.processes.values():
            self._check_process(process, now)

    def _check_process(self, process: Process, now: float) -> None:
        if process.stopped:
            return
        silent_s = process.now - process.confirmed_s
        if process.term is not None and not process.term.ending and not process.leaving_since:
            since_s = (now - process.running_since) * process.rate
            late_s = min(silent_s - process.lease_s, since_s)
            assert late_s < LATE_S, f"{process.name} goes on {late_s:.3f} s without a lease"
        if process.leaving_since is not None:
            waited_s = now - max(process.leaving_since, process.running_since)
            assert waited_s < 4 * process.lease_s + 5, f"{process.name} does not exit"

    # -- the readers -----------------------------------------------------------------------------------------

    def opened(self, reader: Reader, position: int) -> None:
        if reader.has_checkpoint:
            assert position == reader.received, f"a session begins at {position}"
        else:
            confirmed = self._confirmed.get(reader.consumer, 0)
            assert position >= confirmed, f"{reader.consumer} gets {position} once more"

    def received(self, reader: Reader, after: int, transactions: Sequence[int]) -> None:
        assert after == reader.received
        expected = range(after + 1, after + 1 + len(transactions))
        assert list(transactions) == list(expected), f"{transactions} after {after}"
        assert all(number <= self._world.written for number in transactions)

    def finished(self) -> bool:
        """True if one daemon leads, and all readers have stored and acknowledged everything."""
        world = self._world
        leaders = [process for process in world.processes.values() if process.serves]
        stored = world.database.contents.acknowledged
        return len(leaders) == 1 and all(
            reader.received == world.written == stored.get(reader.consumer, 0)
            for reader in world.readers
        )


def bound_s(lease_s: float) -> float:
    """Returns how long a lease may be free while a daemon can reach the database. The time is the sum of three delays:
    the time-out of a lost request, the pause of a daemon that could not lead, and the time in which a stopped daemon's
    transaction holds the lock."""
    return 3 * lease_s + calm_s(lease_s)


def calm_s(lease_s: float) -> float:
    """Returns how long the effects of a fault may last: a session holds the lock, and a request waits for the lock."""
    return lease_s + IDLE_S + LOCK_WAIT_S
