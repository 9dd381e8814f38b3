"""The differences that are known and not removed yet, in `known.txt`: a line for each case, below its cause.

A difference that is not listed fails the tests. A listed case without a difference fails them, too, so the list
shrinks: `python -m tests.statements prune` removes such lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

PATH = Path(__file__).parent / "known.txt"


def entry(server: str, name: str) -> str:
    return f"{server} {name}"


def known(path: Path = PATH) -> dict[str, str]:
    """Returns the cause of each listed case."""
    found, cause = {}, ""
    for line in _lines(path):
        if line.startswith("# "):
            cause = line[2:]
        else:
            found[line] = cause
    return found


def _lines(path: Path) -> Iterator[str]:
    yield from (line for line in path.read_text(encoding="utf-8").split("\n") if line)


def write(causes: dict[str, str], path: Path = PATH) -> None:
    by_cause: dict[str, list[str]] = {}
    for line, cause in causes.items():
        by_cause.setdefault(cause, []).append(line)
    text = ""
    for cause, lines in by_cause.items():
        text += f"# {cause}\n" + "".join(f"{line}\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def prune(differs: Callable[[str], bool], path: Path = PATH) -> int:
    """Remove the cases that do not differ. Returns their number."""
    before = known(path)
    left = {line: cause for line, cause in before.items() if differs(line)}
    write(left, path)
    return len(before) - len(left)
