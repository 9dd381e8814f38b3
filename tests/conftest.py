"""Fixtures for real servers, the effort of hypothesis, and the order of the test files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler.loadscope import LoadScopeScheduling  # type: ignore[import-untyped]

pytest_plugins = ["tests.servers.plugin"]

# No deadline for a single example: it would measure the machine's other load. A failure prints how to repeat it.
settings.register_profile("fast", deadline=None, print_blob=True, max_examples=60)
settings.register_profile("deep", deadline=None, print_blob=True, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))

# Folders whose files take longest, longest first: started last, one would run while other workers are idle.
_SLOW = ("mirror", "spark", "demo", "daemon", "faults", "servers", "source", "runtime")
# At most two workers run Spark at a time: three JVMs on two cores keep each other from starting a Python worker within
# the ten seconds that Spark waits for it. The files of the first kind share a session, which costs more to start than
# most of their tests; those of the second start their own.
_SPARK = {
    **dict.fromkeys(
        (
            "tests/spark/source/test_source.py",
            "tests/spark/mirror/test_apply.py",
            "tests/spark/mirror/test_conversions_servers.py",
            "tests/spark/mirror/test_crashes.py",
            "tests/spark/mirror/test_log.py",
            "tests/spark/mirror/test_schema_changes.py",
            "tests/spark/mirror/copy/test_verify.py",
        ),
        "session",
    ),
    **dict.fromkeys(
        (
            "tests/demo/test_demo.py",
            "tests/mirror/test_crash_matrix.py",
            "tests/mirror/test_ddl_torture.py",
            "tests/mirror/test_job.py",
        ),
        "jobs",
    ),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-plays",
        action="store_true",
        help="write the transcripts of tests/simulation/plays",
    )


class Units(LoadScopeScheduling):  # type: ignore[misc]
    """The tests that one worker runs in a row: those of a file, which share servers, except for the files above."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return _SPARK.get(file, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Units:
    return Units(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(folders).parts[0]
        return _SLOW.index(folder) if folder in _SLOW else len(_SLOW)

    items.sort(key=place)  # stable: within a folder the order stays
