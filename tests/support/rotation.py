"""Selects which slow tests `make test` runs: a few of each group, and other tests for each commit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest


def leave_to_deep(items: Sequence[pytest.Item], seed: int) -> None:
    """Draw some tests of each rotated group, and mark the other tests of the group as deep.

    A group is the cases of one test, or all tests whose markers name the group (`of`). Tests that are already marked as
    deep belong to no group.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("rotate")
        if marker is not None and item.get_closest_marker("deep") is None:
            name = marker.kwargs.get("of", item.nodeid.partition("[")[0])
            groups.setdefault(name, []).append(item)
    for name, group in groups.items():
        marker = group[0].get_closest_marker("rotate")
        assert marker is not None
        # The draw depends on the file, not on the test, so that the tests of a file draw the same cases and can share
        # servers.
        chance = random.Random(f"{seed} {name.partition('::')[0]}")
        drawn = chance.sample(range(len(group)), min(marker.args[0], len(group)))
        for number, item in enumerate(group):
            if number not in drawn:
                item.add_marker(pytest.mark.deep)


@dataclass(frozen=True, slots=True)
class FileGroup:
    """The files whose paths begin with one of `files`, except the files in `always`. Each file runs for one of `one_in`
    successive commits."""

    one_in: int
    files: tuple[str, ...]
    always: tuple[str, ...] = ()

    def has(self, file: str) -> bool:
        return file.startswith(self.files) and file not in self.always


def leave_files_to_deep(
    items: Sequence[pytest.Item], turn: int, groups: Sequence[FileGroup]
) -> None:
    """Mark the tests in a group of files as deep, except the tests in the files whose turn it is. `turn`: the number of
    the commit, so that no file waits longer than `one_in` commits."""
    for group in groups:
        tests: dict[str, list[pytest.Item]] = {}
        for item in items:
            file = item.nodeid.partition("::")[0]
            if group.has(file) and item.get_closest_marker("deep") is None:
                tests.setdefault(file, []).append(item)
        for place, file in enumerate(sorted(tests)):
            if (place + turn) % group.one_in:
                for item in tests[file]:
                    item.add_marker(pytest.mark.deep)
