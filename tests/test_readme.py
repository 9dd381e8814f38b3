"""What the README shows works."""

from __future__ import annotations

import ast
import re
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.settings.load import load_settings
from dispatcher.source.mysql.login import Endpoint, connect
from dispatcher.source.mysql.server_facts import examine
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, without the indentation of the list they stand in."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", README, re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def test_the_settings_are_valid(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    file = tmp_path / "dispatcher.yaml"
    file.write_text(text)
    settings = load_settings([file], {}, {"REPL_PASSWORD": "a", "AUDIT_PASSWORD": "b"})
    assert list(settings.consumers) == ["shop", "billing", "audit"]
    keys = [consumer.connection_key for consumer in settings.consumers.values()]
    assert keys[0] == keys[1] != keys[2]


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
    used = [text for text in blocks("sql") if text.startswith(f"-- {wanted}")]
    assert used
    for text in used:
        without_comments = re.sub(r"--.*", "", text)
        server.execute(*(part for part in without_comments.split(";") if part.strip()))
    endpoint = Endpoint(server.host, server.port, "repl", "secret")
    with closing(connect(endpoint)) as connection:
        assert examine(connection, ["shop"]) == []


def test_the_programs_are_python() -> None:
    programs = blocks("python")
    assert len(programs) == 2
    for text in programs:
        compile(text, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_every_reference_exists() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|    )make (\w+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_calls_are_those_of_the_api() -> None:
    source = "".join(file.read_text() for file in (ROOT / "dispatcher" / "api").glob("*.py"))
    for call in re.findall(r"`(?:GET|POST) (/[^`]+)`", README):
        assert call.rsplit("/", 1)[-1].strip("{}").split(".")[0] in source, call
