"""The files that `init` writes: settings of the daemon and of the mirror, and SQL for an administrator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from dispatcher.mysql.login import Endpoint, TlsMode
from dispatcher.mysql.server_settings import SettingChange

CONSUMER, MIRROR = "changes", "mirror"
URL = "http://127.0.0.1:8085"
PASSWORD_FILE, SQL_FILE = "repl.password", "init.sql"
SETTINGS_FILE, MIRROR_FILE = "dispatcher.yaml", "mirror.yaml"
_NAMED_MAX = 20  # databases; if the server has more, the settings name none


def databases_of(wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return the names or patterns for the settings. `wanted`: names or patterns from the user; `found`: the databases
    of the server."""
    return list(wanted or (found if 0 < len(found) <= _NAMED_MAX else ["*"]))


def unknown_databases(wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return the names and patterns of the user that fit no database of the server. `found`: the server's databases."""
    return [name for name in wanted if not any(fnmatchcase(each, name) for each in found)]


@dataclass(frozen=True, slots=True)
class Files:
    """What the settings contain. `server`: the daemon's login; its password is not used. `target`: the mirror's target;
    "" without a mirror."""

    server: Endpoint
    version: str
    databases: Sequence[str]
    target: str = ""

    def settings(self) -> str:
        """The content of dispatcher.yaml."""
        names = [CONSUMER, *([MIRROR] if self.target else [])]
        width = max(map(len, names)) + 1
        return "\n".join([
            f"# The settings of the daemon, written by `binlog-dispatcher init` for {self.version}.",
            "# `binlog-dispatcher settings reference` explains all settings.",
            "consumers:",
            *(self.consumer(name, width) for name in names),
            'api: {listen: "127.0.0.1:8085"}',
            "state: {path: state.db}",
            "",
        ])  # fmt: skip

    def consumer(self, name: str, width: int = 0) -> str:
        """A consumer's line of dispatcher.yaml. `width`: of the name and the colon."""
        databases = json.dumps(list(self.databases), ensure_ascii=False)
        options = f"{self._login()}{_tls(self.server)}, databases: {databases}"
        return f"  {name + ':':{width}} {{{options}}}"

    def mirror(self) -> str:
        """The content of mirror.yaml."""
        return "\n".join([
            "# The settings of the mirror, written by `binlog-dispatcher init`.",
            f"url: {URL}",
            f"consumers: [{MIRROR}]",
            f"target: {json.dumps(self.target, ensure_ascii=False)}",
            f"copy: {{{self._login()}{self._tls_of_copy()}}}",
            "",
        ])  # fmt: skip

    def _login(self) -> str:
        mysql = json.dumps(self.server.label, ensure_ascii=False)
        return f"mysql: {mysql}, password_file: {PASSWORD_FILE}"

    def _tls_of_copy(self) -> str:
        """TLS as keys of the section `copy`."""
        tls = self.server.tls
        mode = "" if tls.mode is TlsMode.PREFERRED else f", tls: {tls.mode}"
        return mode if tls.ca is None else f"{mode}, ca_file: {_file(tls.ca)}"

    def commands(self) -> list[str]:
        """The next commands."""
        return [
            f"binlog-dispatcher check --config {SETTINGS_FILE}",
            f"binlog-dispatcher run --config {SETTINGS_FILE}",
            *(
                (f"binlog-mirror run --config {MIRROR_FILE} --copy",)
                if self.target
                else (f"binlog-dispatcher read {CONSUMER} --url {URL}",)
            ),
        ]


def _file(path: Path) -> str:
    return json.dumps(str(path.resolve()), ensure_ascii=False)


def _tls(server: Endpoint) -> str:
    tls, keys = server.tls, {}
    if tls.mode is not TlsMode.PREFERRED:
        keys["mode"] = str(tls.mode)
    if tls.ca is not None:
        keys["ca"] = _file(tls.ca)
    if tls.allow_public_key_retrieval:
        keys["allow_public_key_retrieval"] = "true"
    return f", tls: {{{', '.join(f'{k}: {v}' for k, v in keys.items())}}}" if keys else ""


def sql_text(changes: Sequence[SettingChange], account: Sequence[str]) -> str:
    """The content of init.sql, which an administrator runs."""
    lines = [
        "-- Written by `binlog-dispatcher init`. Run it as an administrator, then remove it: it has a password."
    ]
    for change in changes:
        lines.append(f"-- {change.what}")
        lines.append(f"{change.statement};" if change.statement else f"-- {change.remedy}")
    return "\n".join([*lines, *(f"{statement};" for statement in account), ""])
