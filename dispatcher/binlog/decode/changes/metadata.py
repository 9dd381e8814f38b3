"""The metadata columns, which describe a change. A reader gets only the columns that it requests, and only these are
computed.

`query` needs one more pass over the bytes. `transaction_rows` and `transaction_end` need one more pass over the rows,
because the number of rows is known only at the end of a transaction. A part of a transaction contains neither this
number nor the text of a statement that began before the part: `CutTransaction` supplies them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dispatcher.binlog.decode.arrow import arrow_buffers
from dispatcher.binlog.decode.changes.changed_columns import changed_names
from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.changes.row_batches import DecodedRows
from dispatcher.binlog.decode.changes.walked_rows import WalkedRows
from dispatcher.binlog.decode.columns.table_decoder import TableDecoder
from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.events.index_kernels import EPOCH, RECORD, SEQ
from dispatcher.binlog.decode.events.statement_texts import CONTINUED, read_text, text_offsets
from dispatcher.binlog.event.header import SERVER_ID_AT
from dispatcher.binlog.kernel.bytes import I64

COUNTED = frozenset({Metadata.TRANSACTION_ROWS, Metadata.TRANSACTION_END})


@dataclass(frozen=True, slots=True)
class CutTransaction:
    """The facts that a part of a transaction does not contain. `rows`: how many selected rows and statements the whole
    transaction has; `last_ordinal`: the ordinal of the last of these rows and statements. `query`: text of the
    statement in which the part begins; None if the part begins with the transaction, or if the text is unknown."""

    epoch: int
    seq: int
    rows: int
    last_ordinal: int
    query: str | None = None


class MetadataColumns:
    """Builds the metadata columns of one delivered log."""

    def __init__(
        self, log: Index, wanted: Collection[Metadata], cut: Sequence[CutTransaction] = ()
    ) -> None:
        self._log = log
        self.wanted = frozenset(wanted)
        self._cut = cut
        self._rows = np.zeros(len(log.txns), dtype=np.int64)
        self._last = np.full(len(log.txns), -1, dtype=np.int64)
        self._texts: I64 = np.full((len(log.events) + 1, 2), CONTINUED, dtype=np.int64)
        if Metadata.QUERY in self.wanted:
            text_offsets(log.buf, log.events, self._texts)

    # -- counting ------------------------------------------------------------------------------------------------

    def count(self, events: I64, rows: I64) -> None:
        """Add `rows[i]`, the number of rows of events[i], to the counts of the transactions."""
        filled = rows > 0
        events, rows = events[filled], rows[filled]
        txns = events[:, row_walk.TXN]
        np.add.at(self._rows, txns, rows)
        last = events[:, row_walk.INDEX] << row_walk.ROW_BITS | (rows - 1)
        np.maximum.at(self._last, txns, last)

    def count_rows(self, rows: WalkedRows) -> None:
        """Add these rows to the counts of their transactions."""
        txns = rows.events[rows.cells.event[: rows.n], row_walk.TXN]
        np.add.at(self._rows, txns, 1)
        np.maximum.at(self._last, txns, rows.cells.ordinal[: rows.n])

    def count_statement(self, txn: int, ordinal: int) -> None:
        """Count a statement as one row. `txn`: the index of its transaction in the transactions array."""
        self._rows[txn] += 1
        self._last[txn] = max(int(self._last[txn]), ordinal)

    def counted(self, epoch: int, seq: int) -> tuple[int, int]:
        """Returns how many rows of a transaction were counted, and the ordinal of the last of these rows, -1 if
        none."""
        here = self._lines(epoch, seq)
        return int(self._rows[here].sum()), int(self._last[here].max(initial=-1))

    def ends_in(self, begins_in: str | None) -> str | None:
        """Returns the text of the statement in which the bytes end. `begins_in`: text of the statement in which the
        bytes begin."""
        return self._text(-1, begins_in)

    def _lines(self, epoch: int, seq: int) -> NDArray[np.bool_]:
        txns = self._log.txns
        here: NDArray[np.bool_] = (txns[:, EPOCH] == epoch) & (txns[:, SEQ] == seq)
        return here

    def settle(self) -> None:
        """For each transaction of which the log contains only a part, replace its counts by the counts of the whole
        transaction."""
        for one in self._cut:
            here = self._lines(one.epoch, one.seq)
            self._rows[here], self._last[here] = one.rows, one.last_ordinal

    # -- the columns ---------------------------------------------------------------------------------------------

    def of_statement(self, txn: int, ordinal: int, query: str) -> dict[str, Any]:
        """Returns the metadata of a statement's row. `txn`: the index of its transaction in the transactions array."""
        values = {
            Metadata.SERVER_ID: int(self._server_ids(np.array([txn]))[0]),
            Metadata.QUERY: query,
            Metadata.TRANSACTION_ROWS: int(self._rows[txn]),
            Metadata.TRANSACTION_END: bool(self._last[txn] == ordinal),
        }
        return {name: value for name, value in values.items() if name in self.wanted}

    def of_rows(
        self, walked: WalkedRows, decoder: TableDecoder, key: pa.Array | None
    ) -> dict[Metadata, pa.Array]:
        """Returns the columns of a batch. `key`: the column `KEY`; None if the rows have no key."""
        txns = walked.events[walked.cells.event[: walked.n], row_walk.TXN]
        columns: dict[Metadata, pa.Array] = {}
        if Metadata.SERVER_ID in self.wanted:
            columns[Metadata.SERVER_ID] = arrow_buffers.fixed(pa.int64(), self._server_ids(txns))
        if Metadata.QUERY in self.wanted:
            columns[Metadata.QUERY] = self._queries(walked)
        if Metadata.KEY in self.wanted and key is not None:
            columns[Metadata.KEY] = key
        if Metadata.CHANGED in self.wanted:
            names = [column.name for column in decoder.table_map.columns]
            buf = walked.log.buf[walked.base :]
            columns[Metadata.CHANGED] = changed_names(
                buf, decoder.widths, walked.cells, walked.n, names
            )
        if Metadata.TRANSACTION_ROWS in self.wanted:
            columns[Metadata.TRANSACTION_ROWS] = arrow_buffers.fixed(pa.int64(), self._rows[txns])
        if Metadata.TRANSACTION_END in self.wanted:
            is_last = walked.cells.ordinal[: walked.n] == self._last[txns]
            columns[Metadata.TRANSACTION_END] = arrow_buffers.booleans(is_last)
        return columns

    def _server_ids(self, txns: I64) -> I64:
        at = self._log.txns[txns, RECORD] + SERVER_ID_AT
        parts = [self._log.buf[at + i].astype(np.int64) << 8 * i for i in range(4)]
        ids: I64 = parts[0] | parts[1] | parts[2] | parts[3]
        return ids

    def _queries(self, walked: WalkedRows) -> pa.Array:
        offsets = walked.events[:, row_walk.OFFSET]
        lines = np.searchsorted(self._log.events[:, row_walk.OFFSET], offsets)
        _, first, which = np.unique(self._texts[lines, 0], return_index=True, return_inverse=True)
        begins_in = self._cut[0].query if self._cut else None
        texts = [self._text(line, begins_in) for line in lines[first].tolist()]
        known = np.array([text is not None for text in texts], dtype=np.bool_)
        of_row = which.ravel()[walked.cells.event[: walked.n]]
        values = arrow_buffers.string_array([text or "" for text in texts])
        return values.take(arrow_buffers.fixed(pa.int64(), of_row, known[of_row]))

    def _text(self, line: int, begins_in: str | None) -> str | None:
        start, end = self._texts[line].tolist()
        if start >= 0:
            return read_text(self._log.buf, start, end)
        return begins_in if start == CONTINUED else None


def key_column(rows: DecodedRows, decoder: TableDecoder, key: Sequence[int]) -> pa.Array:
    """Returns the column `KEY` of decoded rows. `key`: indexes of the key's fields in the decoder."""
    inserted = rows.walked.cells.op[: rows.walked.n] == row_walk.INSERT
    fields = [decoder.fields[i] for i in key]
    if inserted.all() or not inserted.any():
        image = rows.after if inserted.all() else rows.before
        children = [image.field(i) for i in key]
    else:
        mask = arrow_buffers.booleans(inserted)
        children = [pc.if_else(mask, rows.after.field(i), rows.before.field(i)) for i in key]
    return pa.Array.from_buffers(pa.struct(fields), rows.walked.n, [None], children=children)
