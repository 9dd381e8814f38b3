"""The command `adopt`. Unlike the other commands, it writes the records of tables itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from dispatcher.model.errors import ErrorKind, UserError
from spark_sink.mirror.lake import delta_log
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.chosen_tables import selected
from spark_sink.mirror.rules.control_rows import ClaimedStage
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.states import CatchingUp, Dropped, Live
from spark_sink.mirror.rules.table_record import TableRecord, forgetting, new_table_id
from spark_sink.mirror.rules.transitions import returns_to
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.values.names import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def adopt_tables(
    spark: SparkSession,
    target: str,
    consumer: str,
    patterns: Sequence[str],
    count: Callable[[int], None] = lambda _: None,
) -> list[TableRecord]:
    """Assign tables of other consumers, or Delta tables without an owner, to `consumer`, with the rows that they have.

    This function writes records of `consumer` and of the tables' previous consumers, so it first claims all these
    consumers. If an application applies one of them, the application then stops applying it, and ends if it has no
    other consumer. Returns the new records. `patterns`: patterns of tables in the control table; a name without special
    characters may also name a Delta table that is not in the control table. The function calls `count` with 1 after
    each table. Raises `UserError` if no table fits a pattern, or if all tables that fit already belong to `consumer`.
    """
    control = ControlTable(spark, target)
    records = list(control.records().values())
    # If a table of `consumer` was stopped because another Delta table is at its path, its record names no folder.
    labels = {
        record.label
        for record in records
        if not record.is_dropped and (record.consumer != consumer or record.folder)
    }
    unowned = [p for p in patterns if p not in labels and _is_delta(spark, target, p)]
    others = (
        selected(records, [p for p in patterns if p not in unowned])
        if len(unowned) < len(patterns)
        else []
    )
    taken = [r for r in others if r.consumer != consumer]
    if not taken and not unowned:
        raise UserError(
            ErrorKind.REQUEST,
            f"the tables that fit {', '.join(patterns)} belong to {consumer} already",
            remedy="python -m spark_sink tables shows the consumer of each table",
        )
    concerned = {consumer, *(record.consumer for record in taken)}
    control.claim(f"adopt-{uuid.uuid4().hex}", concerned, [ClaimedStage.APPLY])
    own = {r.name: r for r in records if r.consumer == consumer and not r.is_dropped}
    adopted = [_adopted(consumer, r.name, r.folder, returns_to(r).complete, own) for r in taken]
    adopted += [
        _adopted(consumer, name, folder_of(name), True, own) for name in map(_name, unowned)
    ]
    for record in adopted:
        if record.folder:
            path = f"{target.rstrip('/')}/{record.folder}"
            MirroredTable(record.table_id, path, record.label).own(spark)
        count(1)
    reason = f"adopted by {consumer}"
    given = [replace(r, state=Dropped(), folder="", move=None, reason=reason) for r in taken]
    written = control.write([*given, *adopted])
    return [_as_written(record, *written[record.table_id]) for record in adopted]


def _adopted(
    consumer: str,
    name: TableName,
    folder: str,
    complete: bool,
    own: dict[TableName, TableRecord],
) -> TableRecord:
    """Returns the record of an adopted table. The next rows of the log determine the table's columns and epoch; the
    mirror merges these rows into the table. `complete`: False if the previous consumer's table lacked rows."""
    reason, live = "adopted with the rows that it had", Live(complete=complete)
    if (record := own.get(name)) is None:
        return TableRecord(new_table_id(), consumer, *name, folder, live, reason=reason)
    # The entries that the stopped table still needs are in the log, after `from_lsn`.
    adopted = replace(forgetting(record), state=CatchingUp(live), signature="", epoch=0)
    return replace(adopted, folder=folder, move=None, deletion_vectors=False, reason=reason)


def _as_written(record: TableRecord, serial: int, at: datetime) -> TableRecord:
    return replace(record, serial=serial, at=at)


def _name(label: str) -> TableName:
    database, _, table = label.partition(".")
    return database, table


def _is_delta(spark: SparkSession, target: str, label: str) -> bool:
    path = f"{target.rstrip('/')}/{folder_of(_name(label))}"
    return "." in label and "*" not in label and delta_log.delta_version(spark, path) >= 0
