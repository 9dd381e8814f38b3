"""Finds the commands in messages of the mirror, and runs them unchanged."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_COMMAND = re.compile(r"(?:python -m spark_sink|binlog-dispatcher consumers) [^;\n]+")
# Runs several commands in one process, so that Java starts only once.
_RUN = """
import json, shlex, sys
from spark_sink.mirror.cli import app
codes = []
for line in json.load(sys.stdin):
    words = shlex.split(line)
    assert words[:3] == ["python", "-m", "spark_sink"], line
    codes.append(app(words[3:], standalone_mode=False) or 0)
print("CODES", json.dumps(codes))
"""


def commands(text: str) -> list[str]:
    """Returns the complete commands in a message, in order."""
    return [found.strip() for found in _COMMAND.findall(text)]


def run_mirror_commands(lines: Sequence[str], home: Path) -> None:
    """Run commands of the mirror, one after the other. Raises AssertionError if one fails."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps(list(lines)),
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
        env=_environment(),
    )
    _, mark, codes = done.stdout.rpartition("CODES ")
    assert mark, done.stderr
    assert json.loads(codes) == [0] * len(lines), (lines, done.stdout, done.stderr)


def run_in_shell(line: str, home: Path) -> str:
    """Run one command in a shell, and confirm its question. Returns the command's output."""
    typing, terminal = pty.openpty()
    os.write(typing, b"y\n")
    try:
        done = subprocess.run(
            shlex.split(line),
            stdin=terminal,
            capture_output=True,
            text=True,
            check=False,
            cwd=home,
            env=_environment(),
        )
    finally:
        os.close(typing)
        os.close(terminal)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout + done.stderr


def _environment() -> dict[str, str]:
    """Returns environment variables with which `python` and `binlog-dispatcher` are the programs of the tests'
    environment."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return os.environ | {"PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
