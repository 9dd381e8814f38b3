"""Running copies of tables: each copy reads its table chunk by chunk, while the server's rows change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dispatcher.binlog.table_map.column_types import InvalidDates
from spark_sink.mirror.rules.effects import CopyTable
from spark_sink.mirror.rules.events import TableCopied
from spark_sink.mirror.rules.states import Copying
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.schema.signature import Signature
from spark_sink.mirror.values.names import copy_folder
from tests.mirror_simulation.lake import Lake, LakeTable
from tests.mirror_simulation.log import ServerTable, parsed, table_map_of
from tests.mirror_simulation.server import Server


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

    def __init__(self, server: Server, lake: Lake) -> None:
        self._server, self._lake = server, lake
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
        """Read a copy's next chunk. Returns the answer for the rules if the copy has ended. Raises UnreadableError."""
        copy, record = self.running[effect.run], effect.record
        assert isinstance(record.state, Copying)
        if copy.stop and copy.left > 1:
            return self._answer(copy, complete=False)
        table = self.table(effect)
        if table is None or _is_another(copy, table):
            raise UnreadableError
        folder = self._folder(record, table)
        copy.table = copy.table or table.copy()
        if table.keyed:
            copy.left -= 1
            _read_chunk(folder, table, copy.chunks, copy.left)
        else:  # read in one snapshot, even a large table
            folder.rows, copy.left = Counter(table.rows), 0
        if copy.left > 0:
            return None
        folder.past = [(-1, Counter(folder.rows))]
        return self._answer(copy, complete=True, table=table)

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
            signature = Signature.of_table_map(parsed(body), InvalidDates.NULL).to_json()
        exact = table is not None and not table.keyed
        del self.running[effect.run]
        return TableCopied(effect.run, complete, self._server.position(), exact, signature, ())


def _read_chunk(folder: LakeTable, table: ServerTable, chunks: int, chunk: int) -> None:
    """Replace the rows of a chunk: the rows with every `chunks`th key. Deleted rows stay in the folder: the log
    contains their deletion."""
    rows = {dict(row)["id"]: row for row in folder.rows}
    keys = {dict(row)["id"]: row for row in table.rows}
    rows |= {key: row for key, row in keys.items() if key is not None and key % chunks == chunk}
    folder.rows = Counter(rows.values())


def _is_another(copy: Copy, table: ServerTable) -> bool:
    before = copy.table
    return before is not None and (before.number, before.columns) != (table.number, table.columns)
