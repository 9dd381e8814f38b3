"""Divides delivered bytes into parts: the rows events of one layout between two statements or changes of the epoch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.decode.events import row_walk
from dispatcher.binlog.decode.events.index import Index
from dispatcher.binlog.decode.events.index_kernels import EPOCH, MAPPED_TXN
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.parse import TableMap, layout_id
from dispatcher.binlog.table_map.table_kind import TableKind
from dispatcher.model.errors import BinlogError
from dispatcher.model.names import folded_name

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """Rows events of one layout. No DDL statement, and no change of the epoch, lies between them."""

    layout: int
    events: NDArray[np.int64]


class Layouts:
    """The distinct layouts of an index, with the names by which the server identifies the tables. Each layout is parsed
    when it is first used, so a table that is not decoded cannot raise an error."""

    def __init__(self, index: Index) -> None:
        bodies = [index.buf[start:end].tobytes() for start, end in index.versions[:, 1:3].tolist()]
        numbers: dict[str, int] = {}
        self.of_version = np.array(
            [numbers.setdefault(layout_id(body), len(numbers)) for body in bodies], np.int64
        )
        first = {
            layout: version
            for version, layout in reversed(list(enumerate(self.of_version.tolist())))
        }
        self.bodies = [bodies[first[layout]] for layout in range(len(numbers))]
        self._offsets = [int(index.versions[first[layout], 1]) for layout in range(len(numbers))]
        self._folds = [
            index.lower_case_table_names(int(index.versions[first[layout], MAPPED_TXN]))
            for layout in range(len(numbers))
        ]
        self._table_maps: dict[int, TableMap] = {}

    def table_map(self, layout: int) -> TableMap:
        if layout not in self._table_maps:
            try:
                found = TableMap.parse(self.bodies[layout])
            except BinlogError as error:
                raise error.at(f"offset {self._offsets[layout]}") from None
            value = self._folds[layout]
            self._table_maps[layout] = replace(
                found,
                database=folded_name(found.database, value),
                table=folded_name(found.table, value),
                lower_case_table_names=value,
            )
        return self._table_maps[layout]


def log_parts(
    index: Index, layouts: Layouts, statement: Callable[[Index, int], T | None]
) -> Iterator[Part | T]:
    """Yields the parts in stream order. Between the parts, yields what `statement` returns for each QUERY event of the
    index, unless it is None. The rows of sequences are left out: a sequence is not a table."""
    events = index.events
    queries = np.flatnonzero(events[:, row_walk.TYPE] == EventType.QUERY)
    found = {line: statement(index, line) for line in queries.tolist()}
    ddl = {line: made for line, made in found.items() if made is not None}
    epochs = index.txns[events[:, row_walk.TXN], EPOCH]
    new_epochs = np.flatnonzero(np.diff(epochs, prepend=epochs[:1]) != 0)
    bounds = sorted({0, len(events), *new_epochs.tolist(), *ddl, *(line + 1 for line in ddl)})
    for start, end in itertools.pairwise(bounds):
        if start in ddl:
            yield ddl[start]
            continue
        run = events[start:end]
        run = run[run[:, row_walk.VERSION] >= 0]
        of_event = layouts.of_version[run[:, row_walk.VERSION]]
        present, firsts = np.unique(of_event, return_index=True)
        for layout in present[np.argsort(firsts)].tolist():
            if layouts.table_map(layout).kind is TableKind.SEQUENCE:
                continue
            yield Part(layout, run if len(present) == 1 else run[of_event == layout])
