"""Whether `make mutants` breaks what it says: that takes minutes to play, but seconds are enough to see it go stale."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS, Mutant

PACKAGE = Path(__file__).resolve().parents[2] / "dispatcher"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_replaces_stands_in_the_source_once(mutant: Mutant) -> None:
    source = (PACKAGE / mutant.file).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1
    ast.parse(source.replace(mutant.old, mutant.new))


def test_no_two_mutants_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
