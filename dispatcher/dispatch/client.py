"""Everything that shares one connection key: its consumers, and the one dispatcher that they ride on.

`step(input, now) -> effects` is synchronous and decides everything; `net.runner` executes. The dump is opened from
the intersection of what the consumers have queued, and each consumer passes over what it has already, so any number
of consumers at any positions are served by one connection. When a queue is full the connection waits (and everybody
with it); a pause longer than `PAUSE_MAX_S` closes the connection, because the server would cut an undrained dump after
`net_write_timeout` and keeps its log from being purged meanwhile; it is opened again when there is room.

The TABLE_MAPs of a server without full metadata are completed on the way (`enrichment`). Where that needs a look-up the
batch is *held*, and reading pauses like for a full queue, until the answer comes; what cannot be known then fails the
consumers that need it.

Phases: idle → connecting → streaming ⇄ paused → (closed for room) → connecting ...; a log that has an end: → ended,
until a reader seeks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from dispatcher.binlog.arrays import OPEN
from dispatcher.binlog.batch import Batch, Fault
from dispatcher.binlog.prepared import Prepared
from dispatcher.binlog.routes import ALL, Filter, Routes
from dispatcher.binlog.segments import Lend
from dispatcher.dispatch import checks, xa
from dispatcher.dispatch.enrichment import Enrichment, Outcome
from dispatcher.dispatch.history import Gtids, Mode, Place, Steps, make_place
from dispatcher.dispatch.inputs import (
    Acknowledged,
    Arrived,
    Close,
    Connect,
    ConsumerSpec,
    Dump,
    Effect,
    Ended,
    Input,
    LoggedIn,
    LookedUp,
    LookUp,
    Lost,
    Note,
    Pause,
    Progress,
    Resume,
    ServerView,
    Sought,
    Store,
    StoreVersions,
    Tick,
    Wake,
)
from dispatcher.dispatch.queue import Queue
from dispatcher.dispatch.takers import Takers
from dispatcher.dispatch.versions import Kept, Mark, Versions
from dispatcher.model.errors import Action, BinlogError, Kind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, packed_seq

PAUSE_MAX_S = 5.0
STORE_COVERED_EVERY_S = 1.0
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.5, 30.0
OPERATOR_RETRY_S = 10.0
# The same fault this often in a row, with no transaction between, is one of the log and not of the moment: damage on
# the way is not repeated, and a log that was purged or reset after the login's check is told by the next one, which
# knows whom it concerns.
DAMAGE_MAX = 3
# One answers; another one is needed where the log went on differently meanwhile, as after a reset.
LOOK_UPS_MAX = 3
_ASKED_AGAIN = (Kind.CHECKSUM_MISMATCH, Kind.POSITION_PURGED, Kind.HISTORY_DIFFERS)


class Phase(StrEnum):
    IDLE = "idle"  # no consumer needs a connection
    CONNECTING = "connecting"
    STREAMING = "streaming"
    PAUSED = "paused"  # open, not read
    ROOMLESS = "closed until there is room"
    ENDED = "ended"  # all of the log was read, and no more will come


class Consumer:
    """A declared reader and its queue."""

    def __init__(
        self, spec: ConsumerSpec, progress: Progress | None, lend: Lend | None = None
    ) -> None:
        self.spec = spec
        self.queue = Queue(Filter(spec.databases, spec.tables), spec.queue_bytes_max, lend)
        self.progress = progress  # stored; applied when the server's mode is known
        self.started = False  # has a place
        self.failed: BinlogError | None = None
        self.error: BinlogError | None = None  # the newest fault, failed or not
        self.stored_covered = progress.covered if progress else None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def riding(self) -> bool:
        return self.failed is None


class Client:
    """See the module. `label`: `user@host:port`; `versions`, `prepared`: what is stored of the tables, and of prepared
    transactions; `lend`: see `Queue`."""

    def __init__(
        self,
        label: str,
        specs: Iterable[ConsumerSpec],
        progress: Mapping[str, Progress],
        versions: Kept | None = None,
        lend: Lend | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        self.label = label
        self.prepared = Prepared() if prepared is None else prepared  # shared with its splitters
        self.routes = Routes()
        self.enrichment = Enrichment(self.routes, Versions.of(versions))
        self.consumers = {
            spec.name: Consumer(spec, progress.get(spec.name), lend) for spec in specs
        }
        self.phase = Phase.IDLE
        self.view: ServerView | None = None
        self.error: BinlogError | None = None  # why there is no connection
        self.read: Place | None = None
        self.last_timestamp = 0  # of the newest event, s since 1970
        self.events = self.bytes = self.reconnects = 0
        self._attempts = 0
        self._paused_since = 0.0
        self._stored_at = 0.0
        self._damage: tuple[str, int] = ("", 0)
        self._in_transaction = False  # the last batch ended inside of one
        self._held: Arrived | None = None  # waits for a look-up
        self._looking = 0  # number of the look-up that is waited for, 0 = none
        self._look_ups = 0
        self._asked = 0  # for the batch that is held
        self._stored_mark: Mark | None = None
        self._read_ahead: tuple[Gtids, LookedUp] | None = None  # for a dump from that set

    # -- the step --------------------------------------------------------------------------------------------

    def start(self) -> list[Effect]:
        self.phase = Phase.CONNECTING
        return [Connect(0.0)]

    def step(self, what: Input, now: float) -> list[Effect]:
        """Raises BinlogError only for an input that a reader made (Acknowledged, Sought) and that is refused."""
        match what:
            case Arrived():
                return self._arrived(what.batch, what.created, now)
            case Acknowledged():
                return self._acknowledged(what.consumer, what.position, what.covered)
            case Tick():
                return self._tick(now)
            case LoggedIn():
                return self._logged_in(what.view, now)
            case Lost():
                return self._lost(what.error)
            case Ended():
                return self._ended()
            case Sought():
                return self._sought(what.consumer, what.after)
            case LookedUp():
                return self._looked_up(what, now)

    def next_wakeup(self) -> float | None:
        """When the next Tick is due by the clock that `step` is given, if anything waits for time to pass."""
        if self.phase is Phase.PAUSED:
            return self._paused_since + PAUSE_MAX_S
        if any(self._covered_moved(consumer) for consumer in self._riding()):
            return self._stored_at + STORE_COVERED_EVERY_S
        return None

    def files_to_probe(self) -> list[str]:
        """Files whose creation time the history check needs."""
        names = []
        for consumer in self._riding():
            if consumer.started:
                names.append(consumer.queue.queued.file)
            elif consumer.progress:
                names.append(consumer.progress.covered.file)
        return sorted({name for name in names if name})

    # -- connecting ------------------------------------------------------------------------------------------

    def _logged_in(self, view: ServerView, now: float) -> list[Effect]:
        effects: list[Effect] = []
        self.view = view
        for consumer in self._riding():
            try:
                self._place_consumer(consumer, view, effects)
            except BinlogError as error:
                effects += self._fail(consumer, error.at(f"consumer {consumer.name}, {self.label}"))
        riding = self._riding()
        if not riding:
            self.phase = Phase.IDLE
            return [*effects, Close("no consumer needs it")]
        before, self.read = (
            self.read,
            _start_of([consumer.queue.queued for consumer in riding], view.mode),
        )
        self._in_transaction = False
        self.prepared.server = view.server
        self.prepared.retain(xa.valid(view), self.prepared.newest)
        self._begin_enrichment(view, before)
        self.error, self._attempts = None, 0
        for consumer in riding:
            consumer.error = None
        self.phase = Phase.STREAMING
        effects += [
            Dump(view.mode, self.read),
            Note("info", "streaming", {"from": self._where(self.read)}),
        ]
        # A queue that was full when the connection was lost still is: each reconnect would add a buffer to it.
        effects += self._wait_for_room(now)
        return effects + [Wake(consumer.name) for consumer in riding]

    def _begin_enrichment(self, view: ServerView, before: Place | None) -> None:
        """`before`: where the stream before this one had come to."""
        assert self.read is not None
        self._held, self._asked = None, 0
        place, versions = self.read, self.enrichment.versions
        at: Mark | None = Mark(place.file, place.offset, view.created.get(place.file, 0))
        gaps = False
        same = before is not None and before.gtids == place.gtids and versions.server == view.server
        if view.mode is Mode.GTID:
            # A set says nothing of where in the log it ends, and the file beside it is where somebody looked last.
            at = self.enrichment.place if same else None
            gaps = _may_skip(place.gtids, GtidSet.parse(view.executed))
        versions.login(view.server, [name for name, _ in view.files])
        self.enrichment.begin(
            at,
            mariadb=view.mode is Mode.MARIADB,
            can_ask=view.knows_tables,
            gaps=gaps,
        )
        ahead = self._read_ahead
        if gaps and ahead is not None and ahead[0] == place.gtids and same:
            # The stream is the one that was closed while the log was read ahead.
            self.enrichment.read_ahead(ahead[1].order.start, list(ahead[1].touches))

    def _place_consumer(self, consumer: Consumer, view: ServerView, effects: list[Effect]) -> None:
        queue = consumer.queue
        if consumer.started:
            file = queue.queued.file
            checks.history(view, queue.mode, queue.server, queue.queued, queue.created_of(file))
            queue.saw_created(file, view.created.get(file, 0))
            queue.server = view.server
            return
        if consumer.progress is None:
            place = checks.resolve(view, consumer.spec.start)
            created = view.created.get(place.file, 0)
            queue.reset(view.server, view.mode, 0, place, created)
            position = queue.position(place)
            effects.append(Store(consumer.name, Progress(position, position, created)))
            consumer.stored_covered = position
        else:
            stored = consumer.progress
            place = checks.stored_place(view.mode, stored.covered)
            checks.history(view, view.mode, stored.covered.server, place, stored.created)
            queue.reset(view.server, view.mode, stored.covered.epoch, place, stored.created)
            queue.saw_created(place.file, view.created.get(place.file, 0))
            queue.acknowledged = checks.stored_place(view.mode, stored.acknowledged)
        consumer.started = True

    def _lost(self, error: BinlogError) -> list[Effect]:
        self._held = None
        for consumer in self.consumers.values():
            consumer.queue.rollback()
        if not self._riding():
            self.phase = Phase.IDLE
            return []
        if self.phase is Phase.ROOMLESS:
            return []  # it was to be closed anyway
        self.error = error
        self.reconnects += self.phase in (Phase.STREAMING, Phase.PAUSED)
        if error.kind in _ASKED_AGAIN:
            same = error.where == self._damage[0]
            self._damage = (error.where, self._damage[1] + 1 if same else 1)
        fatal = error.action is Action.FATAL and error.kind not in _ASKED_AGAIN
        if fatal or self._damage[1] >= DAMAGE_MAX:
            effects = [
                e for consumer in self._riding() for e in self._fail(consumer, error.at(self.label))
            ]
            self.phase = Phase.IDLE
            return effects
        self.phase = Phase.CONNECTING
        after_s = min(BACKOFF_MIN_S * 2**self._attempts, BACKOFF_MAX_S)
        if error.action is Action.OPERATOR:
            after_s = max(after_s, OPERATOR_RETRY_S)
        self._attempts = min(self._attempts + 1, 10)
        for consumer in self._riding():
            consumer.error = error
        note = Note("warning", "not connected", {"error": str(error), "retry_s": after_s})
        return [note, Connect(after_s), *(Wake(consumer.name) for consumer in self._riding())]

    def _ended(self) -> list[Effect]:
        for consumer in self.consumers.values():
            consumer.queue.rollback()
        self.phase = Phase.ENDED
        assert self.read is not None, "an end before the dump"
        fields = {"at": self._where(self.read), "in_transaction": self._in_transaction}
        level = "warning" if self._in_transaction else "info"
        return [Note(level, "ended", fields), *(Wake(c.name) for c in self._riding())]

    # -- the stream ------------------------------------------------------------------------------------------

    def _arrived(self, batch: Batch, created: int, now: float) -> list[Effect]:
        assert self.read is not None and self._held is None, "a batch before the dump, or too early"
        steps = Steps.of(batch)
        takers = Takers(self._riding(), steps, self.read, self.routes)
        ask = self._asked < LOOK_UPS_MAX
        outcome = self.enrichment.of(batch, created, takers.wanted(), takers.need, ask=ask)
        if outcome.missing:
            return self._look_up(outcome, created, now)
        self._asked = 0
        effects: list[Effect] = []
        for consumer, failure in takers.failing(outcome.failures):
            where = f"consumer {consumer.name}, {self.label}"
            effects += self._fail(consumer, failure.error.at(where))
        after = self._read_after(batch, steps)
        for consumer, level in takers.level():
            if not consumer.riding:
                continue
            queue = consumer.queue
            count = queue.taken_transactions
            try:
                queue.take(outcome.batch, steps, self.routes, created, after, level=level)
            except BinlogError as error:  # no room on disk
                effects += self._fail(consumer, error.at(f"consumer {consumer.name}, {self.label}"))
                continue
            if queue.taken_transactions != count:
                effects.append(Wake(consumer.name))
        self.enrichment.took(batch, created)
        self.read = after
        self.events += batch.events
        self.bytes += batch.bytes
        self.last_timestamp = batch.timestamp or self.last_timestamp
        if steps.ended.any():  # past the event that was damaged, if there was one
            self._damage = ("", 0)
        if batch.fault:
            effects += self._fault(batch, batch.fault, steps)
        elif outcome.failures:
            effects += self._close_if_idle()
        return effects + self._wait_for_room(now)

    def _look_up(self, outcome: Outcome, created: int, now: float) -> list[Effect]:
        """Hold the batch and stop reading until the server has told what its tables are."""
        assert outcome.start is not None
        self._held = Arrived(outcome.batch.own(), created)
        effects: list[Effect] = []
        if not self._looking or self.phase is Phase.STREAMING:
            self._asked += 1
            self._look_ups += 1
            self._looking = self._look_ups
            effects.append(
                LookUp(self._looking, outcome.missing, outcome.start, all_tables=outcome.gaps)
            )
            tables = [".".join(name) for name in outcome.missing]
            fields = {"tables": tables, "from": str(outcome.start)}
            effects.append(Note("info", "looking up tables", fields))
        if self.phase is Phase.STREAMING:
            self.phase = Phase.PAUSED
            self._paused_since = now
            effects.append(Pause())
        return effects

    def _looked_up(self, what: LookedUp, now: float) -> list[Effect]:
        versions = self.enrichment.versions
        versions.learn(what.order.start, what.found, what.touches)
        if what.order.number == self._looking:
            self._looking = 0
            if what.order.all_tables and self.read is not None:
                self._read_ahead = self.read.gtids, what
                self.enrichment.read_ahead(what.order.start, list(what.touches))
        effects: list[Effect] = [Note("info", "looked up tables", {"found": len(what.found)})]
        if self._held is not None:
            held, self._held = self._held, None
            effects += self._arrived(held.batch, held.created, now)
        return effects + self._store_versions() + self._room_made()

    def _store_versions(self) -> list[Effect]:
        """What is known of tables, or how far that holds; nothing where nothing is known, as of a server that tells."""
        versions = self.enrichment.versions
        mark = versions.mark
        if mark is None or not (versions.changed or (len(versions) and mark != self._stored_mark)):
            return []
        self._stored_mark = mark
        return [StoreVersions(mark, versions.keep() if versions.changed else None)]

    def _read_after(self, batch: Batch, steps: Steps) -> Place:
        """The place after the last transaction of a batch that is complete.

        Never inside a transaction, where no dump may begin. Outside of one it moves on over events that belong to
        none, such as a rotation: without GTIDs that alone keeps the place out of files that will be purged.
        """
        assert self.read is not None and self.view is not None
        count = int(steps.ended.sum())
        gtids = steps.after(self.read.gtids, len(steps.source)) if count else self.read.gtids
        if len(batch.tx.flags):
            self._in_transaction = bool(batch.tx.flags[-1] & OPEN)
        file, offset = batch.file, batch.offset
        if self._in_transaction:
            if not count:
                return self.read
            offset = int(steps.end[steps.ended][-1])
        if self.view.mode is Mode.GTID:
            return Place(gtids, file, offset, self.read.seq + count)
        return max(self.read, Place(gtids, file, offset, packed_seq(file, offset)), key=_seq_of)

    def _fault(self, batch: Batch, fault: Fault, steps: Steps) -> list[Effect]:
        effects: list[Effect] = []
        for consumer in self._riding():
            queue = consumer.queue
            wants = queue.wanted.wants(self.routes)
            if fault.route != ALL and not (fault.route >= 0 and wants[fault.route]):
                continue
            if not self._has_passed(queue.queued, batch, steps):
                consumer.queue.rollback()
                effects += self._fail(
                    consumer, fault.error.at(f"consumer {consumer.name}, {self.label}")
                )
        return effects + self._close_if_idle()

    def _close_if_idle(self) -> list[Effect]:
        if self._riding():
            return []
        self.phase = Phase.IDLE
        return [Close("no consumer needs it")]

    def _has_passed(self, queued: Place, batch: Batch, steps: Steps) -> bool:
        """Does a place lie behind the event that follows a batch, so that a fault there is none of the consumer's?

        It does when the transaction that the event stands in is held already, as after a start past the event.
        """
        assert self.read is not None and self.view is not None
        if self.view.mode is not Mode.GTID:
            return queued.seq > packed_seq(batch.file, batch.offset)
        if not self._in_transaction:
            return queued.seq > self.read.seq
        skip = steps.skip(Mode.GTID, queued)
        return skip is not None and bool(skip[-1])

    def _wait_for_room(self, now: float) -> list[Effect]:
        full = [consumer.name for consumer in self._riding() if consumer.queue.full]
        if full and self.phase is Phase.STREAMING:
            self.phase = Phase.PAUSED
            self._paused_since = now
            return [Pause(), Note("debug", "paused", {"full": full})]
        return []

    def _tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self.phase is Phase.PAUSED and now - self._paused_since >= PAUSE_MAX_S:
            self.phase = Phase.ROOMLESS
            self._held = None
            for consumer in self.consumers.values():
                consumer.queue.rollback()
            full = [consumer.name for consumer in self._riding() if consumer.queue.full]
            effects += [
                Close("a queue is full" if full else "looking up tables takes long"),
                Note("info", "closed until there is room", {"full": full}),
            ]
        if now - self._stored_at >= STORE_COVERED_EVERY_S:
            self._stored_at = now
            for consumer in self._riding():
                if self._covered_moved(consumer):
                    effects.append(self._store(consumer))
            effects += self._store_versions()
            self._forget_prepared()
        return effects

    def _forget_prepared(self) -> None:
        if self.view is None:
            return
        places = []
        for consumer in self.consumers.values():
            if consumer.started:
                places.append(consumer.queue.acknowledged)
            elif consumer.progress is not None:
                stored = consumer.progress.acknowledged
                places.append(checks.stored_place(self.view.mode, stored))
        self.prepared.forget(xa.passed(self.view.mode, places))

    def _covered_moved(self, consumer: Consumer) -> bool:
        if not consumer.started or consumer.stored_covered is None:
            return False
        return consumer.queue.covered.seq > consumer.stored_covered.seq

    def _store(self, consumer: Consumer) -> Store:
        queue = consumer.queue
        covered = queue.covered
        position = consumer.stored_covered = queue.position(covered)
        progress = Progress(
            queue.position(queue.acknowledged), position, queue.created_of(covered.file)
        )
        return Store(consumer.name, progress)

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

    def _acknowledged(self, name: str, position: Position, covered: Position) -> list[Effect]:
        consumer = self.consumers[name]
        consumer.queue.acknowledge(position)
        consumer.stored_covered = covered
        return self._room_made()

    def _room_made(self) -> list[Effect]:
        riding = self._riding()
        if self._held is not None:
            return []
        if self.phase is Phase.PAUSED and not any(consumer.queue.full for consumer in riding):
            self.phase = Phase.STREAMING
            return [Resume()]
        if (
            self.phase is Phase.ROOMLESS
            and not self._looking
            and all(c.queue.held_bytes <= c.queue.bytes_max // 2 for c in riding)
        ):
            self.phase = Phase.CONNECTING
            return [Connect(0.0)]
        return []

    def _sought(self, name: str, after: Position) -> list[Effect]:
        """A reader that is ahead of what is stored skips forward, one that is behind it seeks back.

        Either way the dump begins anew: the dispatcher may be past the place already, as it is when the consumer had
        failed, and only a login checks that the place is one of the server's history.
        """
        consumer = self.consumers[name]
        queue = consumer.queue
        place = queue.place_of(after)
        if queue.acknowledged.seq <= after.seq <= queue.queued.seq:
            return []
        back = after.seq < queue.acknowledged.seq
        created = queue.created_of(place.file)
        queue.reset(queue.server, queue.mode, queue.epoch, place, created)
        consumer.failed = None
        effects: list[Effect] = [
            self._store(consumer),
            Note("info", "sought", {"consumer": name, "back": back, "to": self._where(place)}),
        ]
        self._held = None
        if self.phase in (Phase.STREAMING, Phase.PAUSED):
            for other in self.consumers.values():
                other.queue.rollback()
            effects.append(Close("a reader seeks"))
        if self.phase is not Phase.CONNECTING:
            self.phase = Phase.CONNECTING
            effects.append(Connect(0.0))
        return effects

    # -- small things ----------------------------------------------------------------------------------------

    def _riding(self) -> list[Consumer]:
        return [consumer for consumer in self.consumers.values() if consumer.riding]

    def _fail(self, consumer: Consumer, error: BinlogError) -> list[Effect]:
        consumer.failed = consumer.error = error
        consumer.queue.rollback()
        return [
            Note("error", "consumer failed", {"consumer": consumer.name, "error": str(error)}),
            Wake(consumer.name),
        ]

    @staticmethod
    def _where(place: Place) -> str:
        return f"{place.file}:{place.offset}" if place.file else str(place.gtids) or "the beginning"


def _start_of(places: list[Place], mode: Mode) -> Place:
    """The place from which one dump serves all of them."""
    if mode is not Mode.GTID:
        return min(places, key=lambda place: place.seq)
    gtids: Gtids = places[0].gtids
    for place in places[1:]:
        assert isinstance(gtids, GtidSet) and isinstance(place.gtids, GtidSet)
        gtids = gtids.intersection(place.gtids)
    same = next((place for place in places if place.gtids == gtids), None)
    return same or make_place(mode, str(gtids), "", 0)


def _may_skip(held: Gtids, executed: GtidSet) -> bool:
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


def _seq_of(place: Place) -> int:
    return place.seq
