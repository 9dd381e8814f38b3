"""The command `check`: everything that is wrong with the settings, then with the servers that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import typer

from dispatcher.cli.calls import EXIT_INPUT, Config, errors_as_exit_codes, read_settings
from dispatcher.model.errors import BinlogError

if TYPE_CHECKING:
    from dispatcher.settings.model import ConsumerSettings, Settings


def check_command(config: Config) -> None:
    """Check the settings and the servers that they name."""
    with errors_as_exit_codes():
        settings = read_settings(config)
        from dispatcher.settings.exposure import password_warnings  # noqa: PLC0415

        for warning in (*settings.warnings, *password_warnings(settings.consumers)):
            typer.echo(f"warning: {warning}", err=True)
        exit_on_errors(settings)
        count = len(settings.consumers)
        typer.echo(f"OK: {count} consumer{'s' if count != 1 else ''} checked, no errors")


def exit_on_errors(settings: Settings) -> None:
    """Print the errors of the servers. Raises typer.Exit if there are any."""
    if findings := _server_findings(settings):
        typer.echo("\n".join(findings), err=True)
        raise typer.Exit(EXIT_INPUT)


def _server_findings(settings: Settings) -> list[str]:
    """One line per error of a server or folder of files, in the order of the settings."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    groups: dict[object, list[str]] = {}
    for name, consumer in settings.consumers.items():
        groups.setdefault((consumer.connection_key, consumer.tls), []).append(name)

    def examine(names: list[str]) -> list[str]:
        errors = _examine([settings.consumers[name] for name in names])
        readers = f"(for consumers.{', consumers.'.join(names)})"
        return [f"{label}: {e.kind}: {e.what}; {e.remedy} {readers}" for label, e in errors]

    # In parallel, so that a server that does not answer does not delay the others.
    with ThreadPoolExecutor(min(len(groups), 16)) as pool:
        return [line for lines in pool.map(examine, groups.values()) for line in lines]


def _examine(consumers: list[ConsumerSettings]) -> list[tuple[str, BinlogError]]:
    """The errors of the source that these consumers share, each with the label of its host or folder."""
    from dispatcher.source.files.source import files_source  # noqa: PLC0415
    from dispatcher.source.mysql.login import endpoints_of  # noqa: PLC0415
    from dispatcher.source.mysql.server_facts import examine_hosts  # noqa: PLC0415

    first = consumers[0]
    if first.files is None:
        databases = [database for consumer in consumers for database in consumer.databases]
        return examine_hosts(endpoints_of(first), databases)
    try:
        files_source(first.files, UUID(int=0)).open(1)
    except BinlogError as error:
        return [(first.label, error)]
    return []
