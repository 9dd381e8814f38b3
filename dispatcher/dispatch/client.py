"""Everything that shares one connection key: its consumers, and the dispatchers that they ride on.

`step(input, now) -> effects` is synchronous and decides everything; `net.runner` executes. Each step has two halves:
what the input itself does, and `_settle`, which brings consumers and dispatchers into the order that the rules want,
whatever has happened:

* a dispatcher without riders is retired;
* one with a full queue pauses, waits as long as that consumer's budget allows, and goes on without it (`patience`);
* a consumer that waits boards a dispatcher near its place (`riding`), or a new one;
* two dispatchers whose consumers may all ride on the one behind become one.

So any number of consumers at any places end on one connection. A pause longer than `PAUSE_MAX_S` closes the
connection, because the server would cut an undrained dump after `net_write_timeout` and keeps its log from being purged
meanwhile; it is opened again when there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dispatcher.binlog.arrays import U8
from dispatcher.binlog.routes import Routes
from dispatcher.dispatch import checks, runway
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.dispatcher import Dispatcher, Phase, where
from dispatcher.dispatch.history import Mode, Place
from dispatcher.dispatch.inputs import (
    Acknowledged,
    Added,
    Arrived,
    ClientLimits,
    Close,
    ConsumerSpec,
    Effect,
    Ended,
    Input,
    LoggedIn,
    LookedUp,
    Lost,
    Note,
    OfDispatcher,
    OnPurged,
    OnQueueFull,
    Progress,
    Removed,
    Resume,
    Retire,
    ServerView,
    Sought,
    Start,
    StoreVersions,
    Surveyed,
    Tick,
    Wake,
)
from dispatcher.dispatch.riding import Files, contained, front, has_transaction, near
from dispatcher.dispatch.versions import Kept, Mark, Versions
from dispatcher.model.errors import BinlogError, Kind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position

PAUSE_MAX_S = 5.0
STORE_COVERED_EVERY_S = 1.0
# How soon a server that lacks what a consumer has is asked whether it has it now.
BEHIND_RETRY_S = 1.0
# What was taken of all queues' memory is not given back to who had most of it at once.
EVICTED_WAIT_S = 5.0


class Client:
    """See the module. `label`: `user@host:port`; `versions`: what is stored of the tables; `lend`: segments for
    transactions that are larger than their queue."""

    def __init__(
        self,
        label: str,
        specs: Iterable[ConsumerSpec],
        progress: Mapping[str, Progress],
        versions: Kept | None = None,
        limits: ClientLimits | None = None,
        lend: Callable[[int], U8] | None = None,
    ) -> None:
        self.label = label
        self.limits = limits or ClientLimits()
        self.routes = Routes()
        self.files = Files()
        self.dispatchers: dict[int, Dispatcher] = {}
        self.consumers: dict[str, Consumer] = {}
        self.merges = 0
        self.survey: Surveyed | None = None
        self._lend = lend
        self._kept = versions
        self._keeper: Dispatcher | None = None  # whose versions are stored
        self._stored_mark: Mark | None = None
        self._tip: GtidSet | None = None  # what the server has executed for sure
        self._stored_at = self._now = 0.0
        for spec in specs:
            self.consumers[spec.name] = self._consumer(spec, progress.get(spec.name))

    def _consumer(self, spec: ConsumerSpec, progress: Progress | None) -> Consumer:
        return Consumer(spec, progress)

    # -- the step --------------------------------------------------------------------------------------------

    def start(self, now: float = 0.0) -> list[Effect]:
        return self._settle(now)

    def step(self, what: Input, now: float) -> list[Effect]:
        """Raises BinlogError only for an input that a reader made (Acknowledged, Sought) and that is refused."""
        self._now = now
        effects = self._take(what, now)
        return effects + self._settle(now)

    def _take(self, what: Input, now: float) -> list[Effect]:
        match what:
            case Acknowledged():
                consumer = self.consumers[what.consumer]
                consumer.queue.acknowledge(what.position)
                consumer.stored_covered = what.covered
                return []
            case Tick():
                return self._store_progress(now)
            case Sought():
                return self._sought(what.consumer, what.after, now)
            case Surveyed():
                return self._surveyed(what)
            case Added():
                self.consumers[what.spec.name] = self._consumer(what.spec, what.progress)
                return []
            case Removed():
                return self._removed(what.consumer, now)
            case _:
                return self._of_dispatcher(what, now)

    def _of_dispatcher(self, what: OfDispatcher, now: float) -> list[Effect]:
        match what:
            case Arrived():
                self.files.grew(what.batch.file, what.batch.offset)
                return self.dispatchers[what.dispatcher].arrived(what.batch, what.created, now)
            case LoggedIn():
                return self._logged_in(self.dispatchers[what.dispatcher], what.view, now)
            case Lost():
                return self.dispatchers[what.dispatcher].lost(what.error, now)
            case Ended():
                return self.dispatchers[what.dispatcher].ended(now)
            case LookedUp():
                dispatcher = self.dispatchers.get(what.order.dispatcher)
                if dispatcher is None:
                    return []
                return [*dispatcher.looked_up(what, now), *self._store_versions()]

    def next_wakeup(self) -> float | None:
        """When the next Tick is due by the clock that `step` is given, if anything waits for time to pass."""
        times = [
            dispatcher.paused_since + PAUSE_MAX_S
            for dispatcher in self.dispatchers.values()
            if dispatcher.phase is Phase.PAUSED
        ]
        several = len(self.dispatchers) > 1
        for consumer in self.consumers.values():
            if (deadline := consumer.patience.deadline) is not None:
                times.append(deadline)
            if consumer.waiting:
                times.append(consumer.attach_after)
            if several:
                times.append(consumer.patience.merge_after)
        times = [
            time for time in times if time > self._now
        ]  # whose time has come waits for something else
        if any(consumer.covered_moved for consumer in self.consumers.values()):
            times.append(self._stored_at + STORE_COVERED_EVERY_S)
        return min(times, default=None)

    # -- what is asked of the server ---------------------------------------------------------------------------

    def files_to_probe(self, dispatcher: int) -> list[str]:
        """Files whose creation time the history check needs when a dispatcher logs in."""
        found = self.dispatchers.get(dispatcher)
        return sorted({name for c in (found.riders if found else ()) if (name := _file_of(c))})

    def files_to_survey(self) -> list[str]:
        """Files whose creation time the runway needs: that of the one behind each that some consumer still needs."""
        return runway.files_to_survey(self.survey, [_file_of(c) for c in self.consumers.values()])

    def moments_to_find(self, dispatcher: int) -> list[int]:
        """Moments at which consumers begin, us since 1970: the server's log has to be searched for them."""
        return [s.timestamp_us for s in self._starts(dispatcher) if s.at == "timestamp"]

    def offsets_to_find(self, dispatcher: int) -> list[tuple[str, int]]:
        """Likewise files and offsets."""
        return [(s.file, s.offset) for s in self._starts(dispatcher) if s.at == "file"]

    def _starts(self, dispatcher: int) -> list[Start]:
        found = self.dispatchers.get(dispatcher)
        riders = found.riders if found else ()
        return [c.spec.start for c in riders if not c.started and c.progress is None]

    def runway_s(self, name: str, now_s: float) -> float | None:
        """How long until the server purges what a consumer still needs, s; None: never, or not known."""
        consumer = self.consumers[name]
        if not consumer.started or self.survey is None:
            return None
        server = consumer.queue.server
        return runway.seconds(self.survey, server, consumer.queue.covered.file, now_s)

    # -- connecting ------------------------------------------------------------------------------------------

    def _logged_in(self, dispatcher: Dispatcher, view: ServerView, now: float) -> list[Effect]:
        effects = self._elsewhere(dispatcher, view, now)
        if error := self._behind(dispatcher, view, now):
            effects.append(Close(dispatcher.number, "the server is behind", elsewhere=True))
            return effects + dispatcher.reconnect(error, now, BEHIND_RETRY_S)
        dispatcher.view = view
        self.files.saw(view)
        if view.mode is Mode.GTID:
            self._tip = GtidSet.parse(view.executed)
        first = not all(consumer.started for consumer in dispatcher.riders)
        for consumer in list(dispatcher.riders):
            try:
                self._place(consumer, view, effects)
            except BinlogError as error:
                told = error.at(f"consumer {consumer.name}, {self.label}")
                effects += dispatcher.fail(consumer, told, now)
        if first:
            self._part(dispatcher, now)
        if dispatcher.riders:
            effects += dispatcher.dump(view)
        return effects

    def _elsewhere(self, dispatcher: Dispatcher, view: ServerView, now: float) -> list[Effect]:
        """A client reads one server at a time: where this one is another, all others go there too."""
        effects: list[Effect] = []
        for other in self.dispatchers.values():
            elsewhere = other.view is not None and other.view.server != view.server
            if other is not dispatcher and other.open and elsewhere:
                effects += other.close("the client reads another server now", now)
                effects += other.connect()
        return effects

    def _behind(self, dispatcher: Dispatcher, view: ServerView, now: float) -> BinlogError | None:
        """Another server than the one that was read, which lacks some of that and may get it yet?"""
        if view.mode is not Mode.GTID:
            return None
        executed = GtidSet.parse(view.executed)
        for consumer in dispatcher.riders:
            position = _position_of(consumer)
            if position is None or position.server == view.server or not position.gtid:
                continue
            lacking = GtidSet.parse(position.gtid).subtract(executed)
            if not lacking:
                continue
            if dispatcher.behind_since is None:
                dispatcher.behind_since = now
            if now - dispatcher.behind_since >= self.limits.failover_wait_s:
                return None
            return BinlogError(
                Kind.CONNECTION_LOST,
                f"server {view.server} has not executed {checks.short(lacking)} yet",
                where=self.label,
                remedy=f"nothing to do; it is asked again for {self.limits.failover_wait_s:g} s"
                " (failover_wait_seconds)",
            )
        return None

    def _place(self, consumer: Consumer, view: ServerView, effects: list[Effect]) -> None:
        try:
            self._place_in_history(consumer, view, effects)
        except BinlogError as error:
            jumps = consumer.spec.on_purged is OnPurged.LATEST
            if error.kind is not Kind.POSITION_PURGED or not jumps:
                raise
            self._jump(consumer, view, error, effects)
        consumer.started = consumer.proven = True

    def _place_in_history(
        self, consumer: Consumer, view: ServerView, effects: list[Effect]
    ) -> None:
        queue = consumer.queue
        if consumer.started:
            file = queue.queued.file
            checks.history(view, queue.mode, queue.server, queue.queued, queue.created_of(file))
            queue.saw_created(file, view.created.get(file, 0))
            queue.server = view.server
            return
        if consumer.progress is None:
            place = checks.resolve(view, consumer.spec.start)
            queue.reset(view.server, view.mode, 0, place, view.created.get(place.file, 0))
            effects.append(consumer.store())
            return
        stored = consumer.progress
        place = checks.stored_place(view.mode, stored.covered)
        checks.history(view, view.mode, stored.covered.server, place, stored.created)
        queue.reset(view.server, view.mode, stored.covered.epoch, place, stored.created)
        queue.saw_created(place.file, view.created.get(place.file, 0))
        queue.acknowledged = checks.stored_place(view.mode, stored.acknowledged)

    def _jump(
        self, consumer: Consumer, view: ServerView, error: BinlogError, effects: list[Effect]
    ) -> None:
        """Go on at the end of the log, in a new epoch: what lies between is lost to the consumer."""
        queue = consumer.queue
        epoch = queue.epoch
        if not consumer.started and consumer.progress is not None:
            epoch = consumer.progress.covered.epoch
        place = checks.end_of(view)
        queue.reset(view.server, view.mode, epoch + 1, place, view.created.get(place.file, 0))
        consumer.gaps += 1
        effects += [
            consumer.store(),
            Note(
                "warning",
                "went on behind a gap",
                {"consumer": consumer.name, "why": str(error), "to": where(place)},
            ),
        ]

    def _part(self, dispatcher: Dispatcher, now: float) -> None:
        """Who is far from the one furthest ahead goes, and gets a dispatcher of its own when it settles."""
        placed = [(consumer, consumer.queue.queued) for consumer in dispatcher.riders]
        stays = front(self.files, dispatcher.mode, placed, self.limits.merge_bytes_max)
        for consumer in [c for c, _ in placed if c not in stays]:
            dispatcher.leave(consumer, now)

    # -- order -----------------------------------------------------------------------------------------------

    def _settle(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for dispatcher in list(self.dispatchers.values()):
            effects += self._room(dispatcher, now)
        if self.limits.queues_bytes_max:
            effects += self._evict(now)
        for consumer in self.consumers.values():
            if consumer.waiting and self._may_attach(consumer, now):
                effects += self._attach(consumer, now)
        effects += self._retire_empty()
        if len(self.dispatchers) > 1:
            effects += self._fold(now)
        return effects

    def _retire_empty(self) -> list[Effect]:
        effects: list[Effect] = []
        for dispatcher in [d for d in self.dispatchers.values() if not d.riders]:
            effects += self._retire(dispatcher, "no consumer needs it")
        return effects

    def _retire(self, dispatcher: Dispatcher, reason: str) -> list[Effect]:
        if self.main is dispatcher:
            self._kept = dispatcher.enrichment.versions.known()
        del self.dispatchers[dispatcher.number]
        return [Retire(dispatcher.number, reason)]

    @property
    def main(self) -> Dispatcher | None:
        """The dispatcher that is furthest ahead."""
        return max(
            self.dispatchers.values(),
            key=lambda d: (d.read.seq if d.read else -1, -d.number),
            default=None,
        )

    # -- boarding --------------------------------------------------------------------------------------------

    def _may_attach(self, consumer: Consumer, now: float) -> bool:
        if now < consumer.attach_after:
            return False
        return not consumer.started or self._has_room(consumer)

    def _has_room(self, consumer: Consumer) -> bool:
        """Enough that connecting for it is worth it?"""
        limit = self.limits.queues_bytes_max
        if limit and self._held_bytes() > limit - limit // 4:
            return False
        return consumer.queue.roomy

    def _held_bytes(self) -> int:
        return sum(consumer.queue.held_bytes for consumer in self.consumers.values())

    def _attach(self, consumer: Consumer, now: float) -> list[Effect]:
        consumer.attach_after = 0.0
        for dispatcher in self._nearest_first(consumer):
            if self._may_board(consumer, dispatcher, now):
                dispatcher.board(consumer)
                return [Wake(consumer.name)]
        number = next(n for n in range(1, len(self.dispatchers) + 2) if n not in self.dispatchers)
        main = self.main
        kept = main.enrichment.versions.known() if main and main.read else self._kept
        dispatcher = Dispatcher(number, self.label, self.routes, Versions.of(kept))
        self.dispatchers[number] = dispatcher
        dispatcher.board(consumer)
        return [*dispatcher.connect(), Wake(consumer.name)]

    def _nearest_first(self, consumer: Consumer) -> list[Dispatcher]:
        def apart(dispatcher: Dispatcher) -> tuple[float, int]:
            if dispatcher.read is None or not consumer.started:
                return float("inf"), dispatcher.number
            queue = consumer.queue
            distance = self.files.between(queue.mode, dispatcher.read, queue.queued)
            return float("inf") if distance is None else distance, dispatcher.number

        return sorted(self.dispatchers.values(), key=apart)

    def _may_board(self, consumer: Consumer, dispatcher: Dispatcher, now: float) -> bool:
        if dispatcher.phase is Phase.CONNECTING:
            return self._may_begin_with(consumer, dispatcher, now)
        if not dispatcher.open or not consumer.started or not consumer.proven:
            return False
        return (
            self._at_ease([consumer, *dispatcher.riders], now)
            and dispatcher.phase is Phase.STREAMING
            and self._may_ride(consumer, dispatcher)
        )

    def _may_begin_with(self, consumer: Consumer, dispatcher: Dispatcher, now: float) -> bool:
        """Ride on a dispatcher whose dump is not asked for yet, and will begin with what all its riders have?"""
        riders = dispatcher.riders
        if not riders:
            return False
        if not consumer.started:
            return not any(rider.started for rider in riders)
        if not self._at_ease([consumer, *riders], now):
            return False
        queue, bytes_max = consumer.queue, self.limits.merge_bytes_max
        return all(
            rider.started
            and rider.queue.mode is queue.mode
            and near(self.files, queue.mode, rider.queue.queued, queue.queued, bytes_max)
            for rider in riders
        )

    def _may_ride(self, consumer: Consumer, dispatcher: Dispatcher) -> bool:
        """Rule of rules; see `riding`."""
        queue, read, view = consumer.queue, dispatcher.read, dispatcher.view
        if read is None or view is None or view.mode is not queue.mode:
            return False
        if view.server != queue.server:
            return False
        if not contained(queue.mode, read, queue.queued):
            return False
        if not has_transaction(queue.queued, dispatcher.inside):
            return False
        distance = self.files.between(queue.mode, read, queue.queued)
        return distance is not None and distance <= self.limits.merge_bytes_max

    @staticmethod
    def _at_ease(consumers: Iterable[Consumer], now: float) -> bool:
        """Does none of them bring the others to a halt at once, or as it lately did again and again?"""
        return all(now >= c.patience.merge_after and not c.queue.full for c in consumers)

    def _fold(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for ahead in sorted(self.dispatchers.values(), key=lambda d: -d.number):
            for behind in list(self.dispatchers.values()):
                if ahead is not behind and self._may_fold(ahead, behind, now):
                    effects += self._fold_into(ahead, behind, now)
                    break
        return effects

    def _may_fold(self, ahead: Dispatcher, behind: Dispatcher, now: float) -> bool:
        if not self._alike(ahead, behind):
            return False
        riders = ahead.riders
        return all(self._may_ride(rider, behind) for rider in riders) and self._at_ease(
            (*riders, *behind.riders), now
        )

    @staticmethod
    def _alike(ahead: Dispatcher, behind: Dispatcher) -> bool:
        """Do both of them read, and wait for nothing? Those that have come to the end are one where they are."""
        if ahead.phase is behind.phase is Phase.ENDED:
            assert ahead.read is not None and behind.read is not None
            return ahead.read.seq == behind.read.seq
        reading = ahead.phase is behind.phase is Phase.STREAMING
        return reading and not ahead.holds and not behind.holds

    def _fold_into(self, ahead: Dispatcher, behind: Dispatcher, now: float) -> list[Effect]:
        names = ahead.consumers
        for consumer in list(ahead.riders):
            ahead.leave(consumer, now)
            behind.board(consumer)
        self.merges += 1
        fields = {"consumers": names, "from": ahead.number, "into": behind.number}
        return [Note("info", "merged", fields), *self._retire(ahead, "merged")]

    # -- room ------------------------------------------------------------------------------------------------

    def _room(self, dispatcher: Dispatcher, now: float) -> list[Effect]:
        if dispatcher.phase not in (Phase.STREAMING, Phase.PAUSED, Phase.ROOMLESS):
            return []
        effects: list[Effect] = []
        blocking = self._blocking(dispatcher)
        for consumer in dispatcher.riders:
            if consumer in blocking and self._may_detach(consumer, dispatcher):
                consumer.patience.begin(now)
            else:
                consumer.patience.end(now)
        for consumer in blocking:
            if self._may_detach(consumer, dispatcher) and consumer.patience.exhausted(now):
                effects += self._detach(consumer, dispatcher, now)
        return effects + self._go_on(dispatcher, self._blocking(dispatcher), now)

    def _blocking(self, dispatcher: Dispatcher) -> list[Consumer]:
        """Those riders for whom the dispatcher does not read on."""
        return [consumer for consumer in dispatcher.riders if consumer.queue.full]

    def _go_on(self, dispatcher: Dispatcher, blocking: list[Consumer], now: float) -> list[Effect]:
        if not dispatcher.riders:
            return []
        halted = bool(blocking) or self._over()
        if dispatcher.phase is Phase.STREAMING and halted:
            fields = {"dispatcher": dispatcher.number, "full": [c.name for c in blocking]}
            return [*dispatcher.pause(now), Note("debug", "paused", fields)]
        if dispatcher.phase is Phase.PAUSED:
            if not halted and not dispatcher.holds:
                dispatcher.phase = Phase.STREAMING
                return [Resume(dispatcher.number)]
            if now - dispatcher.paused_since >= PAUSE_MAX_S:
                why = "a queue is full" if halted else "looking up tables takes long"
                fields = {"dispatcher": dispatcher.number, "full": [c.name for c in blocking]}
                return [
                    *dispatcher.close(why, now),
                    Note("info", "closed until there is room", fields),
                ]
        elif dispatcher.phase is Phase.ROOMLESS:
            roomy = all(self._has_room(consumer) for consumer in dispatcher.riders)
            if roomy and not dispatcher.looking:
                return dispatcher.connect()
        return []

    @staticmethod
    def _may_detach(consumer: Consumer, dispatcher: Dispatcher) -> bool:
        """Alone it holds up nobody, and somebody stays."""
        return consumer.spec.on_queue_full is OnQueueFull.DETACH and len(dispatcher.riders) > 1

    def _detach(self, consumer: Consumer, dispatcher: Dispatcher, now: float) -> list[Effect]:
        dispatcher.leave(consumer, now)
        consumer.patience.detached(now)
        consumer.detaches += 1
        fields = {"consumer": consumer.name, "held_bytes": consumer.queue.held_bytes}
        return [Note("info", "detached", fields)]

    # -- all queues' memory ----------------------------------------------------------------------------------

    def _over(self) -> bool:
        limit = self.limits.queues_bytes_max
        return bool(limit) and self._held_bytes() >= limit

    def _evict(self, now: float) -> list[Effect]:
        """While all queues together are full everybody waits for the largest of them, on its budget. Then what it holds
        is forgotten; it is read again when there is room."""
        others = [c for c in self.consumers.values() if c.failed is None]
        largest = self._largest() if len(others) > 1 and self._over() else None
        for consumer in others:
            if consumer is largest:
                consumer.patience.begin(now)
            elif consumer.dispatcher is None or not consumer.queue.full:
                consumer.patience.end(now)
        if largest is None or not (largest.waiting or largest.patience.exhausted(now)):
            return []
        if largest.dispatcher is not None:
            self.dispatchers[largest.dispatcher].leave(largest, now)
        largest.patience.detached(now)
        largest.detaches += 1
        held = largest.queue.held_bytes
        largest.queue.evict()
        largest.attach_after = now + EVICTED_WAIT_S
        fields = {"consumer": largest.name, "held_bytes": held}
        return [Note("info", "queue forgotten, all queues are full", fields)]

    def _largest(self) -> Consumer | None:
        may = [
            consumer
            for consumer in self.consumers.values()
            if consumer.spec.on_queue_full is OnQueueFull.DETACH and consumer.queue.held_bytes
        ]
        return max(may, key=lambda consumer: consumer.queue.held_bytes, default=None)

    # -- storing ---------------------------------------------------------------------------------------------

    def _store_progress(self, now: float) -> list[Effect]:
        if now - self._stored_at < STORE_COVERED_EVERY_S:
            return []
        self._stored_at = now
        moved = [consumer for consumer in self.consumers.values() if consumer.covered_moved]
        return [*(consumer.store() for consumer in moved), *self._store_versions()]

    def _store_versions(self) -> list[Effect]:
        """What is known of tables, or how far that holds; nothing where nothing is known, as of a server that tells."""
        main = self.main
        if main is None or main.read is None:
            return []
        versions = main.enrichment.versions
        changed = versions.changed or (main is not self._keeper and bool(len(versions)))
        mark = versions.mark
        if mark is None or not (changed or (len(versions) and mark != self._stored_mark)):
            return []
        self._keeper, self._stored_mark = main, mark
        kept = versions.keep() if changed else None
        self._kept = kept or self._kept
        return [StoreVersions(mark, kept)]

    # -- readers ---------------------------------------------------------------------------------------------

    def consumer(self, name: str) -> Consumer:
        return self.consumers[name]

    def progress_after(self, name: str, position: Position) -> Progress | None:
        """What must be stored before `Acknowledged` may be stepped; None where it says nothing new.

        Raises UserError for a position that is not this consumer's to acknowledge.
        """
        queue = self.consumers[name].queue
        end, place = queue.locate(position)
        if place.seq <= queue.acknowledged.seq:
            return None
        covered = queue.position(queue.covered_after(end, place))
        stored = self.consumers[name].stored_covered
        if stored is not None and stored.order > covered.order:
            covered = stored
        return Progress(queue.position(place), covered, queue.created_of(covered.file))

    def _sought(self, name: str, after: Position, now: float) -> list[Effect]:
        """A reader that is ahead of what is stored skips forward, one that is behind it seeks back.

        Nobody else notices: the consumer leaves its dispatcher and boards one anew. Only what the server is known to
        have executed is taken for a place of its history without asking it.
        """
        consumer = self.consumers[name]
        queue = consumer.queue
        place = queue.place_of(after)
        if queue.acknowledged.seq <= after.seq <= queue.queued.seq:
            return []
        back = after.seq < queue.acknowledged.seq
        created = queue.created_of(place.file)
        if consumer.dispatcher is not None:
            self.dispatchers[consumer.dispatcher].leave(consumer, now)
        queue.reset(queue.server, queue.mode, queue.epoch, place, created)
        consumer.failed = None
        consumer.attach_after = 0.0
        consumer.proven = self._is_known(consumer, place)
        fields = {"consumer": name, "back": back, "to": where(place)}
        return [consumer.store(), Note("info", "sought", fields)]

    def _is_known(self, consumer: Consumer, place: Place) -> bool:
        if consumer.queue.server != self.files.server:
            return False
        if consumer.queue.mode is not Mode.GTID:
            return self.files.has(place)
        if self._tip is None:
            return False
        assert isinstance(place.gtids, GtidSet)
        return self._tip.contains(place.gtids)

    def _surveyed(self, what: Surveyed) -> list[Effect]:
        self.survey = what
        view = what.view
        if view.server == self.files.server:
            self.files.saw(view)
            if view.mode is Mode.GTID:
                self._tip = GtidSet.parse(view.executed)
        return []

    def _removed(self, name: str, now: float) -> list[Effect]:
        consumer = self.consumers.pop(name)
        if consumer.dispatcher is not None:
            self.dispatchers[consumer.dispatcher].leave(consumer, now)
        return [Note("info", "consumer removed", {"consumer": name})]


def _position_of(consumer: Consumer) -> Position | None:
    """Up to where it has the log, as far as that is known without a server."""
    if consumer.started:
        return consumer.queue.position(consumer.queue.queued)
    return consumer.progress.covered if consumer.progress else None


def _file_of(consumer: Consumer) -> str:
    position = _position_of(consumer)
    return position.file if position else ""
