"""What all tests share: the fixtures for real servers, and how hard hypothesis tries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler.loadscope import LoadScopeScheduling  # type: ignore[import-untyped]

pytest_plugins = ["tests.servers.plugin"]

# No deadline for a single example: it would measure the machine's other load. A failure prints how to repeat it.
settings.register_profile("fast", deadline=None, print_blob=True)
settings.register_profile("deep", deadline=None, print_blob=True, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# Folders whose files take longest, longest first: begun last, one of them would run on while other workers are idle.
_SLOW = ("spark", "demo", "daemon", "servers", "net")
# Files whose tests share a Spark session, which costs more to start than most of them: one worker runs them.
_ONE_SPARK = ("tests/spark/test_mirror.py", "tests/spark/test_source.py")
# A file whose tests share nothing and take minutes each: any worker runs any of them.
_APART = "tests/spark/test_job.py"


class Units(LoadScopeScheduling):  # type: ignore[misc]
    """What a worker runs without a break: a file, whose tests share servers, but for the files named above."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        if file in _ONE_SPARK:
            return _ONE_SPARK[0]
        return nodeid if file == _APART else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Units:
    return Units(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(folders).parts[0]
        return _SLOW.index(folder) if folder in _SLOW else len(_SLOW)

    items.sort(key=place)  # stable: within a folder the order stays
