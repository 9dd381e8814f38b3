"""Reads the corpus: files of statements, a line each.

Lines that begin with `@` are directives for the lines after them: `@group NAME` begins a group and forgets the other
directives; `@settings NAME…` runs each statement once in each of these sessions; `@folded` runs them also on servers
with lower_case_table_names=1; `@tables STATEMENT` makes a table beside those of every case; `@session STATEMENT` runs
first in the session, and its own events are not judged. A statement that cannot be written in the character set of a
session is left out there. `#` begins a comment, `⟨A0⟩` is the character with this number, `␤` a
line feed, `␉` a tab.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.statements.settings import SETTINGS

_NUMBER = re.compile(r"⟨([0-9A-F]+)⟩")
_FOLDER = Path(__file__).parent / "corpus"


@dataclass(frozen=True, slots=True)
class Case:
    """`tables`, `session`: statements that run first, see above; `folded`: True if the case also runs on servers with
    lower_case_table_names=1."""

    sql: str
    group: str = ""
    setting: str = "plain"
    tables: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    folded: bool = False

    @property
    def name(self) -> str:
        """The case's name in one line; cases of one corpus have different names."""
        shown = self.sql.replace("\n", "␤").replace("\t", "␉")
        first = "".join(f"{statement}; " for statement in self.session)
        return f"[{self.setting}] {first}{shown}"


@dataclass(slots=True)
class _Directives:
    group: str
    settings: tuple[str, ...] = ("plain",)
    tables: list[str] = field(default_factory=list)
    session: list[str] = field(default_factory=list)
    folded: bool = False

    def cases(self, sql: str) -> Iterator[Case]:
        for setting in self.settings:
            if _can_be_sent(sql, SETTINGS[setting].encoding):
                tables, session = tuple(self.tables), tuple(self.session)
                yield Case(sql, self.group, setting, tables, session, self.folded)


def unescaped(line: str) -> str:
    line = line.replace("␤", "\n").replace("␉", "\t")
    return _NUMBER.sub(lambda match: chr(int(match[1], 16)), line)


def _can_be_sent(sql: str, encoding: str) -> bool:
    try:
        sql.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def corpus(folder: Path = _FOLDER) -> list[Case]:
    found: dict[str, Case] = {}
    for file in sorted(folder.glob("*.sql")):
        for case in _of_file(file):
            before = found.get(case.name, case)
            found[case.name] = replace(case, folded=case.folded or before.folded)
    return list(found.values())


def _of_file(file: Path) -> Iterator[Case]:
    now = _Directives(file.stem)
    for raw in file.read_text(encoding="utf-8").split("\n"):
        line = unescaped(raw)
        if not line.strip() or line.startswith("# "):
            continue
        if not line.startswith("@"):
            yield from now.cases(line)
            continue
        word, _, rest = line[1:].partition(" ")
        match word:
            case "group":
                now = _Directives(f"{file.stem}: {rest}")
            case "settings":
                now.settings = tuple(rest.split())
            case "tables":
                now.tables.append(rest)
            case "session":
                now.session.append(rest)
            case "folded":
                now.folded = True
            case _:
                raise ValueError(f"{file.name}: {line}")
