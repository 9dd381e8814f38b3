"""What a process that has configured no logging, such as a Python worker of Spark, writes to stderr."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

_WARN = 'logging.getLogger("spark_sink.source").warning("no answer")'
_TEXT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING no answer\n"


@pytest.mark.parametrize(
    ("configure", "expected"),
    [
        ("pass", _TEXT),
        ("logging.basicConfig(format='root: %(message)s')", "root: no answer\n"),
        (
            "logging.getLogger('spark_sink.source').addHandler(logging.StreamHandler())",
            "no answer\n",
        ),
    ],
    ids=["nothing", "root", "the logger"],
)
def test_a_warning_has_time_and_level_and_is_written_once(configure: str, expected: str) -> None:
    code = f"import logging, spark_sink.source\n{configure}\n{_WARN}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert re.fullmatch(expected, done.stderr), done.stderr
