"""Finds the record that had a name at an entry of the log; keeps former names in records. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_sink.mirror.rules.table_record import LIVE, MOVED_FROM, TableRecord, TableState
from spark_sink.mirror.values.names import TableName


def name_at(record: TableRecord, lsn: int) -> TableName:
    """Returns the name that the table had at `lsn`."""
    for until, database, table in record.detail.get("names", ()):
        if lsn <= until:
            return database, table
    return record.name


def find_record(records: Iterable[TableRecord], name: TableName, lsn: int) -> TableRecord | None:
    """Returns the table that had the name at `lsn`.

    A table that is known to have had it then, and has another name now, comes first: a table that has it now was made
    later, or was dropped before. Else it is one that is not dropped, else the one whose record is newest.
    """
    found = [record for record in records if name_at(record, lsn) == name]

    def precedence(record: TableRecord) -> tuple[bool, bool, int]:
        former = any(lsn <= line[0] for line in record.detail.get("names", ()))
        return former, record.state is not TableState.DROPPED, record.serial

    return max(found, key=precedence, default=None)


def renamed(record: TableRecord, name: TableName, lsn: int) -> TableRecord:
    """Returns the record with a new name from the entry `lsn` on."""
    former = [*record.detail.get("names", ()), [lsn, *record.name]]
    return replace(record, database=name[0], table=name[1]).having(names=former)


def to_be_replayed(record: TableRecord) -> bool:
    """True if what was left in the log has to be applied to the table, which lies in its place then: `begin` is that of
    a copy that has not taken the table's place."""
    return "goal" in record.detail and not {"begin", MOVED_FROM} & record.detail.keys()


def without_old_names(record: TableRecord, watermark: int) -> TableRecord:
    """Returns the record without the names that no entry behind the watermark has."""
    names = [line for line in record.detail.get("names", ()) if line[0] > watermark]
    return record.having(names=names or None)


def doubled(records: Iterable[TableRecord]) -> list[TableRecord]:
    """Returns the records of names that have several which are not dropped, as older versions made them: all but the
    best are dropped. Their rows are not touched."""
    best: dict[TableName, TableRecord] = {}
    others = []

    def precedence(record: TableRecord) -> tuple[bool, bool, int]:
        return record.state in LIVE, record.lies_at == record.folder != "", -record.serial

    for record in sorted(records, key=precedence, reverse=True):
        if record.state is TableState.DROPPED:
            continue
        if best.setdefault(record.name, record) is not record:
            others.append(record)
    reason = "another record of this table exists"
    return [
        replace(r, state=TableState.DROPPED, folder="", reason=reason, detail={}) for r in others
    ]
