"""The machine of a run, and the versions of all programs, without names and paths."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.servers.installs import installation

_PACKAGES = ("numpy", "numba", "pyarrow", "pymysql", "uvicorn", "uvloop", "pyspark", "delta-spark")


def machine() -> dict[str, str]:
    memory = re.search(r"MemTotal: +(\d+)", _text("/proc/meminfo"))
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int(memory[1]) / 2**20:.0f} GiB" if memory else "unknown",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "commit": _commit(),
    }


def _commit() -> str:
    """Returns the commit that is measured, with "+" if files differ from it; "unknown" outside of a repository."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=8", "--dirty=+"]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def versions() -> dict[str, str]:
    found = {
        "Python": platform.python_version(),
        "MySQL": installation("mysql97").version,
        "MariaDB's tool": installation("mariadb118").version,
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    for program, option in (("java", "-version"), ("node", "--version")):
        if (printed := _printed(program, option)) is not None:
            found[program.capitalize()] = printed
    return found


def _processor() -> str:
    model = re.search(r"^model name\s*: *(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return model[1].strip() if model else platform.machine()


def _printed(program: str, option: str) -> str | None:
    """Returns the version that a program prints."""
    if shutil.which(program) is None:
        return None
    done = subprocess.run([program, option], capture_output=True, text=True, check=False)
    number = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return number[0] if number else None


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
