"""A declared reader and its queue, as the rules see it."""

from __future__ import annotations

from dispatcher.binlog.stream.routes import Filter
from dispatcher.binlog.stream.segments import Allocate
from dispatcher.dispatch.effects import Effect, Note, Store, Wake
from dispatcher.dispatch.queue import Queue
from dispatcher.dispatch.specs import ConsumerSpec, Progress
from dispatcher.dispatch.wait_budget import Patience
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position


class Consumer:
    """`dispatcher`: the number of the one that it rides on; None: it waits, for room or a connection, or has failed."""

    def __init__(
        self, spec: ConsumerSpec, progress: Progress | None, allocate: Allocate | None = None
    ) -> None:
        self.spec = spec
        self.queue = Queue(Filter(spec.databases, spec.tables), spec.queue_bytes_max, allocate)
        self.progress = progress  # stored; applied when the server's mode is known
        self.started = False  # has a place
        self.proven = True  # its place is one of the server's history: read, or checked by a login
        self.failed: BinlogError | None = None
        self.error: BinlogError | None = None  # the newest fault, failed or not
        self.stored_covered = progress.covered if progress else None
        self.dispatcher: int | None = None
        self.patience = Patience(spec.wait_max_s)
        self.left_at = 0.0  # until then it rode on a dispatcher
        self.attach_after = 0.0  # it waits at least until then
        self.detaches = 0  # how often others went on without it
        self.gaps = 0  # how often it went on behind what the server had purged

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def waiting(self) -> bool:
        return self.dispatcher is None and self.failed is None

    @property
    def position(self) -> Position | None:
        """Up to where it has the log, as far as that is known without a server."""
        if self.started:
            return self.queue.position(self.queue.queued)
        return self.progress.covered if self.progress else None

    def fail(self, error: BinlogError) -> list[Effect]:
        """It cannot go on until a reader seeks, or somebody mends its cause and the daemon is restarted."""
        self.failed = self.error = error
        self.queue.rollback()
        return self.told_of_failure()

    def told_of_failure(self) -> list[Effect]:
        """What the log and the readers are told of it."""
        fields = {"consumer": self.name, "error": str(self.failed)}
        return [Note("error", "consumer failed", fields), Wake(self.name)]

    @property
    def covered_moved(self) -> bool:
        """Is less stored than it could be?"""
        if not self.started or self.stored_covered is None:
            return False
        covered = self.queue.covered
        stored = self.stored_covered
        return (self.queue.epoch, covered.seq) > (stored.epoch, stored.seq)

    def store(self) -> Store:
        queue = self.queue
        covered = queue.covered
        position = self.stored_covered = queue.position(covered)
        created = queue.created_stored(covered)
        return Store(self.name, Progress(queue.position(queue.acknowledged), position, created))
