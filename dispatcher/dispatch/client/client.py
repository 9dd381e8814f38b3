"""The consumers of one connection key, and the dispatchers to which they are attached.

`step(event, now) -> effects` is synchronous and makes all decisions; `runtime` executes the effects. A step has two
parts. `_handle` does what the event itself requires (the table in `events` lists the effects). Then, whatever the event
was, `dispatcher_set` decides again which dispatchers there are and where each consumer is attached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dispatcher.dispatch.client import recovery, seeking, start_position
from dispatcher.dispatch.client.dispatcher_set import DispatcherSet
from dispatcher.dispatch.client.duplicate_watch import DuplicateWatch
from dispatcher.dispatch.client.history_watch import POLL
from dispatcher.dispatch.client.subscription_check import compare_with
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher
from dispatcher.dispatch.history import history_check, runway, xa_retention
from dispatcher.dispatch.history.attachment import ServerFiles
from dispatcher.dispatch.messages.effects import (
    Close,
    Effect,
    FetchSchema,
    Note,
    StoreVersions,
    Wake,
)
from dispatcher.dispatch.messages.events import (
    Acknowledged,
    Added,
    BatchReceived,
    DeliveryChanged,
    Ended,
    Input,
    LoggedIn,
    LookUpDelayed,
    Lost,
    OfDispatcher,
    ReaderDeclared,
    RelocationRequested,
    Removed,
    SchemaFetched,
    SeekRequested,
    ServerPolled,
    Tick,
)
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    executed_set,
    parse_set,
)
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import (
    ClientLimits,
    ConsumerSpec,
    Progress,
    Start,
    starts_to_search,
)
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import ExecutedSet
from dispatcher.model.position import Position, file_number
from dispatcher.stream.routes import Routes
from dispatcher.stream.segments import Allocate
from dispatcher.stream.xa_store import XaStore

STORE_COVERED_EVERY_S = 1.0
# If a replica lacks transactions of a consumer, the client asks it again after this many seconds.
LACKING_RETRY_S = 1.0


class Client:
    """`label`: `user@host:port`. `versions`, `prepared`: the stored table versions and prepared transactions.
    `allocate`: allocates segments for transactions that are larger than their queue."""

    def __init__(
        self,
        label: str,
        specs: Iterable[ConsumerSpec],
        progress: Mapping[str, Progress | BinlogError],
        versions: StoredVersions | None = None,
        limits: ClientLimits | None = None,
        allocate: Allocate | None = None,
        prepared: XaStore | None = None,
    ) -> None:
        self.label = label
        # The splitters of the connections share this store.
        self.prepared = XaStore() if prepared is None else prepared
        self.limits = limits or ClientLimits()
        self.routes = Routes(self.limits.ignore_statements_in)
        self.files = ServerFiles()
        self.consumers: dict[str, Consumer] = {}
        self.last_poll: ServerPolled | None = None
        # The positions about which the newest poll asked, for `recovery`.
        self._surveyed: Mapping[str, Position] = {}
        self.new_epoch: Callable[[], int] = lambda: 0  # for consumers without stored progress
        self._allocate = allocate
        self._dispatcher_set = DispatcherSet(
            label, self.routes, self.consumers, self.files, self.limits, versions
        )
        self.dispatchers = self._dispatcher_set.dispatchers
        self._history = self._dispatcher_set.history
        self._duplicates = DuplicateWatch()
        self._executed: ExecutedSet | None = None  # GTIDs that the server is known to have executed
        self._stored_at = self._now = 0.0
        for spec in specs:
            self._add(spec, progress.get(spec.name))

    def _add(self, spec: ConsumerSpec, progress: Progress | BinlogError | None) -> list[Effect]:
        error = progress if isinstance(progress, BinlogError) else None
        stored = None if isinstance(progress, BinlogError) else progress
        self.consumers[spec.name] = consumer = Consumer(spec, stored, self._allocate)
        return consumer.fail(error) if error else []

    def start(self, now: float = 0.0) -> list[Effect]:
        failed = [consumer for consumer in self.consumers.values() if consumer.failed]
        for consumer in self.consumers.values():
            consumer.current_at = now
        effects = [effect for consumer in failed for effect in consumer.failure_effects()]
        return effects + self._dispatcher_set.settle(now)

    def step(self, event: Input, now: float) -> list[Effect]:
        """Raises BinlogError only for an Acknowledged, SeekRequested or RelocationRequested that is refused."""
        self._now = now
        for dispatcher in self.dispatchers.values():
            dispatcher.note_current(now)
        effects = self._handle(event, now)
        return effects + self._dispatcher_set.settle(now)

    def _handle(self, event: Input, now: float) -> list[Effect]:
        match event:
            case Acknowledged():
                return self._acknowledged(event, now)
            case Tick():
                return self._store_progress(now)
            case SeekRequested() | RelocationRequested():
                return self._move_requested(event, now)
            case ServerPolled():
                return self._server_polled(event, now)
            case Added():
                effects = self._add(event.spec, event.progress)
                consumer = self.consumers[event.spec.name]
                consumer.delivery_paused, consumer.current_at = event.delivery_paused, now
                return effects
            case DeliveryChanged() | ReaderDeclared():
                return self._of_reader(event, now)
            case Removed():
                return self._removed(event, now)
            case _:
                return self._handle_dispatcher(event, now)

    def _handle_dispatcher(self, event: OfDispatcher, now: float) -> list[Effect]:
        match event:
            case BatchReceived():
                self.files.extend(event.batch.file, event.batch.offset)
                return self.dispatchers[event.dispatcher].receive(event.batch, event.created, now)
            case LoggedIn():
                return self._logged_in(self.dispatchers[event.dispatcher], event.view, now)
            case Lost():
                return self.dispatchers[event.dispatcher].lost(event.error, now)
            case Ended():
                return self.dispatchers[event.dispatcher].ended(now)
            case SchemaFetched():
                dispatcher = self.dispatchers.get(event.request.dispatcher)
                if dispatcher is None:
                    return []
                effects = dispatcher.schema_fetched(event, now)
                return effects + self._dispatcher_set.store_versions()
            case LookUpDelayed():
                dispatcher = self.dispatchers.get(event.request.dispatcher)
                return [] if dispatcher is None else dispatcher.look_up_delayed(event)

    def awaits_look_up(self, request: FetchSchema) -> bool:
        """True if a dispatcher needs the answer to the request."""
        dispatcher = self.dispatchers.get(request.dispatcher)
        return dispatcher is not None and dispatcher.gate.awaits(request)

    def next_wakeup(self) -> float | None:
        """Returns when the next Tick is due by the clock of `step`, or None if nothing waits for time to pass."""
        # Times that have passed are left out: the consumer or dispatcher of such a time waits for something else.
        times = [time for time in self._dispatcher_set.wakeups() if time > self._now]
        if any(consumer.covered_advanced for consumer in self.consumers.values()):
            times.append(self._stored_at + STORE_COVERED_EVERY_S)
        return min(times, default=None)

    @property
    def main(self) -> Dispatcher | None:
        """The dispatcher that is furthest ahead."""
        return self._dispatcher_set.main

    @property
    def merges(self) -> int:
        return self._dispatcher_set.merges

    # -- what is asked of the server ---------------------------------------------------------------------------

    def files_to_probe(self, number: int) -> list[str]:
        """Begin the login of a dispatcher. Returns the files whose creation times the history check needs.

        From now until `LoggedIn`, no consumer attaches to the dispatcher, because the login would not check the
        position of such a consumer.
        """
        dispatcher = self.dispatchers.get(number)
        if dispatcher is None:
            return []
        dispatcher.login_begun, dispatcher.newest_xa = True, self.prepared.newest
        self._history.take_snapshot(number)
        return sorted({name for c in dispatcher.attached if (name := _file_of(c))})

    def offsets_to_probe(self, number: int) -> list[tuple[str, int]]:
        """Returns the files and offsets at which the history check needs to know the events. They include the positions
        of the other dispatchers' consumers. Call `files_to_probe` first."""
        positions = [consumer.position for consumer in self._attached(number)]
        own = [(p.file, p.offset) for p in positions if p is not None]
        return history_check.offsets_to_probe([*own, *self._history.offsets(number)])

    def files_to_poll(self) -> list[str]:
        """Returns the files whose creation times the runway and `recovery` need."""
        files = runway.files_to_poll(self.last_poll, [_file_of(c) for c in self.consumers.values()])
        failed = recovery.positions_to_survey(self.consumers.values()).values()
        return sorted({*files, *(position.file for position in failed if position.file)})

    def offsets_to_poll(self) -> list[tuple[str, int]]:
        """Begin a poll. Returns the present positions, as files and offsets, of the consumers of open dispatchers, and
        of the consumers that failed on a server other than their own server."""
        self._history.take_snapshot(POLL)
        self._surveyed = recovery.positions_to_survey(self.consumers.values())
        failed = [(position.file, position.offset) for position in self._surveyed.values()]
        return history_check.offsets_to_probe([*self._history.offsets(POLL), *failed])

    @property
    def duplicate(self) -> BinlogError | None:
        """The error if the last poll has shown another daemon with this daemon's identity, else None."""
        return self._duplicates.error

    @property
    def awaits_poll(self) -> bool:
        """True if a dispatcher holds a batch until a `ServerPolled`."""
        return any(dispatcher.gate.awaits_poll for dispatcher in self.dispatchers.values())

    @property
    def awaits_other_server(self) -> bool:
        """True if no consumer is attached, and at least one waits for its own server to come back. In that case surveys
        have to ask every host."""
        return not self.dispatchers and recovery.is_awaited(self.consumers.values())

    def starts_to_search(self, number: int) -> list[Start]:
        """Returns the starts of new consumers that must be searched for in the server's log. If this server is not the
        server whose log was read, also returns the positions that must be found in its log."""
        attached = self._attached(number)
        new = (c for c in attached if not c.started and c.progress is None)
        held = [start_position.search_of(c) for c in attached]
        return [
            *starts_to_search(consumer.spec.start for consumer in new),
            *(start for start in dict.fromkeys(held) if start is not None),
        ]

    def _attached(self, number: int) -> list[Consumer]:
        dispatcher = self.dispatchers.get(number)
        return dispatcher.attached if dispatcher else []

    def runway_s(self, name: str, now_s: float) -> float | None:
        """Returns the seconds until the server purges a file that a consumer still needs; None: never, or not known."""
        consumer = self.consumers[name]
        if not consumer.started or self.last_poll is None:
            return None
        queue = consumer.queue
        return runway.seconds_to_purge(self.last_poll, queue.server, queue.covered.file, now_s)

    # -- what the server has answered ----------------------------------------------------------------------------

    def _logged_in(self, dispatcher: Dispatcher, view: ServerView, now: float) -> list[Effect]:
        effects = self._dispatcher_set.follow_server(dispatcher, view, now)
        effects += self._history.compare(dispatcher.number, view, now)
        failover_wait_s = self.limits.failover_wait_s
        if error := start_position.lacking_transactions(dispatcher, view, failover_wait_s, now):
            effects.append(Close(dispatcher.number, "the server is behind", next_host=True))
            return effects + dispatcher.reconnect(error, now, LACKING_RETRY_S)
        dispatcher.view = view
        self._update_files(view)
        effects += compare_with(
            view.databases, self.consumers.values(), view.lower_case_table_names
        )
        first = not all(consumer.started for consumer in dispatcher.attached)
        for consumer in list(dispatcher.attached):
            try:
                effects += start_position.establish(consumer, view, self.new_epoch)
            except BinlogError as error:
                elsewhere = recovery.is_elsewhere(consumer, view, error)
                effects += dispatcher.fail(consumer, recovery.explained(consumer, view, error), now)
                consumer.failed_elsewhere = elsewhere
        if first:
            self._dispatcher_set.detach_distant(dispatcher, now)
        if dispatcher.attached:
            # At least one consumer continues on this server. If no consumer did, the settings might name this server by
            # mistake, so its history must not decide which prepared transactions are dropped.
            self.prepared.server = view.server
            self.prepared.retain(xa_retention.in_history(view), dispatcher.newest_xa)
            effects += dispatcher.start_dump(view, now)
        return effects

    def _server_polled(self, poll: ServerPolled, now: float) -> list[Effect]:
        self.last_poll = poll
        effects = self._duplicates.compare(poll.view.duplicates, self.label, now)
        effects += self._history.compare(POLL, poll.view, now)
        effects += compare_with(
            poll.view.databases, self.consumers.values(), poll.view.lower_case_table_names
        )
        consumers = self.consumers.values()
        effects += recovery.recover(consumers, self._surveyed, poll.view, self.label)
        if poll.view.server == self.files.server:
            self._update_files(poll.view)
        return effects

    def _update_files(self, view: ServerView) -> None:
        """Update the known files from a view. The view may be old: if a dispatcher has read beyond the view's end, the
        log has grown since. (`HistoryWatch` has already closed dispatchers that read another log.)"""
        end = file_number(view.file), view.offset
        late = any(
            d.read.log_order > end
            for d in self.dispatchers.values()
            if d.open and d.read is not None and d.view is not None and d.view.server == view.server
        )
        self.files.update(view, late=late)
        if view.mode.by_gtid:
            self._executed = parse_set(view.mode, view.executed)

    # -- storing ---------------------------------------------------------------------------------------------

    def _store_progress(self, now: float) -> list[Effect]:
        if now < self._stored_at + STORE_COVERED_EVERY_S:
            return []
        self._stored_at = now
        self._drop_prepared()
        advanced = [consumer for consumer in self.consumers.values() if consumer.covered_advanced]
        stores = [consumer.store_progress() for consumer in advanced]
        return [*stores, *self._dispatcher_set.store_versions()]

    def unstored_versions(self, *, final: bool = False) -> list[StoreVersions]:
        """Returns the table versions that must be stored before progress is stored. Otherwise, after a crash, the
        stream would begin after statements that altered tables, and no version would describe these tables any more.
        `final`: True to return also the position up to which unchanged versions are valid."""
        return self._dispatcher_set.store_versions(with_position=final)

    def _drop_prepared(self) -> None:
        """Drop the rows of prepared transactions whose end every consumer has acknowledged."""
        view = next((d.view for d in self.dispatchers.values() if d.view is not None), None)
        if view is None or not len(self.prepared):
            return
        consumers = self.consumers.values()
        if any(not consumer.started and consumer.progress for consumer in consumers):
            return  # the position of such a consumer in this log is not known yet
        acknowledged = [consumer.queue.acknowledged for consumer in consumers if consumer.started]
        self.prepared.forget(xa_retention.acknowledged_by_all(view.mode, acknowledged))

    # -- consumers and readers -------------------------------------------------------------------------------

    def _of_reader(self, event: DeliveryChanged | ReaderDeclared, now: float) -> list[Effect]:
        if isinstance(event, ReaderDeclared):
            return self._reader_declared(event, now)
        self.consumers[event.consumer].delivery_paused = event.paused
        text = "delivery paused" if event.paused else "delivery resumed"
        return [Note("info", text, {"consumer": event.consumer}), Wake(event.consumer)]

    def _reader_declared(self, event: ReaderDeclared, now: float) -> list[Effect]:
        """If the new reader understands marked TABLE_MAPs, a consumer that failed at one continues. If the reader does
        not understand marked TABLE_MAPs, the daemon reads those in the queue again, and the consumer fails at the first
        one."""
        consumer = self.consumers[event.consumer]
        consumer.takes_unknown = event.takes_unknown
        if not event.takes_unknown and consumer.unknown_tables:
            self._dispatcher_set.detach(consumer, now)
            consumer.queue.evict()
            consumer.unknown_tables.clear()
        if not (event.takes_unknown and consumer.failed and consumer.failed_at_mark):
            return []
        consumer.failed = consumer.error = None
        consumer.failed_at_mark = False
        fields = {"consumer": consumer.name, "reason": "its reader stops single tables"}
        return [Note("info", "consumer continues", fields), Wake(consumer.name)]

    def _removed(self, event: Removed, now: float) -> list[Effect]:
        self._dispatcher_set.detach(self.consumers.pop(event.consumer), now)
        text = "consumer changed" if event.changed else "consumer removed"
        return [Note("info", text, {"consumer": event.consumer})]

    def progress_after(self, name: str, position: Position) -> Progress | None:
        """Returns the progress that must be stored before the `Acknowledged` of a position is passed to `step`; None if
        the position is not new.

        Raises UserError for a position that this consumer may not acknowledge.
        """
        consumer, queue = self.consumers[name], self.consumers[name].queue
        _, acknowledged, _, end = queue.locate(position)
        if acknowledged.seq <= queue.acknowledged.seq:
            return None
        covered = queue.covered_after(end, acknowledged)
        stored = consumer.stored_covered
        if stored is not None and stored.order > (queue.epoch, covered.seq):
            covered = queue.executed_of(stored)
        created = queue.files.created_stored(covered)
        reached = queue.position(acknowledged)
        same = covered is acknowledged  # nearly always true
        return Progress(reached, reached if same else queue.position(covered), created)

    def _acknowledged(self, event: Acknowledged, now: float) -> list[Effect]:
        consumer, queue = self.consumers[event.consumer], self.consumers[event.consumer].queue
        if event.position.seq <= queue.queued.seq:
            queue.acknowledge(event.position)
            consumer.stored_covered, consumer.evicted_commit_us = event.covered, None
            return []
        # The queue was evicted while the position was being stored. The client need not read the log up to this
        # position again.
        covered = queue.executed_of(event.covered)
        created = queue.files.created_of(covered.file)
        to = seeking.Target(queue.server, queue.mode, queue.epoch, covered, created)
        effects = self._move(consumer, to, now)
        queue.acknowledged = queue.executed_of(event.position)
        return [consumer.store_progress(), *effects[1:]]

    def _move_requested(
        self, event: SeekRequested | RelocationRequested, now: float
    ) -> list[Effect]:
        """Move a consumer to its reader's position or an administrator's start. Other consumers are not affected.

        If nothing shows that the server has the position, raises BinlogError and changes nothing.
        """
        consumer = self.consumers[event.consumer]
        if isinstance(event, RelocationRequested):
            to = seeking.relocation_target(consumer, event.start, event.view, event.epoch_min)
        elif seeking.holds(consumer, event.after):
            return []
        else:
            to = seeking.seek_target(consumer, event.after, event.view, fresh=event.fresh)
        return self._move(consumer, to, now)

    def _move(self, consumer: Consumer, to: seeking.Target, now: float) -> list[Effect]:
        back = consumer.started and to.executed.seq < consumer.queue.acknowledged.seq
        self._dispatcher_set.detach(consumer, now)
        seeking.move(consumer, to)
        consumer.verified = self._is_known(consumer, to.executed)
        fields = {"consumer": consumer.name, "back": back, "to": str(to.executed)}
        return [consumer.store_progress(), Note("info", "sought", fields)]

    def _is_known(self, consumer: Consumer, executed: ExecutedPosition) -> bool:
        """True if the daemon knows without a login that the server has a position."""
        if consumer.queue.server != self.files.server:
            return False
        if not consumer.queue.mode.by_gtid:
            return self.files.contains(executed)
        if self._executed is None:
            return False
        return self._executed.contains(executed_set(executed.gtids))


def _file_of(consumer: Consumer) -> str:
    position = consumer.position
    return position.file if position else ""
