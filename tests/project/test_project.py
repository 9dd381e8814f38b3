"""The repository itself: what is locked, what an import loads, what is deployed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Modules that an executor must not import, because they are large or open sockets.
HEAVY = (
    "asyncio.base_events", "asyncio.events", "pydantic", "pymysql", "starlette",
    "structlog", "uvicorn", "uvloop",
)  # fmt: skip


def pins(lock: str) -> dict[str, list[str]]:
    """Returns {"name==version ; marker": [hash, …]} of a lock file."""
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    return {
        requirement.strip(): hashes.split()
        for requirement, hashes in re.findall(
            r"^([a-z][^\n]*?)((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*$", text, re.MULTILINE
        )
    }


def of_versions(lock: str) -> dict[str, list[str]]:
    """Returns {"name==version": [hash, …]}. An image may have a package on fewer platforms than the tests."""
    return {requirement.split(" ;")[0]: hashes for requirement, hashes in pins(lock).items()}


@pytest.mark.parametrize("lock", ["requirements.lock", "deploy/daemon.lock", "deploy/spark.lock"])
def test_a_lock_pins_by_hash_and_names_no_registry(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert len(pins(lock)) == len(re.findall(r"^[a-z]", text, re.MULTILINE)) > 30


@pytest.mark.parametrize(
    ("lock", "others"),
    [
        ("deploy/daemon.lock", ("pyspark", "pytest", "delta")),
        ("deploy/spark.lock", ("uvicorn", "pytest")),
    ],
)
def test_an_image_has_the_versions_that_were_tested(lock: str, others: tuple[str, ...]) -> None:
    everything, of_the_image = of_versions("requirements.lock"), of_versions(lock)
    assert of_the_image.items() <= everything.items()
    assert not [name for name in of_the_image if name.startswith(others)]


def test_the_lock_holds_every_declared_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = list(project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        declared += extra
    for group in project["dependency-groups"].values():
        declared += [one for one in group if isinstance(one, str)]
    names = {re.split(r"[^A-Za-z0-9.-]", one)[0].lower().replace(".", "-") for one in declared}
    locks = (
        "requirements.lock",
        *(
            f"deploy/{name}.lock"
            for name in ("fuzz", "bench", "notebook", "docs", "sbom", "moto", "readers")
        ),
    )
    pinned = {re.split(r"==", requirement)[0] for lock in locks for requirement in pins(lock)}
    assert names <= pinned


@pytest.mark.parametrize(
    "module", ["dispatcher", "dispatcher.binlog", "spark_sink", "spark_sink.source.data_source"]
)
def test_importing_a_package_loads_nothing_heavy(module: str) -> None:
    program = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded: list[str] = json.loads(done.stdout)
    assert [name for name in HEAVY if name in loaded] == []


def test_no_module_of_binlog_loads_anything_heavy() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "dispatcher/binlog").rglob("*.py"))
        if path.stem != "__init__"
    ]
    program = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert [name for name in HEAVY if name in json.loads(done.stdout)] == []


def test_the_extra_of_spark_holds_what_the_mirror_imports() -> None:
    """The test environment has all extras, so an import alone would not detect a missing dependency."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    names = {re.split(r"[^a-z0-9.-]", one)[0] for one in declared}
    for module, distribution in {
        "typer": "typer", "yaml": "pyyaml", "prometheus_client": "prometheus-client",
        "pydantic": "pydantic", "pymysql": "pymysql", "pandas": "pandas",
    }.items():  # fmt: skip
        used = [
            path.name
            for folder in ("spark_sink", "dispatcher/settings", "dispatcher/source/mysql")
            for path in (ROOT / folder).rglob("*.py")
            if re.search(rf"^\s*(from|import) {module}\b", path.read_text(), re.MULTILINE)
        ]
        assert not used or distribution in names, (distribution, used)
