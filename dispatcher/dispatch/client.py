"""Everything that shares one connection key: its consumers, and the dispatchers that they ride on.

`step(input, now) -> effects` is synchronous and decides everything; `runtime` executes. Each step has two halves:
what the input itself does, and `_settle`, which brings consumers and dispatchers into the order that the rules want,
whatever has happened:

* a dispatcher without attached is retired;
* one with a full queue pauses, waits as long as that consumer's budget allows, and goes on without it (`patience`);
* a consumer that waits boards a dispatcher near its place (`riding`), or a new one;
* two dispatchers whose consumers may all ride on the one behind become one.

So any number of consumers at any places end on one connection. A pause longer than `PAUSE_MAX_S` closes the
connection, because the server would cut an undrained dump after `net_write_timeout` and keeps its log from being purged
meanwhile; it is opened again when there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dispatcher.binlog.stream.routes import Routes
from dispatcher.binlog.stream.segments import Allocate
from dispatcher.binlog.stream.xa_store import XaStore
from dispatcher.dispatch import (
    history_check,
    relocation,
    runway,
    seeking,
    start_position,
    xa_retention,
)
from dispatcher.dispatch.assignment import Assignment
from dispatcher.dispatch.attachment import ServerFiles, front
from dispatcher.dispatch.backpressure import PAUSE_MAX_S, Backpressure
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.continuity import Standing
from dispatcher.dispatch.dispatcher import Dispatcher, Phase, where
from dispatcher.dispatch.effects import Close, Effect, Note, Retire, StoreVersions, Wake
from dispatcher.dispatch.events import (
    Acknowledged,
    Added,
    BatchReceived,
    Ended,
    Input,
    LoggedIn,
    Lost,
    OfDispatcher,
    RelocationRequested,
    Removed,
    SchemaFetched,
    SeekRequested,
    ServerPolled,
    Tick,
)
from dispatcher.dispatch.executed_position import ExecutedPosition, Mode
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import (
    ClientLimits,
    ConsumerSpec,
    Progress,
    Start,
    starts_to_search,
)
from dispatcher.dispatch.versions import Kept, LogPosition, Versions
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, file_number

STORE_COVERED_EVERY_S = 1.0
# How soon a server that lacks what a consumer has is asked whether it has it now.
BEHIND_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Look:
    """Where a dispatcher stood. `stream`: which of its streams that was; `unconfirmed`: a batch waited for a survey."""

    dispatcher: Dispatcher
    stream: int
    standings: list[Standing]
    unconfirmed: bool


class Client:
    """See the module. `label`: `user@host:port`; `versions`, `prepared`: what is stored of the tables, and of
    prepared transactions; `allocate`: segments for transactions that are larger than their queue."""

    def __init__(
        self,
        label: str,
        specs: Iterable[ConsumerSpec],
        progress: Mapping[str, Progress | BinlogError],
        versions: Kept | None = None,
        limits: ClientLimits | None = None,
        allocate: Allocate | None = None,
        prepared: XaStore | None = None,
    ) -> None:
        self.label = label
        self.prepared = XaStore() if prepared is None else prepared  # shared with its splitters
        self.limits = limits or ClientLimits()
        self.routes = Routes()
        self.files = ServerFiles()
        self.dispatchers: dict[int, Dispatcher] = {}
        self.consumers: dict[str, Consumer] = {}
        self._boarding = Assignment(self.files, self.limits)
        self._rooms = Backpressure(self.consumers, self.limits)
        self.merges = 0
        self.survey: ServerPolled | None = None
        self._allocate = allocate
        self.new_epoch: Callable[[], int] = lambda: 0  # for consumers of which nothing is stored
        self._kept = versions
        self._keeper: Dispatcher | None = None  # whose versions are stored
        self._stored_mark: LogPosition | None = None
        self._tip: GtidSet | None = None  # what the server has executed for sure
        self._stored_at = self._now = 0.0
        # By dispatcher, 0 for the survey: where the others stood when its server was about to be asked.
        self._looks: dict[int, list[_Look]] = {}
        for spec in specs:
            self.consumers[spec.name] = self._consumer(spec, progress.get(spec.name))

    def _consumer(self, spec: ConsumerSpec, progress: Progress | BinlogError | None) -> Consumer:
        if not isinstance(progress, BinlogError):
            return Consumer(spec, progress, self._allocate)
        consumer = Consumer(spec, None, self._allocate)
        consumer.fail(progress)
        return consumer

    # -- the step --------------------------------------------------------------------------------------------

    def start(self, now: float = 0.0) -> list[Effect]:
        failed = [consumer for consumer in self.consumers.values() if consumer.failed]
        return [*(effect for c in failed for effect in c.told_of_failure()), *self._settle(now)]

    def step(self, what: Input, now: float) -> list[Effect]:
        """Raises BinlogError only for an Acknowledged, Sought or Relocated that is refused."""
        self._now = now
        effects = self._take(what, now)
        return effects + self._settle(now)

    def _take(self, what: Input, now: float) -> list[Effect]:
        match what:
            case Acknowledged():
                consumer = self.consumers[what.consumer]
                if what.position.seq > consumer.queue.queued.seq:
                    return self._acknowledged_ahead(what, now)
                consumer.queue.acknowledge(what.position)
                consumer.stored_covered = what.covered
                return []
            case Tick():
                return self._store_progress(now)
            case SeekRequested() | RelocationRequested():
                return self._sought(what, now)
            case ServerPolled():
                return self._surveyed(what, now)
            case Added():
                consumer = self._consumer(what.spec, what.progress)
                self.consumers[what.spec.name] = consumer
                return consumer.told_of_failure() if consumer.failed else []
            case Removed():
                return self._removed(what.consumer, now)
            case _:
                return self._of_dispatcher(what, now)

    def _of_dispatcher(self, what: OfDispatcher, now: float) -> list[Effect]:
        match what:
            case BatchReceived():
                self.files.grew(what.batch.file, what.batch.offset)
                return self.dispatchers[what.dispatcher].arrived(what.batch, what.created, now)
            case LoggedIn():
                return self._logged_in(self.dispatchers[what.dispatcher], what.view, now)
            case Lost():
                return self.dispatchers[what.dispatcher].lost(what.error, now)
            case Ended():
                return self.dispatchers[what.dispatcher].ended(now)
            case SchemaFetched():
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
        if self._rooms.evict_at is not None:
            times.append(self._rooms.evict_at)
        several = len(self.dispatchers) > 1
        for consumer in self.consumers.values():
            if (deadline := consumer.patience.deadline) is not None:
                times.append(deadline)
            if consumer.waiting:
                times.append(consumer.attach_after)
            if several:
                times.append(consumer.patience.merge_after)
        # Whose time has come waits for something else.
        times = [time for time in times if time > self._now]
        if any(consumer.covered_moved for consumer in self.consumers.values()):
            times.append(self._stored_at + STORE_COVERED_EVERY_S)
        return min(times, default=None)

    # -- what is asked of the server ---------------------------------------------------------------------------

    def files_to_probe(self, dispatcher: int) -> list[str]:
        """Files whose creation time the history check needs when a dispatcher logs in; asked before the server is.

        Who comes later has not been asked for, so nobody boards the dispatcher between here and `LoggedIn`.
        """
        found = self.dispatchers.get(dispatcher)
        if found is not None:
            found.asked, found.prepared_before = True, self.prepared.newest
            self._looks[dispatcher] = self._look(found)
        return sorted({name for c in (found.attached if found else ()) if (name := _file_of(c))})

    def places_to_probe(self, dispatcher: int) -> list[tuple[str, int]]:
        """Files and offsets of which that check needs to know what stands there, also for the other dispatchers; asked
        together with the files."""
        found = self.dispatchers.get(dispatcher)
        positions = [c.position for c in (found.attached if found else ())]
        own = [(p.file, p.offset) for p in positions if p is not None]
        return history_check.to_probe([*own, *_places(self._looks.get(dispatcher, ()))])

    def files_to_survey(self) -> list[str]:
        """Files whose creation time the runway needs: that of the one behind each that some consumer still needs."""
        return runway.files_to_survey(self.survey, [_file_of(c) for c in self.consumers.values()])

    def places_to_survey(self) -> list[tuple[str, int]]:
        """Files and offsets where those that are connected stand now: the server is asked what stands there."""
        self._looks[0] = self._look()
        return history_check.to_probe(_places(self._looks[0]))

    @property
    def awaits_survey(self) -> bool:
        """Does a dispatcher wait for a `ServerPolled`?"""
        return any(dispatcher.unconfirmed for dispatcher in self.dispatchers.values())

    def _look(self, without: Dispatcher | None = None) -> list[_Look]:
        """Where the open dispatchers stand before the server is asked."""
        return [
            _Look(d, d.streams, d.standings(), d.unconfirmed)
            for d in self.dispatchers.values()
            if d.open and d is not without
        ]

    def _compare(self, number: int, view: ServerView, now: float) -> list[Effect]:
        """Hold what a server said against where the dispatchers stood when it was asked; those that it does not agree
        with log in anew. `number`: of the dispatcher whose login that was, 0 for a survey."""
        effects: list[Effect] = []
        for look in self._looks.pop(number, ()):
            dispatcher = look.dispatcher
            same = self.dispatchers.get(dispatcher.number) is dispatcher
            if same and dispatcher.open and dispatcher.streams == look.stream:
                unconfirmed = look.unconfirmed and not number
                effects += dispatcher.surveyed(
                    view, look.standings, unconfirmed=unconfirmed, now=now
                )
        return effects

    def starts_to_find(self, dispatcher: int) -> list[Start]:
        """Where consumers begin: the server's log has to be searched for these places."""
        found = self.dispatchers.get(dispatcher)
        attached = found.attached if found else ()
        new = (c for c in attached if not c.started and c.progress is None)
        return starts_to_search(consumer.spec.start for consumer in new)

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
        effects += self._compare(dispatcher.number, view, now)
        if error := start_position.behind(dispatcher, view, self.limits.failover_wait_s, now):
            effects.append(Close(dispatcher.number, "the server is behind", elsewhere=True))
            return effects + dispatcher.reconnect(error, now, BEHIND_RETRY_S)
        dispatcher.view = view
        self._saw(view)
        first = not all(consumer.started for consumer in dispatcher.attached)
        for consumer in list(dispatcher.attached):
            try:
                effects += start_position.place(consumer, view, self.new_epoch)
            except BinlogError as error:
                told = error.at(f"consumer {consumer.name}, {self.label}")
                effects += dispatcher.fail(consumer, told, now)
        if first:
            self._part(dispatcher, now)
        if dispatcher.attached:
            # A server whose history somebody goes on with; one that was named by mistake says nothing of prepared rows.
            self.prepared.server = view.server
            self.prepared.retain(xa_retention.valid(view), dispatcher.prepared_before)
            effects += dispatcher.dump(view, now)
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

    def _part(self, dispatcher: Dispatcher, now: float) -> None:
        """Who is far from the one furthest ahead goes, and gets a dispatcher of its own when it settles."""
        placed = [(consumer, consumer.queue.queued) for consumer in dispatcher.attached]
        stays = front(self.files, dispatcher.mode, placed, self.limits.merge_bytes_max)
        for consumer in [c for c, _ in placed if c not in stays]:
            dispatcher.detach(consumer, now)

    # -- order -----------------------------------------------------------------------------------------------

    def _settle(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for dispatcher in list(self.dispatchers.values()):
            effects += self._rooms.settle(dispatcher, now)
        effects += self._rooms.evict(self.dispatchers, now)
        for consumer in self.consumers.values():
            if consumer.waiting and self._rooms.may_attach(consumer, now):
                effects += self._attach(consumer, now)
        effects += self._retire_empty()
        if len(self.dispatchers) > 1:
            effects += self._merge(now)
        return effects

    def _retire_empty(self) -> list[Effect]:
        effects: list[Effect] = []
        for dispatcher in [d for d in self.dispatchers.values() if not d.attached]:
            effects += self._retire(dispatcher, "no consumer needs it")
        return effects

    def _retire(self, dispatcher: Dispatcher, reason: str) -> list[Effect]:
        if self.main is dispatcher:
            self._kept = dispatcher.enrichment.versions.known()
        del self.dispatchers[dispatcher.number]
        self._looks.pop(dispatcher.number, None)
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

    def _attach(self, consumer: Consumer, now: float) -> list[Effect]:
        consumer.attach_after = 0.0
        for dispatcher in self._boarding.nearest_first(consumer, self.dispatchers.values()):
            if self._boarding.may_attach(consumer, dispatcher, now):
                dispatcher.attach(consumer)
                return [Wake(consumer.name)]
        number = next(n for n in range(1, len(self.dispatchers) + 2) if n not in self.dispatchers)
        main = self.main
        kept = main.enrichment.versions.known() if main and main.read else self._kept
        dispatcher = Dispatcher(number, self.label, self.routes, Versions.of(kept))
        self.dispatchers[number] = dispatcher
        dispatcher.attach(consumer)
        return [*dispatcher.connect(), Wake(consumer.name)]

    def _merge(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        able, new = self._boarding.news(self.dispatchers.values(), now)
        for ahead in sorted(able, key=lambda d: -d.number) if new else ():
            for behind in able:
                if ahead is behind or behind.number not in self.dispatchers:
                    continue
                asked = ahead.number in new or behind.number in new
                if asked and self._boarding.may_merge(ahead, behind, now):
                    effects += self._merge_into(ahead, behind, now)
                    break
        return effects

    def _merge_into(self, ahead: Dispatcher, behind: Dispatcher, now: float) -> list[Effect]:
        names = ahead.consumers
        for consumer in list(ahead.attached):
            ahead.detach(consumer, now)
            behind.attach(consumer)
        self.merges += 1
        fields = {"consumers": names, "from": ahead.number, "into": behind.number}
        return [Note("info", "merged", fields), *self._retire(ahead, "merged")]

    # -- storing ---------------------------------------------------------------------------------------------

    def _store_progress(self, now: float) -> list[Effect]:
        if now < self._stored_at + STORE_COVERED_EVERY_S:
            return []
        self._stored_at = now
        self._forget_prepared()
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

    def _forget_prepared(self) -> None:
        """Rows of transactions that no consumer will see the end of again."""
        view = next((d.view for d in self.dispatchers.values() if d.view is not None), None)
        if view is None or not len(self.prepared):
            return
        consumers = self.consumers.values()
        if any(not consumer.started and consumer.progress for consumer in consumers):
            return  # whose place in this log is not known yet
        places = [consumer.queue.acknowledged for consumer in consumers if consumer.started]
        self.prepared.forget(xa_retention.passed(view.mode, places))

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
        covered = queue.covered_after(end, place)
        stored = self.consumers[name].stored_covered
        if stored is not None and stored.order > queue.position(covered).order:
            covered = queue.executed_of(stored)
        created = queue.created_stored(covered)
        return Progress(queue.position(place), queue.position(covered), created)

    def _sought(self, what: SeekRequested | RelocationRequested, now: float) -> list[Effect]:
        """Move a consumer to its reader's position or an administrator's start. Other consumers are not affected.

        Raises BinlogError, and nothing has changed, unless the server was found to have the place.
        """
        consumer = self.consumers[what.consumer]
        to = relocation.destination(consumer, what)
        return self._move(consumer, to, now) if to is not None else []

    def _move(self, consumer: Consumer, to: seeking.Target, now: float) -> list[Effect]:
        back = consumer.started and to.place.seq < consumer.queue.acknowledged.seq
        if consumer.dispatcher is not None:
            self.dispatchers[consumer.dispatcher].detach(consumer, now)
        seeking.move(consumer, to)
        consumer.proven = self._is_known(consumer, to.place)
        fields = {"consumer": consumer.name, "back": back, "to": where(to.place)}
        return [consumer.store(), Note("info", "sought", fields)]

    def _acknowledged_ahead(self, what: Acknowledged, now: float) -> list[Effect]:
        """What is acknowledged was forgotten while that was being stored: it need not be taken anew."""
        consumer = self.consumers[what.consumer]
        queue = consumer.queue
        covered = queue.executed_of(what.covered)
        created = queue.created_of(covered.file)
        to = seeking.Target(queue.server, queue.mode, queue.epoch, covered, created)
        effects = self._move(consumer, to, now)
        queue.acknowledged = queue.executed_of(what.position)
        return [consumer.store(), *effects[1:]]

    def _is_known(self, consumer: Consumer, place: ExecutedPosition) -> bool:
        if consumer.queue.server != self.files.server:
            return False
        if consumer.queue.mode is not Mode.GTID:
            return self.files.has(place)
        if self._tip is None:
            return False
        assert isinstance(place.gtids, GtidSet)
        return self._tip.contains(place.gtids)

    def _surveyed(self, what: ServerPolled, now: float) -> list[Effect]:
        self.survey = what
        view = what.view
        effects = self._compare(0, view, now)
        if view.server == self.files.server:
            self._saw(view)
        return effects

    def _saw(self, view: ServerView) -> None:
        """A server was asked, perhaps a while ago. Where a dispatcher has read beyond its log as it was then, the log
        has grown: those whose log it was not have been closed before (`_compare`)."""
        end = file_number(view.file), view.offset
        late = any(
            (file_number(d.read.file), d.read.offset) > end
            for d in self.dispatchers.values()
            if d.open and d.read is not None and d.view is not None and d.view.server == view.server
        )
        self.files.saw(view, late=late)
        if view.mode is Mode.GTID:
            self._tip = GtidSet.parse(view.executed)

    def _removed(self, name: str, now: float) -> list[Effect]:
        consumer = self.consumers.pop(name)
        if consumer.dispatcher is not None:
            self.dispatchers[consumer.dispatcher].detach(consumer, now)
        return [Note("info", "consumer removed", {"consumer": name})]


def _places(looks: Iterable[_Look]) -> list[tuple[str, int]]:
    return [(at.place.file, at.place.offset) for look in looks for at in look.standings]


def _file_of(consumer: Consumer) -> str:
    position = consumer.position
    return position.file if position else ""
