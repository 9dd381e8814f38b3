"""Packets to transactions: one kernel call per buffer.

`Splitter` owns the receive buffer. Bytes are written into it, `split()` turns all complete events into `Batch`es of
arrays (offset, size, kind, route per event; first event, GTID, commit time, end offset per transaction), the caller
routes them (`take`), and `compact()` makes room again. Nothing is decoded beyond headers, table maps and GTIDs.

Invariants
* An event is looked at once. Its checksum is verified if the FORMAT_DESCRIPTION in force says that it has one.
* A batch has one file and one FORMAT_DESCRIPTION; where either changes a new batch begins.
* A transaction may span batches. What a consumer might still need of it when the next batch comes (GTID, BEGIN, the
  table maps of a statement that is still open) is *carried*: copied to the front of the buffer and listed again,
  marked `CARRIED`, so that consumers copy it when the first row for them comes, and only then.
* What the kernel does not know goes to Python (`rare`), and what Python does not know becomes a fault: nothing is
  skipped that could hold data.
* A compressed transaction is read like any other, from a buffer of its own that holds a chunk of it at a time
  (`unpack`); meanwhile `full` is true, so nobody writes into the receive buffer. All of it lies at one place: the
  offset after its transaction is that after the payload event.

The rejected alternative was a callback or an object per event: at 7 M events a second there are 140 ns for each.

Sources: MySQL source, libs/mysql/binlog/event/*.h, sql/rpl_binlog_sender.cc; MariaDB sql/log_event.h.
"""

from __future__ import annotations

from dispatcher.binlog.event import header
from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.kernel.bytes import u32
from dispatcher.binlog.stream import splitter_kernel as k
from dispatcher.binlog.stream.batch import Batch, Closed
from dispatcher.binlog.stream.reframe import Unpacking
from dispatcher.binlog.stream.special_events import Rare
from dispatcher.model.errors import SEEK, BinlogError, ErrorKind

# What a call of `split` may do in Python: some 40 ms, in the units of `rare.work_of`.
WORK_MAX = 1024


_OF_ROWS = (
    *(EventType.TABLE_MAP, EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1),
)  # fmt: skip
_WITHOUT_BEGIN = (
    "stands outside a transaction: MySQL 5.1 logs changes of tables without transactions (MyISAM) as rows without BEGIN"
    " and COMMIT"
)
_REMEDY_51 = (
    "logs of MySQL 5.5 and later hold them as transactions: upgrade the server, and begin behind these files"
    f" ({SEEK}); binlog-dispatcher inspect prints them"
)


class Splitter(Rare):
    """Receive buffer and kernel of one connection (`packets=True`) or one binlog file (`packets=False`).

    `checksum`: do the events before the first FORMAT_DESCRIPTION end in a checksum (the session's setting)?
    """

    def feed(self, data: bytes) -> list[Batch | Closed]:
        """Append bytes and split them: for files and tests, where nothing is gained by reading in place."""
        out: list[Batch | Closed] = []
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

    # -- splitting -------------------------------------------------------------------------------------------

    def split(self) -> list[Batch | Closed]:
        """All complete events in the buffer as batches, in order. `compact()` must follow before the next call.

        Raises BinlogError for bytes that are damaged or not understood at all (the connection must be closed);
        an event that only some consumers must stop at is the `fault` of its batch instead. What stands before the
        damage is returned first; the next call raises.

        Events that Python reads take up to thousands of times as long as others, so a call ends after a number of them
        with `full` set: a server that sends nothing else keeps nobody waiting who shares the thread.
        """
        if self._failed:
            raise self._failed
        out: list[Batch | Closed] = []
        self.created = {file: at for file, at in self.created.items() if file == self.file}
        self._st[k.END] = self._scratch = self._fill
        self._full, self._work = False, 0
        try:
            while self._go_on(out):
                if self._work >= WORK_MAX:
                    self._full = True
                    break
        except BinlogError as error:
            self._failed = error if error.where else error.at(self._place())
            self._full = True
            if (not out and not self._in_making()) or self.format is None:
                raise self._failed from None
        if self._in_making():
            self._flush(out)
        return out

    def _go_on(self, out: list[Batch | Closed]) -> bool:
        """One call of the kernel and what it came back for; False at the end of what can be split."""
        st = self._st
        transactions = int(st[k.N_TXS])
        code = self._run()
        if self._unpacking:
            return self._go_on_inside(self._unpacking, code, transactions, out)
        if code == k.LARGE:
            return self._join_large(out)
        if code == k.PACKET:
            off, size = int(st[k.OFF]), int(st[k.SIZE])
            self._flush(out)
            out.append(Closed(bytes(self._buf[off : off + size])))
            st[k.AT] = st[k.NEXT]
            return False
        if code in (k.MORE, k.FULL):
            self._full = code == k.FULL
            return False
        return self._answer(code, out)

    def _answer(self, code: int, out: list[Batch | Closed]) -> bool:
        """What the kernel came back for, if that is an event; False where that must wait for `compact()`."""
        st = self._st
        if code == k.NEW_TABLE:
            self._new_table()
        elif code == k.NEW_SOURCE:
            off = int(st[k.OFF]) + 20
            self._new_source(bytes(self._buf[off : off + 16]))
        elif code == k.PYTHON:
            return self._special(out)
        else:
            raise self._bad_event(code)
        return True

    def _go_on_inside(
        self, inside: Unpacking, code: int, transactions: int, out: list[Batch | Closed]
    ) -> bool:
        """Likewise in a compressed transaction: a chunk a time, so that one call of `split` holds one of them."""
        st = self._st
        if code not in (k.MORE, k.FULL):
            self._answer(code, out)
        inside.transactions += self._settle(transactions, inside.start, inside.end)
        st[k.FILE_POS] = inside.end if inside.transactions else inside.start
        if code == k.FULL or (code == k.MORE and self._in_making()):
            self._full = True
            return False
        if code == k.MORE:
            chunk = inside.events()
            if chunk is None:
                self._leave(inside)
            else:
                self._look_into(chunk)
        return True

    def _run(self) -> int:
        routes = self.routes
        names = k.Names(
            routes.slots, routes.names, routes.spans, self._source_ids, len(self.sources)
        )
        return k.split_packets(self._buf, self._st, self._ev, self._tx, self._maps, names)

    # -- what comes rarely -----------------------------------------------------------------------------------

    def _new_table(self) -> None:
        st = self._st
        self._work += 1
        at, size = int(st[k.OFF]), int(st[k.SIZE])
        table = at + size + 2
        self.routes.table(
            self._buf[at : at + size].tobytes(),
            self._buf[table : table + int(self._buf[table - 1])].tobytes(),
        )

    def _join_large(self, out: list[Batch | Closed]) -> bool:
        """Close the gaps that packet headers leave in an event of 16 MiB and more; False until all of it is here."""
        st = self._st
        at = int(st[k.AT])
        have = self._fill - at
        if have < 24:
            return False
        size = int(u32(self._buf, at + 5 + 9))
        if self._buf[at + 4] != 0 or size > header.EVENT_BYTES_MAX:
            # Before there is room for it: a claim costs a server nothing.
            name = "a packet" if self._buf[at + 4] else type_name(int(self._buf[at + 5 + 4]))
            raise malformed(name, f"claims {size} bytes").at(self._place())
        wire = size + 1 + 4 * ((size + 1) // k.PACKET_MAX + 1)
        if have < wire:
            return False
        source, target, left = at, at + 4, size + 1
        while True:
            n = int.from_bytes(self._buf[source : source + 3].tobytes(), "little")
            if n > left or n != min(left, k.PACKET_MAX):
                raise malformed(
                    "a packet", f"of {n} bytes continues an event that lacks {left}"
                ).at(self._place())
            self._buf[target : target + n] = self._buf[source + 4 : source + 4 + n].copy()
            source, target, left = source + 4 + n, target + n, left - n
            if n < k.PACKET_MAX:
                break
        # Look at this one event as if it stood in a file, then go on behind its packets.
        end, behind = int(st[k.END]), at + 5 + size
        st[k.AT], st[k.END], st[k.PACKETS] = at + 5, behind, 0
        try:
            while self._unpacking is None and int(st[k.AT]) < behind:
                code = self._run()
                if code not in (k.MORE, k.FULL):  # full with this event: the loop ends behind it
                    self._answer(code, out)
        finally:
            if self._unpacking is None:
                st[k.PACKETS], st[k.END] = 1, end
        if self._unpacking:
            self._unpacking.packets, self._unpacking.next = 1, at + wire
        else:
            st[k.AT] = at + wire
        return True

    def _bad_event(self, code: int) -> BinlogError:
        st = self._st
        off = int(st[k.OFF])
        kind = int(self._buf[off + 4]) if off + 4 < st[k.END] else -1
        name = type_name(kind) if kind >= 0 else "an event"
        if code == k.CHECKSUM:
            return BinlogError(ErrorKind.CHECKSUM_MISMATCH, name, where=self._place())
        if code == k.MALFORMED and st[k.REASON] == k.OUTSIDE and kind in _OF_ROWS:
            version = self.format.server_version if self.format else ""
            if header.server_numbers(version)[:2] == (5, 1):
                return BinlogError(ErrorKind.UNSUPPORTED_EVENT, f"{name} {_WITHOUT_BEGIN}", where=self._place(),
                                   remedy=_REMEDY_51)  # fmt: skip
        return malformed(
            name, k.WHY[int(st[k.REASON])] if code == k.MALFORMED else "is not one"
        ).at(self._place())
