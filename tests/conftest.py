"""What all tests share: the fixtures for real servers, and how hard hypothesis tries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.servers.plugin"]

# No deadline for a single example: it would measure the machine's other load. A failure prints how to repeat it.
settings.register_profile("fast", deadline=None, print_blob=True)
settings.register_profile("deep", deadline=None, print_blob=True, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# Folders whose files take longest, longest first: begun last, one of them would run on while the other worker is idle.
_SLOW = ("spark", "demo", "daemon", "servers", "net")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(folders).parts[0]
        return _SLOW.index(folder) if folder in _SLOW else len(_SLOW)

    items.sort(key=place)  # stable: within a folder the order stays
