"""Reads a Dockerfile. It understands those parts of the language that this repository's Dockerfile uses.

https://docs.docker.com/reference/dockerfile
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Instruction:
    """`options`: such as {"from": "build"}; `words`: the words without the options, from JSON or as the shell splits
    them; `text`: the text of the line."""

    name: str
    options: dict[str, str]
    words: tuple[str, ...]
    text: str


@dataclass(slots=True)
class Stage:
    """`base`: an image, or the name of an earlier stage."""

    name: str
    base: str
    instructions: list[Instruction] = field(default_factory=list)


def parse_dockerfile(text: str) -> dict[str, Stage]:
    """Returns the stages by name, in order. Raises ValueError for a line that it does not understand."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            base, *named = instruction.words
            name = named[1] if named else str(len(stages))
            stage = stages[name] = Stage(name, base)
        elif stage is None:
            raise ValueError(f"before the first FROM: {instruction.text}")
        else:
            stage.instructions.append(instruction)
    return stages


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    for line in re.sub(r"\\\n", "", "\n".join(lines)).splitlines():
        found = re.fullmatch(r"([A-Z]+)\s+(.*)", line.strip())
        if found is None:
            raise ValueError(f"not understood: {line}")
        name, rest = found.groups()
        options = dict(re.findall(r"--([a-z-]+)=(\S+)\s", rest)) if name != "RUN" else {}
        rest = re.sub(r"^(--[a-z-]+=\S+\s+)+", "", rest) if options else rest
        rest = rest.removeprefix("CMD ") if name == "HEALTHCHECK" else rest
        words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
        yield Instruction(name, options, tuple(words), rest)
