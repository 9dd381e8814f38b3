"""Whether `make mutants` breaks what it says: that takes minutes to play, but seconds are enough to see it go stale."""

from __future__ import annotations

import ast

import pytest

from tests.simulation.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_replaces_stands_in_the_source_once(mutant: Mutant) -> None:
    assert mutant.stands() == 1
    ast.parse(mutant.broken())


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
