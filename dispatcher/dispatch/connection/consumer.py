"""A consumer: its queue, its progress, and whether it is attached, waits or has failed."""

from __future__ import annotations

from dispatcher.dispatch.messages.effects import Effect, Note, Store, Wake
from dispatcher.dispatch.queue.queue import Queue
from dispatcher.dispatch.values.specs import ConsumerSpec, Progress
from dispatcher.dispatch.values.wait_budget import WaitBudget
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from dispatcher.stream.routes import Filter
from dispatcher.stream.segments import Allocate


class Consumer:
    """`dispatcher`: number of the dispatcher to which the consumer is attached; None while the consumer waits to
    attach, or has failed."""

    def __init__(
        self, spec: ConsumerSpec, progress: Progress | None, allocate: Allocate | None = None
    ) -> None:
        self.spec = spec
        self.wake = Wake(spec.name)  # made once: the effect is the same after each batch
        wanted = Filter(spec.databases, spec.tables, spec.exclude_tables)
        self.queue = Queue(wanted, spec.queue_bytes_max, allocate)
        self.progress = progress  # the stored progress; applied when the server's mode is known
        self.started = False  # True if the consumer's queue has a position
        # True if the position is known to belong to the server's history: a stream has reached it, or a login has
        # checked it.
        self.verified = True
        self.failed: BinlogError | None = None
        # True if the consumer failed on another server than its own, see `recovery`
        self.failed_elsewhere = False
        # True if the newest session's reader understands TABLE_MAPs that are marked as unknown, see `enrichment`.
        self.takes_unknown = False
        # True if the consumer failed at a TABLE_MAP that such a reader could get.
        self.failed_at_mark = False
        # The tables whose marked TABLE_MAPs the queue may hold.
        self.unknown_tables: set[str] = set()
        # The newest fault, even if it did not fail the consumer.
        self.error: BinlogError | None = None
        self.warnings: tuple[str, ...] = ()  # warnings about the consumer's subscription
        # The server's databases with which the subscription was compared last.
        self.compared_with: frozenset[str] | None = None
        # True if an administrator has paused the delivery. While it is paused, no reader makes room in the queue.
        self.delivery_paused = False
        self.stored_covered = progress.covered if progress else None
        self.dispatcher: int | None = None
        self.wait_budget = WaitBudget(spec.wait_max_s)
        self.detached_at = 0.0
        # The last time when the consumer was known to have the whole log. While the consumer is attached, see
        # `Dispatcher.current_at`.
        self.current_at = 0.0
        # The commit time of the oldest transaction that the last eviction dropped; None after an acknowledgement.
        self.evicted_commit_us: int | None = None
        self.attach_after = 0.0  # the earliest time at which the consumer may attach
        self.detaches = 0  # how often the consumer was detached or its queue was evicted
        self.gaps = 0  # how often the consumer skipped purged transactions

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def waiting(self) -> bool:
        """True if the consumer waits to attach to a dispatcher."""
        return self.dispatcher is None and self.failed is None

    @property
    def position(self) -> Position | None:
        """The position up to which the consumer has the log, as far as this is known without a server."""
        if self.started:
            return self.queue.position(self.queue.queued)
        return self.progress.covered if self.progress else None

    def fail(self, error: BinlogError) -> list[Effect]:
        """Stop the consumer. The consumer continues if a reader or an administrator moves it, if its own server is back
        (`recovery`), or if an operator corrects the cause and restarts the daemon."""
        self.failed = self.error = error
        self.failed_elsewhere = self.failed_at_mark = False
        self.queue.rollback()
        return self.failure_effects()

    def failure_effects(self) -> list[Effect]:
        fields = {"consumer": self.name, "error": str(self.failed)}
        return [Note("error", "consumer failed", fields), Wake(self.name)]

    @property
    def covered_advanced(self) -> bool:
        """True if the queue's covered position is beyond the stored one."""
        if not self.started or self.stored_covered is None:
            return False
        covered, stored = self.queue.covered, self.stored_covered
        return (self.queue.epoch, covered.seq) > (stored.epoch, stored.seq)

    def store_progress(self) -> Store:
        queue = self.queue
        covered = queue.covered
        position = self.stored_covered = queue.position(covered)
        created = queue.files.created_stored(covered)
        return Store(self.name, Progress(queue.position(queue.acknowledged), position, created))
