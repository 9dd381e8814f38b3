"""The help of both programs is plain, and each command shows an example that its parser accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dispatcher.cli import app as daemon
from spark_sink.mirror.cli import app as mirror

PROGRAMS = {"binlog-dispatcher": daemon, "binlog-mirror": mirror}


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    nested = getattr(command, "commands", None)
    if nested is None:
        yield words, command
        return
    for name, each in nested.items():
        yield from commands(each, (*words, name))


ALL = [
    pytest.param(program, words, command, id=" ".join((program, *words)))
    for program, app in PROGRAMS.items()
    for words, command in commands(get_command(app), ())
]


def help_of(program: str, *words: str) -> str:
    done = CliRunner().invoke(
        PROGRAMS[program], [*words, "--help"], prog_name=program, env={"COLUMNS": "80"}
    )
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize(("program", "words", "command"), ALL)
def test_a_command_shows_an_example(program: str, words: tuple[str, ...], command: Any) -> None:
    shown = help_of(program, *words)
    assert shown.startswith(f"Usage: {' '.join((program, *words))} ")
    assert not re.search(r"[{}│╭]|<\w", shown), shown
    example = re.search(r"^ +Example: (.*?)\n\s*\n", shown, re.MULTILINE | re.DOTALL)
    assert example is not None, shown
    called = shlex.split(" ".join(example[1].split()))
    assert called[: len(words) + 1] == [program, *words]
    command.make_context(words[-1], called[len(words) + 1 :])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_lists_its_commands_in_whole_sentences(program: str) -> None:
    shown = help_of(program)
    assert "..." not in shown.replace("[ARGS]...", ""), shown
    assert not re.search(r"[{}│╭]|<\w", shown), shown
