"""Makes empty transactions in place of the transactions that a consumer's ranges leave out.

A client of a dump by GTID keeps the set of the GTIDs that it has executed. Without the transactions of other consumers
this set would have holes. If the client then connected to the server itself, it would ask for all missing transactions,
and the server would refuse the dump if it has purged them. An empty transaction adds a GTID to the client's set and
changes no data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from dispatcher.binlog.event.header import CHECKSUM_SIZE
from dispatcher.binlog.kernel.bytes import I64
from dispatcher.front.dump import fill_kernel as k
from dispatcher.front.dump.made_events import EmptyTransaction, MadeTransaction, varied_size
from dispatcher.front.dump.relay_kernel import PACKET_HEADER
from dispatcher.front.dump.sent_gtids import Missing

CHUNK_BYTES = 1 << 18

# A number in [_LIMITS[n - 1], _LIMITS[n]) is encoded in n bytes. The encoding is signed, so only half of the values of
# n bytes are positive numbers.
_LIMITS = [1, *(1 << 7 * size - 1 for size in range(1, 9)), (1 << 63) - 1]


def empty_transactions(
    missing: Iterable[Missing], made: MadeTransaction, prefix: bytes, sequence: int
) -> Iterator[tuple[bytes, int]]:
    """Yield chunks of packets of empty transactions. With each chunk, yield the sequence number of the packet that
    follows the chunk.

    `made`: the properties of the transactions other than their GTIDs. `prefix`: the bytes that precede each event in
    its packet.
    """
    st = np.zeros(k.STATE_SIZE, dtype=np.int64)
    out = np.empty(CHUNK_BYTES, dtype=np.uint8)
    at = 0
    st[k.SEQUENCE] = sequence
    for source, starts, ends in missing:
        for transaction, lows, highs in _alike(source, starts, ends, made):
            template = template_of(transaction, made, prefix)
            st[k.INTERVAL] = st[k.NUMBER] = 0
            while True:
                at = k.fill(out, at, template, lows, highs, st)
                if st[k.INTERVAL] == len(lows):
                    break
                yield out[:at].tobytes(), int(st[k.SEQUENCE])
                at = 0
    if at:
        yield out[:at].tobytes(), int(st[k.SEQUENCE])


def _alike(
    source: str, starts: I64, ends: I64, made: MadeTransaction
) -> Iterator[tuple[EmptyTransaction, I64, I64]]:
    """Group the GTID numbers of `source` by the size of their encoding. The sizes differ only for GTIDs with a tag."""
    if "-" in source and source.count("-") == 1:
        domain, server = map(int, source.split("-"))
        yield made.mariadb(domain, server), starts, ends
    elif ":" not in source:
        yield made.mysql(source), starts, ends
    else:
        for low, high in pairwise(_LIMITS):
            lows, highs = np.maximum(starts, low), np.minimum(ends, high)
            some = lows < highs
            if some.any():
                size = varied_size(2 * low)
                yield made.mysql(source, size), lows[some], highs[some]


def template_of(transaction: EmptyTransaction, made: MadeTransaction, prefix: bytes) -> k.Template:
    """Return the kernel's template: the packets of one empty transaction. `prefix`: the bytes that precede each event
    in its packet."""
    packets, starts = bytearray(), []
    for event in (transaction.gtid, *transaction.rest):
        starts.append(len(packets))
        packets += (len(prefix) + len(event)).to_bytes(3, "little") + b"\0" + prefix + event
    begin = PACKET_HEADER + len(prefix)
    end = begin + len(transaction.gtid) - CHECKSUM_SIZE
    return k.Template(
        np.frombuffer(packets, dtype=np.uint8),
        np.array(starts, dtype=np.int64),
        begin,
        end if made.checksum else 0,
        begin + transaction.number_at,
        transaction.number_size,
        int(transaction.varied),
    )
