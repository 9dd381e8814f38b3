"""Converts packets to transactions, with one kernel call per buffer.

A source writes the received bytes into `room()`. `split()` turns all complete events into `Batch`es of arrays (offset,
size, kind, route per event; first event, GTID, commit time, end offset per transaction). From the batches, the caller
copies the bytes that each of its consumers gets (`consumer_log`). Then the caller calls `compact()`, which makes room
in the buffer again. The splitter reads headers, the names in table maps, GTIDs and statements. It decodes no rows.

Invariants
* An event is read once. Its checksum is verified if the FORMAT_DESCRIPTION in force says that events have one.
* All events of a batch are from one file, under one FORMAT_DESCRIPTION. If the file or the FORMAT_DESCRIPTION changes,
  a new batch begins.
* A transaction may span batches. Its events that a consumer's log may still have to copy in the next batch (GTID,
  BEGIN, the text and table maps of an open statement) are *carried*: they are copied to the front of the buffer, and
  listed again with the flag `CARRIED`.
* `SpecialEvents` reads the events that the kernel does not know. Events that `SpecialEvents` does not know become
  faults: no event that could hold data is skipped.
* A large compressed transaction is read from a buffer of its own, a chunk at a time (`EmbeddedReader`). Meanwhile
  `full` is True, so no source writes into the receive buffer.

The rejected alternative was a callback or an object per event: at 7 M events a second, only 140 ns are left for each
event.

Sources: MySQL source, libs/mysql/binlog/event/*.h, sql/rpl_binlog_sender.cc; MariaDB sql/log_event.h.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.event import header
from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.header import SIZE_AT, TYPE_AT, FormatDescription
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.kernel.bytes import U8, u32
from dispatcher.model.errors import SEEK, BinlogError, ErrorKind
from dispatcher.stream import splitter_kernel as k
from dispatcher.stream.batch import Batch, Closed
from dispatcher.stream.batch_builder import BatchBuilder, Batches
from dispatcher.stream.embedded import EmbeddedReader
from dispatcher.stream.receive_buffer import ReceiveBuffer
from dispatcher.stream.routes import Routes
from dispatcher.stream.special_events import SpecialEvents, work_of
from dispatcher.stream.xa_recorder import XaRecorder
from dispatcher.stream.xa_store import XaStore

# The limit of the work in Python in one call of `split`, in units of `work_of`. A unit takes some 40 us, so the limit
# is some 40 ms.
WORK_MAX = 1024

_PACKET_HEADER = 4  # 3 bytes of size, 1 of sequence number; the payload is a status byte, 0 for an event, and the event
_ROWS_51 = (
    *(EventType.TABLE_MAP, EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1),
)  # fmt: skip
_WITHOUT_BEGIN = (
    "occurs outside a transaction: MySQL 5.1 logs changes of tables without transactions (MyISAM) as rows without BEGIN"
    " and COMMIT"
)
_REMEDY_51 = (
    "logs of MySQL 5.5 and later hold them as transactions: upgrade the server, and begin after these files"
    f" ({SEEK}); binlog-dispatcher inspect prints them"
)


class Splitter:
    """Splits the bytes of one connection (`packets=True`) or of one binlog file (`packets=False`) into batches.

    `checksum`: True if the events before the first FORMAT_DESCRIPTION end in a checksum (the session's setting).
    `buffer_bytes`: the usual size of the receive buffer. `created`: creation times, in seconds since 1970, of the
    current file and of the files of the last batches. `ignored`: how many events were ignored, by name. `sources`:
    names of GTID sources.
    """

    def __init__(self, routes: Routes, *, packets: bool, checksum: bool, buffer_bytes: int) -> None:
        self.routes = routes
        self._buffer = ReceiveBuffer(buffer_bytes)
        self._builder = BatchBuilder(self._buffer, routes, packets=packets, checksum=checksum)
        self.embedded = EmbeddedReader(self._buffer, self._builder)
        self._xa = XaRecorder(self._buffer, self._builder)
        self.special = SpecialEvents(self._buffer, self._builder, self._xa)
        self.created, self.ignored = self._builder.created, self._builder.ignored
        self.sources = self._builder.sources
        self._maps = k.TableMaps(
            np.zeros(k.MAPS_MAX, dtype=np.int64), np.zeros(k.MAPS_MAX, dtype=np.int32)
        )
        self._full = False
        self._work = 0  # work of Python in this call of `split`, in units of `work_of`
        self._error: BinlogError | None = None  # the error that follows the last returned batches

    # -- where the log is --------------------------------------------------------------------------------------

    @property
    def file(self) -> str:
        """The file that is being read."""
        return self._builder.file

    @file.setter
    def file(self, name: str) -> None:
        self._builder.file = name

    @property
    def offset(self) -> int:
        """The offset in `file` after the last event that was read."""
        return self._builder.offset

    @property
    def format(self) -> FormatDescription | None:
        """The FORMAT_DESCRIPTION in force."""
        return self._builder.format

    @property
    def prepared(self) -> XaStore | None:
        """The store of prepared XA transactions; None if their rows are not needed."""
        return self._xa.store

    @prepared.setter
    def prepared(self, store: XaStore | None) -> None:
        self._xa.store = store

    # -- receiving ---------------------------------------------------------------------------------------------

    def room(self) -> memoryview:
        """The memory into which the source must write the next bytes. The source must not write while `full` is
        True."""
        return self._buffer.room()

    def wrote(self, size: int) -> None:
        """Record that `size` bytes were written into `room()`."""
        self._buffer.fill += size

    @property
    def full(self) -> bool:
        """True if the next `split()` returns batches, or an error, without more bytes."""
        return self._full

    @property
    def pending_bytes(self) -> int:
        """Number of bytes after the last event that was read. If `full` is False, they are the beginning of an
        incomplete event."""
        return self._buffer.fill - int(self._builder.state[k.AT])

    def drop_rest(self) -> None:
        """Forget the pending bytes. The caller calls this if the file ends inside an event."""
        self._buffer.fill = int(self._builder.state[k.AT])

    def feed(self, data: bytes) -> Batches:
        """Append bytes and split them. This method is for files and tests, which gain nothing by writing into `room()`
        themselves."""
        out: Batches = []
        view = memoryview(data)
        while view:
            room = self.room()
            size = min(len(room), len(view))
            room[:size] = view[:size]
            self.wrote(size)
            view = view[size:]
            while True:
                batches = self.split()
                out += [batch.copy() if isinstance(batch, Batch) else batch for batch in batches]
                self.compact()
                if not self._full:
                    break
        return out

    # -- splitting ---------------------------------------------------------------------------------------------

    def split(self) -> Batches:
        """Return all complete events in the buffer as batches, in order. `compact()` must follow before the next call.

        Raises BinlogError if the bytes are damaged, or if the daemon does not understand them at all; then the caller
        must close the connection. If complete events precede the damage, this call returns them, and the next call
        raises the error. An event at which only some consumers must stop raises no error: the error is the `fault` of
        the batch.

        Events that Python reads take up to thousands of times as long as other events. So a call returns after
        `WORK_MAX` work in Python, with `full` set, so that the thread's other connections get their turn.
        """
        if self._error:
            raise self._error
        out: Batches = []
        builder, embedded, buffer = self._builder, self.embedded, self._buffer
        builder.keep_created()
        builder.state[k.END] = buffer.scratch = buffer.fill
        self._full, self._work = False, 0
        try:
            more = True
            while more:
                code = self._run_kernel()
                embedded.locate()
                more = self._handle(code, out)
                embedded.locate()
                if more and self._work >= WORK_MAX and not embedded.in_small:
                    self._full, more = True, False
        except BinlogError as error:
            embedded.abandon_small()
            self._error = error if error.where else error.at(builder.place())
            self._full = True
            if (not out and not builder.pending) or builder.format is None:
                raise self._error from None
        if builder.pending:
            builder.flush(out)
        return out

    def compact(self) -> None:
        """Forget the events that were split. Keep the bytes after these events, and the open transaction's carried
        events."""
        buffer, builder = self._buffer, self._builder
        at = int(builder.state[k.AT])
        pending, half = buffer.fill - at, buffer.usual // 2
        needed = self._wire_bytes(buffer.bytes[at : buffer.fill])
        rest = max(half, needed - pending)
        # An event of many megabytes must not be moved each time that a piece of it arrives.
        if builder.nothing_split and buffer.has_room(at, pending + rest):
            return
        carried = builder.carried()
        room = 0 if self.embedded.active else rest
        builder.restart(carried, buffer.compact(at, [event.raw for event in carried], room))

    def _run_kernel(self) -> int:
        """Let the kernel list events until it needs Python. Return the kernel's reason code."""
        builder, routes = self._builder, self.routes
        names = k.Names(
            routes.slots, routes.names, routes.spans, self.special.source_ids, len(self.sources)
        )
        return k.split_packets(
            self._buffer.bytes,
            builder.state,
            builder.events,
            builder.transactions,
            self._maps,
            names,
        )

    def _handle(self, code: int, out: Batches) -> bool:
        """Do what the kernel asks for with `code`. Returns False if `split` must return before the kernel can
        continue."""
        st, buf = self._builder.state, self._buffer.bytes
        off, size = int(st[k.OFF]), int(st[k.SIZE])
        if code == k.MORE and self.embedded.active:
            return self._advance_embedded()
        if code == k.MORE or (code == k.FULL and not self.embedded.in_small):
            self._full = code == k.FULL
            return False
        if code == k.LARGE:
            return self._join_packets()
        if code == k.PACKET:
            self._builder.flush(out)
            out.append(Closed(bytes(buf[off : off + size])))
            st[k.AT] = st[k.NEXT]
            return False
        if code == k.NEW_TABLE:
            self._work += 1
            table = off + size + 2  # after a zero byte and the table name's length
            self.routes.table(
                bytes(buf[off : off + size]), bytes(buf[table : table + int(buf[table - 1])])
            )
        elif code == k.NEW_SOURCE:
            uuid = off + header.HEADER_SIZE + 1
            self.special.new_source(bytes(buf[uuid : uuid + 16]))
        elif code == k.PYTHON:
            return self._read_special(int(buf[off + TYPE_AT]), out)
        else:
            raise self._bad_event(code)
        return True

    def _read_special(self, kind: int, out: Batches) -> bool:
        self._work += work_of(kind)
        is_payload = kind == EventType.TRANSACTION_PAYLOAD
        transaction = self.embedded.payload() if is_payload else self.special.read(out)
        if transaction is not None and not self.embedded.enter(transaction, out):
            self._full = True
            return False
        return True

    def _advance_embedded(self) -> bool:
        """Let the kernel continue in the embedded transaction, or after its end. A call of `split` returns at most one
        chunk of a large embedded transaction."""
        if not self.embedded.in_small and self._builder.pending:
            self._full = True
            return False
        self.embedded.advance()
        return True

    # -- packets -----------------------------------------------------------------------------------------------

    def _wire_bytes(self, pending: U8) -> int:
        """How many bytes the event at the start of `pending` needs in the buffer; 0 if its size was not received
        yet."""
        st = self._builder.state
        if not st[k.PACKETS] or st[k.AT] == st[k.JOINED]:
            return int(u32(pending, SIZE_AT)) if len(pending) >= header.HEADER_SIZE else 0
        if len(pending) < _PACKET_HEADER + 1 + header.HEADER_SIZE:
            return 0
        packet = _packet_size(pending, 0)
        if packet < k.PACKET_MAX:
            return packet + _PACKET_HEADER
        return _joined_bytes(int(u32(pending, _PACKET_HEADER + 1 + SIZE_AT)))

    def _join_packets(self) -> bool:
        """Join the pieces of an event that comes in several packets. Returns False until all pieces have arrived.

        The joined event ends at the end of its last packet, so the kernel continues after it as after any event.
        """
        st, buf = self._builder.state, self._buffer.bytes
        at = int(st[k.AT])
        event = at + _PACKET_HEADER + 1
        if self._buffer.fill < event + header.HEADER_SIZE:
            return False
        status, size = int(buf[event - 1]), int(u32(buf, event + SIZE_AT))
        if status != 0 or size > header.EVENT_BYTES_MAX:
            # The size is checked before the buffer grows, because a server can claim any size.
            name = "a packet" if status else type_name(int(buf[event + TYPE_AT]))
            raise malformed(name, f"claims {size} bytes").at(self._builder.place())
        end = at + _joined_bytes(size)
        if self._buffer.fill < end:
            return False
        pieces: list[tuple[int, int]] = []
        left = size + 1
        while not pieces or pieces[-1][1] == k.PACKET_MAX:
            n = _packet_size(buf, at)
            if n != min(left, k.PACKET_MAX):
                raise malformed(
                    "a packet", f"of {n} bytes continues an event that lacks {left}"
                ).at(self._builder.place())
            pieces.append((at + _PACKET_HEADER, n))
            at, left = at + _PACKET_HEADER + n, left - n
        for start, n in reversed(pieces):
            buf[end - n : end] = buf[start : start + n].copy()
            end -= n
        st[k.AT] = st[k.JOINED] = end + 1  # after the status byte
        return True

    def _bad_event(self, code: int) -> BinlogError:
        st, place = self._builder.state, self._builder.place()
        at = int(st[k.OFF]) + TYPE_AT
        kind = int(self._buffer.bytes[at]) if at < st[k.END] else -1
        name = type_name(kind) if kind >= 0 else "an event"
        if code == k.CHECKSUM:
            return BinlogError(ErrorKind.CHECKSUM_MISMATCH, name, where=place)
        if code == k.MALFORMED and st[k.REASON] == k.OUTSIDE and kind in _ROWS_51:
            version = self.format.server_version if self.format else ""
            if header.server_numbers(version)[:2] == (5, 1):
                return BinlogError(
                    ErrorKind.UNSUPPORTED_EVENT, f"{name} {_WITHOUT_BEGIN}", where=place, remedy=_REMEDY_51
                )  # fmt: skip
        why = k.WHY[int(st[k.REASON])] if code == k.MALFORMED else "is not one"
        return malformed(name, why).at(place)


def _packet_size(buf: U8, at: int) -> int:
    return int.from_bytes(buf[at : at + 3].tobytes(), "little")


def _joined_bytes(size: int) -> int:
    """How many bytes an event of `size` bytes takes on the wire when it comes in several packets."""
    payload = size + 1
    return payload + _PACKET_HEADER * (payload // k.PACKET_MAX + 1)
