"""Assertions after every step of a play. They look at the state of the world, not at what the client takes it to be.

An AssertionError names the rule that was broken. The virtual clock measures how long a consumer with a full queue held
up others, how long a connection was not read, and when a consumer was detached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.effects import Close, Effect, Note
from dispatcher.dispatch.events import (
    Acknowledged,
    Added,
    BatchReceived,
    Input,
    LoggedIn,
    Removed,
    SeekRequested,
    ServerPolled,
    Tick,
)
from dispatcher.dispatch.executed_position import ExecutedPosition, Mode, make_executed, parse_gtids
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import (
    AtFile,
    AtGtid,
    AtTime,
    Earliest,
    OnPurged,
    OnQueueFull,
)
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, file_number, packed_seq
from tests.simulation.memory import LATE_S, REFILL, MemoryRules
from tests.simulation.truth import distance, lost_to_purge, needed_file
from tests.support.event_encoder import Transaction

if TYPE_CHECKING:
    from tests.simulation.world import PlayedWorld

PAUSE_MAX_S = 5.0
WINDOW_S = 600.0
MERGE_AFTER_S = (0.0, 5.0, 20.0, 60.0)
LATEST_S = 0.3  # how late ticks may come in all
DETACHES_MAX = 3
FILE_END_MAX = 64  # bytes of a ROTATE
_SERVING = (Phase.STREAMING, Phase.PAUSED, Phase.BACKPRESSURE_CLOSED)
_QUIET = (SeekRequested, Added, Removed, Acknowledged)


@dataclass
class Observed:
    """A consumer as it was after the last step, and what was measured since it was declared."""

    since: float
    place: ExecutedPosition | None = None
    started: bool = False
    failed: BinlogError | None = None
    error: BinlogError | None = None
    dispatcher: int | None = None
    attached: int = 0
    full: bool = False
    closed: bool = False  # True if its dispatcher was closed by backpressure
    detaches: int = 0
    gaps: int = 0
    holds_up: bool = False  # True if others wait for it alone
    is_waited_for: bool = False
    held_up_s: float = 0.0
    most_s: float = 0.0  # its largest wait budget
    left_s: float = 0.0
    waits_s: float = 0.0  # for how long others have waited for it now
    detached_at: list[float] = field(default_factory=list)
    barred_until: float = 0.0
    wants_room: bool = False  # True if it was detached, and has not attached again
    attached_at: float = -1.0  # when it was attached last
    unproven: bool = (
        False  # True if only its reader says that its position is in the server's history
    )


class Rules:
    """See the module. `jumped`: consumers that skipped a purge gap."""

    def __init__(self, world: PlayedWorld) -> None:
        self._world = world
        self.jumped: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """Forget everything, before the daemon starts."""
        self._seen: dict[str, Observed] = {}
        self._at = 0.0
        self._memory = MemoryRules(self._world)
        self._begun: dict[int, float] = {}  # when each dispatcher's dump began
        self._executed = GtidSet()  # the executed set that a server named last
        # Dispatchers whose server lacks transactions, and since when.
        self._behind: dict[int, tuple[Dispatcher, float]] = {}
        self._contained: dict[str, tuple[ExecutedPosition, ExecutedPosition]] = {}

    def booted(self) -> None:
        self._began = self._at = self._world.now
        dispatchers = self._world.client.dispatchers
        assert len(dispatchers) == 1, "consumers without a position log in together"
        self._look()

    # -- seeks -----------------------------------------------------------------------------------------------

    def seeks(self, name: str, after: Position) -> Callable[[], None]:
        """Call before a seek is stepped. Asserts that it is needed: between the stored and the queued position a reader
        goes on without one. Returns a function that undoes the call if the seek is refused.
        """
        world = self._world
        consumer, stored = (
            world.client.consumers[name],
            world.to_store.get(name) or world.store[name],
        )
        queued = consumer.queue.queued
        assert (
            not consumer.started
            or after.epoch != stored.acknowledged.epoch
            or not stored.acknowledged.seq <= after.seq <= queued.seq
        ), f"{name} seeks to a position that its queue has"
        seen = self._seen[name]
        before = seen.wants_room, seen.unproven, seen.place

        def undo() -> None:
            seen.wants_room, seen.unproven, seen.place = before

        seen.wants_room = False
        if world.scenario.mode is Mode.GTID:
            seen.unproven = not self._executed.contains(GtidSet.parse(after.gtid))
        return undo

    def sought(self, name: str, after: Position) -> None:
        """Call after a seek. The server must have the position."""
        server, place = self._world.server, self._as_place(after)
        assert not lost_to_purge(server, place), f"{name} is moved to {after}, which was purged"
        assert self._is_written(after), f"{name} is moved to {after}, which was never written"
        consumer = self._world.client.consumers[name]
        assert consumer.started and consumer.failed is None, f"{name} does not go on after a seek"

    def refused(self, name: str, after: Position, error: BinlogError, before: object) -> None:
        """Call after a refused seek. The error must be true, and nothing may have changed."""
        assert self.standing() == before, f"a refused seek of {name} has changed something"
        world = self._world
        consumer = world.client.consumers[name]
        lost, written = lost_to_purge(world.server, self._as_place(after)), self._is_written(after)
        match error.kind:
            case ErrorKind.POSITION_PURGED:
                assert lost, f"{name} may not go to {after}, which was not purged: {error}"
            case ErrorKind.HISTORY_DIFFERS:
                doubted = consumer.failed is not None or not written
                assert doubted, f"{name} may not go to {after}, which was written: {error}"
            case ErrorKind.RANGE_UNAVAILABLE:
                other = consumer.queue.server != world.server.name
                assert other and not written, f"{name} waits to go to {after}: {error}"
            case _:
                # An empty set is in every history.
                doubted = consumer.failed is not None or not after.seq
                assert doubted, f"{name} may not go to {after}: {error}"

    def standing(self) -> object:
        """The state of all consumers that a refused seek must not change."""
        world = self._world
        consumers = world.client.consumers.items()
        return (
            dict(world.store),
            dict(world.to_store),
            {
                name: (
                    c.started,
                    c.failed,
                    c.dispatcher,
                    c.queue.epoch,
                    c.queue.queued,
                    c.queue.acknowledged,
                )
                for name, c in consumers
            },
            {number: id(link) for number, link in world.links.items()},
        )

    def _as_place(self, position: Position) -> ExecutedPosition:
        mode = self._world.scenario.mode
        gtids = parse_gtids(mode, position.gtid)
        return ExecutedPosition(gtids, position.file, position.offset, position.seq)

    def _is_written(self, position: Position) -> bool:
        """True if the server's log reaches up to a position."""
        server = self._world.server
        if server.mode is Mode.GTID:
            executed = self._world.history.parse(server.stop.executed)
            return executed.contains(self._world.history.parse(position.gtid))
        newest = server.log.files[server.extent[0] - 1]
        return position.seq <= packed_seq(newest.name, server.stop.offset)

    # -- after each step -------------------------------------------------------------------------------------

    def stepped(self, event: Input, effects: Sequence[Effect]) -> None:
        world, now = self._world, self._world.now
        self._measure(now - self._at)
        self._at = now
        if isinstance(event, Tick) and not effects:
            self._only_time_passed(now)
            return
        self._closed = [e.dispatcher for e in effects if isinstance(e, Close)]
        self._merged = [e.fields for e in effects if isinstance(e, Note) and e.event == "merged"]
        self._memory.saw(effects)
        self._view = event.view if isinstance(event, LoggedIn) else None
        self._asked = event.dispatcher if isinstance(event, LoggedIn) else 0
        self._begun[self._asked] = now
        if isinstance(event, LoggedIn | ServerPolled):
            self._server_answers(event.view)
        self._connections(event)
        for consumer in list(world.client.consumers.values()):
            seen = self._seen_of(consumer)
            self._gap(consumer, seen)  # first: a consumer that skips a gap goes on in the new log
            self._place(consumer, seen)
            self._failure(consumer, seen)
            self._of_one_history(consumer)
            self._detached(consumer, seen, now)
            self._attached(consumer, seen, now)
            self._held_up(consumer, seen, now)
        if isinstance(event, BatchReceived):
            self._world.check_bounds()
            self._memory.bounded()
        self._memory.not_full_for_long(now - self._began)
        self._merged_where_possible()
        if isinstance(event, LoggedIn):
            self._near_share()
            self._starts(event.view)
            self._waits_for_replica(event.dispatcher)
            begun = world.client.dispatchers.get(event.dispatcher)
            for consumer in begun.attached if begun and begun.open else ():
                if begun is not None and not self._seen[consumer.name].started:
                    self._is_near(begun, consumer)
        if isinstance(event, _QUIET):
            dispatchers = [world.client.dispatchers[number] for number in self._closed]
            assert all(d.phase is Phase.BACKPRESSURE_CLOSED for d in dispatchers), (
                f"{type(event).__name__} closes the connection of others"
            )
        self._look()

    def _server_answers(self, view: ServerView) -> None:
        """The client knows the files that it has read, even if the server was asked before it had written them."""
        if view.mode is Mode.GTID:
            self._executed = GtidSet.parse(view.executed)
        client = self._world.client
        for dispatcher in client.dispatchers.values():
            read, at = dispatcher.read, dispatcher.view
            if dispatcher.open and read is not None and at is not None:
                later = packed_seq(read.file, read.offset) > packed_seq(view.file, view.offset)
                same = at.server == view.server == client.files.server
                assert not (later and same) or client.files.contains(read), (
                    f"the client has forgotten {read}, which it has read"
                )

    def _seen_of(self, consumer: Consumer) -> Observed:
        seen = self._seen.get(consumer.name)
        if seen is None:
            most_s = consumer.spec.wait_max_s
            seen = Observed(self._world.now, most_s=most_s, left_s=most_s)
            self._seen[consumer.name] = seen
        return seen

    def _only_time_passed(self, now: float) -> None:
        for name, seen in self._seen.items():
            self._held_up(self._world.client.consumers[name], seen, now)
        for dispatcher in self._world.client.dispatchers.values():
            if dispatcher.phase is Phase.PAUSED:
                self._is_read_soon(dispatcher)
        self._memory.not_full_for_long(now - self._began)

    def _measure(self, passed: float) -> None:
        for seen in self._seen.values():
            seen.held_up_s += passed * seen.holds_up
            if seen.is_waited_for:
                seen.left_s -= passed
                seen.waits_s += passed
            else:
                seen.waits_s = 0.0
                seen.left_s = min(seen.most_s, seen.left_s + REFILL * passed)
        self._memory.passed(passed)

    def _look(self) -> None:
        client = self._world.client
        for name in [name for name in self._seen if name not in client.consumers]:
            del self._seen[name]
        for consumer in client.consumers.values():
            seen = self._seen_of(consumer)
            dispatcher = client.dispatchers.get(consumer.dispatcher or 0)
            attached = dispatcher.attached if dispatcher else []
            queue = consumer.queue
            if dispatcher is not None or seen.dispatcher is not None:
                seen.attached_at = self._world.now
            seen.place = queue.queued if consumer.started else None
            seen.started = consumer.started
            seen.failed, seen.error = consumer.failed, consumer.error
            seen.dispatcher, seen.attached, seen.full = (
                consumer.dispatcher,
                len(attached),
                queue.full,
            )
            seen.detaches, seen.gaps = consumer.detaches, consumer.gaps
            halts = dispatcher is not None and dispatcher.phase is Phase.PAUSED and queue.full
            seen.closed = dispatcher is not None and dispatcher.phase is Phase.BACKPRESSURE_CLOSED
            if seen.closed:
                halts = not queue.has_room
            others = [other for other in attached if other is not consumer]
            seen.holds_up = halts and any(_healthy(other, dispatcher) for other in others)
            blocks = queue.full or (seen.closed and not queue.has_room)
            serves = dispatcher is not None and dispatcher.phase in _SERVING
            seen.is_waited_for = serves and blocks and bool(others)
        self._memory.look()

    # -- connections -----------------------------------------------------------------------------------------

    def _connections(self, event: Input) -> None:
        world, client = self._world, self._world.client
        assert set(world.links) <= set(client.dispatchers), "a connection without a dispatcher"
        for number, dispatcher in client.dispatchers.items():
            link, phase = world.links.get(number), dispatcher.phase
            assert dispatcher.attached, f"dispatcher {number} has no consumers"
            if phase in (Phase.BACKPRESSURE_CLOSED, Phase.ENDED):
                assert link is None, f"{number} is {phase} and connected"
                continue
            assert link is not None, f"{number} is {phase} and not connected"
            assert (phase is Phase.CONNECTING) == (link.dump is None), f"{number} is {phase}"
            assert (phase is Phase.PAUSED) == link.paused, f"{number} is {phase}"
            if phase is Phase.PAUSED and isinstance(event, Tick):
                self._is_read_soon(dispatcher)
            if phase is Phase.STREAMING:
                full = [consumer.name for consumer in dispatcher.attached if _is_full(consumer)]
                assert not full, f"{number} reads on, though the queues of {full} are full"

    def _is_read_soon(self, dispatcher: Dispatcher) -> None:
        paused_s = self._world.now - dispatcher.paused_since
        assert paused_s < PAUSE_MAX_S, f"{dispatcher.number} was not read for {paused_s} s"

    def _place(self, consumer: Consumer, seen: Observed) -> None:
        """An attached consumer has all that its dispatcher has read."""
        if consumer.dispatcher is None:
            assert consumer.failed or consumer.name in self._world.client.consumers
            return
        dispatcher = self._world.client.dispatchers[consumer.dispatcher]
        assert consumer in dispatcher.attached and consumer.failed is None
        read, queued = dispatcher.read, consumer.queue.queued
        if not dispatcher.open or read is None:
            return
        world, link = self._world, self._world.links.get(dispatcher.number)
        lives = link is not None and link.server in world.servers
        of = world.readers[consumer.name].history
        assert not lives or of in (None, world.history), (
            f"{consumer.name} is attached to a dump of another history"
        )
        known = self._contained.get(consumer.name)
        if known is not None and known[0] is read and known[1] is queued:
            return
        self._contained[consumer.name] = read, queued
        if consumer.queue.mode is Mode.GTID:
            assert isinstance(queued.gtids, GtidSet) and isinstance(read.gtids, GtidSet)
            assert queued.gtids.contains(read.gtids), f"{consumer.name} lacks what was read"
        else:
            assert read.seq <= queued.seq, f"{consumer.name} lacks what was read"
        if seen.dispatcher != consumer.dispatcher:
            self._is_near(dispatcher, consumer)

    def _of_one_history(self, consumer: Consumer) -> None:
        """The positions of a consumer lie in the log that it has read, also after a RESET."""
        queue, history = consumer.queue, self._world.readers[consumer.name].history
        created = queue.files.created_of(queue.queued.file)
        if consumer.started and history is not None and created:
            assert created in history.created.get(queue.queued.file, ()), (
                f"{consumer.name} went on in another log, at {queue.queued}"
            )
            assert queue.queued.offset in history.offsets[queue.queued.file], (
                f"{consumer.name} stands inside a transaction of its log, at {queue.queued}"
            )

    def _is_near(self, dispatcher: Dispatcher, consumer: Consumer) -> None:
        world = self._world
        read, queued = dispatcher.read, consumer.queue.queued
        assert read is not None and dispatcher.view is not None
        if len(dispatcher.attached) == 1 or dispatcher.view.server != consumer.queue.server:
            return
        server = next((s for s in world.servers if s.name == consumer.queue.server), None)
        apart = None if server is None else distance(server, read, queued)
        if apart is None or world.history_changed:
            return
        most = world.client.limits.merge_bytes_max
        known = world.client.files.distance(dispatcher.mode, read, queued)
        if known is not None and dispatcher.mode is Mode.GTID:
            # A dump that leaves out executed transactions does not show how large a file is.
            apart = min(apart, known)
        elif known is not None:
            # The event that ends a file belongs to no transaction, so a dump shows a file's size without it.
            files = abs(file_number(queued.file) - file_number(read.file))
            apart = max(apart - files * FILE_END_MAX, min(apart, known))
        assert apart <= most, f"{consumer.name} is attached {apart} bytes ahead of {read}"

    def _merged_where_possible(self) -> None:
        """No two dispatchers remain if all their consumers may attach to one of them."""
        open_ = [d for d in self._world.client.dispatchers.values() if d.phase is Phase.STREAMING]
        for ahead in open_ if len(open_) > 1 else ():
            for behind in open_:
                if ahead is not behind:
                    assert not self._may_merge(ahead, behind), (
                        f"{ahead.number} may merge into {behind.number}"
                    )

    def _may_merge(self, ahead: Dispatcher, behind: Dispatcher) -> bool:
        world = self._world
        attached = (*ahead.attached, *behind.attached)
        if any(consumer.queue.full for consumer in attached):
            return False
        if any(self._seen[consumer.name].barred_until > world.now for consumer in attached):
            return False
        return all(self._may_attach(consumer, behind) for consumer in ahead.attached)

    def _may_attach(self, consumer: Consumer, dispatcher: Dispatcher) -> bool:
        read, view, queue = dispatcher.read, dispatcher.view, consumer.queue
        server = self._world.server
        if read is None or view is None or not view.server == queue.server == server.name:
            return False
        if self._world.history_changed:
            return False
        if dispatcher.open_transaction is not None and not _has(
            queue.queued, dispatcher.open_transaction
        ):
            return False
        if queue.mode is Mode.GTID:
            assert isinstance(queue.queued.gtids, GtidSet) and isinstance(read.gtids, GtidSet)
            if not queue.queued.gtids.contains(read.gtids):
                return False
        elif read.seq > queue.queued.seq:
            return False
        if self._world.client.files.distance(queue.mode, read, queue.queued) is None:
            return False  # the client knows the files of an older login only
        apart = distance(server, read, queue.queued)
        return apart is not None and apart <= self._world.client.limits.merge_bytes_max

    def _near_share(self) -> None:
        """Consumers that begin together and near are attached to one dump."""
        world, client = self._world, self._world.client
        consumers = list(client.consumers.values())
        if any(self._seen[c.name].started for c in consumers if c.name in self._seen):
            return
        if not all(c.started and c.failed is None and not c.queue.full for c in consumers):
            return
        server = next((s for s in world.servers if s.name == consumers[0].queue.server), None)
        if server is None or any(c.queue.server != server.name for c in consumers):
            return
        most = client.limits.merge_bytes_max
        for a in consumers:
            for b in consumers:
                apart = distance(server, a.queue.queued, b.queue.queued)
                if apart is None or apart > most:
                    return
        assert len(client.dispatchers) == 1, "near consumers begin on several dumps"

    def logs_in(self, number: int, view: ServerView) -> None:
        """Call before a login is stepped. The server was asked for the creation time of each consumer's file."""
        files = dict(view.files)
        for consumer in self._world.client.dispatchers[number].attached:
            at = consumer.position
            if at is not None and at.server == view.server and at.file in files:
                assert at.file in view.created, f"the login did not ask about {consumer.name}"

    def _waits_for_replica(self, number: int) -> None:
        """A dispatcher waits for a replica no longer than `failover_wait_s`."""
        world = self._world
        dispatcher = world.client.dispatchers.get(number)
        if dispatcher is None or dispatcher.phase is not Phase.CONNECTING:
            self._behind.pop(number, None)
            return
        waiting, since = self._behind.get(number, (None, world.now))
        if waiting is not dispatcher:  # a new dispatcher of that number waits anew
            since = world.now
        self._behind[number] = dispatcher, since
        most = world.client.limits.failover_wait_s
        assert world.now - since < most, f"{number} has waited for a replica since {since}"

    def _starts(self, view: ServerView) -> None:
        """A consumer without a position begins at its start."""
        for name, consumer in self._world.client.consumers.items():
            placed = consumer.started and not self._seen[name].started
            if not placed or consumer.progress is not None or consumer.gaps:
                continue
            start, place = consumer.spec.start, consumer.queue.queued
            wanted: ExecutedPosition | BinlogError = make_executed(
                view.mode, view.executed, view.file, view.offset
            )
            if isinstance(start, Earliest):
                purged = view.purged if view.mode is Mode.GTID else ""
                wanted = make_executed(view.mode, purged, view.files[0][0], 4)
            elif isinstance(start, AtTime | AtFile):
                wanted = view.starts[start]
            elif isinstance(start, AtGtid):
                wanted = make_executed(view.mode, start.gtids, "", 0)
            assert place == wanted, f"{name} begins at {place}, which is not {start}"

    # -- consumers -------------------------------------------------------------------------------------------

    def _failure(self, consumer: Consumer, seen: Observed) -> None:
        error = consumer.failed
        if error is not None and error is seen.failed:
            kept = consumer.queue.queued
            assert seen.place in (None, kept), (
                f"the queue of {consumer.name} changed after it had failed"
            )
        if error is None or error is seen.failed:
            return
        assert self._may_fail(consumer, seen, error), f"{consumer.name} fails: {error}"

    def _may_fail(self, consumer: Consumer, seen: Observed, error: BinlogError) -> bool:
        world = self._world
        reader = world.readers[consumer.name]
        if reader.history is not None and reader.history is not world.history:
            return error.kind in (ErrorKind.HISTORY_DIFFERS, ErrorKind.POSITION_PURGED)
        if self._named_in_another_life(consumer, seen):
            return error.kind in (
                ErrorKind.HISTORY_DIFFERS,
                ErrorKind.POSITION_PURGED,
                ErrorKind.SETTINGS,
            )
        if world.dumps_refused >= 3 and error.kind is ErrorKind.POSITION_PURGED:
            return True
        place = self._place_of(consumer, seen)
        if error.kind is ErrorKind.POSITION_PURGED:
            fails = consumer.spec.on_purged is OnPurged.FAIL or place is None
            return fails and any(lost_to_purge(server, place) for server in world.servers)
        if error.kind is ErrorKind.HISTORY_DIFFERS and place is not None:
            earlier = [self._view.executed] if self._view else []  # the answer may be a while old
            executed = [server.stop.executed for server in world.servers] + earlier
            return any(_lacks(each, place) for each in executed) and self._waited_for_replica(
                consumer, seen
            )
        return False

    def _named_in_another_life(self, consumer: Consumer, seen: Observed) -> bool:
        """True if a start that was declared before a RESET is used after it."""
        unplaced = seen.place is None and consumer.progress is None
        return unplaced and not self._world.first_life

    def _waited_for_replica(self, consumer: Consumer, seen: Observed) -> bool:
        """True if a replica was given time to catch up with a consumer that had read another server."""
        world = self._world
        before = consumer.queue.server
        if seen.place is None:
            before = consumer.progress.covered.server if consumer.progress else ""
        since = max(world.failed_over_at, self._began)  # inf without a failover
        other_server = before not in ("", world.server.name)
        return not other_server or world.now - since >= world.client.limits.failover_wait_s

    def _place_of(self, consumer: Consumer, seen: Observed) -> ExecutedPosition | None:
        """The position of a consumer before the step."""
        mode = self._world.scenario.mode
        if seen.place is not None:
            return seen.place
        if consumer.progress is not None:
            at = consumer.progress.covered
            return ExecutedPosition(parse_gtids(mode, at.gtid), at.file, at.offset, at.seq)
        start = consumer.spec.start
        match start:
            case AtGtid(gtids):
                return make_executed(mode, gtids, "", 0)
            case AtTime():
                return make_executed(mode, "", self._world.server.log.files[0].name, 4)
            case AtFile(file, offset):
                return make_executed(mode, "", file, offset)
        return None

    def _gap(self, consumer: Consumer, seen: Observed) -> None:
        if consumer.gaps == seen.gaps:
            return
        assert consumer.spec.on_purged is OnPurged.LATEST, f"{consumer.name} skips a gap"
        place = self._place_of(consumer, seen)
        servers = self._world.servers
        changed = self._world.readers[consumer.name].history is not self._world.history
        changed = changed or self._named_in_another_life(consumer, seen)
        assert changed or any(lost_to_purge(server, place) for server in servers), (
            f"{consumer.name} skips transactions that were not purged"
        )
        self.jumped.add(consumer.name)
        self._world.readers[consumer.name].history = self._world.history

    def _detached(self, consumer: Consumer, seen: Observed, now: float) -> None:
        if consumer.detaches == seen.detaches:
            return
        name, spec = consumer.name, consumer.spec
        evicts = bool(self._world.client.limits.queues_bytes_max)
        assert spec.on_queue_full is OnQueueFull.DETACH, (
            f"{name} is detached despite on_queue_full: wait"
        )
        recent = [at for at in seen.detached_at if now - at < WINDOW_S]
        if (
            spec.wait_max_s and len(recent) < DETACHES_MAX and not evicts
        ):  # otherwise it may be detached in the step that filled its queue
            closed = seen.closed or seen.dispatcher in self._closed
            assert seen.full or consumer.queue.full or (closed and not consumer.queue.has_room), (
                f"{name} is detached with room in its queue"
            )
        assert evicts or seen.attached > 1, f"{name} is detached though it is the only consumer"
        assert consumer.failed is None, f"{name} fails for being slow"
        assert evicts or consumer.error in (None, seen.error), f"{name} sees an error"
        if not evicts and len(recent) < DETACHES_MAX:
            assert seen.left_s <= LATE_S, f"{name} is detached with {seen.left_s} s left"
        seen.left_s = max(seen.left_s, 0.0)
        times = (*seen.detached_at, *([now] * (consumer.detaches - seen.detaches)))
        seen.detached_at = [at for at in times if now - at < WINDOW_S]
        count = min(len(seen.detached_at), len(MERGE_AFTER_S))
        seen.barred_until = now + MERGE_AFTER_S[count - 1]
        seen.wants_room = not evicts

    def _attached(self, consumer: Consumer, seen: Observed, now: float) -> None:
        if consumer.dispatcher is None:
            return
        name, queue = consumer.name, consumer.queue
        dispatcher = self._world.client.dispatchers[consumer.dispatcher]
        if dispatcher.open and seen.dispatcher is None:
            # If dispatchers merged in the same step, the one that it attached to first counts: a login has compared
            # what both of them read.
            first = self._attached_first(name) or dispatcher.number
            assert seen.attached_at >= self._begun[first], (
                f"{name} attaches to a dump that began after it was detached, without a login"
            )
        if dispatcher.open and seen.unproven:
            assert seen.dispatcher == self._asked, (
                f"{name} goes on at a position that no login has checked"
            )
            seen.unproven = False
        if seen.wants_room and consumer.dispatcher != seen.dispatcher:
            assert queue.held_bytes <= queue.bytes_max // 2, (
                f"{name} attaches with a queue more than half full"
            )
            seen.wants_room = False
        if now < seen.barred_until:
            assert len(dispatcher.attached) == 1, f"{name} merges before {seen.barred_until}"

    def _attached_first(self, name: str) -> int | None:
        """The dispatcher that was merged into another in this step, after the consumer had attached to it."""
        for merge in self._merged:
            names, ahead = merge["consumers"], merge["from"]
            assert isinstance(names, list) and isinstance(ahead, int)
            if name in names:
                return ahead
        return None

    def _held_up(self, consumer: Consumer, seen: Observed, now: float) -> None:
        spec = consumer.spec
        if spec.on_queue_full is OnQueueFull.WAIT or self._world.client.limits.queues_bytes_max:
            return
        assert not seen.is_waited_for or seen.left_s >= -LATEST_S, (
            f"others wait {-seen.left_s} s too long for {spec.name}"
        )
        recent = [at for at in seen.detached_at if now - seen.waits_s - at < WINDOW_S]
        detached = consumer.detaches != seen.detaches
        waits_s = seen.waits_s if seen.is_waited_for and not detached else 0.0
        assert len(recent) < DETACHES_MAX or waits_s <= LATEST_S, (
            f"others wait for {spec.name} after {len(recent)} detaches"
        )
        most = spec.wait_max_s + REFILL * (now - seen.since) + 0.2 + LATE_S * consumer.detaches
        assert seen.held_up_s <= most, f"{spec.name} held others up for {seen.held_up_s} s"

    # -- for the world ----------------------------------------------------------------------------------------

    def files_needed(self) -> list[int]:
        """The indices of the oldest files of the server that the consumers still need."""
        world = self._world
        stored = [world.store[name] for name in world.readers if name in world.store]
        return [needed_file(world.server, progress.acknowledged) for progress in stored]

    @staticmethod
    def seq_of(transaction: Transaction) -> int:
        return packed_seq(transaction.file, transaction.end)


def _is_full(consumer: Consumer) -> bool:
    queue = consumer.queue
    return queue.transactions > 0 and queue.held_bytes >= queue.bytes_max


def _healthy(consumer: Consumer, dispatcher: Dispatcher | None) -> bool:
    """True if the consumer could receive more."""
    if dispatcher is not None and dispatcher.phase is Phase.BACKPRESSURE_CLOSED:
        return consumer.queue.has_room
    return not consumer.queue.full


def _has(queued: ExecutedPosition, inside: tuple[str, int] | int) -> bool:
    if isinstance(inside, int):
        return queued.seq > inside
    assert isinstance(queued.gtids, GtidSet)
    return queued.gtids.has(*inside)


def _lacks(executed: str, place: ExecutedPosition) -> bool:
    if not isinstance(place.gtids, GtidSet):
        return False
    return not GtidSet.parse(executed).contains(place.gtids)
