"""Compares what the daemon and the mirror make of a case with what changed at the server.

FOLLOWED: all is equal. DOUBTED: the product says that it does not know a table, so it copies or stops the table.
DIFFERENT: the product is wrong and does not know it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum

from spark_sink.mirror.schema.columns import ColumnSignature
from spark_sink.mirror.schema.signature import Signature
from tests.statements.recorded import Recorded, Recording
from tests.statements.replay import Modelled, Replayed, is_mirrored, replay, signature_of, stored
from tests.statements.worlds import Name, Snapshot, Table


class Verdict(StrEnum):
    REFUSED = "refused"  # the server refused the statement, and logged nothing
    FOLLOWED = "followed"
    DOUBTED = "doubted"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Judged:
    """`why`: the doubt, or the differences."""

    verdict: Verdict
    why: str = ""


def judge(case: Recorded, recording: Recording) -> Judged:
    before: dict[Name, Table] = {**recording.base}
    _update(before, case.tables)
    after = {**before}
    _update(after, case.changed)
    if not case.events:
        if case.changed:
            return Judged(Verdict.DIFFERENT, "the server logs nothing")
        return Judged(Verdict.REFUSED if case.error else Verdict.FOLLOWED)
    sequences = {
        name
        for tables in (before, after)
        for name, table in tables.items()
        if table.kind == "SEQUENCE"
    }
    found = replay(before, sequences, recording.format, recording.folding, case.events)
    if found.loud:
        return Judged(Verdict.DOUBTED, found.loud)
    differences = [*_routing(case, before, found), *_tables(found, after)]
    if differences:
        return Judged(Verdict.DIFFERENT, "; ".join(differences))
    if found.doubted or found.unclear:
        reasons = dict.fromkeys(found.doubted.values()) or [f"not understood: {found.unclear}"]
        return Judged(Verdict.DOUBTED, "; ".join(reasons))
    checked = dict.fromkeys(
        reason
        for name, known in found.tables.items()
        if known.checked and not _same_rows(known, after[name])
        for reason in known.checked
    )
    if checked:
        return Judged(Verdict.DOUBTED, "after a check of the rows: " + "; ".join(checked))
    return Judged(Verdict.FOLLOWED)


def _update(tables: Snapshot, changes: dict[Name, Table | None]) -> None:
    for name, table in changes.items():
        if table is None:
            tables.pop(name, None)
        else:
            tables[name] = table


def _label(name: Name) -> str:
    return ".".join(name)


def _routing(case: Recorded, before: Snapshot, found: Replayed) -> Iterator[str]:
    """Yields the tables that the server changed, but that the daemon did not find in the statement."""
    if found.everywhere:
        return
    for name, table in case.changed.items():
        was = before.get(name)
        if not is_mirrored(table) and not is_mirrored(was):
            continue
        only_rows = table is not None and was is not None and table.columns == was.columns
        if only_rows and name in found.by_rows:
            continue
        if name not in found.named_tables and name[0] not in found.named_databases:
            yield f"{_label(name)} changed, and the daemon does not name it"


def _tables(found: Replayed, after: Snapshot) -> Iterator[str]:
    for name in sorted({*found.tables, *after}):
        known, table = found.tables.get(name), after.get(name)
        if name in found.doubted:
            continue
        if known is None:
            missed = name not in found.open and not found.unclear
            if table is not None and is_mirrored(table) and missed:
                yield f"the mirror lacks {_label(name)}"
        elif table is None:
            yield f"the mirror has {_label(name)}"
        elif not is_mirrored(table):
            # Without columns there is no Delta table, and rows of a sequence are left out.
            if known.record.signature or table.kind != "SEQUENCE":
                yield f"the mirror has the {table.kind} {_label(name)}"
        else:
            yield from _table(name, known, table)


def _table(name: Name, known: Modelled, table: Table) -> Iterator[str]:
    if known.record.signature == stored(table) and known.rows == [*(table.rows or ())]:
        return
    if known.record.signature:
        mirrored, server = Signature.from_json(known.record.signature), signature_of(table)
        if differs := _columns(mirrored, server):
            yield f"{_label(name)}: {differs}"
            return
    if known.rows is not None and table.rows is not None and not known.checked:
        if not known.record.signature:
            if table.rows:
                yield f"{_label(name)}: no rows in the mirror, {_shown(table.rows)} at the server"
        elif not _same_rows(known, table):
            yield f"{_label(name)}: rows {_shown(known.rows)} in the mirror, {_shown(table.rows)} at the server"


def _columns(mirrored: Signature, server: Signature) -> str:
    names = [column.name for column in mirrored.columns]
    if names != [column.name for column in server.columns]:
        return f"columns {names} in the mirror, {[c.name for c in server.columns]} at the server"
    for one, other in zip(mirrored.columns, server.columns, strict=True):
        if one.spark_type != other.spark_type or one.column.labels != other.column.labels:
            return f"column {one.name} is {one.mysql_type} in the mirror, {other.mysql_type} at the server"
        # If the column is NOT NULL in the mirror, the mirror leaves out a check that a later NOT NULL needs.
        if other.nullable and not one.nullable:
            return f"column {one.name} is NOT NULL in the mirror"
    if mirrored.key != server.key:
        return f"key {mirrored.key} in the mirror, {server.key} at the server"
    return ""


def _same_rows(known: Modelled, table: Table) -> bool:
    if known.rows is None or table.rows is None:
        return True
    columns = Signature.from_json(known.record.signature).columns
    return _comparable(known.rows, columns) == _comparable(table.rows, columns)


def _comparable(
    rows: Sequence[tuple[object, ...]], columns: Sequence[ColumnSignature]
) -> list[str]:
    return sorted(
        repr([_value(cell, column) for cell, column in zip(row, columns, strict=True)])
        for row in rows
    )


def _value(cell: object, column: ColumnSignature) -> object:
    """Returns a value in one form, whether the server printed it or the mirror computed it."""
    if cell is None:
        return None
    kind = column.spark_type
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", "backslashreplace")
    word = column.mysql_type.partition("(")[0]
    if word == "time":
        return _micros(cell)
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return _moment(cell, kind)
    if kind in ("tinyint", "smallint", "int", "bigint") or kind.startswith("decimal"):
        return Decimal(str(cell)).normalize() + 0
    if kind == "float":
        return f"{float(str(cell)):.5g}"
    if kind == "double":
        return float(str(cell))
    return str(cell)


def _micros(cell: object) -> int:
    if isinstance(cell, int):
        return cell
    sign, text = (-1, str(cell)[1:]) if str(cell).startswith("-") else (1, str(cell))
    hours, minutes, seconds = text.split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
    return sign * (total * 1_000_000 + int(fraction.ljust(6, "0")))


def _moment(cell: object, kind: str) -> str | None:
    if isinstance(cell, date):
        cell = cell.isoformat(" ") if isinstance(cell, datetime) else cell.isoformat()
    try:
        moment = datetime.fromisoformat(str(cell)[:26]).replace(tzinfo=None)
    except ValueError:
        return None
    return moment.date().isoformat() if kind == "date" else moment.isoformat()


def _shown(rows: Sequence[tuple[object, ...]]) -> str:
    text = repr([*rows])
    return text if len(text) <= 160 else text[:157] + "..."
