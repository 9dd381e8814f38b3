"""One replication connection and the consumers that ride on it.

What happens on the stream is decided here: batches are completed (`enrichment`) and put into the attached' queues, a
fault in the log concerns some of them, a connection that was lost is made again. Who rides where is the affair of
`client`.

A batch that needs a look-up is *held*, and reading pauses like for a full queue, until the answer comes; what cannot be
known then fails the consumers that need it.

Phases: connecting → streaming ⇄ paused → (closed for room) → connecting ...; a log that has an end: → ended.
"""

from __future__ import annotations

from enum import StrEnum

from dispatcher.binlog.stream.batch import OPEN, Batch, Fault
from dispatcher.binlog.stream.routes import ALL, Routes
from dispatcher.dispatch.attachment import Inside, has_transaction, start_of
from dispatcher.dispatch.consumer import Consumer
from dispatcher.dispatch.continuity import Continuity, Standing, Verdict, compare, may_skip
from dispatcher.dispatch.demand import Demand
from dispatcher.dispatch.effects import (
    Close,
    Connect,
    Effect,
    FetchSchema,
    Note,
    Pause,
    PollServer,
    StartDump,
    Wake,
)
from dispatcher.dispatch.enrichment import Enrichment, Outcome
from dispatcher.dispatch.events import BatchReceived, SchemaFetched
from dispatcher.dispatch.executed_position import BatchGtids, ExecutedPosition, Gtids, Mode
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.versions import LogPosition, Versions
from dispatcher.model.errors import Action, BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import file_number, packed_seq

BACKOFF_MIN_S, BACKOFF_MAX_S = 0.5, 30.0
OPERATOR_RETRY_S = 10.0
# The same fault this often in a row, with no transaction between, is one of the log and not of the moment: damage on
# the way is not repeated, and a log that was purged or reset after the login's check is told by the next one, which
# knows whom it concerns.
DAMAGE_MAX = 3
# A dump that is ended for a duplicate may have met its own predecessor, whom the server had not missed yet. Once.
NAMESAKE_WINDOW_S = 60.0
# One answers; another one is needed where the log went on differently meanwhile, as after a reset.
LOOK_UPS_MAX = 3
_ASKED_AGAIN = (
    ErrorKind.CHECKSUM_MISMATCH,
    ErrorKind.MALFORMED_EVENT,
    ErrorKind.POSITION_PURGED,
    ErrorKind.HISTORY_DIFFERS,
    ErrorKind.INTERNAL,
)


class Phase(StrEnum):
    CONNECTING = "connecting"
    STREAMING = "streaming"
    PAUSED = "paused"  # open, not read
    BACKPRESSURE_CLOSED = "closed until there is room"
    ENDED = "ended"  # all of the log was read, and no more will come


class Dispatcher:
    """See the module. `number`: from 1, and none of another dispatcher of the client; `routes`: of the client."""

    def __init__(self, number: int, label: str, routes: Routes, versions: Versions) -> None:
        self.number = number
        self.label = label  # of the client
        self.phase = Phase.CONNECTING
        self.attached: list[Consumer] = []
        self.view: ServerView | None = None
        self.error: BinlogError | None = None  # why there is no connection
        self.read: ExecutedPosition | None = None
        self.enrichment = Enrichment(routes, versions)
        self.last_timestamp = 0  # of the newest event, s since 1970
        self.events = self.bytes = self.reconnects = 0
        self.streams = 0  # how many have begun
        self.paused_since = self.dumped_at = 0.0
        self.asked = False  # the login is on its way, and what it is to tell was said
        self.prepared_before = 0  # number of the newest prepared transaction then
        self.behind_since: float | None = None  # the server lacks what a rider has
        self.inside: Inside = None  # the transaction that the last batch ended in
        self.continuity = Continuity()
        self._routes = routes
        self._attempts = 0
        self._damage: tuple[str, int] = ("", 0)
        self._namesake_at: float | None = None
        self._unreadable_at: ExecutedPosition | None = (
            None  # where the server could not read its log last
        )
        self._held: BatchReceived | None = (
            None  # waits for a look-up, or for the server's word on its file
        )
        self._unconfirmed = False  # for that word
        self._looking = 0  # number of the look-up that is waited for, 0 = none
        self._look_ups = 0
        self._asked = 0  # for the batch that is held
        self._read_ahead: tuple[Gtids, SchemaFetched] | None = None  # for a dump from that set

    @property
    def mode(self) -> Mode:
        return self.view.mode if self.view is not None else Mode.GTID

    @property
    def consumers(self) -> list[str]:
        """Names of those that ride on it."""
        return [consumer.name for consumer in self.attached]

    @property
    def open(self) -> bool:
        return self.phase in (Phase.STREAMING, Phase.PAUSED)

    @property
    def holds(self) -> bool:
        """Does a batch wait for an answer of the server?"""
        return self._held is not None

    @property
    def unconfirmed(self) -> bool:
        """Does a batch wait for the server's word on the file before its own?"""
        return self._unconfirmed

    @property
    def looking(self) -> bool:
        """Is a look-up on its way, whoever may still wait for it?"""
        return bool(self._looking)

    # -- attached ----------------------------------------------------------------------------------------------

    def attach(self, consumer: Consumer) -> None:
        assert consumer.dispatcher is None, "a consumer rides on one dispatcher"
        consumer.dispatcher = self.number
        consumer.error = self.error
        self.attached.append(consumer)

    def detach(self, consumer: Consumer, now: float) -> None:
        """It goes, at a transaction boundary: what its queue has of the transaction that the stream is in is undone."""
        consumer.queue.rollback()
        consumer.patience.end(now)
        consumer.left_at = now
        consumer.dispatcher = None
        self.attached.remove(consumer)

    def fail(self, consumer: Consumer, error: BinlogError, now: float) -> list[Effect]:
        self.detach(consumer, now)
        return consumer.fail(error)

    def _where(self, consumer: Consumer) -> str:
        return f"consumer {consumer.name}, {self.label}"

    # -- connecting ------------------------------------------------------------------------------------------

    def connect(self, after_s: float = 0.0) -> list[Effect]:
        self.phase = Phase.CONNECTING
        self.asked = False
        return [Connect(self.number, after_s)]

    def dump(self, view: ServerView, now: float) -> list[Effect]:
        """The login went well, and every rider has a place in this server's log."""
        self.dumped_at = now
        before = self.read
        self.read = start_of(view.mode, [consumer.queue.queued for consumer in self.attached])
        self.inside = None
        self.streams += 1
        queues = [consumer.queue for consumer in self.attached]
        anchored = all(queue.is_anchored(queue.queued) for queue in queues)
        self.continuity.begin(self.read, view, anchored=anchored)
        self._begin_enrichment(view, before)
        self.error, self._attempts, self.behind_since = None, 0, None
        for consumer in self.attached:
            consumer.error = None
        self.phase = Phase.STREAMING
        fields = {"dispatcher": self.number, "from": where(self.read)}
        return [
            StartDump(self.number, view.mode, self.read),
            Note("info", "streaming", fields | {"consumers": self.consumers}),
            *(Wake(name) for name in self.consumers),
        ]

    def _begin_enrichment(self, view: ServerView, before: ExecutedPosition | None) -> None:
        """`before`: where the stream before this one had come to."""
        assert self.read is not None
        self._held, self._unconfirmed, self._asked = None, False, 0
        place, versions = self.read, self.enrichment.versions
        at: LogPosition | None = LogPosition(
            place.file, place.offset, view.created.get(place.file, 0)
        )
        gaps = False
        same = before is not None and before.gtids == place.gtids and versions.server == view.server
        if view.mode is Mode.GTID:
            # A set says nothing of where in the log it ends, and the file beside it is where somebody looked last.
            at = self.enrichment.place if same else None
            gaps = may_skip(place.gtids, GtidSet.parse(view.executed))
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

    def lost(self, error: BinlogError, now: float) -> list[Effect]:
        """The connection, or the attempt to make one, ended. Made again, unless the fault is one of the log itself."""
        self._undo(now)
        if self.phase is Phase.BACKPRESSURE_CLOSED:
            return []  # it was to be closed anyway
        if error.kind is ErrorKind.SERVER_LOG and self._unreadable_at != self.read:
            # A server also says so whose log is reset while it sends it, and then the next login tells that.
            self._unreadable_at = self.read
            error = BinlogError(ErrorKind.CONNECTION_LOST, error.what, where=error.where)
        self.error = error
        self.reconnects += self.open
        if error.kind in _ASKED_AGAIN:
            same = error.where == self._damage[0]
            self._damage = (error.where, self._damage[1] + 1 if same else 1)
        fatal = error.action is Action.FATAL and error.kind not in _ASKED_AGAIN
        if fatal or self._damage[1] >= DAMAGE_MAX:
            attached = list(self.attached)
            return [e for c in attached for e in self.fail(c, error.at(self._where(c)), now)]
        return self.reconnect(error, now)

    def reconnect(
        self, error: BinlogError, now: float, after_s: float | None = None
    ) -> list[Effect]:
        """`after_s`: None for what the number of attempts says."""
        self.error = error
        if after_s is None:
            after_s = min(BACKOFF_MIN_S * 2**self._attempts, BACKOFF_MAX_S)
            if error.action is Action.OPERATOR and not self._first_namesake(error, now):
                after_s = max(after_s, OPERATOR_RETRY_S)
        self._attempts = min(self._attempts + 1, 10)
        for consumer in self.attached:
            consumer.error = error
        fields = {"dispatcher": self.number, "error": str(error), "retry_s": after_s}
        return [
            Note("warning", "not connected", fields),
            *self.connect(after_s),
            *(Wake(name) for name in self.consumers),
        ]

    def _first_namesake(self, error: BinlogError, now: float) -> bool:
        if error.kind is not ErrorKind.DUPLICATE_SERVER_UUID:
            return False
        before, self._namesake_at = self._namesake_at, now
        return before is None or now - before >= NAMESAKE_WINDOW_S

    def ended(self, now: float) -> list[Effect]:
        self._undo(now)
        self.phase = Phase.ENDED
        assert self.read is not None, "an end before the dump"
        fields = {"at": where(self.read), "in_transaction": self.inside is not None}
        level = "info" if self.inside is None else "warning"
        self.inside = None
        return [Note(level, "ended", fields), *(Wake(name) for name in self.consumers)]

    def close(self, reason: str, now: float) -> list[Effect]:
        """Until there is room, or until it is connected elsewhere."""
        self._undo(now)
        self.phase = Phase.BACKPRESSURE_CLOSED
        return [Close(self.number, reason)]

    def _undo(self, now: float) -> None:
        """The next stream begins at a transaction boundary."""
        self._held, self._unconfirmed = None, False
        for consumer in self.attached:
            consumer.queue.rollback()
            consumer.patience.end(now)

    # -- the stream ------------------------------------------------------------------------------------------

    def arrived(self, batch: Batch, created: int, now: float) -> list[Effect]:
        assert self.read is not None and self._held is None, "a batch before the dump, or too early"
        match self.continuity.judge(batch, self.mode, self.read):
            case Verdict.UNKNOWN:
                self.bytes += batch.bytes
                return []
            case Verdict.ASK:
                self._held, self._unconfirmed = (
                    BatchReceived(self.number, batch.copy(), created),
                    True,
                )
                return [*(self.pause(now) if self.phase is Phase.STREAMING else ()), PollServer()]
            case Verdict.DIFFERS:
                return self.log_in_anew(f"{batch.file} does not follow what was read", now)
        steps = BatchGtids.of(batch)
        takers = Demand(self.attached, steps, self.read, self._routes)
        ask = self._asked < LOOK_UPS_MAX
        outcome = self.enrichment.of(batch, created, takers.wanted(), takers.need, ask=ask)
        if outcome.missing:
            return self._look_up(outcome, created, now)
        self._asked = 0
        effects: list[Effect] = []
        for consumer, failure in takers.failing(outcome.failures):
            effects += self.fail(consumer, failure.error.at(self._where(consumer)), now)
        after = self._read_after(batch, steps)
        self.continuity.passed(after, steps)
        for consumer, level in takers.level():
            if consumer.dispatcher == self.number:
                effects += self._put(consumer, outcome.batch, steps, created, after, level, now)
        self.enrichment.took(batch, created)
        self.read = after
        self.events += batch.events
        self.bytes += batch.bytes
        self.last_timestamp = batch.timestamp or self.last_timestamp
        if steps.ended.any():  # past the event that was damaged, if there was one
            self._damage = ("", 0)
        if batch.fault:
            effects += self._fault(batch, batch.fault, now)
        return effects

    def _put(
        self,
        consumer: Consumer,
        batch: Batch,
        steps: BatchGtids,
        created: int,
        after: ExecutedPosition,
        level: bool,
        now: float,
    ) -> list[Effect]:
        queue = consumer.queue
        count = queue.taken_transactions
        try:
            queue.take(batch, steps, self._routes, created, after, level=level)
            if level and self.continuity.anchored:
                queue.anchor()
        except BinlogError as error:
            # No room for a transaction that is larger than the queue: its beginning goes, and it comes again later.
            self.detach(consumer, now)
            consumer.error = error.at(self._where(consumer))
            consumer.attach_after = now + OPERATOR_RETRY_S
            fields = {"consumer": consumer.name, "error": str(consumer.error)}
            return [Note("error", "consumer waits", fields), Wake(consumer.name)]
        return [Wake(consumer.name)] if queue.taken_transactions != count else []

    def _look_up(self, outcome: Outcome, created: int, now: float) -> list[Effect]:
        """Hold the batch and stop reading until the server has told what its tables are."""
        assert outcome.start is not None
        self._held = BatchReceived(self.number, outcome.batch.copy(), created)
        effects: list[Effect] = []
        if not self._looking or self.phase is Phase.STREAMING:
            self._asked += 1
            self._look_ups += 1
            self._looking = self._look_ups
            effects.append(
                FetchSchema(
                    self.number,
                    self._looking,
                    outcome.missing,
                    outcome.start,
                    all_tables=outcome.gaps,
                )
            )
            tables = [".".join(name) for name in outcome.missing]
            fields = {"tables": tables, "from": str(outcome.start)}
            effects.append(Note("info", "looking up tables", fields))
        if self.phase is Phase.STREAMING:
            effects += self.pause(now)
        return effects

    def looked_up(self, what: SchemaFetched, now: float) -> list[Effect]:
        versions = self.enrichment.versions
        versions.learn(what.order.start, what.found, what.touches)
        if what.order.number == self._looking:
            self._looking = 0
            if what.order.all_tables and self.read is not None:
                self._read_ahead = self.read.gtids, what
                self.enrichment.read_ahead(what.order.start, list(what.touches))
        effects: list[Effect] = [Note("info", "looked up tables", {"found": len(what.found)})]
        if self._held is not None and not self._unconfirmed:
            held, self._held = self._held, None
            effects += self.arrived(held.batch, held.created, now)
        return effects

    # -- the server's history --------------------------------------------------------------------------------

    def standings(self) -> list[Standing]:
        """Where the attached stand now: what the server says of itself when it is asked after this must agree."""
        found: dict[tuple[int, bool], Standing] = {}
        for consumer in self.attached if self.open else ():
            queue, place = consumer.queue, consumer.queue.queued
            key = id(place), queue.is_anchored(place)  # most share one
            if key not in found:
                created = queue.created_of(place.file)
                found[key] = Standing(queue.mode, queue.server, place, created, key[1])
        return list(found.values())

    def surveyed(
        self, view: ServerView, standings: list[Standing], *, unconfirmed: bool, now: float
    ) -> list[Effect]:
        """The server was asked when the attached stood at `standings`, and a batch was `unconfirmed` or not."""
        if error := compare(view, standings):
            return self.log_in_anew(error.what, now)
        if not unconfirmed or self._held is None:
            return []
        held, self._held, self._unconfirmed = self._held, None, False
        if self.view is None or view.server != self.view.server:
            return self.log_in_anew("the client reads another server now", now)
        if not self.continuity.confirm(held.batch, dict(view.files)):
            return self.log_in_anew(f"{held.batch.file} follows another file than was read", now)
        return self.arrived(held.batch, held.created, now)

    def log_in_anew(self, reason: str, now: float) -> list[Effect]:
        """The log may be another one than was read: the next login decides that for each rider."""
        fields = {"dispatcher": self.number, "reason": reason}
        self.reconnects += 1
        return [
            Note("warning", "server history is checked anew", fields),
            *self.close(reason, now),
            *self.connect(),
        ]

    def pause(self, now: float) -> list[Effect]:
        self.phase = Phase.PAUSED
        self.paused_since = now
        return [Pause(self.number)]

    def _read_after(self, batch: Batch, steps: BatchGtids) -> ExecutedPosition:
        """The place after the last transaction of a batch that is complete.

        Never inside a transaction, where no dump may begin. Outside of one it moves on over events that belong to
        none, such as a rotation: without GTIDs that alone keeps the place out of files that will be purged.
        """
        assert self.read is not None and self.view is not None
        count = int(steps.ended.sum())
        gtids = steps.after(self.read.gtids, len(steps.source)) if count else self.read.gtids
        if len(batch.tx.flags):
            self.inside = self._open_one(batch, steps) if batch.tx.flags[-1] & OPEN else None
        file, offset = batch.file, batch.offset
        if self.inside is not None:
            if not count:
                return self.read
            offset = int(steps.end[steps.ended][-1])
        if self.view.mode is Mode.GTID:
            before = self.read
            # A dump from a set begins with the head of the file in which the server looks for what follows: that says
            # nothing of where the set ends.
            if not count and (not before.file or _before(file, offset, before)):
                return before
            return ExecutedPosition(gtids, file, offset, before.seq + count)
        return max(
            self.read, ExecutedPosition(gtids, file, offset, packed_seq(file, offset)), key=_seq_of
        )

    def _open_one(self, batch: Batch, steps: BatchGtids) -> Inside:
        if self.mode is not Mode.GTID:
            return packed_seq(batch.file, batch.offset)
        source = int(steps.source[-1])
        return (steps.sources[source] if source >= 0 else "", int(steps.gno[-1]))

    def _fault(self, batch: Batch, fault: Fault, now: float) -> list[Effect]:
        """Those whom it could concern stop before it, but for who is past it already, as after a start behind it."""
        effects: list[Effect] = []
        for consumer in list(self.attached):
            wants = consumer.queue.wanted.route_mask(self._routes)
            if fault.route != ALL and not (fault.route >= 0 and wants[fault.route]):
                continue
            if not self._has_passed(consumer.queue.queued, batch):
                effects += self.fail(consumer, fault.error.at(self._where(consumer)), now)
        return effects

    def _has_passed(self, queued: ExecutedPosition, batch: Batch) -> bool:
        """Does a place lie behind the event that follows a batch?"""
        assert self.read is not None
        if self.mode is not Mode.GTID:
            return queued.seq > packed_seq(batch.file, batch.offset)
        if self.inside is None:
            return queued.seq > self.read.seq
        return has_transaction(queued, self.inside)


def where(place: ExecutedPosition) -> str:
    return f"{place.file}:{place.offset}" if place.file else str(place.gtids) or "the beginning"


def _before(file: str, offset: int, place: ExecutedPosition) -> bool:
    return (file_number(file), offset) < (file_number(place.file), place.offset)


def _seq_of(place: ExecutedPosition) -> int:
    return place.seq
