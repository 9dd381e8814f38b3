"""Each mutant still fits the source. `make mutants` plays them, which takes minutes; this takes seconds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mirror_simulation.mutants import MUTANTS
from tests.simulation.mutant import Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_its_function(mutant: Mutant) -> None:
    assert mutant.broken() != ast.unparse(ast.parse(mutant.source))


def test_each_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_the_tests_that_mutants_name_exist() -> None:
    root = Path(__file__).parents[2]
    for mutant in MUTANTS:
        file, _, name = mutant.tests.partition("::")
        source = (root / file).read_text(encoding="utf-8") if file else ""
        assert not name or f"def {name.partition('[')[0]}(" in source, mutant.name
