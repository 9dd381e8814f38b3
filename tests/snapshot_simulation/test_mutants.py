"""Each mutant still fits the source, and breaks a rule in some of the first histories."""

from __future__ import annotations

import ast

import pytest

from tests.simulation.mutant import Mutant
from tests.snapshot_simulation.mutants import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_its_function(mutant: Mutant) -> None:
    assert mutant.broken() != ast.unparse(ast.parse(mutant.source))


def test_each_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
