"""The marker `rotate`: of a costly group of tests, `make test` runs a few, other ones for each commit."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest


def leave_to_deep(items: Sequence[pytest.Item], seed: int) -> None:
    """Mark all tests of each rotated group as deep, but for those that are drawn.

    A group has the cases of a test, or all tests whose markers name it (`of`). What is deep anyway belongs to none.
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
        # By the file, not by the test: tests with the same cases share their servers.
        chance = random.Random(f"{seed} {name.partition('::')[0]}")
        drawn = chance.sample(range(len(group)), min(marker.args[0], len(group)))
        for number, item in enumerate(group):
            if number not in drawn:
                item.add_marker(pytest.mark.deep)
