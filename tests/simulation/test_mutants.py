"""Each mutant still fits the source. `make mutants` plays them, which takes minutes; this takes seconds."""

from __future__ import annotations

import ast

import pytest

from tests.simulation.changes import Drop, If, Replace, StaleError, find_function
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_its_function(mutant: Mutant) -> None:
    assert mutant.broken() != ast.unparse(ast.parse(mutant.source))


def test_each_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


SOURCE = """
def poll(limit, size):
    if size > limit:
        close(limit)
    return size + size
"""


@pytest.mark.parametrize(
    "change", [Replace("size", "0"), Drop("close(size)"), If("size < limit", "False")]
)
def test_a_change_that_does_not_fit_once_is_stale(change: Replace | Drop | If) -> None:
    with pytest.raises(StaleError):
        change.apply(find_function(ast.parse(SOURCE), ["poll"]))


def test_a_function_that_is_gone_is_stale() -> None:
    with pytest.raises(StaleError):
        find_function(ast.parse(SOURCE), ["push"])
