"""Installs PySpark and the matching delta-spark of each line in a folder, which is the first on PYTHONPATH.

All other packages are from `.venv`. pip verifies the packages by the hashes of the line's lock file.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from spark_sink.cache import cache_dir, cached_folder

ROOT = Path(__file__).parents[3]
CONTRACT = ROOT / "tests/spark/lines/test_contract.py"
# Variables of the processes of this pytest, which another pytest must not inherit.
_OF_PYTEST = ("PYTEST_", "COV_")


@dataclass(frozen=True, slots=True)
class SparkLine:
    """A line of Spark versions, such as 4.0. `lock`: the file with the line's packages."""

    name: str
    lock: Path

    def version(self, package: str) -> str | None:
        """Returns the version of a package in the lock; None if it has none."""
        found = re.search(
            rf"^{package}==(\S+)", self.lock.read_text(encoding="utf-8"), re.MULTILINE
        )
        return found[1] if found else None

    @property
    def has_delta(self) -> bool:
        return self.version("delta-spark") is not None

    def folder(self) -> Path:
        """Returns the folder with the packages. Installs missing packages, which takes a minute."""
        digest = hashlib.blake2b(self.lock.read_bytes(), digest_size=4).hexdigest()
        final = cache_dir() / f"sparks/pyspark-{self.version('pyspark')}-{digest}"
        return cached_folder(final, self._install)

    def _install(self, staging: Path) -> None:
        install(staging, "--require-hashes", "-r", str(self.lock))


def _lines() -> dict[str, SparkLine]:
    return {
        name: SparkLine(name, ROOT / f"deploy/spark{name.replace('.', '')}.lock")
        for name in ("4.0", "4.1", "4.3")
    }


LINES = _lines()


def install(target: Path, *packages: str) -> None:
    """Install packages without their dependencies into a folder."""
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--no-deps", "--target", str(target), *packages], check=True)


def environment(*folders: Path) -> dict[str, str]:
    """Returns the environment of a process that uses the packages in these folders."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(_OF_PYTEST)}
    own.pop("SPARK_HOME", None)
    return own | {"PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}


def provision(line: SparkLine) -> None:
    """Install the packages of a line, and fetch the jars of its Delta Lake."""
    folder = line.folder()
    if line.has_delta:
        jars = [sys.executable, "-m", "spark_sink.jars"]
        subprocess.run(jars, env=environment(folder), stdout=subprocess.DEVNULL, check=True)


def contract_command(base: Path, *arguments: str, python: str = sys.executable) -> list[str]:
    """Returns the command that runs the contract. `base`: an empty folder for pytest."""
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={base}"]
    # Spark 4.0 and 4.1 do not close the sockets of their callbacks.
    options += ["-W", "ignore:unclosed <socket:ResourceWarning"]
    return [python, "-m", "pytest", *options, str(CONTRACT), *arguments]
