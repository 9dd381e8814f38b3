"""Running copies of tables: each copy reads its table chunk by chunk, while the server's rows change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.binlog.table_map.column_types import InvalidDates
from spark_sink.mirror.copy.staged_copy import copy_id_of
from spark_sink.mirror.rules.effects import CopyTable
from spark_sink.mirror.rules.events import TableCopied
from spark_sink.mirror.rules.states import Copying
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.schema.signature import Signature
from spark_sink.mirror.values.names import copy_folder
from tests.mirror_simulation.lake import Lake, LakeTable
from tests.mirror_simulation.log import Row, ServerTable, parsed, table_map_of
from tests.mirror_simulation.quarantine import Quarantined
from tests.mirror_simulation.server import Server
from tests.mirror_simulation.value_rules import ValueRules


class UnreadableError(Exception):
    """The table cannot be read now: it does not exist, or it is not the table that the copy began to read."""


@dataclass
class Copy:
    """`chunks`: the number of the table's chunks; `left`: the number of chunks that are not read yet; `table`: the
    server's table when the first chunk was read, None before; `stop`: True if the copy ends before its next chunk."""

    effect: CopyTable
    chunks: int
    left: int
    table: ServerTable | None = None
    stop: bool = False


class Copies:
    """The running copies, by the number of their work."""

    def __init__(self, server: Server, lake: Lake, judge: ValueRules) -> None:
        self._server, self._lake, self._judge = server, lake, judge
        self.running: dict[int, Copy] = {}

    def begin(self, effect: CopyTable, chunks: int) -> None:
        self.running[effect.run] = Copy(effect, chunks, chunks)

    def stop(self, run: int) -> None:
        if run in self.running:
            self.running[run].stop = True

    def end(self, effect: CopyTable) -> None:
        del self.running[effect.run]

    def table(self, effect: CopyTable) -> ServerTable | None:
        return self._server.tables.get(effect.record.name)

    def read(self, effect: CopyTable) -> TableCopied | None:
        """Read a copy's next chunk. Returns the answer for the rules if the copy has ended. Raises UnreadableError, and
        BinlogError for a value that stops the copy."""
        copy, record = self.running[effect.run], effect.record
        assert isinstance(record.state, Copying)
        if copy.stop and copy.left > 1:
            return self._answer(copy, complete=False)
        table = self.table(effect)
        if table is None or _is_another(copy, table):
            raise UnreadableError
        values, read = self._lake.values.under(record.name), _chunk(copy, table)
        if not values.are_plain:
            values.require_valid(read)
            self._keep_invalid(record, table, read)
        folder = self._folder(record, table)
        copy.table = copy.table or table.copy()
        if table.keyed:
            copy.left -= 1
            _add_chunk(folder, [values.row(row) for row in read])
        else:  # read in one snapshot, even a large table
            folder.rows, copy.left = Counter(values.rows(table.rows)), 0
        if not values.are_plain:
            self._judge.shows(folder, record.name)
            self._judge.copied(record, copy_id_of(record), read, table.keyed)
        if copy.left > 0:
            return None
        folder.past = [(-1, Counter(folder.rows))]
        return self._answer(copy, complete=True, table=table)

    def keep_invalid(self, effect: CopyTable) -> None:
        """Write the invalid values of a copy's next chunk to the quarantine, as if the copy ended before the commit of
        the chunk."""
        copy, table = self.running[effect.run], self.table(effect)
        if table is not None and not _is_another(copy, table):
            read = _chunk(copy, table)
            self._judge.read(effect.record, copy_id_of(effect.record), read, keyed=table.keyed)
            self._keep_invalid(effect.record, table, read)

    def _keep_invalid(self, record: TableRecord, table: ServerTable, rows: Sequence[Row]) -> None:
        values, copy_id = self._lake.values.under(record.name), copy_id_of(record)
        if values.are_kept:
            self._lake.quarantine.add(
                Quarantined(record.table_id, copy_id, cell)
                for row in rows
                for cell in values.invalid(row, keyed=table.keyed)
            )

    def _folder(self, record: TableRecord, table: ServerTable) -> LakeTable:
        """Returns the copy's Delta table. If a crash has ended an earlier copy, it contains the rows that this copy had
        read."""
        place = copy_folder(record.table_id)
        folder = self._lake.folders.setdefault(place, LakeTable(record.table_id, table.columns))
        if folder.columns != table.columns:
            folder.rows, folder.columns = Counter(), table.columns
        return folder

    def _answer(
        self, copy: Copy, *, complete: bool, table: ServerTable | None = None
    ) -> TableCopied:
        effect, signature = copy.effect, ""
        if table is not None:
            body = table_map_of(effect.record.name, table.columns, table.keyed)
            values = self._lake.values.under(effect.record.name)
            columns = values.rules.table_map(parsed(body))
            signature = Signature.of_table_map(columns, InvalidDates.NULL).to_json()
        exact = table is not None and not table.keyed
        del self.running[effect.run]
        return TableCopied(effect.run, complete, self._server.position(), exact, signature, ())


def _chunk(copy: Copy, table: ServerTable) -> list[Row]:
    """Returns the rows of a copy's next chunk: the rows with every `chunks`th key, or all rows of a table without a
    key."""
    if not table.keyed:
        return list(table.rows)
    keys = {dict(row)["id"]: row for row in table.rows}
    chunk = copy.left - 1
    return [row for key, row in keys.items() if key is not None and key % copy.chunks == chunk]


def _add_chunk(folder: LakeTable, chunk: Sequence[Row]) -> None:
    """Replace the rows of a chunk. Deleted rows stay in the folder: the log contains their deletion."""
    rows = {dict(row)["id"]: row for row in folder.rows}
    folder.rows = Counter((rows | {dict(row)["id"]: row for row in chunk}).values())


def _is_another(copy: Copy, table: ServerTable) -> bool:
    before = copy.table
    return before is not None and (before.number, before.columns) != (table.number, table.columns)
