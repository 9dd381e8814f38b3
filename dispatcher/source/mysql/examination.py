"""Examines a server for `check`: finds everything that is wrong, or probably wrong, for its consumers.

An *error* is a fault that keeps a consumer from getting its declared tables: missing privileges, the server's settings,
names that do not exist, a start that the log does not contain. A *warning* names something that may be intended:
patterns that match nothing yet, tables without a key, cascades and generated columns that the log lacks, a short
retention, clocks that differ.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from dispatcher.dispatch.history.history_check import resolve_start
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import ConsumerSpec, Earliest, Latest
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.names import folded_name
from dispatcher.model.nearest import nearest
from dispatcher.model.subscription import (
    NamePatterns,
    Subscription,
    TablePattern,
    is_pattern,
)
from dispatcher.mysql.answers import ask_one, text_value
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.grants import Grants
from dispatcher.mysql.login import Endpoint, connect
from dispatcher.mysql.server_facts import (
    ServerFacts,
    lower_case_table_names,
    read_facts,
    read_grants,
    refuse_service,
    visible_databases,
)
from dispatcher.mysql.server_settings import examine
from dispatcher.source.mysql.catalogue import Catalogue, read_catalogue
from dispatcher.source.mysql.log_probe import ServerLog
from dispatcher.source.protocols import ViewRequest

DAY_S = 86_400
CLOCKS_APART_S = 2.0
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ServerFinding:
    """`consumers`: names of the consumers that the finding concerns. `warning`: True for a warning, False for an
    error."""

    error: BinlogError
    consumers: tuple[str, ...]
    warning: bool = False


@dataclass(frozen=True, slots=True)
class HostReport:
    """The findings about one host. `server`, `version`: the server's uuid and version, "" if the server could not be
    asked."""

    label: str
    server: str
    findings: tuple[ServerFinding, ...]
    version: str = ""
    lower_case_table_names: int | None = None


def report_of(
    endpoint: Endpoint, specs: Sequence[ConsumerSpec], begun: Collection[str], *, several: bool
) -> HostReport:
    """Examine a host for its consumers. `begun`: names of the consumers that have a stored position, for which the
    start is not checked. `several`: True if the source has standby hosts."""
    names = tuple(spec.name for spec in specs)
    findings: list[ServerFinding] = []
    server = version = ""
    lower_case: int | None = None
    try:
        connection = connect(endpoint)
        try:
            refuse_service(connection)
            lower_case = lower_case_table_names(connection)
            specs = [_with_server_names(spec, lower_case) for spec in specs]
            databases = _databases_seen(connection, lower_case)
            grants = read_grants(connection)
            read = _databases_read(specs, databases)
            errors = examine(connection, read, several=several)
            findings += (ServerFinding(error, names) for error in errors)
            findings += _about_names(connection, specs, grants, databases, lower_case)
            facts = read_facts(connection)
            server, version = facts.server_uuid, facts.version
            findings += _about_server(facts, names)
            findings += _about_retention(facts, names)
            findings += _about_clocks(connection, names)
            findings += _about_starts(endpoint, facts, specs, begun)
        finally:
            connection.close()
    except BinlogError as error:
        # If there is a finding of the same kind (a missing privilege, log_bin=OFF), it is probably the cause of this
        # error, so do not report this error.
        if error.kind not in {finding.error.kind for finding in findings if not finding.warning}:
            findings.append(ServerFinding(error, names))
    return HostReport(endpoint.label, server, tuple(findings), version, lower_case)


def missing_names(
    endpoint: Endpoint, databases: Sequence[str], tables: Sequence[TablePattern] | None
) -> list[BinlogError]:
    """Returns a finding for each of these names and patterns that fits no database or table that the account sees.
    Raises `BinlogError`."""
    with closing(connect(endpoint)) as connection:
        lower_case = lower_case_table_names(connection)
        tables = None if tables is None else tuple(tables)
        spec = _with_server_names(ConsumerSpec("", tuple(databases), tables, 0), lower_case)
        seen = _databases_seen(connection, lower_case)
        found = [
            *_missing_databases(spec, read_grants(connection), seen),
            *_missing_tables(spec, seen, _catalogue_of(connection, [spec], seen, lower_case)),
        ]
    return [finding.error for finding in found]


def with_differing_names(
    reports: Sequence[HostReport], consumers: Sequence[str]
) -> list[HostReport]:
    """Returns the reports of a source's hosts, and adds a finding to the report of each host whose
    lower_case_table_names differs from the first host's."""
    known = [r.lower_case_table_names for r in reports if r.lower_case_table_names is not None]
    out = []
    for report in reports:
        value = report.lower_case_table_names
        if value not in (None, known[0] if known else None):
            what = f"lower_case_table_names={value}, on another host of the source {known[0]}"
            remedy = "give all hosts the same value, or name one host"
            error = BinlogError(ErrorKind.SERVER_SETTING, what, remedy=remedy)
            finding = ServerFinding(error, tuple(consumers))
            out.append(replace(report, findings=(*report.findings, finding)))
        else:
            out.append(report)
    return out


def _with_server_names(spec: ConsumerSpec, lower_case: int) -> ConsumerSpec:
    """Returns the spec with each name in the form that the server compares."""
    if not lower_case:
        return spec

    def pairs(tables: Iterable[TablePattern]) -> tuple[TablePattern, ...]:
        return tuple((folded_name(d, lower_case), folded_name(t, lower_case)) for d, t in tables)

    return replace(
        spec,
        databases=tuple(folded_name(name, lower_case) for name in spec.databases),
        tables=None if spec.tables is None else pairs(spec.tables),
        exclude_tables=pairs(spec.exclude_tables),
    )


def _databases_read(specs: Iterable[ConsumerSpec], databases: Collection[str]) -> list[str]:
    """Return the databases that the settings of consumers contain by name or by a pattern, in the order of the
    settings."""
    read: dict[str, None] = {}
    for spec in specs:
        for text in spec.databases:
            matching = NamePatterns([text])
            names = (
                sorted(filter(matching.match_database, databases)) if is_pattern(text) else [text]
            )
            read |= dict.fromkeys(names)
    return list(read)


def _databases_seen(connection: Connection, lower_case: int) -> frozenset[str]:
    """Returns the databases that the account sees, in the form that the server compares."""
    return frozenset(folded_name(name, lower_case) for name in visible_databases(connection) or ())


def _catalogue_of(
    connection: Connection,
    specs: Sequence[ConsumerSpec],
    databases: frozenset[str],
    lower_case: int,
) -> Catalogue:
    """Reads what the databases of consumers contain, with names in the form that the server compares. `databases`: the
    databases that the account sees."""
    read = [name for name in _databases_read(specs, databases) if name in databases]
    catalogue = read_catalogue(connection, read) if read else Catalogue({}, (), True)
    return catalogue.with_server_names(lower_case)


# -- names --------------------------------------------------------------------------------------------------


def _about_names(
    connection: Connection,
    specs: Sequence[ConsumerSpec],
    grants: Grants,
    databases: frozenset[str],
    lower_case: int,
) -> Iterator[ServerFinding]:
    catalogue = _catalogue_of(connection, specs, databases, lower_case)
    for spec in specs:
        yield from _missing_databases(spec, grants, databases)
        yield from _missing_tables(spec, databases, catalogue)
    yield from _visibility(specs, grants)
    yield from _tables_without_key(specs, catalogue)
    yield from _unlogged_cascades(specs, catalogue)
    yield from _unlogged_columns(specs, catalogue)


def _missing_databases(
    spec: ConsumerSpec, grants: Grants, databases: frozenset[str]
) -> Iterator[ServerFinding]:
    for text in spec.databases:
        if any(map(NamePatterns([text]).match_database, databases)):
            continue
        if is_pattern(text):
            what = f"no database matches {text}"
            yield _warning(what, "correct the pattern, or create the database", [spec])
        elif grants.may_select(
            text
        ):  # otherwise the server may hide the database, and SELECT is reported as missing
            what = f"there is no database {text}{nearest(text, databases)}"
            yield _error(what, "correct databases, or create the database", [spec])


def _missing_tables(
    spec: ConsumerSpec, databases: frozenset[str], catalogue: Catalogue
) -> Iterator[ServerFinding]:
    named = [("tables", pair) for pair in spec.tables or ()]
    named += [("exclude_tables", pair) for pair in spec.exclude_tables]
    wanted = NamePatterns(spec.databases)
    for key, (database, table) in named:
        patterns = NamePatterns([database]), NamePatterns([table])
        inside = [name for name in databases if patterns[0].match(name) and wanted.match(name)]
        if not inside or any(
            patterns[0].match(d) and patterns[1].match(t) for d, t in catalogue.tables
        ):
            continue
        text = f"{database}.{table}"
        if is_pattern(text) or key == "exclude_tables":
            yield _warning(f"{key}: no table matches {text}", f"correct {key}", [spec])
        else:
            known = [t for d, t in catalogue.tables if d == database]
            what = f"the server shows the account no table {text}{nearest(table, known)}"
            yield _error(what, "correct tables, create it, or GRANT SELECT on it", [spec])


def _visibility(specs: Sequence[ConsumerSpec], grants: Grants) -> Iterator[ServerFinding]:
    """Warn if the account sees only the databases of its GRANTs, because patterns of consumers may match other
    databases."""
    concerned = [spec for spec in specs if any(map(is_pattern, spec.databases))]
    if concerned and not grants.has("SHOW DATABASES", "SELECT"):
        what = "the account sees only the databases on which it has a privilege: patterns may match others"
        account = grants.account or "the account"
        yield _warning(what, f"GRANT SHOW DATABASES, SELECT ON *.* TO {account}", concerned)


def _tables_without_key(
    specs: Sequence[ConsumerSpec], catalogue: Catalogue
) -> Iterator[ServerFinding]:
    tables = [table for table, has_key in catalogue.tables.items() if not has_key]
    concerned, names = _concerned(specs, tables)
    if names:
        what = f"tables without a primary key or a UNIQUE key of NOT NULL columns: {_listed(names)}"
        remedy = "add a primary key: a mirror compares whole rows of such tables, which is slower"
        yield _warning(what, remedy, concerned)


def _unlogged_cascades(
    specs: Sequence[ConsumerSpec], catalogue: Catalogue
) -> Iterator[ServerFinding]:
    if catalogue.cascades_are_logged:
        return
    children = {cascade.child: cascade for cascade in catalogue.cascades}
    concerned, names = _concerned(specs, list(children))
    if names:
        texts = [
            f"{'.'.join(each.child)} ({' '.join(each.actions)}, of {' and '.join(map('.'.join, each.parents))})"
            for each in (children[name] for name in names)
        ]
        what = f"the server does not log what foreign keys change in {_listed_texts(texts)}"
        remedy = (
            "let the application change these rows itself, or copy these tables again; MySQL logs such changes from 9.6"
            " on"
        )
        yield _warning(what, remedy, concerned)


def _unlogged_columns(
    specs: Sequence[ConsumerSpec], catalogue: Catalogue
) -> Iterator[ServerFinding]:
    concerned, names = _concerned(specs, list(catalogue.left_out))
    if names:
        texts = [f"{'.'.join(name)} ({', '.join(catalogue.left_out[name])})" for name in names]
        what = (
            "a MariaDB server of this version may leave generated columns out of the log's images of UPDATE and DELETE"
            f" (11.8.9 does, 10.11.18 does not): {_listed_texts(texts)}"
        )
        remedy = (
            "name them in omit_columns of a mirror that stops at these tables; readers get them as absent"
            " (docs/types.md)"
        )
        yield _warning(what, remedy, concerned)


def _concerned(
    specs: Sequence[ConsumerSpec], tables: Sequence[TablePattern]
) -> tuple[list[ConsumerSpec], list[TablePattern]]:
    """Return the consumers that read at least one of the tables, and the tables that at least one consumer reads."""
    wanted = {
        spec.name: Subscription(spec.databases, spec.tables, spec.exclude_tables) for spec in specs
    }
    concerned = [s for s in specs if any(wanted[s.name].has_table(*table) for table in tables)]
    return concerned, [t for t in tables if any(each.has_table(*t) for each in wanted.values())]


def _listed(names: Sequence[TablePattern]) -> str:
    return _listed_texts([".".join(name) for name in names])


def _listed_texts(texts: Sequence[str]) -> str:
    more = len(texts) - _NAMES_SHOWN
    return ", ".join(texts[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


# -- the server ---------------------------------------------------------------------------------------------


def _about_server(facts: ServerFacts, names: tuple[str, ...]) -> Iterator[ServerFinding]:
    others_write = facts.service.others_write
    if (others_write or facts.has_replicated) and facts.log_bin and not facts.logs_replicated:
        name = "log_slave_updates" if facts.flavour == "mariadb" else "log_replica_updates"
        source = "other nodes write" if others_write else "it replicates from its source"
        what = f"{name}=OFF: the server's binlog lacks what {source}"
        remedy = f"start the server with --{name.replace('_', '-')}, or read the server that writes"
        yield _server_warning(what, remedy, names)


def _about_retention(facts: ServerFacts, names: tuple[str, ...]) -> Iterator[ServerFinding]:
    service, seconds = facts.service, facts.expire_seconds
    remedy = service.retention or (
        "SET GLOBAL binlog_expire_logs_seconds = 604800 (or expire_logs_days = 7), and the same in the server's"
        " option file"
    )
    if seconds is None and service.retention_table:
        what = (
            f"{service.name} purges binlogs by a setting of its own, which the account may not read"
        )
        grant = f"GRANT SELECT ON {service.retention_table} TO the account, so that the daemon can read it"
        yield _server_warning(what, f"{grant}; to keep binlogs: {remedy}", names)
    elif seconds is not None and seconds < DAY_S:
        what = f"the server purges its binlogs after {seconds} s, less than a day"
        if seconds == 0:
            what = f"{service.name} purges binlogs as soon as it can ('binlog retention hours' is not set)"
        lost = "a consumer that is not read for longer loses its position"
        yield _server_warning(what, f"{remedy}: {lost}", names)


def _server_warning(what: str, remedy: str, names: tuple[str, ...]) -> ServerFinding:
    return ServerFinding(BinlogError(ErrorKind.SERVER_SETTING, what, remedy=remedy), names, True)


def _about_clocks(connection: Connection, names: tuple[str, ...]) -> Iterator[ServerFinding]:
    before = time.time()
    query = "SELECT UNIX_TIMESTAMP(NOW(6))"
    theirs = ask_one(connection, query, lambda row: float(text_value(row[0])))
    after = time.time()
    apart = max(before - theirs, theirs - after, 0.0)
    if apart > CLOCKS_APART_S:
        late = "behind" if theirs < before else "ahead of"
        what = f"the server's clock is {apart:.0f} s {late} this machine's"
        remedy = (
            "synchronise both with NTP: lag, runway and start: {timestamp: ...} compare both clocks"
        )
        yield _server_warning(what, remedy, names)


def _about_starts(
    endpoint: Endpoint, facts: ServerFacts, specs: Sequence[ConsumerSpec], begun: Collection[str]
) -> Iterator[ServerFinding]:
    new = [spec for spec in specs if spec.name not in begun]
    new = [spec for spec in new if not isinstance(spec.start, Earliest | Latest)]
    if not new or not facts.log_bin:
        return
    starts = list(dict.fromkeys(spec.start for spec in new))
    yield from starts_found(ServerLog(endpoint, facts).view(ViewRequest(starts=starts)), new)


def starts_found(view: ServerView, specs: Iterable[ConsumerSpec]) -> Iterator[ServerFinding]:
    """Yield an error for each consumer whose start the log does not have. `view`: a view that contains the results of
    the search for these starts."""
    for spec in specs:
        try:
            resolve_start(view, spec.start)
        except BinlogError as error:
            remedy = error.remedy or "correct start"
            what = f"start: {error.what}"
            yield ServerFinding(BinlogError(error.kind, what, remedy=remedy), (spec.name,))


def _error(what: str, remedy: str, specs: Iterable[ConsumerSpec]) -> ServerFinding:
    error = BinlogError(ErrorKind.SETTINGS, what, remedy=remedy)
    return ServerFinding(error, tuple(spec.name for spec in specs))


def _warning(what: str, remedy: str, specs: Iterable[ConsumerSpec]) -> ServerFinding:
    error = BinlogError(ErrorKind.SETTINGS, what, remedy=remedy)
    return ServerFinding(error, tuple(spec.name for spec in specs), warning=True)


def separate_connections(servers: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of connections that read the same servers. `servers`: for each connection, the uuids of its
    hosts."""
    seen: dict[tuple[str, ...], str] = {}
    for label, uuids in servers.items():
        if not all(uuids):
            continue
        first = seen.setdefault(tuple(sorted(uuids)), label)
        if first != label:
            yield first, label
