"""The packets of a dump, made of a consumer's delivered bytes.

A delivered range is a binlog: the magic bytes, FORMAT_DESCRIPTIONs, and for each transaction a record and its events.
The client gets the events that a server would send. At the beginning, and wherever a record names another file, it also
gets a ROTATE that the relay makes, and a FORMAT_DESCRIPTION. The kernel (`relay_kernel`) copies events of up to 64 KiB
into chunks of packets. For a larger event, the relay makes only the packets' headers, and passes on the event's bytes
without copying them.

The relay drops events that the client already has. In a dump by file, these are the events before the client's offset.
In a dump by GTID, these are the events of all transactions in the client's set.

Sources: MySQL source, sql/rpl_binlog_sender.cc; MariaDB, sql/sql_repl.cc; both compared with dumps of real servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.header import (
    CHECKSUM_SIZE,
    HEADER_SIZE,
    MAGIC,
    EventHeader,
    FormatDescription,
    parse_format_description,
)
from dispatcher.binlog.event.record import parse_record
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.kernel.bytes import U8
from dispatcher.front.dump import made_events, pieces
from dispatcher.front.dump import relay_kernel as k
from dispatcher.front.dump.fill import empty_transactions
from dispatcher.front.dump.large_event import LargeEvent
from dispatcher.front.dump.made_events import HeartbeatForm
from dispatcher.front.dump.options import AfterGtids, AfterPlace, Checksum, RelayOptions, Resume
from dispatcher.front.dump.sent_gtids import SentGtids
from dispatcher.front.dump.sent_gtids import address as _address
from dispatcher.front.wire.errors import WireError, error_packet
from dispatcher.front.wire.packets import Capability
from dispatcher.front.wire.result_set import eof_packet
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import file_number

CHUNK_BYTES = 1 << 18
# A chunk with at most this many bytes is copied, so that a dump with little traffic does not keep a whole chunk in
# memory.
_COPIED_BYTES = CHUNK_BYTES >> 3
_CAPABILITY_GTID = 4  # MARIA_SLAVE_CAPABILITY_GTID
_LOG_POS_MAX = 0xFFFFFFFF  # an event's header contains the low 32 bits of its position
_FILE_BEGIN = len(MAGIC)
_STATUS = b"\0"  # precedes each event in its packet
_BEFORE_EVENT = k.PACKET_HEADER + len(_STATUS)
_SMALL = (
    EventType.FORMAT_DESCRIPTION, EventType.GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID,
)  # fmt: skip


class Relay:
    """One dump. `packets` and `fill` must be iterated to their ends before the next call."""

    def __init__(self, options: RelayOptions, resume: Resume, sequence: int = 1) -> None:
        """`resume`: which events the client already has, None if it has no events. `sequence`: sequence number of the
        first packet."""
        self._options = options
        # In a dump by file, the place that the client has asked for, until the log has reached it.
        self._asked = resume if isinstance(resume, AfterPlace) else None
        self._sent = SentGtids(resume.gtids) if isinstance(resume, AfterGtids) else None
        self.file = ""  # `file`, `offset`: the place in the log up to which the client got events
        self._begun = False
        self._format: FormatDescription | None = None  # the format of the next events in the range
        # The last FORMAT_DESCRIPTION that was sent to the client.
        self._sent_format: FormatDescription | None = None
        self._name = np.zeros(k.NAME_MAX, dtype=np.uint8)
        self._out: U8 | None = None
        self._ready: list[bytes | memoryview] = []
        self._large: LargeEvent | None = None
        st = self._st = np.zeros(k.STATE_SIZE, dtype=np.int64)
        self._state = _address(st)
        st[k.NAME_AT] = _address(self._name)
        if self._sent is not None:
            self._sent.use(st)
        st[k.SEQUENCE] = sequence
        st[k.TRACK] = self._sent is not None
        st[k.ANNOTATE] = options.annotate
        st[k.PLAIN] = options.mariadb and options.mariadb_capability < _CAPABILITY_GTID
        st[k.FOLLOWS] = options.mariadb

    @property
    def gtids(self) -> GtidSet | MariadbGtids | None:
        """The client's GTID set in a dump by GTID: the GTIDs that it had at the beginning and those that were sent.
        None in a dump by file."""
        return self._sent.all if self._sent else None

    @property
    def offset(self) -> int:
        """The offset in `file` up to which the client got events."""
        return int(self._st[k.SENT])

    @property
    def counted(self) -> int:
        """The offset in `file` that a replica which reads by GTID counts."""
        return int(self._st[k.COUNTED])

    # -- delivered events ------------------------------------------------------------------------------------

    def packets(self, parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        """Yield the packets of a delivered range: chunks of at most 256 KiB and, for large events, views into `parts`
        of at most 1 MiB.

        While the relay drops events, it yields an empty chunk for each 256 KiB of the range.

        Raises BinlogError: MALFORMED_EVENT, UNSUPPORTED_EVENT, CHECKSUM_MISMATCH.
        """
        joined = bytearray()  # the beginning of an event that continues in the next part
        passed = 0  # bytes since the last chunk
        for part in pieces.without_magic(parts):
            view = part
            while len(view):
                if joined and self._large is None:
                    size = pieces.join(joined, view)
                    view = view[size:]
                    if pieces.is_whole(joined):
                        whole, joined = memoryview(joined), bytearray()
                        while whole:
                            whole = whole[self._step(whole) :]
                            yield from self._take_ready()
                    continue
                size = self._step(view)
                if not size and not self._ready:
                    joined += view
                    break
                view = view[size:]
                passed += size
                if passed >= CHUNK_BYTES and not self._ready:
                    self._ready.append(b"")
                if self._ready:
                    passed = 0
                    yield from self._take_ready()
        if joined or self._large is not None:
            raise malformed("a delivered range", "ends inside an event")
        if self._asked is not None and self._format is not None:
            self._begin()
            self._pass_asked(self.file, self.offset)
        self._note_runs()
        self._flush()
        self._out = None
        yield from self._take_ready()

    def _step(self, view: memoryview) -> int:
        """Process events from the beginning of `view`. Return how many bytes were processed, 0 if `view` has no whole
        event."""
        if self._large is not None:
            return self._pass_on(self._large, view)
        st = self._st
        view = view[:CHUNK_BYTES]
        piece = np.frombuffer(view, dtype=np.uint8)
        address = _address(piece)
        st[k.AT] = 0
        while True:
            self._buffer()
            code = k.relay(self._state, address, len(piece))
            event = view[int(st[k.AT]) :]
            if code == k.MORE:
                break
            if code == k.ROOM:
                self._flush()
                break
            if code == k.LARGE:
                self._flush()
                self._large = self._large_event(event)
                return int(st[k.AT]) + self._pass_on(self._large, event)
            self._answer(code, event)
        return int(st[k.AT])

    def _answer(self, code: int, event: memoryview) -> None:
        """Process the event at which the kernel returned `code`, so that the kernel can continue."""
        if code == k.FILE:
            self._enter_file(event)
        elif code == k.FORMAT:
            raw = bytes(event[: EventHeader.read(event).size])
            self._take_format(parse_format_description(raw))
            self._st[k.AT] += len(raw)
        elif code == k.SOURCE and self._sent is not None:
            self._sent.learn(self._st)
        elif code == k.RUNS and self._sent is not None:
            self._note_runs()
        else:
            raise _unreadable(event)

    def _note_runs(self) -> None:
        if self._sent is not None:
            self._sent.note(self._st)

    # -- large events ----------------------------------------------------------------------------------------

    def _large_event(self, event: memoryview) -> LargeEvent:
        header, st = EventHeader.read(event), self._st
        dropped = bool(k.is_dropped(st, header.type, header.log_pos))
        if header.type in _SMALL:
            raise _unreadable(event)
        is_query = header.type == EventType.QUERY  # too large to be BEGIN
        placed = is_query or not k.has_no_place(st, header.type, header.log_pos)
        large = LargeEvent(
            header,
            prefix=_STATUS,
            strip=int(st[k.STRIP]),
            dropped=dropped,
            sequence=int(st[k.SEQUENCE]),
            placed=placed,
            checked=bool(st[k.CHECKED]) and not st[k.STRIP],
        )
        if not dropped:
            st[k.PLACE] = k.NOTHING
            k.count_event(st, header.size - int(st[k.STRIP]), header.log_pos * placed)
            if header.log_pos and placed:
                st[k.SENT] = k.full_offset(st, header.log_pos)
        return large

    def _pass_on(self, large: LargeEvent, view: memoryview) -> int:
        taken, pieces = large.take(view)
        self._ready += pieces
        self._st[k.SEQUENCE] = large.sequence
        if large.over:
            self._large = None
        return taken

    # -- files and formats -----------------------------------------------------------------------------------

    def _take_format(self, format_: FormatDescription) -> None:
        self._format = format_
        st = self._st
        st[k.CHECKED] = format_.checksum
        unset = self._options.checksum is Checksum.UNSET
        st[k.STRIP] = CHECKSUM_SIZE if format_.checksum and unset else 0
        # At the next record, which may name another file, `_enter_file` sends the new format to the client.
        if self._sent_format is None or not made_events.same_format(format_, self._sent_format):
            st[k.NAME_SIZE] = 0

    def _enter_file(self, event: memoryview) -> None:
        """Process the first record of a file, or the first record after a changed FORMAT_DESCRIPTION."""
        size = EventHeader.read(event).size - CHECKSUM_SIZE * int(self._st[k.CHECKED])
        found = parse_record(bytes(event[HEADER_SIZE:size]))
        if found is None or self._format is None:
            raise _unreadable(event)
        name, asked, st = found.file.encode(), self._asked, self._st
        self._name[: len(name)] = np.frombuffer(name, dtype=np.uint8)
        st[k.NAME_SIZE], st[k.PLACE] = len(name), k.NOTHING
        if asked is not None:
            st[k.PLACE_OFFSET] = asked.offset
            if found.file == asked.file:
                st[k.PLACE] = k.BEGINNING
            elif _precedes(found.file, asked.file):
                st[k.PLACE] = k.ALL
                return
        self._begin(found.file)
        self._pass_asked(found.file, _FILE_BEGIN)
        if found.file != self.file:
            self._move(found.file, _FILE_BEGIN)
        elif self._sent_format is None or not made_events.same_format(
            self._format, self._sent_format
        ):
            self._move(self.file, self.offset)

    def _begin(self, file: str = "") -> None:
        """At the first call, send the place where the dump begins: the place that the client has asked for, or the
        beginning of `file` if the client has asked for none. All further calls do nothing."""
        if not self._begun:
            self._begun = True
            if self._asked is not None:
                self._move(self._asked.file, self._asked.offset)
            else:
                self._move(file, _FILE_BEGIN, begins_file=not self._options.mariadb)

    def _move(self, file: str, offset: int, *, begins_file: bool = True) -> None:
        """Send a ROTATE to a place, and the FORMAT_DESCRIPTION that is valid there. `begins_file`: False if this place
        is only used because the real place is not known.

        In a dump by MySQL's GTIDs, the relay begins each file at the file's beginning, as a server does, whatever the
        place is. If a connection was lost within a transaction, the worker threads of a replica roll the transaction
        back only at a FORMAT_DESCRIPTION that has a position. (Source: sql/rpl_replica.cc, exec_relay_log_event.)
        MariaDB begins a dump by GTIDs within a file.
        """
        options = self._options
        checksum = self._checksum
        begins_file = begins_file and offset <= _FILE_BEGIN
        has_place = begins_file or (self._sent is not None and not options.mariadb)
        counted = _FILE_BEGIN if has_place else offset
        self._put(
            made_events.fake_rotate(file, counted, server_id=options.server_id, checksum=checksum)
        )
        if self._format is not None:
            kept = options.checksum is not Checksum.UNSET
            event = made_events.format_description(
                self._format, begins_file=begins_file, has_place=has_place, checksum=kept
            )
            self._put(event)
            self._sent_format = self._format
            counted += len(event) * has_place
        self.file, self._st[k.SENT], self._st[k.COUNTED] = file, offset, counted

    @property
    def _checksum(self) -> bool:
        """True if the next event that the front makes must have a checksum."""
        if self._sent_format is None:
            return self._options.checksum is Checksum.CRC32
        return self._sent_format.checksum and self._options.checksum is not Checksum.UNSET

    def _pass_asked(self, file: str, offset: int) -> None:
        """Forget the place that the client has asked for, if the dump is past this place."""
        asked = self._asked
        if asked is None or _precedes(file, asked.file):
            return
        if file != asked.file or offset > asked.offset:
            self._asked = None

    def _arrive(self, file: str, offset: int) -> None:
        """Advance to a place after the last sent event. If the place lies in another file, send a ROTATE to the place.

        The client's place does not change if the client has asked for a place after this one, or if the file is not
        known ("")."""
        if self._asked is not None:
            self._begin()
            self._pass_asked(file, offset)
        if self._asked is not None or not file:
            return
        self._begun = True
        if file != self.file:
            self._move(file, offset)
        self._st[k.SENT] = max(self._st[k.SENT], offset)

    # -- between ranges --------------------------------------------------------------------------------------

    def heartbeat(self, file: str, offset: int) -> bytes:
        """Return the packets of a heartbeat, which tells the client that it has the whole log up to the place `file`,
        `offset`.

        A replica counts its offset (`relay_kernel.count_event`), and stops at a heartbeat with a lower offset. The
        count is too high if the replica got empty transactions or events that are larger than in the log, such as those
        of a transaction that the source has compressed. A dump by GTID does not need correct offsets, so its heartbeat
        contains the replica's own count if this is higher than the real offset. A replica of MySQL that reads by GTID
        takes over a higher offset of a heartbeat.

        Returns b"" as long as no file is known: after a failover, a position has no file at first.

        Call this method only between ranges, and only after `packets` was called with a range that contains at least a
        FORMAT_DESCRIPTION.
        """
        self._arrive(file, offset)
        if not self.file:
            return b""
        options = self._options
        position = max(self.offset, self.counted) if self._sent else self.offset
        if not options.mariadb:
            self._st[k.COUNTED] = position
        form = HeartbeatForm.of(position, v2=options.heartbeat_v2, mariadb=options.mariadb)
        self._put(
            made_events.heartbeat(
                self.file, position, server_id=options.server_id, checksum=self._checksum, form=form
            )
        )
        return self._taken()

    def arrive(self, file: str, offset: int) -> bytes:
        """Return the packets that tell the client that the log continues at a place. Returns b"" if the client already
        reads that file."""
        self._arrive(file, offset)
        return self._taken()

    def fill(
        self, end: GtidSet | MariadbGtids, file: str, offset: int, timestamp: int = 0
    ) -> Iterator[bytes]:
        """Yield, in chunks, the packets of empty transactions for the GTIDs of `end` that the client lacks. These are
        the transactions that the last range has left out. In a dump by file, yields nothing.

        `end`: the executed set at the range's end, which contains all sent GTIDs. `file`, `offset`: the place of the
        range's end. `timestamp`: the timestamp of the empty transactions in seconds since 1970 UTC, 0 = the commit time
        of the last transaction in the range. Call this method after `packets` for the range.
        """
        if self._sent is None or self._format is None:
            return
        missing = self._sent.missing(end)
        if missing:
            self._arrive(file, offset)
            yield self._taken()
            st = self._st
            made = made_events.MadeTransaction(
                self._format.server_version,
                self._options.server_id,
                timestamp or int(st[k.COMMIT_US]) // 1_000_000,
                self.offset,
                self._checksum,
            )
            log_pos = self.offset & _LOG_POS_MAX
            for chunk, sequence in empty_transactions(missing, made, _STATUS, int(st[k.SEQUENCE])):
                # Count the first event, then add the sizes of the others. All have the same position, and only the
                # first can raise the count to this position. An event is its packet without header and status byte.
                size = len(chunk) - (sequence - int(st[k.SEQUENCE])) * _BEFORE_EVENT
                first = int.from_bytes(chunk[:3], "little") - len(_STATUS)
                k.count_event(st, first, log_pos)
                st[k.COUNTED] += size - first
                st[k.SEQUENCE] = sequence
                yield chunk
        self._sent.complete(end)

    def error(self, error: WireError) -> bytes:
        """Return the packet that ends the dump with an error."""
        return self._packet(error_packet(error, Capability.PROTOCOL_41))

    def end(self) -> bytes:
        """Return the packet that ends the dump of a client that asked for a dump up to the end of the log."""
        return self._packet(eof_packet())

    # -- packets ---------------------------------------------------------------------------------------------

    def _packet(self, payload: bytes) -> bytes:
        number = int(self._st[k.SEQUENCE]) & 0xFF
        self._st[k.SEQUENCE] += 1
        return len(payload).to_bytes(3, "little") + bytes((number,)) + payload

    def _put(self, event: bytes) -> None:
        """Append to the buffer an event that the front has made."""
        packet = self._packet(_STATUS + event)
        if self._st[k.OUT] + len(packet) > len(self._buffer()):
            self._flush()
        at = int(self._st[k.OUT])
        self._buffer()[at : at + len(packet)] = np.frombuffer(packet, dtype=np.uint8)
        self._st[k.OUT] = at + len(packet)

    def _buffer(self) -> U8:
        if self._out is None:
            self._out = np.empty(CHUNK_BYTES, dtype=np.uint8)
            self._st[k.OUT_AT], self._st[k.OUT_SIZE] = _address(self._out), CHUNK_BYTES
        return self._out

    def _flush(self) -> None:
        """Move the buffer's packets to `_ready`."""
        size = int(self._st[k.OUT])
        self._st[k.OUT] = 0
        if self._out is not None and size:
            if size <= _COPIED_BYTES:
                self._ready.append(self._out[:size].tobytes())
            else:
                self._ready.append(memoryview(self._out)[:size])  # type: ignore[arg-type]
                self._out = None

    def _take_ready(self) -> list[bytes | memoryview]:
        ready, self._ready = self._ready, []
        return ready

    def _taken(self) -> bytes:
        self._flush()
        self._out = None
        return b"".join(self._take_ready())


def _precedes(file: str, other: str) -> bool:
    """True if `file` and `other` belong to the same log and `file` is the earlier one."""
    same_log = file.rpartition(".")[0] == other.rpartition(".")[0]
    return same_log and file_number(file) < file_number(other)


def _unreadable(event: memoryview) -> BinlogError:
    header = EventHeader.read(event)
    where = f"at the position {header.log_pos} of a delivered range, in {header.size} bytes"
    return malformed(type_name(header.type), f"cannot be relayed ({where})")
