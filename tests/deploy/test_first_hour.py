"""The pictures of the first commands: what `make picture` draws of a terminal, and the files in docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.style import Style
from rich.text import Text

from deploy.first_hour import Names, Shell, screen_of, text_of, until_shown, wrapped
from tests.cli.program import PASSWORD, environment
from tests.support.terminal import on_terminal

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = {
    "init.svg": ["$ binlog-dispatcher init", "/data/mirror", "Next:", "OK: 2 consumers checked"],
    "read.svg": ["$ binlog-dispatcher read changes", '"op":"insert"', '"op":"update"', "^C"],
    "copy.svg": ["$ binlog-mirror run --config mirror.yaml --copy", "3 tables are complete: ", "DuckDB"],
}  # fmt: skip
NAMES = Names({"/tmp/x/mirror": "/data/mirror", "127.0.0.1:50123": "db1:3306"})


def text_in(picture: str) -> str:
    """Returns the text of a picture of the docs, without its line breaks."""
    tree = ET.fromstring((DOCS / picture).read_text(encoding="utf-8"))
    return "".join(tree.itertext()).replace("\N{NO-BREAK SPACE}", " ").replace("\n", "")


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_of_the_docs_is_one_file_with_nothing_of_a_machine(picture: str) -> None:
    assert "url(http" not in (DOCS / picture).read_text(encoding="utf-8")
    text = text_in(picture)
    assert [part for part in PICTURES[picture] if part not in text] == [], text
    for private in (PASSWORD, "/tmp", "/home", "/root", "Traceback", "ERROR"):
        assert private not in text
    # The only ports are the usual one of a server, and the one of the documented settings.
    assert set(re.findall(r"(?:127\.0\.0\.1|db1):(\d+)", text)) <= {"3306", "8085"}


def test_the_picture_of_a_copy_shows_its_progress() -> None:
    text = text_in("copy.svg")
    assert re.search(r"\d+ of 3 tables, [1-9]\d* rows, .*? rows/s, about .*? left", text)
    assert "INFO applied consumer=mirror " in text.partition("Spark: python")[2], "it goes on"


def test_a_program_on_a_terminal_becomes_coloured_text(tmp_path: Path) -> None:
    code = r"print('a\033[32mgreen\033[0m \033[1;33mx\033[0m'); input('name: '); print('127.0.0.1:50123')"
    with on_terminal([sys.executable, "-c", code], environment(), tmp_path, 300, 20) as terminal:
        until_shown(terminal, "name: ")
        terminal.type(b"me\n")
        assert terminal.process.wait(60) == 0
    assert screen_of(terminal) == "agreen x\nname: me\n127.0.0.1:50123"
    prompt, first, _, last, empty = Shell(tmp_path, NAMES).lines("run it", terminal)
    assert [prompt.plain, last.plain, empty.plain] == ["$ run it", "db1:3306", ""]
    styles = [(first.plain[s.start : s.end], s.style) for s in first.spans]
    colours = [(text, s.color and s.color.name, s.bold) for text, s in styles if isinstance(s, Style)]  # fmt: skip
    assert colours == [
        ("a", "default", False), ("green", "green", False), (" ", "default", False), ("x", "yellow", True),
    ]  # fmt: skip


def test_a_program_that_ends_too_early_is_an_error_with_its_screen(tmp_path: Path) -> None:
    code = "print('it has failed')"
    with (
        on_terminal([sys.executable, "-c", code], environment(), tmp_path, 300, 20) as terminal,
        pytest.raises(AssertionError, match="it has failed"),
    ):
        until_shown(terminal, "done")


def test_names_are_replaced_in_commands_and_on_the_screen() -> None:
    assert NAMES.real("init 'mysql://a@db1:3306/x' /data/mirror") == [
        "init", "mysql://a@127.0.0.1:50123/x", "/tmp/x/mirror",
    ]  # fmt: skip
    bold, plain = Style(bold=True), Style()
    line = [*((c, plain) for c in "at "), *((c, bold) for c in "127.0.0.1:50123"), (".", plain)]
    assert text_of(NAMES.replaced(line)).markup == "at [bold]db1:3306[/bold]."


def test_a_picture_with_a_value_of_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        Shell(tmp_path, NAMES).draw([Text("127.0.0.1:50123"), Text()], "t", tmp_path / "t.svg")
    assert not (tmp_path / "t.svg").exists()


def test_a_long_line_continues_at_the_left() -> None:
    lines = [Text("a" * 25), Text("b"), Text()]
    assert [line.plain for line in wrapped(lines, 10)] == ["a" * 10, "a" * 10, "a" * 5, "b", ""]
