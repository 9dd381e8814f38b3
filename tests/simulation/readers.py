"""The readers of a play. Each reader polls and acknowledges with the frequency of its kind (`MANNERS`), crashes and
returns, seeks, and is fenced.

A reader must get each transaction after its first position once, in order. If a reader opens a session at its own
position, it continues from this position. If it opens a session without a position, as a new reader does, it begins at
the acknowledged position.
"""

from __future__ import annotations

from dataclasses import replace

from dispatcher.dispatch.client import seeking
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.messages.events import Acknowledged
from dispatcher.dispatch.queue.queue import Queue
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from tests.simulation.world import PlayedReader, PlayedWorld
from tests.support.simulation import Reader

# By kind of reader: the probability of a poll, the choices for its max_bytes, and the probability that it acknowledges.
MANNERS: dict[str, tuple[float, tuple[int, ...], float]] = {
    "keen": (1.0, (5000, 1 << 20), 0.9),
    "lazy": (1.0, (500, 5000, 1 << 20), 0.2),
    "crawling": (0.3, (1,), 0.5),
    "stuck": (0.0, (1,), 0.0),
}


class ReadWorld(PlayedWorld):
    """A played world with readers."""

    # -- sessions --------------------------------------------------------------------------------------------

    def ready(self, name: str) -> tuple[Consumer, Queue, Reader] | None:
        consumer, reader = self.client.consumers.get(name), self.readers[name]
        if consumer is None or not consumer.started or name not in self.store:
            return None
        queue = consumer.queue
        if reader.positions and reader.position.epoch != queue.epoch:
            assert name in self.rules.jumped, f"{name} is in another epoch"
            reader.positions.clear()
        if not reader.positions:
            reader.positions.append(queue.position(queue.acknowledged))
        if name not in self.opened:
            # If a reader's seek to an earlier position was not stored, the reader cannot continue in its session.
            lost = reader.position.seq < queue.acknowledged.seq
            if lost and reader.history is not self.history:
                return None  # the reader's consumer will fail
            self.opened.add(name)
            resumes = lost or self.rng.random() < 0.7
            if resumes and not self.resume(name, reader.position):
                reader.positions[:] = [
                    queue.position(queue.acknowledged)
                ]  # the session was opened without a position
        consumer = self.client.consumers.get(name)
        return (consumer, consumer.queue, reader) if consumer else None

    def resume(self, name: str, after: Position) -> bool:
        """Open a session at a position. Returns False if the daemon refuses the session, or would refuse it."""
        self.complete(name)  # a reader makes one request at a time
        consumer = self.client.consumers[name]
        if seeking.holds(consumer, after):
            self.acknowledge(name, after)
            return True
        if self.readers[name].history is not self.history:
            return False  # the failed consumer's error says that the log has another history
        before = self.rules.seeks.standing()
        undo = self.rules.seeks.begins(name, after)
        try:
            self.step(self.seek_order(name, after))
        except BinlogError as error:
            undo()
            self.rules.seeks.refused(name, after, error, before)
            return False
        self.rules.seeks.sought(name, after)
        self.sought.add(name)
        if self.rng.random() < 0.9:
            self.flush()
        return True

    def acknowledge(self, name: str, position: Position, *, slow: bool = False) -> None:
        """Store an acknowledgement, then pass it to the rules. `slow`: True if other steps take place between the
        two."""
        self.complete(name)
        try:
            progress = self.client.progress_after(name, position)
        except BinlogError as error:
            if error.kind is not ErrorKind.RANGE_UNAVAILABLE:
                raise
            self.resume(name, position)  # the reader is ahead of the queue
            return
        if progress is None:
            return
        self.to_store[name] = progress
        self.flush()
        self.pending[name] = Acknowledged(name, progress.acknowledged, progress.covered)
        if not slow and self.rng.random() < 0.9:
            self.complete(name)

    def complete(self, name: str) -> None:
        """Pass a stored acknowledgement to the rules."""
        acknowledged = self.pending.pop(name, None)
        if acknowledged is None:
            return
        if self.client.consumers[name].queue.epoch == acknowledged.position.epoch:
            self.step(acknowledged)

    # -- moves -----------------------------------------------------------------------------------------------

    def act(self, name: str) -> None:
        """Poll in the reader's manner."""
        likely, sizes, acknowledges = MANNERS[self.readers[name].manner]
        if self.rng.random() < likely:
            self.poll(name, self.rng.choice(sizes), self.rng.random() < acknowledges)

    def seek(self, name: str) -> None:
        """Seek to a position that the reader has received at some time. The server may have purged it."""
        consumer, reader = self.client.consumers.get(name), self.readers[name]
        failed = consumer is not None and consumer.failed is not None
        if not failed and self.ready(name) is None:
            return
        if not reader.positions or reader.history is not self.history:
            return  # a daemon that no longer knows the files cannot detect the other log
        index = self.rng.randrange(len(reader.positions))
        if self.resume(name, reader.positions[index]):
            del reader.positions[index + 1 :]

    def returns(self, name: str) -> bool:
        """Open a session of a failed consumer at the newest position that the reader has received. If the daemon
        refuses this, open it at the position of a new copy of the tables. Returns False if the daemon refuses both."""
        consumer, reader = self.client.consumers[name], self.readers[name]
        comes = bool(reader.positions) and not seeking.holds(consumer, reader.position)
        if comes and self.resume(name, reader.position):
            return True
        if name not in self.store or self.rng.random() < 0.5:
            return False
        copied = self.history.after(self.rng.randint(0, self.server.stop.transactions))
        place = replace(copied, epoch=self.store[name].covered.epoch)
        before, reader.history = reader.history, self.history
        if seeking.holds(consumer, place) or not self.resume(name, place):
            reader.history = before
            return False
        reader.positions = [place]
        return True

    def leap(self, name: str) -> None:
        """Seek ahead: to a position that the reader has from another daemon of the same server, or to a position that
        the server has not executed. The daemon must refuse a position that the server has not executed."""
        ready = self.ready(name)
        if ready is None or ready[0].failed:
            return
        reader = self.readers[name]
        if reader.history is not self.history or self.failed_over_at <= self.now:
            return  # the changes that the consumer has read may be from two logs
        there = self.server.stop.transactions
        count = self.rng.randint(
            0, min(there + self.rng.choice((0, 3)), len(self.history.transactions))
        )
        place = replace(self.history.after(count), epoch=reader.position.epoch)
        queued = ready[1].position(ready[1].queued)
        is_ahead = self._is_before(queued, place) and self._is_before(reader.position, place)
        if is_ahead and self.resume(name, place):
            reader.positions = [place]

    def _is_before(self, a: Position, b: Position) -> bool:
        if not self.scenario.mode.by_gtid:
            return a.seq < b.seq
        return a != b and self.history.parse(b.gtid).contains(self.history.parse(a.gtid))

    def store_slowly(self, name: str) -> None:
        """Acknowledge everything. Other steps take place before the acknowledgement is stored, and the queue may be
        evicted meanwhile."""
        if self.ready(name) is not None:
            self.poll(name, 1 << 22, ack=False)
            self.acknowledge(name, self.readers[name].position, slow=True)
            self.pass_time(self.rng.choice((0.5, 6.0, 30.0)))
            self.complete(name)

    def fence(self, name: str) -> None:
        """Let another reader open a session without a position."""
        if self.ready(name) is not None:
            self.complete(name)
            self.readers[name].positions.clear()
            self.ready(name)

    def change_manner(self, name: str) -> None:
        self.readers[name].manner = self.rng.choice(("keen", "keen", "lazy", "crawling", "stuck"))

    # -- what they are given ----------------------------------------------------------------------------------

    def tells_markers(self) -> bool:
        """Returns True at random. If False, the daemon stores progress without sending this progress to readers."""
        return not self.settled and self.rng.random() < 0.1

    def judge(self, reader: Reader, after: Position, end: Position, got: bytes) -> None:
        """Assert that the bytes are the transactions in (after, end] that match the filter, in the log's order."""
        assert isinstance(reader, PlayedReader) and reader.history is not None
        history = reader.history
        indices, at = history.between(after, end), 0
        held = history.parse(after.gtid) if self.server.mode.by_gtid else None
        for i in indices:
            transaction = history.transactions[i]
            if held is not None:
                held = held.add(transaction.source, transaction.gno)
                seq = len(held)
            else:
                seq = self.rules.seq_of(transaction)
            for server in range(len(history.logs)):
                share = history.share(server, i, reader.wanted, after.epoch, seq)
                if got.startswith(share, at):
                    at += len(share)
                    break
            else:
                raise AssertionError(f"transaction {i} is missing after {after}")
        assert at == len(got), f"{len(got) - at} bytes more than expected after {after}"
        if held is not None:
            assert end.seq == len(held)
            held = history.parse(end.gtid)
            last = indices[-1] if indices else 0
            # No transaction before the last one is missing.
            assert all(held.has(t.source, t.gno) for t in history.transactions[:last])

    def reread(self, queue: Queue, reader: Reader, after: Position, end: Position) -> None:
        if self.rng.random() < 0.1:
            super().reread(queue, reader, after, end)
