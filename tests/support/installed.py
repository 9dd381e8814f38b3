"""Python environments in which the project's wheel is installed, without access to this repository."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(folder: Path, *options: str) -> None:
    """Build the sdist, and the wheel from it, into a folder. `options`: `--wheel` for the wheel alone."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *options]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)


def wheel_of(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def environment(folder: Path, wheel: Path) -> Path:
    """Make an environment with only the wheel, without its dependencies. Returns the environment's folder of
    packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", "-q"]
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install"]
    subprocess.run([*command, *options, str(wheel)], check=True, capture_output=True)
    return packages


def link(packages: Path, distributions: Iterable[str]) -> None:
    """Link distributions of the tests' environment into another environment. A distribution that is not installed here
    is for another system, and is left out."""
    for name in distributions:
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            target = packages / top
            if not target.exists():
                target.symlink_to(str(distribution.locate_file(top)))


def of_spark() -> list[str]:
    """Returns the names of the distributions that `binlog-dispatcher[spark]` needs, directly or indirectly."""
    lock = (ROOT / "deploy/spark.lock").read_text(encoding="utf-8")
    return re.findall(r"^([A-Za-z0-9_.-]+)==", lock, re.MULTILINE)


def put_kernels(packages: Path) -> None:
    """Copy the compiled kernels of the tests' environment into another one. numba accepts a compiled kernel only if its
    source file still has the same modification time."""
    for package in ("dispatcher", "spark_sink"):
        for source in (ROOT / package).rglob("*.py"):
            copy = packages / source.relative_to(ROOT)
            if copy.exists():
                times = source.stat()
                os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
        for kernel in (ROOT / package).rglob("__pycache__/*.nb[ci]"):
            copy = packages / kernel.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kernel, copy)
