"""Runs the contract with each line of Spark other than the line of `requirements.lock`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.spark.lines.installs import LINES, ROOT, contract_command, environment


@pytest.mark.rotate(2, of="jobs of Spark")
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", LINES)
def test_a_part_of_the_contract(name: str, tmp_path: Path) -> None:
    require_contract(name, tmp_path, "-k", "holds_the_queue or goes_on_at_its_checkpoint")


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.timeout(3600)  # on a busy machine; otherwise it takes a minute and a half
@pytest.mark.parametrize("name", LINES)
def test_the_contract(name: str, tmp_path: Path) -> None:
    require_contract(name, tmp_path)


def require_contract(name: str, folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        contract_command(folder / "base", *arguments),
        env=environment(LINES[name].folder()),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
