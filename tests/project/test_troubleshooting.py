"""docs/troubleshooting.md quotes the product: messages and metrics that the source has, and commands that exist."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer import Typer
from typer.core import TyperGroup
from typer.main import get_command

from dispatcher.cli import app as daemon
from dispatcher.model.errors import ErrorKind
from spark_sink.mirror.cli import app as mirror
from spark_sink.mirror.rules.table_record import Wish

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
METRICS = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
_METRIC = re.compile(r"binlog_(?:dispatcher|mirror|stream)_(\w+)")
_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+)`")


@cache
def texts() -> str:
    """The string constants of the product, one in a line; "…" stands for the values in an f-string. Docstrings do not
    count."""
    found: list[str] = []
    for package in ("dispatcher", "spark_sink"):
        for file in (ROOT / package).rglob("*.py"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    parts = (v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
                    found.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found += [] if id(node) in prose else [node.value]
    return "\n".join(text.replace("\n", " ") for text in found)


def symptoms() -> list[str]:
    rows = _ROW.findall(PAGE)
    return [
        span for row in rows if not row[0].startswith("you see") for span in _SPAN.findall(row[0])
    ]


def is_in_the_source(quoted: str) -> bool:
    """A metric is found by its name without the prefix (docs/metrics.md has the whole name), any other text as part of
    a string."""
    if metric := _METRIC.fullmatch(quoted):
        name = rf"^{metric[1].removesuffix('_total')}(_total)?$"
        return f"`{quoted}`" in METRICS and bool(re.search(name, texts(), re.MULTILINE))
    parts = (re.escape(part) for part in quoted.split("…"))
    return re.search("[^\n]*".join(parts), texts()) is not None


def test_every_message_and_metric_is_in_the_source() -> None:
    found = symptoms()
    assert len(found) > 100
    assert [quoted for quoted in found if not is_in_the_source(quoted)] == []


def test_every_kind_of_fault_has_a_row() -> None:
    assert [kind.value for kind in ErrorKind if kind.value not in symptoms()] == []


def test_a_message_that_was_changed_is_noticed() -> None:
    assert is_in_the_source("cannot listen on …")
    assert not is_in_the_source("cannot listen at …")
    assert is_in_the_source("binlog_dispatcher_runway_seconds")
    assert not is_in_the_source("binlog_dispatcher_runway_minutes")
    assert not is_in_the_source("binlog_mirror_runway_seconds")


def commands(program: str) -> list[list[str]]:
    """For each command of the page, the words after the program's name."""
    lines = [*_SPAN.findall(PAGE), *re.findall(rf"^{program} .+", PAGE, re.MULTILINE)]
    found = (shlex.split(line, comments=True) for line in lines if line.startswith(f"{program} "))
    return [words[len(program.split()) :] for words in found]


@pytest.mark.parametrize(
    ("program", "app"), [("binlog-dispatcher", daemon), ("python -m spark_sink", mirror)]
)
def test_every_command_exists_with_its_options(program: str, app: Typer) -> None:
    found = commands(program)
    assert len(found) > 3
    for words in found:
        command = get_command(app)
        while isinstance(command, TyperGroup):
            command = command.commands[words.pop(0)]
        command.make_parser(command.context_class(command)).parse_args(words)


def test_every_way_to_resolve_a_table_exists() -> None:
    ways = re.findall(r"`resolve TABLE --as (\w+)`", PAGE)
    assert ways
    assert set(ways) <= {wish.value for wish in Wish}
