"""A mutant: a rule that is broken on purpose, by one change of one function."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.changes import Change, find_function

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`rule`: the rule that it breaks; `function`: the dotted name below `package` of the function, or of the module
    for a constant; `tests`: the tests that must fail, if the simulation hardly ever draws a history that shows the
    mutant."""

    name: str
    rule: str
    function: str
    change: Change
    tests: str = ""
    package: str = "dispatcher"

    @property
    def module(self) -> str:
        """The module's full name."""
        return ".".join([self.package, *self._names[0]])

    @property
    def source(self) -> str:
        return self._file(self._names[0]).read_text(encoding="utf-8")

    def broken(self) -> str:
        """The module's source with the change. Raises StaleError if the change does not fit the source."""
        tree = ast.parse(self.source)
        self.change.apply(find_function(tree, self._names[1]))
        return ast.unparse(ast.fix_missing_locations(tree))

    @property
    def _names(self) -> tuple[list[str], list[str]]:
        """The parts of `function` that name the module, and the parts that name the function in this module."""
        names = self.function.split(".")
        for count in range(1, len(names) + 1):
            if self._file(names[:count]).is_file():
                return names[:count], names[count:]
        raise LookupError(f"{self.package} has no module of {self.function}")

    def _file(self, names: list[str]) -> Path:
        return ROOT.joinpath(*self.package.split("."), *names).with_suffix(".py")
