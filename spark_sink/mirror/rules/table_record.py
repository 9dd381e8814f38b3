"""The record of a table of the mirror, as the control table keeps it, and its small changes. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from spark_sink.mirror.values.names import TableName, table_label


class TableState(StrEnum):
    """What a mirrored table is."""

    CREATING = "creating"  # a copy is asked for and has not begun
    COPYING = "copying"  # its rows are copied, or the log is replayed on the copy
    COMPLETE = "complete"  # equal to the server's table as of its applied lsn
    PARTIAL = "partial"  # rows are missing, as a policy or a person allowed
    STOPPED = "stopped"  # `reason` says why; its entries wait in the log
    DROPPED = "dropped"


# States in which a table's rows are applied as they come.
LIVE = (TableState.COMPLETE, TableState.PARTIAL)

# Of `detail`: where the table still lies until its folder is moved to its place, `folder`; in an object store the steps
# of the move that have ended.
MOVED_FROM = "moved_from"
MOVE_STEP = "move_step"


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table of the mirror.

    `folder`: path below the target, "" if it has none yet; `server`, `epoch`: the history that it belongs to;
    `from_lsn`: see `control_table`; `signature`: its columns as JSON, "" if not known; `reason`: why it is stopped or
    partial, or the last error; `request`: what a person asked for and is not done yet, "" if nothing; `detail`: what a
    state needs beside it; `history`: it is the history of the table of this name.
    """

    table_id: str
    consumer: str
    database: str
    table: str
    folder: str = ""
    state: TableState = TableState.COMPLETE
    server: str = ""
    epoch: int = 0
    from_lsn: int = 0
    signature: str = ""
    reason: str = ""
    request: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    serial: int = 0
    at: datetime | None = None
    history: bool = False

    @property
    def name(self) -> TableName:
        return self.database, self.table

    @property
    def lies_at(self) -> str:
        """The folder in which the table's rows are: not yet its own, if that is taken."""
        return self.detail.get(MOVED_FROM) or self.folder

    @property
    def shown_name(self) -> TableName:
        """The name under which its rows are read: that of a history is its own."""
        return self.database, self.table + ("__history" if self.history else "")

    @property
    def label(self) -> str:
        return table_label(self.shown_name)

    def having(self, **detail: Any) -> TableRecord:
        """Returns the record with values of `detail` set; None takes a value away."""
        values = {k: v for k, v in {**self.detail, **detail}.items() if v is not None}
        return replace(self, detail=values)


def new_table_id() -> str:
    return uuid.uuid4().hex


def rebased(newest: TableRecord, before: TableRecord, after: TableRecord) -> TableRecord:
    """Returns the newest record with what `after` changes of `before`: fields, and values of `detail`."""
    names = {field.name for field in fields(after)} - {"serial", "at", "detail"}
    changed = {n: v for n in names if (v := getattr(after, n)) != getattr(before, n)}
    keys = before.detail.keys() | after.detail.keys()
    detail = {k: v for k in keys if (v := after.detail.get(k)) != before.detail.get(k)}
    return replace(newest, **changed).having(**detail)


def handled(record: TableRecord) -> TableRecord:
    """Returns the record without its request, whose id is in `handled` from now on, or in `answered` if it was about a
    name."""
    asked = record.detail.get("asked")
    if asked is None:
        return record
    done = replace(record, request="").having(asked=None)
    if "name" in asked:
        return answering(done, asked["name"], asked["id"])
    return done.having(handled=asked["id"])


def answering(record: TableRecord, label: str, request_id: str) -> TableRecord:
    """Returns the record, which answers the request for a copy of the table of this name."""
    return record.having(answered={**record.detail.get("answered", {}), label: request_id})
