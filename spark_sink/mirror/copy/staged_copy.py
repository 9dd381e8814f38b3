"""Determines how far a copy is, from the commits in its folder. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from dispatcher.model.position import Position
from spark_sink.mirror.copy.progress import CopyProgress, remaining_s
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.entries import append_of
from spark_sink.source.table_rows.chunks import Bound

KEY = "binlog-dispatcher/copy"

Commit = tuple[datetime, str | None, Mapping[str, Any]]
"""The time, the user metadata and the operation metrics of a commit."""


@dataclass(frozen=True, slots=True)
class StagedCopy:
    """How far a copy is. `group`: the number of the last group that was appended, 0 if there is none; `upper`: the last
    key that was copied; `layout`: a hash of the columns with which the copy began; `read_all`: True if all rows were
    read; `executed`: R as JSON, set after all rows were read; `rows_estimated`: the estimated rows of the whole table;
    `seconds`: the time between the first and the last group, which `state` computes."""

    group: int = 0
    upper: Bound | None = None
    layout: str = ""
    chunks: int = 0
    rows: int = 0
    bytes: int = 0
    read_all: bool = False
    executed: str = ""
    rows_estimated: int = 0
    seconds: float = 0.0

    @property
    def position(self) -> Position | None:
        return Position.from_json(self.executed) if self.executed else None


def newest_state(commits: Iterable[Commit], copy_id: str) -> StagedCopy | None:
    """Returns how far a copy is; None if no commit belongs to this copy. `commits`: the newest commit first."""
    newest: StagedCopy | None = None
    rows = size = 0
    first = last = None
    for at, user_metadata, metrics in commits:
        value = metadata_of(user_metadata)
        if value.get(KEY) != copy_id:
            continue
        first, last = at, last or at
        added = size_of(user_metadata, metrics)
        rows, size = rows + added[0], size + added[1]
        if newest is None:  # the newest commit comes first
            upper = value["upper"]
            newest = StagedCopy(
                value["group"],
                None if upper is None else tuple(upper),
                value["layout"],
                value["chunks"],
                read_all=value["read_all"],
                executed=value["executed"],
                rows_estimated=value["rows_estimated"],
            )
    if newest is None or first is None or last is None:
        return None
    seconds = (last - first).total_seconds()
    return replace(newest, rows=rows, bytes=size, seconds=seconds)


def size_of(user_metadata: str | None, metrics: Mapping[str, Any]) -> tuple[int, int]:
    """Returns (rows, bytes) of a group, from its commit."""
    metadata = metadata_of(user_metadata)
    rows = metadata.get("rows", metrics.get("numOutputRows", 0))
    return int(rows), int(metadata.get("bytes", metrics.get("numOutputBytes", 0)))


def metadata_of(text: str | None) -> dict[str, Any]:
    """Returns the user metadata of a commit, {} if another program wrote it."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def copy_id_of(record: TableRecord) -> str:
    """Returns the id of the copy of a table that is being copied."""
    return f"{record.table_id}/{append_of(record.from_lsn)}"


def progress_of(state: StagedCopy | None, label: str) -> CopyProgress | None:
    """Returns the progress of a copy; None if the copy has not begun."""
    if state is None:
        return None
    speed = state.rows / state.seconds if state.seconds else 0.0
    rest_s = None if state.position else remaining_s(state.rows, state.rows_estimated, speed)
    return CopyProgress(
        label, state.rows, state.rows_estimated, state.bytes, state.chunks, state.seconds, rest_s
    )
