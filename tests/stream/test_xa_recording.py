"""Recording the rows of an XA transaction: rows that were added are returned unchanged, compressed or not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dispatcher.binlog.event import transaction_payload
from dispatcher.binlog.event.transaction_payload import Compression, Payload
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import LogPosition
from dispatcher.stream.embedded import EmbeddedTransaction
from dispatcher.stream.xa_recording import COMPRESSED_MIN, XaRecording
from dispatcher.stream.xa_store import LogPoint, XaStore


@pytest.mark.parametrize("size", [0, 10, COMPRESSED_MIN - 1, COMPRESSED_MIN, 3 << 20])
def test_recorded_rows_are_those_that_were_added(size: int) -> None:
    data = random.Random(size).randbytes(min(size, 5000)) + bytes(max(size - 5000, 0))
    recording = XaRecording(XaStore(), LogPoint(LogPosition("binlog.000001", 1, 1)), b"BEGIN")
    for at in range(0, len(data), 70_000):
        recording.add(np.frombuffer(data[at : at + 70_000], dtype=np.uint8))
    got = recording.rows()
    assert got is not None
    assert recording.rows() is got
    assert got.uncompressed_size == len(data) + 5
    assert transaction_payload.decompress(got) == b"BEGIN" + data
    inner = EmbeddedTransaction(got, b"XID")
    assert b"".join(inner.chunks()) == inner.whole().tobytes() == b"BEGIN" + data + b"XID"
    if got.compression is Compression.ZSTD:
        assert len(got.data) < len(data)
        damaged = bytearray(got.data)
        damaged[-5] ^= 1
        with pytest.raises(BinlogError, match="cannot be uncompressed"):
            transaction_payload.decompress(
                Payload(got.compression, got.uncompressed_size, bytes(damaged))
            )
