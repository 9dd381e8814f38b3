"""Records the rows of an XA transaction, from XA START until the group's last event shows whether the transaction is
prepared."""

from __future__ import annotations

import zstandard

from dispatcher.binlog.event.transaction_payload import Compression, Payload
from dispatcher.binlog.kernel.bytes import U8
from dispatcher.stream.routes import Target
from dispatcher.stream.xa_store import ENTRY_BYTES, LogPoint, XaFault, XaStore

COMPRESSED_MIN = 1 << 14  # in bytes; less data is not worth compressing


class XaRecording:
    """Collects the events of one XA transaction, and compresses them as soon as they have `COMPRESSED_MIN` bytes.

    `store`: the store, whose free bytes limit the recording; None if no rows are needed. `at`: where the transaction
    begins. `first`: the transaction's BEGIN event, or empty. `whole`: False once the events did not fit.
    """

    def __init__(self, store: XaStore | None, at: LogPoint, first: bytes) -> None:
        self.at = at
        self.faults: list[XaFault] = []
        self.tables: dict[Target, None] = {}
        self.whole = True
        self._store = store
        self._plain: list[bytes] = [first]
        self._plain_bytes = self.size = len(first)
        self._packed: list[bytes] = []
        self._packed_bytes = 0
        self._compressor: zstandard.ZstdCompressionObj | None = None
        self._rows: Payload | None = None

    @property
    def bytes(self) -> int:
        """How many bytes of memory the events take."""
        return self._plain_bytes + self._packed_bytes

    def add(self, events: U8) -> None:
        """Add events, which must not have checksums. Once the store has no room, all events are dropped."""
        if self._store is None or not self.whole:
            return
        self._plain.append(events.tobytes())
        self._plain_bytes += len(events)
        self.size += len(events)
        if self._plain_bytes >= COMPRESSED_MIN:
            self._compress()
        self.whole = self._store.has_room(self.bytes + ENTRY_BYTES)
        if not self.whole:
            self._plain, self._packed, self._compressor = [], [], None

    def rows(self) -> Payload | None:
        """Return all events; None if they did not fit or are not needed. No event may be added afterwards."""
        if not self.whole or self._store is None:
            return None
        if self._rows is None and self._compressor is None:
            self._rows = Payload(Compression.NONE, self.size, b"".join(self._plain))
        elif self._rows is None:
            self._compress()
            assert self._compressor is not None
            data = b"".join((*self._packed, self._compressor.flush()))
            self._rows = Payload(Compression.ZSTD, self.size, data)
        return self._rows

    def _compress(self) -> None:
        if self._compressor is None:
            self._compressor = zstandard.ZstdCompressor(level=1, write_checksum=True).compressobj()
        for piece in self._plain:
            packed = self._compressor.compress(piece)
            self._packed.append(packed)
            self._packed_bytes += len(packed)
        self._plain, self._plain_bytes = [], 0
