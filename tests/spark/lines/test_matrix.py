"""docs/spark-versions.md is what the lock files and the recorded runs say."""

from __future__ import annotations

from tests.spark.lines import matrix


def test_the_page_is_current() -> None:
    """Run `python -m tests.spark.lines matrix` after a change."""
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.text()
