"""Which tests of rotated groups `make test` runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import pytest

from tests.support.rotation import FileGroup, leave_files_to_deep, leave_to_deep


class Item:
    """A test, as pytest collects it."""

    def __init__(self, nodeid: str, *markers: pytest.MarkDecorator) -> None:
        self.nodeid, self.markers = nodeid, [marker.mark for marker in markers]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((marker for marker in self.markers if marker.name == name), None)

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.markers.append(marker.mark)


def drawn(items: Sequence[Item], seed: int) -> list[str]:
    """Returns the tests that are drawn, and so not marked as deep."""
    leave_to_deep(cast("list[pytest.Item]", items), seed)
    return [item.nodeid for item in items if item.get_closest_marker("deep") is None]


def test_of_the_cases_of_a_test_as_many_run_as_its_marker_says() -> None:
    rotate = pytest.mark.rotate(2)

    def runs(seed: int) -> list[str]:
        return drawn([Item(f"t.py::test[{case}]", rotate) for case in range(5)], seed)

    assert all(len(runs(seed)) == 2 for seed in range(50))
    assert {case for seed in range(50) for case in runs(seed)} == {
        f"t.py::test[{case}]" for case in range(5)
    }
    assert runs(7) == runs(7)


def test_a_group_may_have_tests_of_several_files() -> None:
    rotate = pytest.mark.rotate(1, of="jobs")
    names = ["a.py::one", "a.py::two", "b.py::one"]
    runs = [drawn([Item(name, rotate) for name in names], seed) for seed in range(50)]
    assert sorted({name for (name,) in runs}) == names


def test_what_is_deep_anyway_is_not_drawn_and_what_is_not_rotated_always_runs() -> None:
    rotate = pytest.mark.rotate(1, of="jobs")
    for seed in range(20):
        items = [Item("a", rotate, pytest.mark.deep), Item("b", rotate), Item("c")]
        assert drawn(items, seed) == ["b", "c"]


def test_each_file_of_a_group_runs_once_in_so_many_commits() -> None:
    group = FileGroup(3, ("d/", "e/test_"), always=("d/main.py",))
    files = ["d/main.py", *(f"d/{number}.py" for number in range(4)), "e/test_1.py", "e/pure.py"]

    def runs(turn: int) -> dict[str, list[str]]:
        items = [Item(f"{file}::{test}") for file in files for test in "ab"]
        items.append(Item("e/test_deep.py::a", pytest.mark.deep))
        leave_files_to_deep(cast("list[pytest.Item]", items), turn, [group])
        left = [item.nodeid for item in items if item.get_closest_marker("deep") is None]
        return {file: [test for test in left if test.startswith(f"{file}::")] for file in files}

    for first in range(10):
        counts = Counter(
            file
            for turn in range(first, first + 3)
            for file, tests in runs(turn).items()
            for _ in tests
        )
        assert counts.pop("d/main.py") == counts.pop("e/pure.py") == 6
        assert set(counts.values()) == {2} and len(counts) == 5
