"""Runs `inspect` in this process; returns its output, its messages and its exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dispatcher.cli import app


@dataclass(frozen=True)
class Shown:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Inspect = Callable[..., Shown]


@pytest.fixture
def inspect(tmp_path: Path) -> Inspect:
    """`inspect(file, *options)` takes a file as bytes, which becomes binlog.000001, or as a path."""

    def run(file: bytes | Path | str, *options: str, stdin: bytes | None = None) -> Shown:
        if isinstance(file, bytes):
            path = tmp_path / "binlog.000001"
            path.write_bytes(file)
            file = path
        done = CliRunner().invoke(app, ["inspect", str(file), *options], input=stdin)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Shown(done.exit_code, done.stdout_bytes.decode(), done.stderr)

    return run
