"""Computes with the server's own tool what a consumer should have received.

`mysqlbinlog -vv` reads the server's log as a replica with the consumer's start would, and also reads the delivered
binlogs. This module parses both outputs to lists of `Group`, which must be equal. It does not use the decoder under
test: GTIDs, the order of transactions, values and types of all columns, texts of statements and commit times are from
the tool's output. The tool cannot filter row events by table, so this module filters, by the names in the tool's
output.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers import Instance

_HEADER = re.compile(
    r"#\d{6} +\d+:\d\d:\d\d server id \d+  end_log_pos (\d+) (?:CRC32 0x\w+ )?(.*)"
)
_AT = re.compile(r"# at (\d+)")
_GTID_NEXT = re.compile(r"SET @@SESSION\.GTID_NEXT= '(.*?)'")
_COMMITTED = re.compile(r"original_committed_timestamp=(\d+)")
_VERB = re.compile(r"### (?:INSERT INTO|UPDATE|DELETE FROM) `([^`]*)`\.`([^`]*)`")
_USE = re.compile(r"use `([^`]*)`")
_XA = re.compile(r"XA (START|END|PREPARE|COMMIT|ROLLBACK) (\S+)( ONE PHASE)?")
_CONTROL = re.compile(r"(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)\b")
_ACCOUNTS = re.compile(r"(CREATE|ALTER|DROP|RENAME) (USER|ROLE)\b|GRANT\b|REVOKE\b")
_DROP_TABLE = re.compile(r"DROP TABLE (?:IF EXISTS )?(.*?)(?: /\*.*)?\Z")
_NAMED = re.compile(
    r"`?(\w+)`?\.`?\w+`?|\bDATABASE (?:IF (?:NOT )?EXISTS )?`?(\w+)`?", re.IGNORECASE
)


@dataclass(frozen=True)
class Item:
    """A row change or a DDL statement: the databases that it concerns, and all lines that the tool prints for it.
    `table`: the table of a row change, as `database.table`."""

    databases: tuple[str, ...]
    text: str
    table: str = ""


@dataclass
class Group:
    """The events of one GTID. `file`, `end`: the place in the log at which the group ends."""

    gtid: str
    committed_us: int
    file: str = ""
    end: int = 0
    items: list[Item] = field(default_factory=list)
    # The XID, if `items` are of a prepared XA transaction. The daemon delivers them when that transaction commits.
    prepares: str = ""
    commits: str = ""
    rolls_back: str = ""


Delivery = tuple[str, int, tuple[str, ...]]  # GTID, commit time, the consumer's items


def executed(server: Instance, start: str) -> list[Group]:
    """Returns everything that the server has executed beyond a GTID set, as the server would send it to a replica."""
    first = server.binlogs()[0][0]
    done = server.mysqlbinlog(
        "--read-from-remote-source=BINLOG-DUMP-GTIDS",
        f"--user={server.root_user}",
        f"--socket={server.socket}",
        f"--exclude-gtids={start}",
        "-vv",
        "--base64-output=decode-rows",
        "--to-last-log",
        first,
    )
    return list(groups(done.stdout))


def delivered(server: Instance, chunks: Iterable[bytes], folder: Path) -> list[Group]:
    """Returns the groups that a reader received. `chunks`: the received binlogs; without their magic numbers, they form
    one binlog."""
    path = folder / "delivered"
    data = b"".join(chunk[4 * (n > 0) :] for n, chunk in enumerate(chunks))
    if not data:
        return []
    path.write_bytes(data)
    done = server.mysqlbinlog(
        "-vv", "--base64-output=decode-rows", "--verify-binlog-checksum", path
    )
    path.unlink()
    return list(groups(done.stdout))


def expected(
    logged: Iterable[Group], databases: Collection[str], tables: Collection[str] = ()
) -> list[Delivery]:
    """Returns the part that a consumer of `databases` should get. Row changes of an XA transaction are at the place of
    its commit.

    With `tables` the consumer gets only the rows of these tables. There must be no DDL of other tables then.
    """

    def wanted(item: Item) -> bool:
        if item.table and tables and item.table not in tables:
            return False
        return not set(item.databases).isdisjoint(databases)

    prepared: dict[str, list[Item]] = {}
    deliveries: list[Delivery] = []
    for group in logged:
        items = group.items
        if group.prepares:
            prepared[group.prepares] = items
            items = []
        elif group.rolls_back:
            prepared.pop(group.rolls_back, None)
        elif group.commits:
            items = prepared.pop(group.commits, [])
        if kept := tuple(item.text for item in items if wanted(item)):
            deliveries.append((group.gtid, group.committed_us, kept))
    return deliveries


def without_open(logged: Iterable[Group], held: list[str]) -> list[str]:
    """Returns `held` without the prepares of XA transactions that have no commit or rollback in `held`."""
    having = set(held)
    open_ones: dict[str, str] = {}
    for group in logged:
        if group.gtid in having and group.prepares:
            open_ones[group.prepares] = group.gtid
        elif group.gtid in having:
            open_ones.pop(group.commits or group.rolls_back, None)
    return [gtid for gtid in held if gtid not in open_ones.values()]


def got(logged: Iterable[Group]) -> list[Delivery]:
    """Returns all delivered groups without a filter, because they must not contain changes of other databases."""
    return [
        (group.gtid, group.committed_us, tuple(item.text for item in group.items))
        for group in logged
    ]


def difference(wanted: list[Delivery], actual: list[Delivery]) -> str:
    """Returns a text that shows where the lists differ; "" if they are equal."""
    if wanted == actual:
        return ""
    at = next((n for n, (a, b) in enumerate(zip(wanted, actual, strict=False)) if a != b), None)
    if at is None:
        at = min(len(wanted), len(actual))
    lines = [f"{len(wanted)} wanted, {len(actual)} found; they differ from {at}:"]
    for name, each in (("wanted", wanted), ("found ", actual)):
        lines += [f"  {name} {delivery!r:.600}" for delivery in each[max(0, at - 1) : at + 2]]
    wanted_gtids, actual_gtids = ([delivery[0] for delivery in each] for each in (wanted, actual))
    lines.append(f"  missing: {[g for g in wanted_gtids if g not in actual_gtids][:20]}")
    lines.append(f"  too many: {[g for g in actual_gtids if g not in wanted_gtids][:20]}")
    twice = {g for g in actual_gtids if actual_gtids.count(g) > 1}
    lines.append(f"  more than once: {sorted(twice)[:20]}")
    return "\n".join(lines)


def groups(output: str) -> Iterator[Group]:
    """Yields the transactions in the tool's output."""
    group: Group | None = None
    use = file = ""
    for end, header, lines in _events(output):
        if header.startswith("Rotate to "):
            file = header.split()[2]
            if group is not None:  # the header events of the next file belong to no group
                yield group
            group = None
        elif header.startswith("GTID\t"):
            if group is not None:
                yield group
            gtid = next(m[1] for line in lines if (m := _GTID_NEXT.match(line)))
            committed = _COMMITTED.search(header)
            assert committed is not None, header
            group = Group(gtid, int(committed[1]), file)
        elif group is None:
            continue
        elif header.startswith("Query\t"):
            use = _statement(group, use, lines)
        elif header.startswith("XA PREPARE"):
            _xa(group, lines[0])
        else:
            group.items += _rows(lines)
        if group is not None:
            # Within a compressed transaction the tool prints the end of the payload event.
            group.end = end or group.end
    if group is not None:
        yield group


def _events(output: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yields (end in the file, text after the header, the lines below the header) of each event."""
    end, header = 0, ""
    lines: list[str] = []
    for line in output.splitlines():
        if match := _HEADER.match(line):
            if header:
                yield end, header, lines
            end, header, lines = int(match[1]), match[2].lstrip("\t"), []
        elif not _AT.fullmatch(line):
            lines.append(line)
    if header:
        yield end, header, lines


def _rows(lines: Iterable[str]) -> Iterator[Item]:
    row: list[str] = []
    database = table = ""
    for line in lines:
        if not line.startswith("### "):
            continue
        if match := _VERB.match(line):
            if row:
                yield Item((database,), "\n".join(row), table)
            row, database, table = [], match[1], f"{match[1]}.{match[2]}"
        row.append(line)
    if row:
        yield Item((database,), "\n".join(row), table)


def _statement(group: Group, use: str, lines: list[str]) -> str:
    """Add a query's statement to the group. Returns the default database for the following statements."""
    text: list[str] = []
    time = ""
    for line in lines:
        if line == "/*!*/;":
            break
        if line.endswith("/*!*/;"):
            if match := _USE.match(line):
                use = match[1]
            elif line.startswith("SET TIMESTAMP="):
                time = line
            continue
        text.append(line)
    statement = "\n".join(text)
    if statement.startswith("XA "):
        _xa(group, statement)
    elif statement and not _CONTROL.match(statement):
        if _ACCOUNTS.match(statement):
            group.items.append(Item((), statement))
            return use
        group.items.append(Item(_concerned(statement, use), f"{time}\n{statement}"))
    return use


def _concerned(statement: str, use: str) -> tuple[str, ...]:
    """Returns the databases that a DDL statement concerns. `use`: the database of names without a database."""
    if dropped := _DROP_TABLE.match(
        statement
    ):  # the server rewrites such a statement, and omits the default database
        names = (name.strip() for name in dropped[1].split(","))
        return tuple(
            dict.fromkeys(name.split(".")[0].strip("`") if "." in name else use for name in names)
        )
    # A trigger's body names tables that it touches when it fires.
    head = statement.partition(" FOR EACH ROW")[0]
    named = dict.fromkeys(name for match in _NAMED.findall(head) for name in match if name)
    return tuple(named) or (use,)


def _xa(group: Group, line: str) -> None:
    match = _XA.match(line)
    assert match is not None, line
    verb, xid, one_phase = match.groups()
    if verb == "PREPARE":
        group.prepares = xid
    elif verb == "ROLLBACK":
        group.rolls_back = xid
    elif verb == "COMMIT" and not one_phase:
        group.commits = xid


def tool_version(server: Instance) -> str:
    """Returns the name and version of the tool, such as "mysqlbinlog Ver 9.7.4"."""
    said = server.mysqlbinlog("--version").stdout.split()
    return f"mysqlbinlog {' '.join(said[1:3])}"
