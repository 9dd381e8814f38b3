"""Events that the splitter reads in the place of one of the log: those of a compressed transaction, or of a prepared
one that is committed (`prepared.Inner`).

All of them lie at one place: before their event until the transaction has ended, and behind it then. A few are
written behind what was received and read at once: a server that compresses all transactions writes thousands of them a
second, and a batch for each would cost more than all of the rest. More are read a chunk at a time, from a buffer of
their own (`unpack`). Either may hold the other: XA COMMIT ... ONE PHASE in a compressed transaction.
"""

from __future__ import annotations

import numpy as np

from dispatcher.binlog.event import transaction_payload
from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.kernel.bytes import U8, u32
from dispatcher.binlog.stream import reframe
from dispatcher.binlog.stream import splitter_kernel as k
from dispatcher.binlog.stream.batch import OPEN
from dispatcher.binlog.stream.batch_builder import Batching, Out
from dispatcher.binlog.stream.reframe import Unpacking
from dispatcher.binlog.stream.routes import ALL
from dispatcher.binlog.stream.xa_store import EmbeddedTransaction, XaFault


class Inside(Batching):
    """Between the buffers and arrays below, and those who know events above."""

    SMALL_PAYLOAD = 1 << 18  # bytes of inner events that are read in one go

    def _run(self) -> int:
        raise NotImplementedError

    def _answer(self, code: int, out: Out) -> bool:
        raise NotImplementedError

    def _payload(self, off: int, size: int) -> EmbeddedTransaction:
        """What a TRANSACTION_PAYLOAD_EVENT holds."""
        if self._in_payload:
            raise malformed(transaction_payload.NAME, "holds another one")
        if self._st[k.TX] != k.TX_STARTED:
            raise malformed(transaction_payload.NAME, "stands where no transaction begins")
        body = memoryview(self._buf)[off + 19 : off + size - 4 * int(self._st[k.CHECKED])]  # type: ignore[arg-type]
        return EmbeddedTransaction(transaction_payload.parse_payload(body))

    def _read_inside(self, inner: EmbeddedTransaction, out: Out) -> bool:
        """Read `inner` in the place of the event at st[k.OFF], beginning with the state that the transaction is in.

        Ends with the kernel's state behind that event, or in a chunk of what stands for it; returns False, and has
        done nothing, where it must wait for `compact()`.
        """
        st = self._st
        size, said = int(st[k.SIZE]), inner.size
        small = said is not None and said <= min(self.SMALL_PAYLOAD, self._room_bytes // 4)
        small = small and size < k.PACKET_MAX and self._unpacking is None
        if small and not self._inside:
            assert said is not None
            # Twice: it may hold an XA transaction of one phase, which is read again from its beginning.
            room = self._reserve_scratch(2 * reframe.reframed_bytes_max(said))
            if not room or st[k.N_EVENTS] + said // 19 >= k.EVENTS_MAX - k.SLACK:
                self._full = True
                return False
        self._flaws(inner.flaws, out)
        st[k.TX] = k.TX_BEGUN if inner.begun else k.TX_STARTED
        self._keeping = None
        start = self.offset
        end = int(k.advance_position(start, int(u32(self._buf, int(st[k.OFF]) + 13)), size))
        if small:
            self._read_small(inner, start, end, out)
        else:
            self._read_chunks(inner, start, end, out)
        return True

    def _flaws(self, flaws: tuple[XaFault, ...], out: Out) -> None:
        """Stop those who must not go on here."""
        for flaw in flaws:
            route = ALL if flaw.targets is None else self.routes.ddl(flaw.targets)
            self._fault(flaw.kind, flaw.what, out, route=route, remedy=flaw.remedy)

    def _read_chunks(self, inner: EmbeddedTransaction, start: int, end: int, out: Out) -> None:
        st = self._st
        st[k.AT] = st[k.NEXT]
        self._flush(out)
        self._unpacking = Unpacking(
            self._buf, self._fill, int(st[k.NEXT]), int(st[k.PACKETS]), start, end, int(st[k.CHECKED]),
            transaction_payload.event_runs(inner.chunks()), self._unpacking,
        )  # fmt: skip
        st[k.PACKETS] = 0
        self._look_into(np.empty(0, dtype=np.uint8))

    def _read_small(self, inner: EmbeddedTransaction, start: int, end: int, out: Out) -> None:
        st = self._st
        at = self._scratch
        checksum = int(st[k.CHECKED])
        self._scratch += reframe.into(inner.whole(), self._buf[at:], end & 0xFFFFFFFF, checksum)
        behind = int(st[k.NEXT]), int(st[k.END]), int(st[k.PACKETS])
        st[k.AT], st[k.END], st[k.PACKETS] = at, self._scratch, 0
        transactions, inside = int(st[k.N_TXS]), self._inside
        self._inside = True
        try:
            while (code := self._run()) != k.MORE:
                st[k.FILE_POS] = start if st[k.TX] != k.NO_TX else end
                self._answer(code, out)
        finally:
            self._inside = inside
            st[k.AT], st[k.END], st[k.PACKETS] = behind
            st[k.FILE_POS] = start if st[k.TX] != k.NO_TX else end
        if self._settle(transactions, start, end) != 1 or st[k.TX] != k.NO_TX:
            raise malformed(transaction_payload.NAME, "holds something else than one transaction")

    def _look_into(self, chunk: U8) -> None:
        """Put a chunk into a buffer of its own, behind what its transaction carries."""
        st, ev = self._st, self._ev
        lo, hi = self._first_event, int(st[k.N_EVENTS])
        front = int(ev.size[lo:hi].sum())
        buf: U8 = np.empty(front + len(chunk), dtype=np.uint8)
        at = 0
        for n in range(lo, hi):
            off, size = int(ev.off[n]), int(ev.size[n])
            buf[at : at + size] = self._buf[off : off + size]
            ev.off[n] = at
            at += size
        buf[at:] = chunk
        self._buf, self._fill = buf, len(buf)
        st[k.AT], st[k.END] = at, len(buf)
        self._batch_from = at

    def _settle(self, transactions: int, start: int, end: int) -> int:
        """Say of what was split in there where it lies. Returns how many ended since there were `transactions`."""
        st = self._st
        fresh = slice(transactions, int(st[k.N_TXS]))
        ended = (self._tx.flags[fresh] & OPEN) == 0
        self._tx.end[fresh] = np.where(ended, end, start)
        return int(ended.sum())

    def _reserve_scratch(self, need: int) -> bool:
        """Is there room for so many bytes of a few events? Where there is none, there will be."""
        if not self._reserve:
            self._reserve = self._room_bytes
            larger: U8 = np.empty(len(self._buf) + self._reserve, dtype=np.uint8)
            larger[: self._fill] = self._buf[: self._fill]
            self._buf = larger
        return self._scratch + need <= len(self._buf)

    def _leave(self, unpacked: Unpacking) -> None:
        """Go on behind the event that was read otherwise, in the buffer that holds it."""
        st = self._st
        if st[k.TX] != k.NO_TX or unpacked.transactions != 1:
            raise malformed(transaction_payload.NAME, "holds something else than one transaction")
        outer = self._unpacking = unpacked.outer
        if outer:
            outer.transactions += 1
        self._buf, self._fill = unpacked.buf, unpacked.fill
        st[k.AT], st[k.END], st[k.PACKETS] = unpacked.next, unpacked.fill, unpacked.packets
        st[k.FILE_POS] = unpacked.end
        self._batch_from, self._scratch = unpacked.next, unpacked.fill
