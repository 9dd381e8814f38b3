"""What the README shows works."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from dispatcher.cli.init_text import Files
from dispatcher.mysql.login import Endpoint, connect
from dispatcher.mysql.server_settings import examine
from dispatcher.settings.load import load_settings
from spark_sink.mirror.cli import app
from spark_sink.mirror.values.settings import load_mirror_settings
from tests.daemon.harness import until
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVERS = (ROOT / "docs" / "servers" / "README.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = README) -> list[str]:
    """The fenced blocks of a language, without the indentation of the list they stand in."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def test_the_settings_are_those_that_init_writes(tmp_path: Path) -> None:
    text, mirror_text = blocks("yaml")
    (tmp_path / "repl.password").write_text("a")
    (tmp_path / "dispatcher.yaml").write_text(text)
    (tmp_path / "mirror.yaml").write_text(mirror_text)
    settings = load_settings([tmp_path / "dispatcher.yaml"], {}, {})
    assert list(settings.consumers) == ["changes", "mirror", "spark"]
    assert len({consumer.connection_key for consumer in settings.consumers.values()}) == 1
    written = Files(Endpoint("db1", 3306, "repl", ""), "", ["shop", "billing_*"], "/data/mirror")
    without_spark = [line for line in text.splitlines() if "spark:" not in line]
    assert without_spark == without_comments(written.settings())
    assert mirror_text.splitlines() == without_comments(written.mirror())
    mirror = load_mirror_settings([tmp_path / "mirror.yaml"], {}, {})
    assert mirror.url == f"http://{settings.api.listen}"
    assert mirror.copy_from is not None, "existing tables are copied"


def without_comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_each_reader_has_a_consumer_of_its_own() -> None:
    (read,) = re.findall(r"binlog-dispatcher read (\w+) --url", README)
    (spark,) = re.findall(r'"consumer": "(\w+)"', README)
    (mirror,) = re.findall(r"^consumers: \[(\w+)\]$", README, re.MULTILINE)
    assert len({read, spark, mirror}) == 3


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("mysql97", "MySQL"),
        ("mysql56", "MySQL 5.6"),
        ("mariadb1011", "MariaDB"),
        ("mariadb118", "MariaDB"),
    ],
)
def test_the_statements_prepare_a_server(
    kind: Kind, wanted: str, server_factory: ServerFactory
) -> None:
    server = server_factory(kind)
    used = [text for text in blocks("sql", SERVERS) if text.startswith(f"-- {wanted}")]
    assert used
    for text in used:
        without_comments = re.sub(r"--.*", "", text)
        server.execute(*(part for part in without_comments.split(";") if part.strip()))
    endpoint = Endpoint(server.host, server.port, "repl", "secret")
    with closing(connect(endpoint)) as connection:
        assert examine(connection, ["shop"]) == []


def in_shell(script: str, folder: Path) -> subprocess.Popen[str]:
    """Run lines of the README in a shell of their own, with this environment's programs on PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["sh", "-euc", script],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> None:
    """End a shell and all programs that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=20)


def test_the_steps_lead_to_a_reader(server_factory: ServerFactory, tmp_path: Path) -> None:
    """Runs all steps except the installation, in two terminals, with the settings that `init` writes."""
    server = server_factory("mysql97", "--binlog-row-metadata=MINIMAL")
    server.add_user("root", "")  # without a terminal, `init` does not ask for a password
    server.execute(
        "GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION",
        *(f"CREATE DATABASE {name}" for name in ("shop", "billing_eu")),
        *(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)" for name in ("shop", "billing_eu")),
    )
    install, init, first, second = blocks("sh")
    assert install.startswith("python3 -m venv .venv && . .venv/bin/activate\npip install")
    activate, *look = second.splitlines()
    assert activate == ". .venv/bin/activate", "a terminal of its own"
    port = str(free_port())
    address = f"{server.host}:{server.port}"
    prepared = in_shell(init.replace("db1:3306", address), tmp_path)
    said, _ = prepared.communicate(timeout=60)
    assert prepared.returncode == 0, said
    settings, mirror = blocks("yaml")
    written = (tmp_path / "dispatcher.yaml").read_text()
    assert (tmp_path / "mirror.yaml").read_text().endswith(mirror.replace("db1:3306", address))
    with_spark = settings.replace("db1:3306", address)
    assert set(without_comments(written)) < set(with_spark.splitlines())
    (tmp_path / "dispatcher.yaml").write_text(with_spark.replace("8085", port))
    with ExitStack() as stack:
        daemon = in_shell(first, tmp_path)
        stack.callback(ended, daemon)
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "OK: 3 consumers checked, no errors\n", "no warning"
        until(lambda: socket.create_connection(("127.0.0.1", int(port))), "it listens").close()
        shown, reading = (line.replace("8085", port) for line in look)
        table, _ = in_shell(shown, tmp_path).communicate(timeout=60)
        first_words = [line.split()[0] for line in table.splitlines()]
        assert first_words == ["consumer", "changes", "mirror", "spark"]
        lines = tmp_path / "lines"
        reader = in_shell(f"{reading} > {lines}", tmp_path)
        stack.callback(ended, reader)
        numbers = itertools.count()

        def read() -> bool:
            server.execute(f"INSERT INTO shop.t VALUES ({next(numbers)})")
            return b'"op":"insert","database":"shop","table":"t"' in lines.read_bytes()

        until(read, "the reader has printed a row")


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 150


def test_the_program_is_python() -> None:
    (program,) = blocks("python")
    compile(program, "README.md", "exec")


def test_the_mirror_has_the_options_of_its_commands() -> None:
    lines = re.findall(r"^    binlog-mirror (.+)$", README, re.MULTILINE)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for line in lines:
        command, *options = shlex.split(line, comments=True)
        context = group.commands[command].make_context(command, options)
        assert context.params["config"] == [Path("mirror.yaml")]
    assert len(lines) == 1


def test_every_reference_exists() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|    )make (\w+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_calls_are_those_of_the_api() -> None:
    source = "".join(file.read_text() for file in (ROOT / "dispatcher" / "api").rglob("*.py"))
    for call in re.findall(r"`(?:GET|POST) (/[^`]+)`", README):
        assert call.rsplit("/", 1)[-1].strip("{}").split(".")[0] in source, call
