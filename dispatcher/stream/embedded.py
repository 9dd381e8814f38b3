"""Embedded transactions: events that the splitter reads in place of one event of the log.

The replaced event is a TRANSACTION_PAYLOAD, or the commit of an XA transaction. The log has no offsets for embedded
events. While the embedded transaction is open, the position is the beginning of the replaced event; once the
transaction has ended, the position is the end of that event.

The daemon writes a small embedded transaction into the receive buffer's scratch area, and reads all its events at once.
A server that compresses all transactions writes thousands of them a second, and a batch for each would cost more than
all other work. The daemon reads a larger embedded transaction from a buffer of its own, a chunk of whole events at a
time. Then memory holds the compressed bytes, which came in one event, and a few chunks. If an event is larger than a
chunk, its chunk is as large as the event. An embedded transaction may hold another one: XA COMMIT ... ONE PHASE in a
compressed transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dispatcher.binlog.event import transaction_payload
from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.header import HEADER_SIZE, LOG_POS_AT
from dispatcher.binlog.event.transaction_payload import Payload
from dispatcher.binlog.kernel.bytes import U8, u32
from dispatcher.stream import reframe
from dispatcher.stream import splitter_kernel as k
from dispatcher.stream.batch_builder import BatchBuilder, Batches
from dispatcher.stream.receive_buffer import ReceiveBuffer
from dispatcher.stream.xa_store import XaFault

SMALL_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class EmbeddedTransaction:
    """The events of `rows`, and after them the event `last`; no event has a checksum.

    `begun`: True if the transaction's BEGIN was read already, because MariaDB's GTID event implies it. `faults`: errors
    for some consumers, which stop before this transaction.
    """

    rows: Payload
    last: bytes = b""
    begun: bool = False
    faults: tuple[XaFault, ...] = ()

    @property
    def size(self) -> int | None:
        """Number of bytes of all events; None if the payload does not contain its uncompressed size."""
        plain = self.rows.uncompressed_size
        return None if plain is None else plain + len(self.last)

    def whole(self) -> U8:
        """Returns all events. Raises `BinlogError` if the payload cannot be decompressed, or if its size differs from
        the size in the event's field."""
        return np.frombuffer(transaction_payload.decompress(self.rows) + self.last, dtype=np.uint8)

    def chunks(self) -> Iterator[bytes]:
        """Yields all events, a chunk at a time. Raises the errors of `whole`."""
        yield from transaction_payload.decompressed_chunks(self.rows)
        if self.last:
            yield self.last


@dataclass(frozen=True, slots=True)
class _Frame:
    """An embedded transaction that is being read, and where the splitter continues after it.

    `buf`, `fill`: the buffer with the event that holds the transaction. `at`, `stop`, `packets`, `counted_to`: values
    of the kernel's state and the batch builder, restored when the transaction has been read. `start`, `end`: offsets in
    the file before and after that event. `opened`: how many transactions had begun when the event was read. `runs`:
    events that are not in the buffer yet; None for a small transaction, because all its events are in the buffer.
    """

    buf: U8
    fill: int
    at: int
    stop: int
    packets: int
    counted_to: int
    start: int
    end: int
    opened: int
    runs: Iterator[U8] | None


class EmbeddedReader:
    """Lets the kernel read embedded transactions in place of received bytes. `small_bytes`: the maximum size of a small
    transaction."""

    def __init__(self, buffer: ReceiveBuffer, builder: BatchBuilder) -> None:
        self.small_bytes = SMALL_BYTES
        self._buffer = buffer
        self._builder = builder
        self._frames: list[_Frame] = []

    @property
    def active(self) -> bool:
        return bool(self._frames)

    @property
    def in_small(self) -> bool:
        """True while the kernel reads in the scratch area. While this is True, `split` must not return."""
        return bool(self._frames) and self._frames[-1].runs is None

    def payload(self) -> EmbeddedTransaction:
        """The transaction in the TRANSACTION_PAYLOAD_EVENT for which the kernel returned. Raises BinlogError if the
        event is malformed, occurs inside a transaction, or is itself embedded."""
        st = self._builder.state
        if self.active:
            raise malformed(transaction_payload.NAME, "holds another one")
        if st[k.TX] != k.TX_STARTED:
            raise malformed(transaction_payload.NAME, "occurs where no transaction begins")
        start, end = int(st[k.OFF]) + HEADER_SIZE, int(st[k.STOP])
        body = memoryview(self._buffer.bytes)[start:end]  # type: ignore[arg-type]
        return EmbeddedTransaction(transaction_payload.parse_payload(body))

    def enter(self, transaction: EmbeddedTransaction, out: Batches) -> bool:
        """Let the kernel read the events of `transaction` next, in place of the event for which the kernel returned
        last. Returns False and changes nothing if the buffer must be compacted first."""
        buffer, builder, st = self._buffer, self._builder, self._builder.state
        size = transaction.size
        small = self._is_small(size)
        if small and not self.active:
            assert size is not None
            # Reserve twice the size: a one-phase XA transaction in the payload is embedded again, with all its events.
            room = buffer.reserve_scratch(2 * reframe.reframed_bytes_max(size))
            if not room or st[k.N_EVENTS] + size // HEADER_SIZE >= k.EVENTS_MAX - k.SLACK:
                return False
        builder.xa_faults(transaction.faults, out)
        st[k.TX] = k.TX_BEGUN if transaction.begun else k.TX_STARTED
        builder.recording = None
        if not small:
            st[k.AT] = st[k.NEXT]
            builder.flush(out)
        start = builder.offset
        log_pos = int(u32(buffer.bytes, int(st[k.OFF]) + LOG_POS_AT))
        end = int(k.advance_position(start, log_pos, int(st[k.SIZE])))
        frame = _Frame(
            buffer.bytes, buffer.fill, int(st[k.NEXT]), int(st[k.END]), int(st[k.PACKETS]), builder.counted_to,
            start, end, int(st[k.OPENED]), None if small else transaction_payload.event_runs(transaction.chunks()),
        )  # fmt: skip
        if small:
            events, at = transaction.whole(), buffer.scratch
            transaction_payload.check_payload(events)
            buffer.scratch += reframe.reframe(events, buffer.bytes[at:], end, int(st[k.CHECKED]))
            st[k.AT], st[k.END] = at, buffer.scratch
        else:
            self._read_in(np.empty(0, dtype=np.uint8))
        st[k.PACKETS] = 0
        self._frames.append(frame)
        builder.embedded = True
        return True

    def advance(self) -> None:
        """Put the next chunk into the buffer; after the last chunk, leave the transaction. The splitter calls this when
        the kernel has read all events of the buffer. Raises BinlogError if the events are not exactly one
        transaction."""
        frame, st = self._frames[-1], self._builder.state
        src = next(frame.runs, None) if frame.runs else None
        if src is not None:
            chunk: U8 = np.empty(reframe.reframed_bytes_max(len(src)), dtype=np.uint8)
            written = reframe.reframe(src, chunk, frame.end, int(st[k.CHECKED]))
            self._read_in(chunk[:written])
            return
        if st[k.TX] != k.NO_TX or st[k.OPENED] != frame.opened:
            raise malformed(transaction_payload.NAME, "holds something else than one transaction")
        self._leave()

    def locate(self) -> None:
        """Set the log position: before the replaced event while the embedded transaction is open, after that event
        afterwards."""
        if not self._frames:
            return
        frame, builder, st = self._frames[-1], self._builder, self._builder.state
        open_ = st[k.TX] != k.NO_TX
        st[k.FILE_POS] = frame.start if open_ else frame.end
        if not open_ and st[k.N_TXS]:
            builder.transactions.end[st[k.N_TXS] - 1] = frame.end

    def abandon_small(self) -> None:
        """Stop reading all small transactions that are being read, because one of them is damaged."""
        while self.in_small:
            self._leave()

    def _is_small(self, size: int | None) -> bool:
        if size is None or size > min(self.small_bytes, self._buffer.usual // 4):
            return False
        return self.in_small or not self.active

    def _read_in(self, chunk: U8) -> None:
        """Let the kernel continue in a new buffer: the open transaction's carried events and then `chunk`."""
        buffer, st = self._buffer, self._builder.state
        buffer.bytes = self._builder.move_carried(chunk)
        st[k.END] = buffer.fill = len(buffer.bytes)

    def _leave(self) -> None:
        frame, buffer, builder = self._frames.pop(), self._buffer, self._builder
        st = builder.state
        st[k.FILE_POS] = frame.start if st[k.TX] != k.NO_TX else frame.end
        if frame.runs is not None:
            buffer.bytes, buffer.fill, buffer.scratch = frame.buf, frame.fill, frame.fill
        st[k.AT], st[k.END], st[k.PACKETS] = frame.at, frame.stop, frame.packets
        builder.counted_to = frame.counted_to
        builder.embedded = self.active
