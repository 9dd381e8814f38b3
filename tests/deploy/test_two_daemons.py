"""What docs/high-availability.md tells people to type."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dispatcher.settings.load import load_settings
from dispatcher.settings.model import Settings
from dispatcher.state.server.examine import examine_state
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/high-availability.md").read_text(encoding="utf-8")
SECRETS = {"REPL_PASSWORD": "secret", "STATE_PASSWORD": "secret", "API_TOKEN": "0123456789abcdef"}


def block(language: str) -> str:
    """The only fenced block of a language, without the indentation of its list."""
    ((indent, text),) = re.findall(
        rf"^( *)```{language}\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE
    )
    return re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)


def settings_of(text: str, folder: Path) -> Settings:
    file = folder / "dispatcher.yaml"
    file.write_text(text, encoding="utf-8")
    return load_settings([file], environment=SECRETS)


def test_the_settings_are_valid(tmp_path: Path) -> None:
    settings = settings_of(block("yaml"), tmp_path)
    assert settings.api.address == "http://a:8085"
    assert settings.state.label == "dispatcher@db2:3306/binlog_dispatcher"


@pytest.mark.parametrize("kind", ["mysql97", "mariadb1011"])
def test_the_statements_make_a_database_for_the_state(
    kind: Kind, server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = server_factory(kind)
    server.execute(*(part for part in block("sql").split(";") if part.strip()))
    text = block("yaml").replace("db2:3306", f"{server.host}:{server.port}")
    assert examine_state(settings_of(text, tmp_path).state).errors == ()


def test_the_units_of_both_hosts_can_have_the_password_of_the_state(tmp_path: Path) -> None:
    line, name = re.findall(
        r"`LoadCredential=(state:\S+)`.*?`password_file: (\S+)`", PAGE, re.DOTALL
    )[0]
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / line.partition(":")[0]).write_text("from a credential\n", encoding="utf-8")
    text = block("yaml").replace('password: "${STATE_PASSWORD}"', f"password_file: {name}")
    text = text.replace("${CREDENTIALS_DIRECTORY}", str(folder))
    assert settings_of(text, tmp_path).state.secret == "from a credential"
