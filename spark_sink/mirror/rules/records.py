"""Finds the table that had a name at an entry (rows of a table, or a statement) of the log. Pure.

A consumer's watermark is the stored lsn (number of an entry) up to which no entry waits in a queue. After a crash, the
entries after the watermark are read again. Before the crash, a table may have been renamed, and another table may have
got its former name. So a table is found by the name that it had at an entry's lsn. For this purpose, a record keeps
each former name until the watermark has reached the RENAME that changed the name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_sink.mirror.rules.remedies import naming
from spark_sink.mirror.rules.states import CatchingUp, Failing, Live
from spark_sink.mirror.rules.table_record import FormerName, TableRecord
from spark_sink.mirror.values.names import TableName, table_label


def name_at(record: TableRecord, lsn: int) -> TableName:
    """Returns the name that the table had at `lsn`."""
    return next((former.name for former in record.names if lsn <= former.until), record.name)


def find_record(records: Iterable[TableRecord], name: TableName, lsn: int) -> TableRecord | None:
    """Returns the table that had the name at `lsn`.

    Several records can match, because a record does not show when its table was created or dropped. The first choice is
    a table that had the name at `lsn` and was renamed afterwards: any other table of that name was created after the
    RENAME, or was dropped before the renamed table got the name. The second choice is a table that is not dropped, the
    third a table that was dropped at `lsn` or later, and the last the table with the newest record.
    """
    candidates = [record for record in records if name_at(record, lsn) == name]

    def precedence(record: TableRecord) -> tuple[bool, bool, bool, int]:
        has_former = any(lsn <= former.until for former in record.names)
        return has_former, not record.is_dropped, lsn <= record.from_lsn, record.serial

    return max(candidates, key=precedence, default=None)


def is_named_later(records: Iterable[TableRecord], name: TableName, lsn: int) -> bool:
    """True if a table that had another name at `lsn` got this name by a later RENAME.

    This matters if no record had the name at `lsn`. Then a table without a record had the name: the log had lost the
    entries of this table, and a person restored them after the RENAME was executed. If a record was created for this
    table now, the record would miss the RENAME.
    """
    return any(
        name_at(record, lsn) != name
        and name in (record.name, *(former.name for former in record.names if former.until > lsn))
        for record in records
    )


def renamed(record: TableRecord, name: TableName, lsn: int) -> TableRecord:
    """Returns the record with the name that the table has after the entry `lsn`. Puts the new name into the reasons of
    the record, so that the commands in these reasons work."""
    old, new = record.label, table_label(name)
    state = record.state
    match state:
        case Live(failing=Failing() as failing):
            before = naming(failing.reason_before, old, new)
            state = replace(state, failing=replace(failing, reason_before=before))
        case CatchingUp(reason_before=str() as before):
            state = replace(state, reason_before=naming(before, old, new))
    former = FormerName(lsn, *record.name)
    return replace(
        record,
        database=name[0],
        table=name[1],
        names=(*record.names, former),
        state=state,
        reason=naming(record.reason, old, new),
    )


def without_old_names(record: TableRecord, watermark: int) -> TableRecord:
    """Returns the record without the former names that ended at or before the watermark."""
    names = tuple(former for former in record.names if former.until > watermark)
    return record if names == record.names else replace(record, names=names)
