"""Checks the front for the command `check`: the consumers that its clients can read, and what is wrong with its
settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispatcher.settings.front import CLIENT_SCOPES

if TYPE_CHECKING:
    from dispatcher.settings.model import Settings


@dataclass(frozen=True, slots=True)
class FrontReport:
    """`line` names the consumers that the front serves; "" if the settings have no section `front`."""

    line: str = ""
    warnings: tuple[str, ...] = ()


def examine_front(settings: Settings, versions: Mapping[str, Sequence[str]]) -> FrontReport:
    """Check the section `front`. `versions`: for each consumer, the versions of its servers that could be reached."""
    front = settings.front
    if front is None:
        return FrontReport()
    folders = [name for name, consumer in settings.consumers.items() if consumer.files is not None]
    without_token = [name for name in settings.consumers if not _has_token(settings, name)]
    served = [name for name in settings.consumers if name not in {*folders, *without_token}]
    label = f"front {front.listen}"
    warnings = (
        *_about_folders(folders),
        *_about_tokens([name for name in without_token if name not in folders]),
        *_about_versions({name: versions.get(name, ()) for name in served}),
    )
    return FrontReport(
        f"{label}: serves {', '.join(served) or 'no consumer'}",
        tuple(f"{label}: {warning}" for warning in warnings),
    )


def _has_token(settings: Settings, consumer: str) -> bool:
    tokens = settings.api.tokens
    return not tokens or any(
        token.allowed >= CLIENT_SCOPES and token.is_for(consumer) for token in tokens
    )


def _about_folders(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield (
            "its clients cannot read a folder of files, because only a server can answer their questions; read such"
            f" consumers over HTTP {_for(names)}"
        )


def _about_tokens(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield (
            "no client can log in, because no token has the scopes read and acknowledge; add one to api.tokens"
            f" {_for(names)}"
        )


def _about_versions(versions: Mapping[str, Sequence[str]]) -> Iterator[str]:
    mariadb = {name: any("mariadb" in v.lower() for v in found) for name, found in versions.items()}
    of_mariadb = [name for name, found in versions.items() if found and mariadb[name]]
    of_mysql = [name for name, found in versions.items() if found and not mariadb[name]]
    if of_mariadb and of_mysql:
        yield (
            f"it greets all clients with one server's version, and serves MySQL ({', '.join(of_mysql)}) and MariaDB"
            f" ({', '.join(of_mariadb)}); run a daemon for each {_for([*of_mysql, *of_mariadb])}"
        )


def _for(names: Sequence[str]) -> str:
    return f"(for consumers.{', consumers.'.join(names)})"
