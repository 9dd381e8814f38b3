"""The compiled kernels read the inputs that fuzzing has found, so that fixed defects stay fixed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz import names
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
_SECONDS_AT_MOST = 5.0  # the limit per input; the fuzzer allows ten seconds, because it runs the kernels as Python code


def test_the_corpus_is_small_and_of_known_targets() -> None:
    assert tuple(TARGETS) == names.TARGETS
    assert {folder.name for folder in CORPUS.iterdir()} <= set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 300_000


@pytest.mark.parametrize("name", names.TARGETS)
def test_inputs(name: str) -> None:
    target = TARGETS[name]
    inputs = [*seeds()[name], *(path.read_bytes() for path in sorted(CORPUS.glob(f"{name}/*")))]
    target(inputs[0])  # the first call may compile the kernels
    for data in inputs:
        began = time.monotonic()
        target(data)
        assert time.monotonic() - began < _SECONDS_AT_MOST


def test_no_kernel_leaves_its_arrays() -> None:
    """A compiled kernel that writes past an array damages the process's heap. If the kernel runs as Python, the same
    write raises an error."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "tests.kernels"]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 0, result.stderr
