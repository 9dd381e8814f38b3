"""Kernels that numba's cache lacks are compiled by child processes, whose progress the daemon shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dispatcher.binlog.kernel import jit
from dispatcher.cli.compile import compile_kernels
from tests.cli.program import DEADLINE_S, PROGRAM, environment

# Loads a few small kernels, as the daemon loads all of them.
SMALL = """
import asyncio, sys
import numpy as np
from dispatcher.binlog.kernel import jit
from dispatcher.runtime.kernels import Kernels
from dispatcher.stream import reframe, warmup

def load():
    warmup._load_others()

async def follow(kernels):
    before = kernels.loaded, kernels.status
    await asyncio.gather(kernels.run(), kernels.wait())
    return before, kernels.done

kernels = Kernels([load], warmup.KERNEL_PACKAGES, None)
(loaded, status), done = asyncio.run(follow(kernels))
print(loaded, "|", status.partition(": ")[0], "|", 0 < done < kernels.total, "|", repr(kernels.status))
"""
COMPILING = "compiling kernels, once per version and machine"


def run(code: str, cache: Path, **more: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment({"NUMBA_CACHE_DIR": str(cache), **more}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 5,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_child_processes_compile_and_the_next_start_loads(tmp_path: Path) -> None:
    first, _ = run(SMALL, tmp_path)
    assert first.splitlines()[-1] == f"False | {COMPILING} | True | ''"
    second, _ = run(SMALL, tmp_path)
    assert second.splitlines()[-1] == "True |  | False | ''"


@pytest.mark.timeout(1800)
def test_compile_says_that_nothing_is_left_to_do() -> None:
    compile_all()  # some kernels may not have been needed yet
    assert compile_all() == "all kernels are compiled\n"


def compile_all() -> str:
    done = subprocess.run(
        [PROGRAM, "compile"], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compile_without_a_folder_for_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jit, "is_cached", lambda: False)
    assert not compile_kernels()
    assert "set NUMBA_CACHE_DIR to a folder" in capsys.readouterr().err
