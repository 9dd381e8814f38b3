"""The Dockerfile: linted, read, and its steps run in a chroot."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.image.compile_kernels import cut_fractions
from deploy.image.dockerfile import Stage, parse_dockerfile

ROOT = Path(__file__).parents[2]
FILE = ROOT / "Dockerfile"


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    return parse_dockerfile(FILE.read_text(encoding="utf-8"))


def words(stage: Stage, name: str) -> list[tuple[str, ...]]:
    return [one.words for one in stage.instructions if one.name == name]


def test_hadolint_finds_no_fault() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, FILE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_one_base_is_pinned_by_digest(stages: dict[str, Stage]) -> None:
    (base,) = {stage.base for stage in stages.values()} - stages.keys()
    assert re.fullmatch(r"python:3\.\d+-slim@sha256:[0-9a-f]{64}", base)
    assert list(stages)[-1] == "daemon"  # what `docker build .` makes


@pytest.mark.parametrize("name", ["daemon", "mirror"])
def test_an_image_runs_as_its_own_user_and_holds_no_build_tools(
    stages: dict[str, Stage], name: str
) -> None:
    stage = stages[name]
    assert words(stage, "USER") == [("8085:8085",)]
    (volume,) = (path for (path,) in words(stage, "VOLUME"))
    (copied,) = (one for one in stage.instructions if one.name == "COPY")
    assert copied.options == {"from": f"build-{name}"}
    assert not volume.startswith(copied.words[1])
    assert not any("pip install" in one.text for one in stage.instructions)


def test_what_is_copied_is_sent_to_the_engine(stages: dict[str, Stage]) -> None:
    sent = re.findall(
        r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE
    )
    for stage in stages.values():
        for one in stage.instructions:
            if one.name == "COPY" and "from" not in one.options:
                for source in one.words[:-1]:
                    assert (ROOT / source).exists(), source
                    assert any(source == name or source.startswith(f"{name}/") for name in sent)


def test_the_entry_points_are_shell_scripts() -> None:
    for file in (ROOT / "deploy/image").glob("*.sh"):
        subprocess.run(["sh", "-n", file], check=True)


def test_executors_are_started_as_spark_asks_for(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n', encoding="utf-8")
    java.chmod(0o755)
    kernel = tmp_path / "kernels/release/kernel.nbc"
    kernel.parent.mkdir(parents=True)
    kernel.touch()
    os.utime(kernel, (1700000000, 1700000000))
    home, cache = tmp_path / "spark", tmp_path / "cache"
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SPARK_HOME": str(home),
        "NUMBA_CACHE_DIR": str(cache),
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
        "SPARK_JAVA_OPT_1": "-Dname=two words",
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "pod",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_RESOURCE_PROFILE_ID": "0",
    }
    script = ROOT / "deploy/image/mirror-entrypoint.sh"
    done = subprocess.run(
        ["sh", script, "executor"], env=environment, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[:4] == ["-Dspark.driver.port=7078", "-Dname=two words", "-Xms2g", "-Xmx2g"]
    assert lines[5] == f"{home}/conf:{home}/jars/*"
    assert dict(zip(lines[7::2], lines[8::2], strict=True))["--hostname"] == "10.0.0.1"
    assert (cache / "release/kernel.nbc").stat().st_mtime == 1700000000


def test_the_times_of_sources_are_whole_seconds(tmp_path: Path) -> None:
    file = tmp_path / "package/module.py"
    file.parent.mkdir()
    file.touch()
    os.utime(file, (1700000000.75, 1700000000.75))
    cut_fractions(tmp_path)
    assert file.stat().st_mtime_ns == 1700000000 * 10**9


def test_the_parser_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="before the first FROM"):
        parse_dockerfile("RUN true\n")
    with pytest.raises(ValueError, match="not understood"):
        parse_dockerfile("FROM a\nrun true\n")


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", ["daemon", "mirror"])
def test_the_steps_of_the_image_run(target: str) -> None:
    """As root; takes minutes, and downloads Debian, the Python packages and, for the mirror, Spark."""
    subprocess.run(["deploy/setup.sh", "debootstrap"], cwd=ROOT, check=True)
    command = [sys.executable, "-m", "deploy.image.chroot", target]
    subprocess.run(command, cwd=ROOT, check=True)
