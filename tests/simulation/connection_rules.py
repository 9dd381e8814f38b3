"""Assertions about dispatchers: their connections, the transactions that their consumers have, merges, and logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.connection.dispatcher import Dispatcher, Phase
from dispatcher.dispatch.messages.events import (
    Input,
    Tick,
)
from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    executed_set,
    make_executed,
    parse_set,
)
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import (
    AtFile,
    AtGtid,
    AtTime,
    Earliest,
)
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import file_number, packed_seq
from tests.simulation.observed import Observations, Observed
from tests.simulation.truth import distance

if TYPE_CHECKING:
    pass


PAUSE_MAX_S = 5.0
FILE_END_MAX = 64  # the largest ROTATE, in bytes


class ConnectionRules:
    """Assert the rules for connections after a step."""

    def __init__(self, observed: Observations) -> None:
        self._observed = observed
        self._world = observed.world
        self.begin()

    def begin(self) -> None:
        """Delete all measurements before the daemon starts."""
        # By number: each dispatcher that waits for a replica, and when the wait began.
        self._behind: dict[int, tuple[Dispatcher, float]] = {}
        self._contained: dict[str, tuple[ExecutedPosition, ExecutedPosition]] = {}

    def check_connections(self, event: Input) -> None:
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
                self.is_read_soon(dispatcher)
            if phase is Phase.STREAMING:
                full = [consumer.name for consumer in dispatcher.attached if _is_full(consumer)]
                assert not full, f"{number} reads on, though the queues of {full} are full"

    def is_read_soon(self, dispatcher: Dispatcher) -> None:
        is_full = any(_is_full(consumer) for consumer in dispatcher.attached)
        if dispatcher.gate.awaits_poll and not is_full:
            return  # the dispatcher waits for an answer of the server
        paused_s = self._world.now - dispatcher.paused_since
        assert paused_s < PAUSE_MAX_S, f"{dispatcher.number} was not read for {paused_s} s"

    def has_what_was_read(self, consumer: Consumer, seen: Observed) -> None:
        """Assert that an attached consumer has everything that its dispatcher has read."""
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
        if consumer.queue.mode.by_gtid:
            assert queued.contains(read), f"{consumer.name} lacks what was read"
        else:
            assert read.seq <= queued.seq, f"{consumer.name} lacks what was read"
        if seen.dispatcher != consumer.dispatcher:
            self.is_near(dispatcher, consumer)

    def is_of_one_history(self, consumer: Consumer) -> None:
        """Assert that the positions of a consumer are in the log that the consumer has read, also after a RESET."""
        queue, history = consumer.queue, self._world.readers[consumer.name].history
        created = queue.files.created_of(queue.queued.file)
        if consumer.started and history is not None and created:
            assert created in history.created.get(queue.queued.file, ()), (
                f"{consumer.name} went on in another log, at {queue.queued}"
            )
            assert queue.queued.offset in history.offsets[queue.queued.file], (
                f"{consumer.name} is inside a transaction of its log, at {queue.queued}"
            )

    def is_near(self, dispatcher: Dispatcher, consumer: Consumer) -> None:
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
        if known is not None and dispatcher.mode.by_gtid:
            # A dump that omits executed transactions does not show the true size of a file.
            apart = min(apart, known)
        elif known is not None:
            # The event that ends a file belongs to no transaction, so a dump shows a file's size without it.
            files = abs(file_number(queued.file) - file_number(read.file))
            apart = max(apart - files * FILE_END_MAX, min(apart, known))
        assert apart <= most, f"{consumer.name} is attached {apart} bytes ahead of {read}"

    def merged_where_possible(self) -> None:
        """Assert that there are no two dispatchers whose consumers could all be attached to one of them."""
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
        if any(
            self._observed.consumers[consumer.name].barred_until > world.now
            for consumer in attached
        ):
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
        if queue.mode.by_gtid:
            if not queue.queued.contains(read):
                return False
        elif read.seq > queue.queued.seq:
            return False
        if self._world.client.files.distance(queue.mode, read, queue.queued) is None:
            return False  # the client knows only the files of an older login
        apart = distance(server, read, queue.queued)
        return apart is not None and apart <= self._world.client.limits.merge_bytes_max

    def near_share(self) -> None:
        """Assert that consumers that begin at the same time and near each other are attached to one dump."""
        world, client = self._world, self._world.client
        consumers = list(client.consumers.values())
        if any(
            self._observed.consumers[c.name].started
            for c in consumers
            if c.name in self._observed.consumers
        ):
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
        """Assert that the daemon asked the server for the creation time of each consumer's file. Call before a login is
        stepped."""
        files = dict(view.files)
        for consumer in self._world.client.dispatchers[number].attached:
            at = consumer.position
            if at is not None and at.server == view.server and at.file in files:
                assert at.file in view.created, f"the login did not ask about {consumer.name}"

    def waits_for_replica(self, number: int) -> None:
        """Assert that a dispatcher waits for a replica no longer than `failover_wait_s`."""
        world = self._world
        dispatcher = world.client.dispatchers.get(number)
        if dispatcher is None or dispatcher.phase is not Phase.CONNECTING:
            self._behind.pop(number, None)
            return
        waiting, since = self._behind.get(number, (None, world.now))
        if waiting is not dispatcher:  # a new dispatcher has this number, and its wait begins now
            since = world.now
        self._behind[number] = dispatcher, since
        most = world.client.limits.failover_wait_s
        assert world.now - since < most, f"{number} has waited for a replica since {since}"

    def starts(self, view: ServerView) -> None:
        """Assert that a consumer without a position begins at its start."""
        for name, consumer in self._world.client.consumers.items():
            placed = consumer.started and not self._observed.consumers[name].started
            if not placed or consumer.progress is not None or consumer.gaps:
                continue
            start, place = consumer.spec.start, consumer.queue.queued
            wanted: ExecutedPosition | BinlogError = make_executed(
                view.mode, view.executed, view.file, view.offset
            )
            if isinstance(start, Earliest):
                purged = view.purged if view.mode.by_gtid else ""
                wanted = make_executed(view.mode, purged, view.files[0][0], 4)
            elif isinstance(start, AtTime | AtFile):
                wanted = view.starts[start]
            elif isinstance(start, AtGtid):
                wanted = make_executed(view.mode, start.gtids, "", 0)
            assert place == wanted, f"{name} begins at {place}, which is not {start}"

    def server_answers(self, view: ServerView) -> None:
        """Assert that the client knows all files that it has read, even if the server's answer is older than these
        files."""
        if view.mode.by_gtid:
            self._observed.executed[view.server] = parse_set(view.mode, view.executed)
        client = self._world.client
        for dispatcher in client.dispatchers.values():
            read, at = dispatcher.read, dispatcher.view
            if dispatcher.open and read is not None and at is not None:
                later = packed_seq(read.file, read.offset) > packed_seq(view.file, view.offset)
                same = at.server == view.server == client.files.server
                assert not (later and same) or client.files.contains(read), (
                    f"the client has forgotten {read}, which it has read"
                )


def _is_full(consumer: Consumer) -> bool:
    queue = consumer.queue
    return queue.transactions > 0 and queue.held_bytes >= queue.bytes_max


def _has(queued: ExecutedPosition, inside: tuple[str, int] | int) -> bool:
    if isinstance(inside, int):
        return queued.seq > inside
    return executed_set(queued.gtids).has(*inside)
