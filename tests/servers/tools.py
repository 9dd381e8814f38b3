"""Runs the tools that provision servers. Every failure raises ServerUnavailable, whose text says what to do."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


class ServerUnavailable(Exception):
    """A server, or one of its tools, is not available on this machine. The text says what to do."""


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdin: str | None = None,
) -> str:
    """Returns the standard output of a command. If the command fails, raises ServerUnavailable with the last lines of
    its output."""
    arguments = [str(part) for part in command]
    try:
        done = subprocess.run(
            arguments,
            cwd=cwd,
            env=env,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise ServerUnavailable(f"cannot {what}: {arguments[0]} is not installed") from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[-12:]
        detail = "\n  ".join(lines)
        raise ServerUnavailable(
            f"cannot {what}: {arguments[0]} ended with {done.returncode}\n  {detail}"
        )
    return done.stdout
