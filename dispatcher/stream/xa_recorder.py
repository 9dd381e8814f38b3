"""XA transactions: the part of the splitter that records their rows and replays them where they are committed.

MySQL since 5.7 and MariaDB since 10.5 write XA START ... XA END, XA PREPARE as a group under one GTID. When the
transaction is committed or rolled back, they write XA COMMIT or XA ROLLBACK alone under another GTID. In MariaDB's
group, the GTID event takes the place of XA START. Only the last event of the group shows whether the transaction is
prepared: for XA COMMIT ... ONE PHASE, a server writes the same group with another last event. So after XA START, this
module records the rows instead of listing them for consumers, until it reads one of these events:

* XA PREPARE: the group counts as a transaction without events, and its recording goes to the `XaStore`;
* XA COMMIT ... ONE PHASE: the recording is replayed in place of the group's last event, in the same transaction;
* XA COMMIT: the stored recording is replayed in place of this event, in the XA COMMIT's transaction;
* XA ROLLBACK: the stored recording is dropped.

A consumer gets a replayed transaction like any other, from BEGIN to XID, under the GTID of its commit. MariaDB's GTID
event has flags for XA. This module clears them, so that the event implies a BEGIN. The event's size stays the same.

Statements in places where no server writes them, such as an XA COMMIT inside a transaction, are faults.

Sources: MySQL source, sql/binlog.cc, sql/xa.cc; MariaDB sql/log.cc, sql/log_event.h; four servers' logs.
"""

from __future__ import annotations

import zlib

from dispatcher.binlog.event import control, header
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
from dispatcher.binlog.event.header import EventHeader
from dispatcher.binlog.event.transaction_payload import Payload
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.sql.statement import xa_verb
from dispatcher.model.errors import SEEK, ErrorKind
from dispatcher.model.position import LogPosition
from dispatcher.stream import splitter_kernel as k
from dispatcher.stream.batch_builder import BatchBuilder, Batches
from dispatcher.stream.embedded import EmbeddedTransaction
from dispatcher.stream.receive_buffer import ReceiveBuffer
from dispatcher.stream.xa_recording import XaRecording
from dispatcher.stream.xa_store import LogPoint, XaFault, XaStore

_NOT_READ = (
    f"move the consumer before the transaction's XA PREPARE, where its rows stand ({SEEK}), or copy its tables afresh"
    " from a position after this XA COMMIT, and move it there"
)
_NO_ROOM = (
    "raise state.max_bytes_in_prepared and restart; XA RECOVER on the server lists what is prepared for long, XA COMMIT"
    " or XA ROLLBACK ends it"
)
_MARIADB_FLAGS_AT = header.HEADER_SIZE + header.MARIADB_FLAGS_AT  # the offset in the event


class XaRecorder:
    """Reads the events of XA transactions. `store`: the prepared transactions; None if their rows are not needed."""

    def __init__(self, buffer: ReceiveBuffer, builder: BatchBuilder) -> None:
        self.store: XaStore | None = XaStore()
        self._buffer = buffer
        self._builder = builder

    def statement(
        self, text: str, event: EventHeader, body: bytes, out: Batches
    ) -> EmbeddedTransaction | None:
        """Read a QUERY event with an XA statement. If the statement commits a prepared transaction, return that
        transaction."""
        builder = self._builder
        state, verb = builder.state[k.TX], xa_verb(text)
        if verb in ("START", "BEGIN") and state == k.TX_STARTED:
            self.start(builder.offset, _query_event(event, body, b"BEGIN"))
        elif verb == "END" and state == k.TX_XA:
            pass
        elif verb in ("COMMIT", "ROLLBACK") and state == k.TX_STARTED and not builder.embedded:
            xid = Xid.parse(text)
            if xid is not None:
                return self._end(xid, event, out, commit=verb == "COMMIT")
            builder.fault(ErrorKind.UNSUPPORTED_EVENT, text[:300], out)
            builder.end_transaction()
        else:
            builder.fault(ErrorKind.UNSUPPORTED_EVENT, text[:300], out)
            if state < k.TX_BEGUN:
                builder.end_transaction()
        return None

    def start(self, offset: int, begin: bytes) -> None:
        """Begin to record the open transaction. `offset`: the offset of the end of its GTID event. `begin`: the
        transaction's BEGIN event; empty if the GTID event implies a BEGIN."""
        self._builder.state[k.TX] = k.TX_XA
        self._builder.recording = XaRecording(self.store, self._log_point(offset), begin)

    def prepare(self, event: EventHeader, body: bytes, out: Batches) -> EmbeddedTransaction | None:
        """Read an XA_PREPARE event. Return the transaction if the event commits it in one phase.

        Raises BinlogError if the event occurs outside an XA transaction.
        """
        prepare = control.parse_xa_prepare(body)
        recording = self._builder.recording
        if recording is None:
            raise malformed("XA_PREPARE_EVENT", "occurs outside a transaction")
        if prepare.one_phase:
            return self.commit(recording, str(prepare), event, out)
        self._builder.record_listed()
        if self.store is not None:
            rows = recording.rows()
            if rows is None:  # `_overflow` adds the fault to the recording
                self._overflow(self.store, recording, str(prepare), out)
            self.store.keep(str(prepare.xid), recording.at, rows, tuple(recording.faults))
        self._builder.end_transaction()
        return None

    def commit(
        self, recording: XaRecording, name: str, event: EventHeader, out: Batches
    ) -> EmbeddedTransaction | None:
        """Read the event that commits the open XA transaction in one phase. `name`: the event's name in messages."""
        self._builder.record_listed()
        rows = recording.rows()
        if rows is not None:
            return self._replay(rows, event, ())
        if self.store is not None:
            self._overflow(self.store, recording, name, out)
        self._builder.end_transaction()
        return None

    def clear_mariadb_flags(self, gtid: MariadbGtid) -> None:
        """The kernel has returned for a GTID event. Turn this event into the GTID event of a plain transaction, which
        implies a BEGIN."""
        st, buf = self._builder.state, self._buffer.bytes
        off, stop = int(st[k.OFF]), int(st[k.STOP])
        flags = gtid.flags & ~(STANDALONE | DDL | PREPARED_XA | COMPLETED_XA)
        buf[off + _MARIADB_FLAGS_AT] = flags
        # Clear the xid, and the fields that later versions write after it. By the new flags the event has no xid, so a
        # reader would parse the xid's bytes as these fields.
        behind = off + _MARIADB_FLAGS_AT + 1 + (8 if flags & GROUP_COMMIT_ID else 0)
        buf[behind:stop] = 0
        if st[k.CHECKED]:
            crc = zlib.crc32(buf[off:stop].tobytes())
            buf[stop : stop + header.CHECKSUM_SIZE] = list(crc.to_bytes(4, "little"))

    def _end(
        self, xid: Xid, event: EventHeader, out: Batches, *, commit: bool
    ) -> EmbeddedTransaction | None:
        """Read the XA COMMIT or XA ROLLBACK of a prepared transaction. Return the transaction if its changes are
        replayed now."""
        builder, store = self._builder, self.store
        if store is None:
            builder.end_transaction()
            return None
        end = self._log_point(builder.offset)
        entry = store.find(str(xid), end)
        if entry is not None:
            store.ended(entry, end)
        if commit and entry is not None and entry.rows is not None:
            return self._replay(entry.rows, event, entry.faults)
        if not commit:
            builder.ignored["prepared transaction rolled back"] += 1
        elif entry is None:
            what = f"XA COMMIT {xid}, of which no XA PREPARE was read"
            builder.fault(ErrorKind.PREPARED, what, out, remedy=_NOT_READ)
        else:
            builder.xa_faults(entry.faults, out)
        builder.end_transaction()
        return None

    def _overflow(self, store: XaStore, recording: XaRecording, name: str, out: Batches) -> None:
        what = f"{name}: its rows do not fit into the {store.bytes_max} bytes for prepared transactions"
        route = self._builder.routes.ddl(recording.tables)
        self._builder.fault(ErrorKind.PREPARED, what, out, route=route, remedy=_NO_ROOM)

    def _replay(
        self, rows: Payload, event: EventHeader, faults: tuple[XaFault, ...]
    ) -> EmbeddedTransaction:
        """Return the recorded rows, and an XID event in place of `event`. (Consumers do not use the XID's number.)"""
        assert self._builder.format is not None
        xid = _event(event, EventType.XID, bytes(8), flags=0)
        return EmbeddedTransaction(rows, xid, self._builder.format.mariadb, faults)

    def _log_point(self, offset: int) -> LogPoint:
        """Return the open transaction's place in the log. `offset`: the offset of the end of its GTID event."""
        builder = self._builder
        st, file = builder.state, builder.file
        source = builder.sources[int(st[k.SOURCE])] if st[k.SOURCE] >= 0 else ""
        position = LogPosition(file, offset, builder.created.get(file, 0))
        server = self.store.server if self.store else ""
        return LogPoint(position, source, int(st[k.GNO]) if source else 0, server)


def _query_event(event: EventHeader, body: bytes, text: bytes) -> bytes:
    """Return a QUERY event with `text` and the other fields of `event`, without a checksum."""
    status_size = int.from_bytes(
        body[header.QUERY_STATUS_SIZE_AT : header.QUERY_FIXED_SIZE], "little"
    )
    text_at = header.QUERY_FIXED_SIZE + status_size + body[header.QUERY_DATABASE_SIZE_AT] + 1
    return _event(event, EventType.QUERY, body[:text_at] + text, flags=event.flags)


def _event(like: EventHeader, kind: EventType, body: bytes, *, flags: int) -> bytes:
    size = header.HEADER_SIZE + len(body)
    return header.HEADER.pack(like.timestamp, kind, like.server_id, size, 0, flags) + body
