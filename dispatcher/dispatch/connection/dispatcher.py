"""One replication connection and the consumers attached to it.

A dispatcher rewrites the TABLE_MAPs of each batch (`enrichment`) and passes the batch to its consumers (`dealing`). It
fails the consumers that a fault of the log concerns, and opens a lost connection again (`retry`). `client` decides
which consumers are attached.

If a batch raises a question that only the server can answer, the dispatcher holds the batch (`batch_gate`), and pauses
reading until the answer comes. If definitions of tables are still missing after that, the consumers that need them
fail.

Phases: connecting → streaming ⇄ paused → (closed until there is room) → connecting ... At the end of a log that does
not grow, the phase becomes ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum

from dispatcher.dispatch.connection.batch_gate import BatchGate
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dealing import Dealer
from dispatcher.dispatch.history.attachment import OpenTransaction, dump_start, has_transaction
from dispatcher.dispatch.history.continuity import (
    Continuity,
    HeadVerdict,
    QueuedPosition,
    history_error,
    may_skip,
)
from dispatcher.dispatch.history.retry import OPERATOR_RETRY_S, RetryPolicy
from dispatcher.dispatch.messages.effects import (
    Close,
    Connect,
    Effect,
    Note,
    Pause,
    PollServer,
    StartDump,
    Wake,
)
from dispatcher.dispatch.messages.events import BatchReceived, LookUpDelayed, SchemaFetched
from dispatcher.dispatch.tables.enrichment import Enrichment, SchemaFailure
from dispatcher.dispatch.tables.versions import LogPosition, Versions
from dispatcher.dispatch.values.executed_position import BatchGtids, ExecutedPosition, Mode
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.model.errors import SEEK, BinlogError, ErrorKind
from dispatcher.model.position import file_number, packed_seq
from dispatcher.stream.batch import OPEN, Batch, Fault
from dispatcher.stream.routes import ALL, Routes


class Phase(StrEnum):
    CONNECTING = "connecting"
    STREAMING = "streaming"
    PAUSED = "paused"  # the connection is open but not read
    BACKPRESSURE_CLOSED = "closed until there is room"
    ENDED = "ended"  # the dispatcher has read the whole log, which does not grow


class Dispatcher:
    """`number`: 1 or higher, unique among the client's dispatchers. `routes`: the routes of the client."""

    def __init__(self, number: int, label: str, routes: Routes, versions: Versions) -> None:
        self.number = number
        self.label = label  # the label of the client
        self.phase = Phase.CONNECTING
        self.attached: list[Consumer] = []
        self._filled: dict[
            Consumer, None
        ] = {}  # may hold consumers without transactions, which `filled` drops
        self.view: ServerView | None = None
        self.error: BinlogError | None = None  # the reason why there is no connection
        self.read: ExecutedPosition | None = None
        # The transaction inside which the last batch ended; None if the batch ended between two transactions.
        self.open_transaction: OpenTransaction = None
        self.enrichment = Enrichment(routes, versions)
        self.continuity = Continuity()
        self.gate = BatchGate(number)
        self.last_timestamp = 0  # timestamp of the newest event, s since 1970
        self.tip_seq = 0  # seq of the end of the server's log, as far as it is known
        self.current_at = -math.inf  # when the dispatcher had last read the whole log
        self.events = self.bytes = self.reconnects = 0
        self.streams_begun = 0
        self.paused_since = self.stream_begun_at = 0.0
        self.login_begun = False  # True once the login has begun to ask the server questions
        self.newest_xa = 0  # number of the newest prepared transaction when the login began
        # The time since which the server lacks transactions of consumers.
        self.lacking_since: float | None = None
        self._routes = routes
        self._dealer = Dealer(routes)
        self._retry = RetryPolicy()

    @property
    def mode(self) -> Mode:
        return self.view.mode if self.view is not None else Mode.GTID

    @property
    def consumers(self) -> list[str]:
        """Names of the attached consumers."""
        return [consumer.name for consumer in self.attached]

    @property
    def open(self) -> bool:
        return self.phase in (Phase.STREAMING, Phase.PAUSED)

    @property
    def current(self) -> bool:
        """True while the dispatcher reads at the known end of the server's log, or if it has read the whole of a log
        that does not grow."""
        if self.phase is Phase.STREAMING:
            return self.read is not None and self.read.seq >= self.tip_seq
        return self.phase is Phase.ENDED

    @property
    def filled(self) -> list[Consumer]:
        """The attached consumers that have complete transactions in their queues."""
        filled = [consumer for consumer in self._filled if consumer.queue.transactions]
        if len(filled) < len(self._filled):
            self._filled = dict.fromkeys(filled)
        return filled

    def note_current(self, now: float) -> None:
        if self.current:
            self.current_at = now

    # -- consumers -------------------------------------------------------------------------------------------

    def attach(self, consumer: Consumer) -> None:
        assert consumer.dispatcher is None, "a consumer is attached to one dispatcher"
        consumer.dispatcher = self.number
        consumer.error = self.error
        self.attached.append(consumer)
        self._filled[consumer] = None

    def detach(self, consumer: Consumer, now: float) -> None:
        """Detach a consumer, and drop the part of the open transaction that is in its queue. So the queue ends between
        two transactions."""
        consumer.queue.rollback()
        consumer.queue.leave()
        consumer.wait_budget.end(now)
        consumer.detached_at = now
        consumer.current_at = max(consumer.current_at, self.current_at)
        consumer.dispatcher = None
        self.attached.remove(consumer)
        self._filled.pop(consumer, None)

    def fail(self, consumer: Consumer, error: BinlogError, now: float) -> list[Effect]:
        self.detach(consumer, now)
        return consumer.fail(error.at(self._where(consumer)))

    def _where(self, consumer: Consumer) -> str:
        return f"consumer {consumer.name}, {self.label}"

    def _wake(self) -> list[Effect]:
        return [Wake(name) for name in self.consumers]

    # -- the connection --------------------------------------------------------------------------------------

    def connect(self, after_s: float = 0.0) -> list[Effect]:
        self.phase = Phase.CONNECTING
        self.login_begun = False
        return [Connect(self.number, after_s)]

    def start_dump(self, view: ServerView, now: float) -> list[Effect]:
        """Begin a stream: the login succeeded, and every consumer has a position in this server's log."""
        self.stream_begun_at = now
        queues = [consumer.queue for consumer in self.attached]
        before, self.read = self.read, dump_start(view.mode, [queue.queued for queue in queues])
        self._dealer.begin(self.read, self.attached)
        self.open_transaction = None
        self.streams_begun += 1
        self.tip_seq = view.tip.seq
        anchored = all(queue.files.is_anchored(queue.queued) for queue in queues)
        self.continuity.begin(self.read, view, anchored=anchored)
        self.gate.begin()
        self._begin_enrichment(view, self.read, before)
        self.error = self.lacking_since = None
        self._retry.connected()
        for consumer in self.attached:
            consumer.error = None
        self.phase = Phase.STREAMING
        fields = {
            "dispatcher": self.number,
            "from": str(self.read),
            "consumers": self.consumers,
        }
        dump = StartDump(self.number, view.mode, self.read)
        return [dump, Note("info", "streaming", fields), *self._wake()]

    def _begin_enrichment(
        self, view: ServerView, read: ExecutedPosition, before: ExecutedPosition | None
    ) -> None:
        """Begin the enrichment of a stream at `read`. `before`: the position up to which the previous stream has
        read."""
        versions, gaps = self.enrichment.versions, False
        at: LogPosition | None = LogPosition(read.file, read.offset, view.created.get(read.file, 0))
        same = before is not None and before.gtids == read.gtids and versions.server == view.server
        if view.mode.by_gtid:
            # A GTID set does not show where its last transaction lies in the log. The file of the position shows only
            # where the set was computed.
            at = self.enrichment.position if same else None
            gaps = may_skip(read.gtids, view.written)
        versions.login(view.server, [name for name, _ in view.files])
        self.enrichment.begin(at, mariadb=view.mode.mariadb, can_ask=view.knows_tables, gaps=gaps)
        ahead = self.gate.read_ahead_from(read.gtids)
        if gaps and ahead is not None and same:
            # This stream continues the stream that was closed while the log was read ahead.
            self.enrichment.read_ahead(ahead.request.start, list(ahead.statements))

    def lost(self, error: BinlogError, now: float) -> list[Effect]:
        """Connect again after a fault, or fail all consumers if a new connection cannot help."""
        self._roll_back(now)
        if self.phase is Phase.BACKPRESSURE_CLOSED:
            return []  # the connection was closed on purpose
        error, fatal = self._retry.classify(error, self.read)
        self.error = error
        self.reconnects += self.open
        if fatal:
            return [e for c in list(self.attached) for e in self.fail(c, error, now)]
        return self.reconnect(error, now)

    def reconnect(
        self, error: BinlogError, now: float, after_s: float | None = None
    ) -> list[Effect]:
        """Connect again after a fault. `after_s`: the wait in seconds, None for the backoff of the retry policy.

        If `after_s` is given, a server has answered, so the backoff is reset. Without the reset, failures of other
        hosts between two answers would make each wait longer than the wait before.
        """
        self.error = error
        if after_s is not None:
            self._retry.connected()
        after_s = self._retry.delay_s(error, now, after_s)
        for consumer in self.attached:
            consumer.error = error
        fields = {"dispatcher": self.number, "error": str(error), "retry_s": after_s}
        return [
            Note("warning", "not connected", fields),
            *self.connect(after_s),
            *self._wake(),
        ]

    def login_again(self, reason: str, now: float) -> list[Effect]:
        """Log in again, because the server's log may no longer be the one that was read. The login checks each
        consumer."""
        fields = {"dispatcher": self.number, "reason": reason}
        self.reconnects += 1
        return [
            Note("warning", "server history is checked anew", fields),
            *self.close(reason, now),
            *self.connect(),
        ]

    def ended(self, now: float) -> list[Effect]:
        self._roll_back(now)
        self.phase = Phase.ENDED
        assert self.read is not None, "an end before the dump"
        in_transaction = self.open_transaction is not None
        fields = {"at": str(self.read), "in_transaction": in_transaction}
        self.open_transaction = None
        return [Note("warning" if in_transaction else "info", "ended", fields), *self._wake()]

    def close(self, reason: str, now: float) -> list[Effect]:
        """Close the connection until the queues have room, or until `connect` is called."""
        self._roll_back(now)
        self.phase = Phase.BACKPRESSURE_CLOSED
        return [Close(self.number, reason)]

    def pause(self, now: float) -> list[Effect]:
        self.phase = Phase.PAUSED
        self.paused_since = now
        return [Pause(self.number)]

    def _roll_back(self, now: float) -> None:
        """Drop the part of the open transaction that is in the queues, and the held batch: the next stream begins at a
        transaction boundary."""
        self.gate.release()
        for consumer in self.attached:
            consumer.queue.rollback()
            consumer.wait_budget.end(now)

    # -- the stream ------------------------------------------------------------------------------------------

    def receive(self, batch: Batch, created: int, now: float) -> list[Effect]:
        """Push a batch into the queues, or hold the batch until the server has answered a question about it."""
        read, gate = self.read, self.gate
        assert read is not None and gate.held is None, "a batch before the dump, or too early"
        match self.continuity.judge(batch, self.mode, read):
            case HeadVerdict.UNKNOWN:
                self.bytes += batch.bytes
                return []
            case HeadVerdict.ASK:
                gate.hold_for_poll(BatchReceived(self.number, batch.copy(), created))
                return [*self._pause_to_ask(now), PollServer()]
            case HeadVerdict.DIFFERS:
                return self.login_again(f"{batch.file} does not follow what was read", now)
        gtids = BatchGtids.of(batch)
        if self.mode is Mode.DOMAINS and (pair := gtids.backwards(read.gtids)):
            return self._fail_backwards(batch, pair, now)
        demand = self._dealer.demand(self.attached, gtids, read)
        outcome = self.enrichment.enrich(
            batch, created, demand.route_mask(), demand.requirement, ask=gate.may_fetch
        )
        if outcome.missing:
            received = BatchReceived(self.number, outcome.batch.copy(), created)
            streaming = self.phase is Phase.STREAMING
            return [
                *gate.hold_for_schema(received, outcome, streaming=streaming),
                *self._pause_to_ask(now),
            ]
        gate.passed()
        effects: list[Effect] = []
        for consumer, failure in demand.failing(outcome.failures):
            effects += self.fail(consumer, failure.error, now)
            consumer.failed_at_mark = failure.marked
        if effects:
            demand = self._dealer.demand(self.attached, gtids, read)
        effects += self._deliver_marks(demand.receiving_marks(outcome.failures))
        after = self._read_after(batch, gtids, created)
        self.continuity.advance(after, gtids)
        anchored = self.continuity.anchored
        for consumer, error in self._dealer.deal(
            outcome.batch, gtids, created, after, demand.others(), anchored=anchored
        ):
            if error:
                effects += self._lacks_room(consumer, error, now)
            else:
                self._filled[consumer] = None
                effects.append(consumer.wake)
        self.enrichment.advance(batch, created)
        self.read = after
        self.events += batch.events
        self.bytes += batch.bytes
        self.last_timestamp = batch.timestamp or self.last_timestamp
        if gtids.count:
            self._retry.passed_damage()
        if batch.fault:
            effects += self._fail_concerned(batch, batch.fault, now)
        return effects

    def _deliver_marks(self, marks: Iterable[tuple[Consumer, SchemaFailure]]) -> list[Effect]:
        return [
            effect
            for consumer, failure in marks
            for effect in self._deliver_mark(consumer, failure)
        ]

    def _deliver_mark(self, consumer: Consumer, failure: SchemaFailure) -> list[Effect]:
        """Record that a consumer gets rows of a table whose definition is unknown. Returns a note for the first rows of
        each table."""
        ((database, table),) = self._routes.targets[failure.route]
        label = f"{database}.{table}"
        if label in consumer.unknown_tables:
            return []
        consumer.unknown_tables.add(label)
        fields = {"consumer": consumer.name, "table": label, "error": str(failure.error)}
        return [Note("warning", "rows delivered without a definition", fields)]

    def _pause_to_ask(self, now: float) -> list[Effect]:
        return self.pause(now) if self.phase is Phase.STREAMING else []

    def _lacks_room(self, consumer: Consumer, error: BinlogError, now: float) -> list[Effect]:
        """Detach a consumer that has no room on disk for a transaction that is larger than its queue. The queue drops
        the transaction; the daemon reads it again when the consumer is attached again."""
        self.detach(consumer, now)
        consumer.error = error.at(self._where(consumer))
        consumer.attach_after = now + OPERATOR_RETRY_S
        fields = {"consumer": consumer.name, "error": str(consumer.error)}
        return [Note("error", "consumer waits", fields), Wake(consumer.name)]

    def schema_fetched(self, answer: SchemaFetched, now: float) -> list[Effect]:
        """Add the fetched definitions, and deliver the batch that was held for them."""
        start, definitions = answer.request.start, answer.definitions
        self.enrichment.versions.add_fetched(start, definitions, answer.statements)
        if self.gate.answered(answer, self.read.gtids if self.read else None):
            self.enrichment.read_ahead(start, list(answer.statements))
        for consumer in self.attached:
            consumer.error = None  # the error of a look-up that was delayed
        effects: list[Effect] = [Note("info", "looked up tables", {"found": len(definitions)})]
        if not self.gate.awaits_poll and (held := self.gate.release()) is not None:
            effects += self.receive(held.batch, held.created, now)
        return effects

    def look_up_delayed(self, delayed: LookUpDelayed) -> list[Effect]:
        """Record that the server could not be asked for definitions. If the connection of the held batch is closed, do
        not wait for the answer: another server may have taken over, and only a login detects this."""
        for consumer in self.attached:
            consumer.error = delayed.error.at(self._where(consumer))
        if self.gate.held is None:
            self.gate.forget(delayed.request)
        return []

    # -- the server's history --------------------------------------------------------------------------------

    def queued_positions(self) -> list[QueuedPosition]:
        """Returns the consumers' present positions. A view of the server that is taken after this call must agree with
        these positions."""
        positions: dict[tuple[int, bool], QueuedPosition] = {}
        for consumer in self.attached if self.open else ():
            queue, queued = consumer.queue, consumer.queue.queued
            anchored = queue.files.is_anchored(queued)
            key = id(queued), anchored  # most consumers share one position
            if key not in positions:
                created = queue.files.created_of(queued.file)
                positions[key] = QueuedPosition(queue.mode, queue.server, queued, created, anchored)
        return list(positions.values())

    def server_polled(
        self, view: ServerView, positions: list[QueuedPosition], *, answers_held: bool, now: float
    ) -> list[Effect]:
        """Compare the server's view with `positions`, which the consumers had when the server was asked.

        `answers_held`: True if a held batch waited for this poll.
        """
        if error := history_error(view, positions):
            return self.login_again(error.what, now)
        if self.open and self.read is not None:
            tip = view.tip
            self.tip_seq = 0 if self.read.log_order >= tip.log_order else tip.seq
        if not answers_held or (held := self.gate.release()) is None:
            return []
        if self.view is None or view.server != self.view.server:
            return self.login_again("the client reads another server now", now)
        if not self.continuity.confirm(held.batch, dict(view.files)):
            return self.login_again(f"{held.batch.file} follows another file than was read", now)
        return self.receive(held.batch, held.created, now)

    def _read_after(self, batch: Batch, gtids: BatchGtids, created: int) -> ExecutedPosition:
        """Returns the position after the last complete transaction of a batch.

        This position is never inside a transaction, where no dump may begin. Outside a transaction the position also
        moves over other events, such as a rotation. If it did not, a position without GTIDs would stay in files that
        the server will purge.
        """
        before = self.read
        assert before is not None
        count = gtids.count
        executed = gtids.after(before.gtids, len(gtids.source)) if count else before.gtids
        if len(batch.tx.flags):
            is_open = batch.tx.flags[-1] & OPEN
            self.open_transaction = self._last_transaction(batch, gtids) if is_open else None
        file, offset = batch.file, batch.offset
        if self.open_transaction is not None:
            if not count:
                return before
            offset = int(gtids.end[gtids.ended][-1])
        if self.mode.by_gtid:
            # A dump from a set begins with the head of the file in which the server searches for the next transaction.
            # This head does not show where the set ends.
            if not count and (not before.file or (file_number(file), offset) < before.log_order):
                return before
            gained = count if self.mode is Mode.GTID else int(gtids.gains(before.gtids).sum())
            return ExecutedPosition(executed, file, offset, before.seq + gained)
        if not count and not created and file != before.file and self.continuity.can_ask:
            # The server has not sent the head of the new file yet. Until it does, a position in this file cannot be
            # distinguished from a position in a file of the same name after a RESET.
            return before
        seq = packed_seq(file, offset)
        return before if seq <= before.seq else ExecutedPosition(executed, file, offset, seq)

    def _last_transaction(self, batch: Batch, gtids: BatchGtids) -> OpenTransaction:
        if not self.mode.by_gtid:
            return packed_seq(batch.file, batch.offset)
        source = int(gtids.source[-1])
        return (gtids.sources[source] if source >= 0 else "", int(gtids.gno[-1]))

    def _fail_concerned(self, batch: Batch, fault: Fault, now: float) -> list[Effect]:
        """Fail every consumer whose filter matches the faulty event that follows the batch, except the consumers that
        are already past this event."""
        effects: list[Effect] = []
        for consumer in list(self.attached):
            mask = consumer.queue.filter.route_mask(self._routes)
            if fault.route != ALL and not (fault.route >= 0 and mask[fault.route]):
                continue
            if not self._is_past(consumer.queue.queued, batch):
                effects += self.fail(consumer, fault.error, now)
        return effects

    def _fail_backwards(self, batch: Batch, pair: str, now: float) -> list[Effect]:
        """Fail all consumers at a GTID of MariaDB whose number does not ascend: otherwise the daemon would conclude
        that the consumers already have this transaction."""
        error = BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"in {batch.file} {pair}, but with several hosts the numbers of a domain must ascend",
            remedy="set gtid_strict_mode=ON on all hosts, copy the tables afresh, then move the consumer to the copy's"
            f" position: {SEEK}; or name one host, which is read by file and offset",
        )
        return [
            effect for consumer in list(self.attached) for effect in self.fail(consumer, error, now)
        ]

    def _is_past(self, queued: ExecutedPosition, batch: Batch) -> bool:
        """True if a queued position lies after the faulty event that follows the batch."""
        assert self.read is not None
        if not self.mode.by_gtid:
            return queued.seq > packed_seq(batch.file, batch.offset)
        if self.open_transaction is None:
            return queued.seq > self.read.seq
        return has_transaction(queued, self.open_transaction)
