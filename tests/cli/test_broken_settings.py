"""The whole output of `check` for a person who has broken the settings in one way.

Read a changed message as somebody who sees the program for the first time: it must say what is wrong, where, and what
to write instead.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dispatcher.cli import app
from tests.support.certificates import make_certificate

LOG = Path(__file__).parents[1] / "data" / "mysql97.binlog"
SHOP = "mysql: repl@db1, password: x, databases: [shop]"
FOLDER = "consumers: {shop: {files: {path: logs}, databases: [shop]}}\n"
STATE = "state: {path: state.db, max_bytes_in_spill: 1MiB}\n"
API = "api: {listen: '127.0.0.1:0'}\n"


def shop(text: str) -> str:
    return f"consumers:\n  shop: {{{text}}}\n"


@dataclass(frozen=True)
class Broken:
    """`settings`: the content of dispatcher.yaml; `said`: the lines that `check` prints, in which PORT and FOLDER stand
    for values of the test."""

    name: str
    settings: str
    said: tuple[str, ...]


BROKEN = [
    Broken(
        "an empty file",
        "",
        (
            (
                "dispatcher.yaml: consumers: at least one consumer is required, such as shop: {mysql: "
                "repl@db1:3306, password_file: repl.password, databases: [shop]}"
            ),
        ),
    ),
    Broken(
        "a consumer at the top",
        "shop: {mysql: repl@db1, password: x, databases: [shop]}\n",
        ("dispatcher.yaml:1: shop: unknown key; write a consumer below the key consumers",),
    ),
    Broken(
        "a misspelt section",
        f"consumer: {{shop: {{{SHOP}}}}}\n",
        ("dispatcher.yaml:1: consumer: unknown key; did you mean 'consumers'?",),
    ),
    Broken(
        "a tab",
        "consumers:\n\tshop: {}\n",
        (
            "dispatcher.yaml:2: invalid YAML: a tab, which YAML does not allow here; indent with spaces",
        ),
    ),
    Broken(
        "uneven indentation",
        "consumers:\n  shop:\n    mysql: repl@db1\n   password: x\n",
        (
            (
                "dispatcher.yaml:4: invalid YAML: this line does not continue the mapping before it; indent "
                "the keys of a mapping alike, and close its quotes and brackets"
            ),
        ),
    ),
    Broken(
        "a pattern without quotes",
        shop("mysql: repl@db1, password: x, databases: [*]"),
        (
            (
                "dispatcher.yaml:2: invalid YAML: while scanning an alias, did not find expected alphabetic "
                'or numeric character; a pattern that begins with * needs quotes, such as "*"'
            ),
        ),
    ),
    Broken(
        "a consumer twice",
        f"consumers:\n  shop: {{{SHOP}}}\n  shop: {{{SHOP}}}\n",
        ("dispatcher.yaml:3: consumers.shop: duplicate key, already set in line 2",),
    ),
    Broken(
        "a name with a space",
        f"consumers: {{my shop: {{{SHOP}}}}}\n",
        (
            (
                "dispatcher.yaml:1: consumers.my shop: invalid consumer name; use at most 64 letters, "
                "digits, '_', '.' and '-', beginning with a letter or digit"
            ),
        ),
    ),
    Broken(
        "no server",
        shop("databases: [shop]"),
        (
            (
                "dispatcher.yaml:2: consumers.shop: the source is missing: set mysql to user@host:port, or "
                "files to {path: FOLDER}"
            ),
        ),
    ),
    Broken(
        "a server without a user",
        shop("mysql: db1, password: x, databases: [shop]"),
        (
            "dispatcher.yaml:2: consumers.shop.mysql: expected user@host:port, such as repl@db1:3306",
        ),
    ),
    Broken(
        "a URL",
        shop("mysql: 'mysql://repl@db1', password: x, databases: [shop]"),
        (
            (
                "dispatcher.yaml:2: consumers.shop.mysql: leave out mysql://; expected user@host:port, such "
                "as repl@db1:3306"
            ),
        ),
    ),
    Broken(
        "a password in the address",
        shop("mysql: 'repl:secret@db1', databases: [shop]"),
        (
            (
                "dispatcher.yaml:2: consumers.shop.mysql: must not contain a password; set password_file or "
                "password"
            ),
        ),
    ),
    Broken(
        "port 99999",
        shop("mysql: 'repl@db1:99999', password: x, databases: [shop]"),
        ("dispatcher.yaml:2: consumers.shop.mysql: the port must be between 1 and 65535",),
    ),
    Broken(
        "an IPv6 address without brackets",
        shop("mysql: 'repl@::1', password: x, databases: [shop]"),
        (
            (
                "dispatcher.yaml:2: consumers.shop.mysql: expected host:port; write IPv6 addresses like "
                "[::1]:3306"
            ),
        ),
    ),
    Broken(
        "no password",
        shop("mysql: repl@db1, databases: [shop]"),
        (
            "dispatcher.yaml:2: consumers.shop: the password is missing: set password_file or password",
        ),
    ),
    Broken(
        "a variable that is not set",
        shop("mysql: repl@db1, password: '${NO_SUCH_PASSWORD}', databases: [shop]"),
        (
            (
                "dispatcher.yaml:2: consumers.shop.password: the environment variable NO_SUCH_PASSWORD is "
                "not set; export it"
            ),
        ),
    ),
    Broken(
        "a file of the password that does not exist",
        shop("mysql: repl@db1, password_file: none, databases: [shop]"),
        (
            (
                "dispatcher.yaml:2: consumers.shop.password_file: cannot read the file none: No such file or "
                "directory"
            ),
        ),
    ),
    Broken(
        "a number as the password",
        shop("mysql: repl@db1, password: 1234, databases: [shop]"),
        ("dispatcher.yaml:2: consumers.shop.password: expected text; put the value in quotes",),
    ),
    Broken(
        "two passwords of one account",
        f"consumers:\n  a: {{{SHOP}}}\n  b: {{{SHOP.replace('x', 'y')}}}\n",
        (
            (
                "dispatcher.yaml:3: consumers.b: has another password than consumers.a for repl@db1:3306, "
                "see dispatcher.yaml:2: set the same password for both, or set use_binlog_client: false for "
                "one of them"
            ),
        ),
    ),
    Broken(
        "one database as text",
        shop("mysql: repl@db1, password: x, databases: shop"),
        ("dispatcher.yaml:2: consumers.shop.databases: expected a list, such as [a, b]",),
    ),
    Broken(
        "a misspelt key",
        shop("mysql: repl@db1, password: x, databses: [shop]"),
        ("dispatcher.yaml:2: consumers.shop.databses: unknown key; did you mean 'databases'?",),
    ),
    Broken(
        "a table of a misspelt database",
        shop("mysql: repl@db1, password: x, databases: [shopp], tables: [shop.order]"),
        (
            (
                "dispatcher.yaml:2: consumers.shop: tables: the database of 'shop.order' is not in databases "
                "(the nearest is shopp); correct tables, or add shop to databases"
            ),
        ),
    ),
    Broken(
        "a table without its database",
        shop(f"{SHOP}, tables: [orders]"),
        (
            (
                "dispatcher.yaml:2: consumers.shop: tables: 'orders' has no database; write database.table, "
                "such as shop.orders"
            ),
        ),
    ),
    Broken(
        "a size without B",
        shop(f"{SHOP}, max_bytes_in_binlog_queue: 64M"),
        (
            (
                "dispatcher.yaml:2: consumers.shop.max_bytes_in_binlog_queue: expected a number of bytes "
                "like 4096, 64MiB or 1 MB, not '64M': write 64MB or 64MiB"
            ),
        ),
    ),
    Broken(
        "a start that does not exist",
        shop(f"{SHOP}, start: now"),
        (
            (
                "dispatcher.yaml:2: consumers.shop.start: expected earliest, latest, {timestamp: "
                "2026-11-21T12:00:00Z}, {gtid: SET} or {file: binlog.000001, offset: 4}"
            ),
        ),
    ),
    Broken(
        "a public address without tokens",
        shop(SHOP) + "api: {listen: '0.0.0.0:8085'}\n",
        (
            (
                "dispatcher.yaml:3: api.listen: without api.tokens the daemon listens on loopback addresses "
                "only; set api.tokens, or listen on 127.0.0.1:8085"
            ),
        ),
    ),
    Broken(
        "an address without a host",
        shop(SHOP) + "api: {listen: ':8085'}\n",
        (
            "dispatcher.yaml:3: api.listen: the host is missing; expected host:port like 127.0.0.1:8085",
        ),
    ),
    Broken(
        "a short token",
        shop(SHOP) + "api: {tokens: [{token: abc, consumers: all}]}\n",
        (
            (
                "dispatcher.yaml:3: api.tokens.0: a token must have at least 16 characters; make one with: "
                "openssl rand -hex 24"
            ),
        ),
    ),
    Broken(
        "a token of a misspelt consumer",
        shop(SHOP) + "api: {tokens: [{token: 0123456789abcdef, consumers: [shpo]}]}\n",
        (
            "dispatcher.yaml:3: api.tokens.0.consumers: there is no consumer 'shpo'; did you mean 'shop'?",
        ),
    ),
    Broken(
        "a port in use",
        FOLDER + STATE + "api: {listen: '127.0.0.1:PORT'}\n",
        (
            (
                "settings: cannot listen on 127.0.0.1:PORT: Address already in use; stop the program that "
                "uses the port (ss -ltnp shows it), or set another port in api.listen"
            ),
        ),
    ),
    Broken(
        "a port of the front in use",
        FOLDER + STATE + API + "front: {listen: '127.0.0.1:PORT'}\n",
        (
            (
                "warning: front 127.0.0.1:PORT: its clients cannot read a folder of files, because only a "
                "server can answer their questions; read such consumers over HTTP (for consumers.shop)"
            ),
            (
                "settings: cannot listen on 127.0.0.1:PORT: Address already in use; stop the program that "
                "uses the port (ss -ltnp shows it), or set another port in front.listen"
            ),
        ),
    ),
    Broken(
        "an address of another machine",
        FOLDER
        + STATE
        + "api: {listen: '192.0.2.1:8085', tokens: [{token: 0123456789abcdef, consumers: all}]}\n",
        (
            (
                "settings: cannot listen on 192.0.2.1:8085: Cannot assign requested address; set api.listen "
                "to an address of this machine (ip address shows them), or to 0.0.0.0:8085"
            ),
        ),
    ),
    Broken(
        "a file that is not a certificate",
        FOLDER + STATE + "api: {listen: '127.0.0.1:0', tls: {cert: file, key: key.pem}}\n",
        (
            (
                "settings: api.tls: file and key.pem are not a certificate and a key in PEM; set "
                "api.tls.cert to a certificate in PEM, and api.tls.key to its key without a password "
                "(openssl x509 -in file -noout -text, openssl pkey -in key.pem -check -noout)"
            ),
        ),
    ),
    Broken(
        "the key of another certificate",
        FOLDER
        + STATE
        + API
        + "front: {listen: '127.0.0.1:0', tls: {cert: ca.pem, key: other/key.pem}}\n",
        (
            (
                "warning: front 127.0.0.1:0: its clients cannot read a folder of files, because only a "
                "server can answer their questions; read such consumers over HTTP (for consumers.shop)"
            ),
            (
                "settings: front.tls: other/key.pem is not the key of the certificate ca.pem; set "
                "front.tls.cert to a certificate in PEM, and front.tls.key to its key without a password "
                "(openssl x509 -in ca.pem -noout -text, openssl pkey -in other/key.pem -check -noout)"
            ),
        ),
    ),
    Broken(
        "a folder of the state that cannot be made",
        FOLDER + API + "state: {path: /proc/none/state.db, max_bytes_in_spill: 1MiB}\n",
        (
            (
                "state store: cannot create the folder /proc/none: No such file or directory "
                "(/proc/none/state.db); give the daemon's user write access to the folder, or set another "
                "state.path"
            ),
        ),
    ),
    Broken(
        "a state in a folder that is a file",
        FOLDER + API + "state: {path: file/state.db, max_bytes_in_spill: 1MiB}\n",
        (
            (
                "state store: cannot write to the folder FOLDER/file: Not a directory "
                "(FOLDER/file/state.db); give the daemon's user write access to the folder, or set another "
                "state.path"
            ),
        ),
    ),
    Broken(
        "a state that is a folder",
        FOLDER + API + "state: {path: logs, max_bytes_in_spill: 1MiB}\n",
        (
            (
                "state store: the path is a folder (FOLDER/logs); set state.path to a file, such as "
                "FOLDER/logs/state.db"
            ),
        ),
    ),
    Broken(
        "a state that is no database",
        FOLDER + API + "state: {path: file, max_bytes_in_spill: 1MiB}\n",
        (
            (
                "state store: file is not a database (FOLDER/file); set state.path to another file, or put "
                "the newest backup of the state there"
            ),
        ),
    ),
    Broken(
        "a folder for spill files that cannot be made",
        FOLDER + API + "state: {path: state.db, spill_path: /proc/none}\n",
        (
            (
                "spill: cannot create the folder /proc/none: No such file or directory; give the daemon's "
                "user write access to the folder, or set another state.spill_path"
            ),
        ),
    ),
]


@contextmanager
def port_in_use() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        yield taken.getsockname()[1]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_the_whole_message(broken: Broken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    shutil.copyfile(LOG, tmp_path / "logs" / "binlog.000001")
    (tmp_path / "file").write_text("no database, and no certificate\n" * 10)
    make_certificate(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    make_certificate(other)
    with port_in_use() as port:
        settings = broken.settings.replace("PORT", str(port))
        Path("dispatcher.yaml").write_text(settings)
        done = CliRunner().invoke(app, ["check", "--config", "dispatcher.yaml"])
    said = done.stderr.replace(str(port), "PORT").replace(str(tmp_path), "FOLDER")
    assert tuple(said.splitlines()) == broken.said
    assert done.exit_code == 2
