"""XA transactions in the log, and what consumers get of them (design: `prepared`).

A server writes XA START ... XA END, XA PREPARE as a group under one GTID, and later XA COMMIT or XA ROLLBACK alone
under another (MySQL since 5.7, MariaDB since 10.5, whose GTID event is the XA START). Whether it is prepared is known
only at the group's end, since XA COMMIT ... ONE PHASE writes the same group with another last event. So from XA START
on the rows are not listed for anybody but kept, and one of four things happens:

* prepared: the group is a transaction without anything for anybody, and what was kept waits in `Prepared`;
* ONE PHASE: what was kept is read in the place of the group's last event, as the rows of this transaction;
* XA COMMIT: what was kept then is read in its place, as the rows of this transaction;
* XA ROLLBACK: nothing for anybody.

To consumers either is a transaction like any other, from BEGIN to XID, under the GTID of the moment when it happened.
MariaDB's GTID event says that it stands for XA; it is made to say BEGIN, without a change of its size.

What no server writes, such as an XA COMMIT inside of a transaction, is a fault that names it.

Sources: MySQL source, sql/binlog.cc, sql/xa.cc; MariaDB sql/log.cc, sql/log_event.h; four servers' logs.
"""

from __future__ import annotations

import struct
import zlib

from dispatcher.binlog.event import control, header, transaction_payload
from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.gtid import (
    COMPLETED_XA,
    DDL,
    GROUP_COMMIT_ID,
    PREPARED_XA,
    STANDALONE,
    MariadbGtid,
    Xid,
)
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.sql.statement import xa_verb
from dispatcher.binlog.stream import splitter_kernel as k
from dispatcher.binlog.stream.batch_builder import Out
from dispatcher.binlog.stream.embedded import Inside
from dispatcher.binlog.stream.xa_store import EmbeddedTransaction, LogPoint, XaFault, XaRecorder
from dispatcher.model.errors import SEEK, ErrorKind
from dispatcher.model.position import LogPosition

_NOT_READ = (
    f"move the consumer before the transaction's XA PREPARE, where its rows stand ({SEEK}), or copy its tables afresh"
    " from a position behind this XA COMMIT, and move it there"
)
_NO_ROOM = (
    "raise state.max_bytes_in_prepared and restart; XA RECOVER on the server lists what is prepared for long, XA COMMIT"
    " or XA ROLLBACK ends it"
)


class Xa(Inside):
    """Reads XA's events; the rows between them go past it."""

    def _xa(self, text: str, event: bytes, body: bytes, out: Out) -> EmbeddedTransaction | None:
        """A QUERY event with an XA statement, and its plain body."""
        state, verb = self._st[k.TX], xa_verb(text)
        if verb in ("START", "BEGIN") and state == k.TX_STARTED:
            self._keep(self.offset, _query_event(event, body, b"BEGIN"))
        elif verb == "END" and state == k.TX_XA:
            pass
        elif verb in ("COMMIT", "ROLLBACK") and state == k.TX_STARTED and not self._in_payload:
            xid = Xid.parse(text)
            if xid is not None:
                return self._xa_end(xid, event, out, commit=verb == "COMMIT")
            self._fault(ErrorKind.UNSUPPORTED_EVENT, text[:300], out)
            self._end_transaction()
        else:
            self._fault(ErrorKind.UNSUPPORTED_EVENT, text[:300], out)
            if state < k.TX_BEGUN:
                self._end_transaction()
        return None

    def _keep(self, offset: int, begin: bytes) -> None:
        self._st[k.TX] = k.TX_XA
        self._keeping = XaRecorder(self.prepared, self._spot(offset), begin)

    def _spot(self, offset: int) -> LogPoint:
        """`offset`: behind the GTID event of the open transaction."""
        st = self._st
        source = self.sources[int(st[k.SOURCE])] if st[k.SOURCE] >= 0 else ""
        mark = LogPosition(self.file, offset, self.created.get(self.file, 0))
        server = self.prepared.server if self.prepared else ""
        return LogPoint(mark, source, int(st[k.GNO]) if source else 0, server)

    # -- the end of a group ----------------------------------------------------------------------------------

    def _xa_prepare(self, event: bytes, body: bytes, out: Out) -> EmbeddedTransaction | None:
        found = control.parse_xa_prepare(body)
        keeping = self._keeping
        if keeping is None:
            raise malformed("XA_PREPARE_EVENT", "stands outside a transaction")
        if found.one_phase:
            return self._at_once(keeping, str(found), event, out)
        self._keep_listed()
        if self.prepared is not None:
            rows = keeping.rows()
            if rows is None:
                self._overflow(keeping, str(found), out)  # is among its flaws from now on
            self.prepared.keep(str(found.xid), keeping.at, rows, tuple(keeping.flaws))
        self._end_transaction()
        return None

    def _at_once(
        self, keeping: XaRecorder, what: str, event: bytes, out: Out
    ) -> EmbeddedTransaction | None:
        """The transaction is committed where it stands."""
        self._keep_listed()
        rows = keeping.rows()
        if rows is not None:
            return self._inner(rows, event, ())
        if self.prepared is not None:
            self._overflow(keeping, what, out)
        self._end_transaction()
        return None

    def _overflow(self, keeping: XaRecorder, what: str, out: Out) -> None:
        assert self.prepared is not None
        size = self.prepared.bytes_max
        what = f"{what}: its rows do not fit into the {size} bytes for prepared transactions"
        route = self.routes.ddl(keeping.tables)
        self._fault(ErrorKind.PREPARED, what, out, route=route, remedy=_NO_ROOM)

    def _inner(
        self, rows: transaction_payload.Payload, event: bytes, flaws: tuple[XaFault, ...]
    ) -> EmbeddedTransaction:
        assert self.format is not None
        return EmbeddedTransaction(rows, _xid_event(event), self.format.mariadb, flaws)

    # -- XA COMMIT and XA ROLLBACK ---------------------------------------------------------------------------

    def _xa_end(
        self, xid: Xid, event: bytes, out: Out, *, commit: bool
    ) -> EmbeddedTransaction | None:
        prepared = self.prepared
        if prepared is None:
            self._end_transaction()
            return None
        end = self._spot(self.offset)
        entry = prepared.find(str(xid), end)
        if entry is not None:
            prepared.ended(entry, end)
        if commit and entry is not None and entry.rows is not None:
            return self._inner(entry.rows, event, entry.flaws)
        if not commit:
            self.ignored["prepared transaction rolled back"] += 1
        elif entry is None:
            what = f"XA COMMIT {xid}, of which no XA PREPARE was read"
            self._fault(ErrorKind.PREPARED, what, out, remedy=_NOT_READ)
        else:
            self._flaws(entry.flaws, out)
        self._end_transaction()
        return None

    # -- MariaDB ---------------------------------------------------------------------------------------------

    def _plain_gtid(self, gtid: MariadbGtid) -> None:
        """Make the GTID event at st[k.OFF] one of a transaction of rows: it is the BEGIN of what consumers get."""
        off, size = int(self._st[k.OFF]), int(self._st[k.SIZE])
        end = off + size - 4 * int(self._st[k.CHECKED])
        flags = gtid.flags & ~(STANDALONE | DDL | PREPARED_XA | COMPLETED_XA)
        self._buf[off + 19 + 12] = flags
        # What follows is the xid, and flags of later versions which would be looked for in its place.
        self._buf[off + 19 + 13 + (8 if flags & GROUP_COMMIT_ID else 0) : end] = 0
        if end < off + size:
            crc = zlib.crc32(self._buf[off:end].tobytes())
            for n, byte in enumerate(crc.to_bytes(4, "little")):
                self._buf[end + n] = byte


def _query_event(event: bytes, body: bytes, text: bytes) -> bytes:
    """A QUERY event as another one is, with another text; without a checksum."""
    database, status = body[8], int.from_bytes(body[11:13], "little")
    body = body[: 13 + status + database + 1] + text
    return _header(event, EventType.QUERY, len(body), event[17:19]) + body


def _xid_event(event: bytes) -> bytes:
    """A commit in the place of another event; the number is the storage engines', and nobody's here."""
    return _header(event, EventType.XID, 8, bytes(2)) + bytes(8)


def _header(event: bytes, kind: EventType, size: int, flags: bytes) -> bytes:
    head = struct.pack("<4sB4sII", event[:4], kind, event[5:9], header.HEADER_SIZE + size, 0)
    return head + flags
