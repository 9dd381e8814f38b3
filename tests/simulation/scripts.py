"""Plays as text, for any simulation: moves, and below each move its transcript.

A line that begins with `> ` is a move. The indented lines below it are its transcript, which
`pytest --rewrite-plays` writes. Other lines say what the play shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Stage(Protocol):
    """Where the moves of one play happen."""

    def move(self, text: str) -> Sequence[str]:
        """Make a move. Returns its transcript."""


def played(text: str, stage: Stage) -> str:
    """Returns the text of a play with the transcript that its moves give now."""
    out: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            try:
                shown = stage.move(line[2:])
            except Exception as error:
                raise AssertionError(f"the move {line[2:]!r} is not possible: {error}") from error
            out += [line, *shown]
        elif not line.startswith(" "):
            out.append(line)
    return "\n".join(out) + "\n"


def parsed(text: str) -> tuple[str, list[str], dict[str, str]]:
    """Returns the verb of a move, its arguments, and its options, which are written as name=value."""
    verb, *words = text.split()
    arguments = [word for word in words if "=" not in word]
    return verb, arguments, dict(word.split("=", 1) for word in words if "=" in word)


def require_transcript(play: Path, stage: Stage, *, rewrite: bool) -> None:
    """Assert that a play has the transcript that its file shows. `rewrite`: write the transcript into the file
    instead."""
    text = play.read_text(encoding="utf-8")
    now = played(text, stage)
    if rewrite:
        play.write_text(now, encoding="utf-8")
    else:
        assert now.splitlines() == text.splitlines()
