"""The command `check`: prints everything that is wrong with the settings, then with this machine and with the servers
that the settings name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import typer

from dispatcher.cli.calls import (
    EXIT_INPUT,
    Config,
    errors_as_exit_codes,
    read_settings,
    state_of,
)
from dispatcher.model.errors import BinlogError
from dispatcher.terminal.output import say

if TYPE_CHECKING:
    from dispatcher.dispatch.values.specs import ConsumerSpec
    from dispatcher.settings.model import Settings
    from dispatcher.source.mysql.examination import HostReport, ServerFinding


def check_command(config: Config) -> None:
    """Check the settings, this machine and the servers.

    Example: binlog-dispatcher check --config dispatcher.yaml

    Prints errors and warnings, each with its remedy. Warnings do not change the exit code, which is 0.
    """
    with errors_as_exit_codes():
        settings = read_settings(config)
        from dispatcher.cli.host_check import examine_host  # noqa: PLC0415
        from dispatcher.settings.exposure import password_warnings  # noqa: PLC0415

        host = examine_host(settings)
        of_servers, found, of_front = _examine(settings)
        errors = [*host.errors, *of_servers]
        warnings = [*settings.warnings, *password_warnings(settings), *host.warnings, *found]
        of_state = _examine_state(settings, errors, warnings)
        for line in (*(f"warning: {text}" for text in warnings), *errors):
            say(line, err=True)
        if errors:
            raise typer.Exit(EXIT_INPUT)
        for of in filter(None, (of_state, of_front)):
            say(of)
        noted = f", {_count(len(warnings), 'warning')}" if warnings else ""
        consumers = _count(len(settings.consumers), "consumer")
        sources = f" and {_count(len(settings.sources), 'source')}" if settings.sources else ""
        say(f"OK: {consumers}{sources} checked, no errors{noted}")


def exit_on_errors(settings: Settings) -> None:
    """Print the errors of the servers and of the state's database. Raises typer.Exit if there are any."""
    errors, _, _ = _examine(settings)
    _examine_state(settings, errors, [])
    if errors:
        for line in errors:
            say(line, err=True)
        raise typer.Exit(EXIT_INPUT)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _examine(settings: Settings) -> tuple[list[str], list[str], str]:
    """Returns (errors, warnings, what the front serves). Each error and each warning is one line. The lines of servers
    and folders come first, in the order of the settings, and then the warnings of the front."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    from dispatcher.cli.front_check import examine_front  # noqa: PLC0415

    warnings: list[str] = []
    begun = _begun(settings)
    declared, settings = settings, _with_sources(settings)
    groups: dict[object, list[str]] = {}
    for name, consumer in settings.consumers.items():
        groups.setdefault((consumer.connection_key, consumer.tls), []).append(name)

    def examine(names: list[str]) -> list[HostReport]:
        return _reports(settings, names, begun)

    # Ask the servers in parallel, so that a server that does not answer does not delay the others.
    with ThreadPoolExecutor(min(len(groups), 16)) as pool:
        examined = list(zip(groups.values(), pool.map(examine, groups.values()), strict=True))
    errors: list[str] = []
    for _, reports in examined:
        for report in reports:
            for finding in report.findings:
                (warnings if finding.warning else errors).append(_line(report.label, finding))
    versions = {
        name: [report.version for report in reports if report.version]
        for names, reports in examined
        for name in names
    }
    front = examine_front(declared, versions)
    return errors, [*warnings, *_unshared(settings, examined), *front.warnings], front.line


def _with_sources(settings: Settings) -> Settings:
    """Returns the settings with each source as one more consumer, named `sources/NAME`, which reads all that the source
    permits."""
    from dispatcher.settings.declared import consumer_of_all  # noqa: PLC0415

    whole = {f"sources/{name}": consumer_of_all(each) for name, each in settings.sources.items()}
    return settings.model_copy(update={"consumers": {**settings.consumers, **whole}})


def _path(name: str) -> str:
    """Returns the path of a consumer or source in the settings."""
    return name.replace("/", ".") if "/" in name else f"consumers.{name}"


def _examine_state(settings: Settings, errors: list[str], warnings: list[str]) -> str:
    """Add the errors and warnings of the database that holds the state. Returns a line that describes the database; ""
    if the state is in a file."""
    from dispatcher.state.server.examine import examine_state  # noqa: PLC0415

    state = settings.state
    if state.mysql is None:
        return ""
    report = examine_state(state)
    errors += map(str, report.errors)
    warnings += (f"{state.label}: {text}" for text in report.warnings)
    if not report.schema or report.errors:
        return f"{state.label}: {report.version}, no state yet"
    leader = state_of(state)["leader"]
    leads = f"{leader['address']} leads, in term {leader['term']}" if leader else "no daemon leads"
    return f"{state.label}: {report.version}, schema {report.schema}, {leads}"


def _begun(settings: Settings) -> Collection[str]:
    """The consumers that have a stored position. All consumers count as new if the state cannot be read:
    `examine_files` or `_examine_state` reports why."""
    state, in_file = settings.state, settings.state.mysql is None
    try:
        stored = state_of(state) if not in_file or state.path.exists() else {"consumers": ()}
    except (BinlogError, OSError):
        return ()
    return {each["name"] for each in stored["consumers"] if each["covered"] is not None}


def _reports(settings: Settings, names: list[str], begun: Collection[str]) -> list[HostReport]:
    """The reports of the hosts, or of the folder, that these consumers share."""
    from dispatcher.runtime.client.from_settings import consumer_spec  # noqa: PLC0415
    from dispatcher.source.mysql import examination  # noqa: PLC0415
    from dispatcher.source.mysql.source import endpoints_of  # noqa: PLC0415

    specs = [consumer_spec(name, settings.consumers[name], settings.state) for name in names]
    first = settings.consumers[names[0]]
    if first.files is None:
        hosts = endpoints_of(first)
        several = len(hosts) > 1
        reports = [examination.report_of(host, specs, begun, several=several) for host in hosts]
        return examination.with_differing_names(reports, names)
    findings: list[ServerFinding]
    try:
        findings = _of_files(settings, names[0], [s for s in specs if s.name not in begun])
    except BinlogError as error:
        findings = [examination.ServerFinding(error, tuple(names))]
    return [examination.HostReport(first.label, "", tuple(findings))]


def _of_files(settings: Settings, first: str, new: Sequence[ConsumerSpec]) -> list[ServerFinding]:
    """Returns what is wrong with the `start` settings of a folder's new consumers. Raises BinlogError if the folder
    cannot be read."""
    from dispatcher.dispatch.values.specs import starts_to_search  # noqa: PLC0415
    from dispatcher.source.files.source import files_source  # noqa: PLC0415
    from dispatcher.source.mysql.examination import starts_found  # noqa: PLC0415
    from dispatcher.source.protocols import ViewRequest  # noqa: PLC0415

    files = settings.consumers[first].files
    assert files is not None
    opened = files_source(files, UUID(int=0)).open(1)
    starts = starts_to_search(spec.start for spec in new)
    if not starts:
        return []
    return list(starts_found(opened.view(ViewRequest(starts=starts)), new))


def _line(label: str, finding: ServerFinding) -> str:
    error = finding.error
    readers = f"(for {', '.join(map(_path, finding.consumers))})"
    return f"{label}: {error.kind}: {error.what}; {error.remedy} {readers}"


def _unshared(
    settings: Settings, examined: Sequence[tuple[list[str], list[HostReport]]]
) -> Iterator[str]:
    """Yields a warning for each pair of connections to one server whose consumers could share one connection."""
    from dispatcher.source.mysql.examination import separate_connections  # noqa: PLC0415

    servers, consumers = {}, {}
    for names, reports in examined:
        sharing = [name for name in names if settings.consumers[name].use_binlog_client]
        label = settings.consumers[names[0]].label
        if sharing and reports:
            servers[label] = tuple(report.server for report in reports)
            consumers[label] = sharing
    for one, other in separate_connections(servers):
        first, second = consumers[one][0], consumers[other][0]
        yield (
            f"{one} and {other} are the same server, so it sends its binlog twice; write the same user, password, hosts"
            f" and ports to share one connection (for {_path(first)}, {_path(second)})"
        )
