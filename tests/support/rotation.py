"""The marker `rotate`: `make test` runs only a few tests of a costly group, and other ones for each commit."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest


def leave_to_deep(items: Sequence[pytest.Item], seed: int) -> None:
    """Draw some tests of each rotated group, and mark the others as deep.

    A group consists of the cases of one test, or of all tests whose markers name the group (`of`). Tests that are
    already marked as deep belong to no group.
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
        # The draw depends on the file, not on the test: tests of a file draw the same cases, and share their servers.
        chance = random.Random(f"{seed} {name.partition('::')[0]}")
        drawn = chance.sample(range(len(group)), min(marker.args[0], len(group)))
        for number, item in enumerate(group):
            if number not in drawn:
                item.add_marker(pytest.mark.deep)
