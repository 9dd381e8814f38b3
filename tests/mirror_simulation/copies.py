"""Copies of tables that run: each reads its table chunk by chunk, while the server's rows change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dispatcher.binlog.table_map.column_types import InvalidDates
from spark_sink.mirror.rules.effects import CopyTable
from spark_sink.mirror.rules.events import TableCopied
from spark_sink.mirror.rules.states import Copying
from spark_sink.mirror.rules.tasks.replay_task import copy_folder
from spark_sink.mirror.schema.signature import Signature
from tests.mirror_simulation.lake import Lake, LakeTable
from tests.mirror_simulation.log import Row, Rows, ServerTable, parsed, table_map_of
from tests.mirror_simulation.server import Server


class UnreadableError(Exception):
    """The table cannot be read now: there is none, or it is another one than before."""


@dataclass
class Copy:
    """`chunks`: of the table; `left`: that are not read yet; `table`: as its first chunk was read, None before;
    `by_key`, `rows`: what was read of a table with a key, and of one without; `stop`: it ends at the next chunk."""

    effect: CopyTable
    chunks: int
    left: int
    table: ServerTable | None = None
    by_key: dict[int, Row] = field(default_factory=dict)
    rows: Rows = field(default_factory=Counter)
    stop: bool = False


class Copies:
    """Those that run, by the number of their work."""

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
        """Read a chunk. Returns the answer if the copy has ended. Raises UnreadableError."""
        copy, record = self.running[effect.run], effect.record
        assert isinstance(record.state, Copying)
        if copy.stop:
            return self._answer(copy, complete=False)
        table = self.table(effect)
        if table is None or _is_another(copy, table):
            raise UnreadableError
        if copy.table is None:
            copy.table = table.copy()
            new = LakeTable(record.table_id, table.columns)
            self._lake.folders.setdefault(copy_folder(record.table_id), new)
        self._read_chunk(copy, table)
        if copy.left > 0:
            return None
        self._write(copy, table)
        return self._answer(copy, complete=True, table=table)

    def _read_chunk(self, copy: Copy, table: ServerTable) -> None:
        if not table.keyed:  # one snapshot, whatever its size
            copy.rows, copy.left = Counter(table.rows), 0
            return
        copy.left -= 1
        for row in table.rows:
            key = dict(row)["id"]
            assert key is not None
            if key % copy.chunks == copy.left:
                copy.by_key[key] = row

    def _write(self, copy: Copy, table: ServerTable) -> None:
        folder = self._lake.folders[copy_folder(copy.effect.record.table_id)]
        folder.rows = Counter(copy.by_key.values()) if table.keyed else copy.rows
        folder.columns = table.columns
        folder.past = [(-1, Counter(folder.rows))]

    def _answer(
        self, copy: Copy, *, complete: bool, table: ServerTable | None = None
    ) -> TableCopied:
        effect, signature = copy.effect, ""
        if table is not None:
            body = table_map_of(effect.record.name, table.columns, table.keyed)
            signature = Signature.of_table_map(parsed(body), InvalidDates.NULL).to_json()
        exact = table is not None and not table.keyed
        del self.running[effect.run]
        return TableCopied(effect.run, complete, self._server.position(), exact, signature)


def _is_another(copy: Copy, table: ServerTable) -> bool:
    before = copy.table
    return before is not None and (before.number, before.columns) != (table.number, table.columns)
