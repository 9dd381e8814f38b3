"""All remedies of the mirror are in one module, and a test runs each command in a remedy."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror import request_commands
from spark_sink.mirror.cli import app
from spark_sink.mirror.own_command import completing
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.remedies import CommandOptions, completed
from spark_sink.mirror.table_lines import TableLine, completed_line
from tests.mirror.printed import commands
from tests.mirror.remedy_cases import CASES, TABLES, WORDS

ROOT = Path(__file__).parents[2]
SAMPLES = {"can_copy": True, "fault": BinlogError(ErrorKind.MALFORMED_EVENT, "no event")}


def printed(name: str) -> list[str]:
    """Returns the commands of a remedy."""
    function = getattr(remedies, name)
    given = {key: SAMPLES.get(key, key) for key in inspect.signature(function).parameters}
    return commands(function(**given))


NAMES = [name for name in vars(remedies) if name.startswith("of_")]


@pytest.mark.parametrize("name", NAMES)
def test_each_remedy_names_commands_that_a_test_runs(name: str) -> None:
    found = printed(name)
    assert bool(found) is (name not in WORDS)
    # Faults have the same remedies as entries.
    followed = [
        case.command for case in TABLES.values() if case.remedy == name.replace("fault", "entry")
    ]
    if followed:
        assert [c for c in found if not any(part in c for part in followed)] == [], found
    else:
        assert name in {*CASES, *WORDS}


@pytest.mark.parametrize("case", CASES.values())
def test_each_case_exists(case: str) -> None:
    file, _, function = case.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_case_is_of_a_remedy_that_does_not_exist() -> None:
    assert {*CASES, *WORDS, *(case.remedy for case in TABLES.values())} <= set(NAMES)


def texts(tree: ast.Module) -> list[str]:
    """Returns the string constants of a module, without its docstrings."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [n.value for n in constants if isinstance(n.value, str) and id(n) not in documents]


def test_no_other_module_of_the_mirror_writes_a_command_that_changes_something() -> None:
    changing = re.compile(
        r"python -m spark_sink (resolve|copy|adopt|verify|run )|consumers (seek|forget)"
    )
    found = [
        f"{file.name}: {text}"
        for file in sorted((ROOT / "spark_sink").rglob("*.py"))
        if file.name != "remedies.py"
        for text in texts(ast.parse(file.read_text(encoding="utf-8")))
        if changing.search(text)
    ]
    assert [text for text in found if not text.startswith("cli.py")] == []


OPTIONS = CommandOptions(
    ("--config", "a b.yaml"), ("--config", "m.yaml", "--stages", "log"), ("--url", "http://x")
)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (
            "why; copy it: python -m spark_sink resolve db.t --as recopy",
            "why; copy it: python -m spark_sink resolve --config 'a b.yaml' db.t --as recopy",
        ),
        (
            "python -m spark_sink run --available-now",
            "python -m spark_sink run --config m.yaml --stages log --available-now",
        ),
        (
            "binlog-dispatcher consumers seek shop --to earliest",
            "binlog-dispatcher consumers seek --url http://x shop --to earliest",
        ),
        (
            "start the job: python -m spark_sink run; or look: python -m spark_sink tables",
            "start the job: python -m spark_sink run --config m.yaml --stages log; or look: python -m spark_sink tables"
            " --config 'a b.yaml'",
        ),
        ("nothing to do", "nothing to do"),
        ("python -m spark_sink runs", "python -m spark_sink runs"),
    ],
)
def test_a_printed_command_has_the_options_of_the_process_that_prints_it(
    text: str, whole: str
) -> None:
    assert completed(text, OPTIONS) == whole
    assert completed(text, CommandOptions()) == text


def test_options_of_the_command_line_complete_commands_but_for_secrets() -> None:
    given = {"url": "http://d", "consumers": ["a", "b"], "target": "/t", "spark.conf": {"k": "v"}}
    complete = completing(
        [Path("m.yaml")], given | {"available_now": True, "fail_on_data_loss": False}
    )
    assert complete("python -m spark_sink run --available-now") == (
        "python -m spark_sink run --config m.yaml --url http://d --consumer a --consumer b --target /t"
        " --available-now"
    )
    assert complete("python -m spark_sink copy a.b") == (
        "python -m spark_sink copy --config m.yaml --target /t a.b"
    )


def test_the_program_that_was_started_is_named_in_every_text_of_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/binlog-mirror", "tables"])
    texts: dict[str, Any] = {
        "reason": remedies.of_entry("db.t"),
        "catalog_error": remedies.of_files_for_iceberg("db.t"),
        "not_proved": remedies.of_copy_again("db.t"),
    }
    line = TableLine("shop", "db.t", "stopped", 1, 0, None, None, "")
    shown = completed_line(replace(line, **texts), completing([], {"target": "/t"}))
    for name in texts:
        said = str(getattr(shown, name))
        assert "python -m" not in said and "binlog-mirror " in said and "--target /t" in said


def test_errors_of_commands_name_the_program_that_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/binlog-mirror", "resolve"])
    done = CliRunner().invoke(app, ["evidence", "shop.orders", "--target", str(tmp_path)])
    assert done.exit_code == 2
    assert "binlog-mirror tables --target" in done.stderr and "python -m" not in done.stderr


def test_a_request_for_copies_names_the_program_that_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/binlog-mirror", "copy"])
    asked = request_commands.RequestedCopies([("shop", "orders")], [], {})
    monkeypatch.setattr(request_commands, "request_copies", lambda *_, **__: asked)
    done = CliRunner().invoke(app, ["copy", "shop.orders", "--target", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, "shop.orders: copy\n")
    said = (
        f"the job makes the copies, and binlog-mirror tables --target {tmp_path} shows their states"
    )
    assert said in done.stderr
