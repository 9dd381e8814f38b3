"""One round: generated tables on one server under one setting, read back through the daemon's own code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import Ddl, TableSlice
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.differential.compare import Differs, check
from tests.differential.reduce import reduced
from tests.differential.servers import Ran, delivered_to, enriched, run, variables
from tests.differential.tables import Table, Wanted
from tests.servers import Server

_REDUCE_SECONDS = 30.0
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """How the server logs. `variables`: global ones of the server; `wanted`: the kinds of tables, and the number of
    each; `old_temporals`: the server makes TIME, DATETIME and TIMESTAMP in the form from before 5.6; `as_logged`: table
    maps are decoded as the log holds them, without what the daemon adds."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    wanted: tuple[tuple[Wanted, int], ...] = ((Wanted(), 10),)
    old_temporals: bool = False
    as_logged: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """`sql`: statements that reproduce it on a server with the setting's variables."""

    why: str
    sql: str


@dataclass(slots=True)
class Proved:
    tables: int = 0
    rows: int = 0
    cells: int = 0
    refused: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def prove(server: Server, database: str, setting: Setting, tables: Sequence[Table]) -> Proved:
    """Run all tables in one log and compare each. A table that differs is reduced as long as it differs."""
    proved = Proved()
    with variables(server, setting.variables):
        faults = _faults(server, database, setting, tables, proved)
        for ran, why in faults[:_SHOWN]:
            proved.findings.append(_finding(server, database, setting, ran, why))
    proved.findings += [Finding(why, "") for _, why in faults[_SHOWN:]]
    return proved


def _faults(
    server: Server, database: str, setting: Setting, tables: Sequence[Table], proved: Proved
) -> list[tuple[Ran, str]]:
    """Returns the fault of each table that has one. If the log cannot be decoded, its tables run again in halves."""
    done, log = run(server, database, tables, as_logged=setting.as_logged)
    definitions = {f"{database}.{ran.table.name}": ran.definition for ran in done if ran.created}
    try:
        data = delivered_to([database], log)
        if not setting.as_logged:
            data = enriched(data, definitions, mariadb=server.mariadb)
        parts = list(delivered.split_by_table(data))
    except BinlogError as error:
        if len(tables) == 1:
            return [(done[0], f"{error!r}")]
        half = len(tables) // 2
        return [
            *_faults(server, database, setting, tables[:half], proved),
            *_faults(server, database, setting, tables[half:], proved),
        ]
    return list(_differences(done, parts, proved))


def _differences(
    done: Sequence[Ran], parts: Sequence[TableSlice | Ddl], proved: Proved
) -> Iterator[tuple[Ran, str]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    broken: dict[str, str] = {}
    keys: dict[str, list[str]] = {}
    for part in parts:
        if not isinstance(part, TableSlice):
            continue
        if part.table not in keys:
            table_map = TableMap.parse(part.table_map)
            keys[part.table] = [table_map.columns[i].name for i in table_map.key]
        try:
            for batch in delivered.decode_table(part.payload, batch_rows=3):
                batch.validate(full=True)
                rows.setdefault(part.table, []).extend(batch.to_pylist())
        except (BinlogError, ValueError) as error:
            broken.setdefault(part.table, f"{error!r}")
    for ran in done:
        proved.refused += ran.refused
        if not ran.created:
            continue
        name = ran.table.name
        changes = rows.get(name, [])
        proved.tables += 1
        proved.rows += len(changes)
        proved.cells += len(changes) * len(ran.table.columns)
        try:
            if _is_right(ran, broken.get(name, "")):
                continue
            if name in broken or ran.unholdable:
                raise Differs(broken.get(name, "text that is not Unicode was decoded"))
            if keys.get(name, key := ran.definition["key"]) != key:
                raise Differs(f"the key is said to be {keys[name]}, not {key}")
            check(ran, changes, full=ran.table.full)
        except Differs as differs:
            yield ran, str(differs)


def _is_right(ran: Ran, error: str) -> bool:
    """True if the decoder had to refuse rows with this error, because a value is no text, or because a change of a JSON
    value came without the value that it changes."""
    has_changes = any("PARTIAL_JSON" in setting for setting in ran.table.settings)
    lacks_values = has_changes and not ran.table.full
    return (ran.unholdable and ErrorKind.INVALID_VALUE.name in error) or (
        lacks_values and ErrorKind.ROW_IMAGE.name in error
    )


def _finding(server: Server, database: str, setting: Setting, ran: Ran, why: str) -> Finding:
    last = why

    def fails(table: Table) -> bool:
        nonlocal last
        faults = _faults(server, database, setting, [table], Proved())
        if not faults or _sort(faults[0][1]) != _sort(why):
            return False
        last = faults[0][1]
        return True

    table = reduced(ran.table, fails, seconds=_REDUCE_SECONDS)
    lines = [f"SET GLOBAL {name} = {value};" for name, value in setting.variables.items()]
    lines += [f"{statement};" for statement in table.settings]
    lines.append(f"{table.create(table.name and _quoted(table))};")
    lines += [
        f"{statement};"
        for statements in table.statements(_quoted(table))
        for statement in statements
    ]
    return Finding(last, "\n".join(lines))


def _quoted(table: Table) -> str:
    return "`" + table.name.replace("`", "``") + "`"


def _sort(why: str) -> str:
    """Returns the beginning of a reason. Failures with different beginnings are different findings."""
    return why[:20]
