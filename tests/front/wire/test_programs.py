"""The clients of MySQL and MariaDB log in, with each method and kind of TLS that they have, and read a result set."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dispatcher.front.wire.listener import Refusal
from tests.front.wire.fronts import HOST, LARGE, SECRET, USER, Front, rules, running, server_context
from tests.front.wire.raw_client import RawClient
from tests.servers.installs import Kind, installation
from tests.support.certificates import make_certificate

_CLIENTS = {"mysqlbinlog": "mysql", "mariadb-binlog": "mariadb"}
MARIADB: tuple[Kind, ...] = ("mariadb1011", "mariadb118")


@dataclass(frozen=True)
class Certificate:
    """The certificate of a front, and the file with which a client trusts it."""

    context: ssl.SSLContext
    file: Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder)
    return Certificate(server_context(folder), folder / "ca.pem")


def program(kind: Kind) -> list[str]:
    """The command of the client that is in the binlog tool's folder."""
    tool = installation(kind).mysqlbinlog
    names = "|".join(_CLIENTS)
    return [re.sub(rf"(?<=/)({names})$", lambda name: _CLIENTS[name[1]], part) for part in tool]


def run(
    front: Front, kind: Kind, options: Sequence[str], password: str = SECRET
) -> tuple[str, str]:
    """What the client prints: its answer, and its errors."""
    server = ("--protocol=tcp", f"--host={HOST}", f"--port={front.port}", f"--user={USER}")
    done = subprocess.run(
        [*program(kind), *options, *server, "--batch", "-e", "SELECT everything", "shop"],
        env={**os.environ, "MYSQL_PWD": password},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    assert (done.returncode == 0) == (done.stdout != ""), done.stderr
    return done.stdout, done.stderr


def judge(kind: Kind, options: Sequence[str], certificate: Certificate | None) -> None:
    """Log in with the right password, a wrong one and none."""
    context = certificate.context if certificate else None
    with running("uvloop", rules(tls=context)) as front:
        lines = run(front, kind, options)[0].splitlines()
        assert lines[0].split("\t")[:4] == ["user", "database", "tls", "large"]
        secured = "1" if certificate else "0"
        assert lines[1].split("\t")[:4] == [USER, "shop", secured, str(LARGE)]
        for password, given in (("wrong", "YES"), ("", "NO")):
            denied = f"Access denied for user '{USER}'@'{HOST}' (using password: {given})"
            assert f"ERROR 1045 (28000): {denied}" in run(front, kind, options, password)[1]
        front.until(lambda: front.listener.counts.refused[Refusal.DENIED] == 2)


@pytest.mark.parametrize("method", ["caching_sha2_password", "mysql_native_password"])
def test_mysql_without_tls(method: str) -> None:
    """With --get-server-public-key the client sends the password even if a person has mistyped it."""
    options = ("--ssl-mode=DISABLED", "--get-server-public-key", f"--default-auth={method}")
    judge("mysql97", options, None)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--default-auth=mysql_native_password",),
        ("--default-auth=sha256_password",),
        ("--enable-cleartext-plugin", "--default-auth=mysql_clear_password"),
        ("--compression-algorithms=zlib,uncompressed",),
    ],
    ids=str,
)
def test_mysql_with_tls(options: tuple[str, ...], certificate: Certificate) -> None:
    trusted = ("--ssl-mode=VERIFY_IDENTITY", f"--ssl-ca={certificate.file}")
    judge("mysql97", (*trusted, *options), certificate)


def mariadb_plugins(kind: Kind) -> str:
    """The option with which a MariaDB client finds its plugin caching_sha2_password. By default it does not find it if
    the server's plugins are in another folder."""
    folders = [*installation(kind).root.glob("**/libmariadb3/plugin"), Path("/none")]
    return f"--plugin-dir={folders[0]}"


@pytest.mark.parametrize("kind", MARIADB)
@pytest.mark.parametrize("more", [(), ("--default-auth=client_ed25519",)], ids=str)
def test_mariadb_without_tls(kind: Kind, more: tuple[str, ...]) -> None:
    judge(kind, ("--skip-ssl", mariadb_plugins(kind), *more), None)


@pytest.mark.parametrize("kind", MARIADB)
def test_mariadb_with_tls(kind: Kind, certificate: Certificate) -> None:
    trusted = ("--ssl", f"--ssl-ca={certificate.file}", "--ssl-verify-server-cert")
    judge(kind, (*trusted, mariadb_plugins(kind)), certificate)


@pytest.mark.parametrize("kind", MARIADB)
def test_mariadb_without_a_plugin_for_the_method_of_the_greeting(kind: Kind) -> None:
    """A MariaDB replica is such a client, too: it loads plugins from its server's folder."""
    judge(kind, ("--skip-ssl", "--plugin-dir=/none"), None)


def test_a_client_that_does_not_trust_the_certificate(
    certificate: Certificate, tmp_path: Path
) -> None:
    make_certificate(tmp_path)  # another authority
    with running("uvloop", rules(tls=certificate.context)) as front:
        options = ("--ssl-mode=VERIFY_CA", f"--ssl-ca={tmp_path / 'ca.pem'}")
        assert "ERROR 2026" in run(front, "mysql97", options)[1]
        front.until(lambda: front.listener.counts.refused[Refusal.TLS_FAILED] == 1)


def test_no_room_for_another_client() -> None:
    with running("uvloop", connections_max=1) as front, RawClient(front.port) as first:
        first.log_in()
        text = run(front, "mysql97", ("--ssl-mode=DISABLED",))[1]
        assert "ERROR 1040" in text and "Too many connections" in text
        assert front.listener.counts.refused == {Refusal.FULL: 1}
