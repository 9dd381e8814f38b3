"""`python -m build` makes an sdist and a wheel that install into a fresh environment and run."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.daemon.harness import Api, Daemon, until
from tests.support.installed import ROOT, build, environment, link, wheel_of

# The distributions that an executor has: the base dependencies and PySpark, each with its own dependencies.
BASE = ("numpy", "numba", "llvmlite", "pyarrow", "zstandard")
SPARK = ("pyspark", "py4j")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder with the sdist and the wheel, which was built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def base(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns an environment with the wheel and its base dependencies, without extras."""
    folder = tmp_path_factory.mktemp("base") / "venv"
    link(environment(folder, wheel_of(built)), BASE)
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment in a working directory outside of the source tree."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(folder / "bin" / command[0]), *command[1:]],
        cwd=folder, env=own, capture_output=True, text=True, check=False,
    )  # fmt: skip


def version() -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (found,) = re.findall(r'^version = "(.+)"$', text, re.MULTILINE)
    return str(found)


def test_the_archives_hold_what_they_must(built: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as wheel:
        names = set(wheel.namelist())
    tracked = subprocess.run(
        ["git", "ls-files", "dispatcher", "spark_sink"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()  # fmt: skip
    shipped = {
        name for name in tracked if (ROOT / name).exists() and not name.endswith("/README.md")
    }
    # Spark imports this module from the top level, so the wheel contains it only there.
    shipped.remove("spark_sink/source/default_source.py")
    assert shipped <= names
    assert not [name for name in names if name.endswith("README.md")]
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {
        "dispatcher",
        "spark_sink",
        "pyspark_binlog_dispatcher.py",
    }
    assert {"dispatcher/py.typed", "spark_sink/py.typed"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "SECURITY.md",
        "CHANGELOG.md",
        "pyproject.toml",
        "docs/operating.md",
        "dispatcher/README.md",
    } <= files
    assert not [name for name in files if name.startswith((".venv", ".cache", "tests/data/tmp"))]


@pytest.mark.deep  # a fresh installation compiles its kernels
@pytest.mark.timeout(600)
def test_the_daemon_of_the_wheel_runs(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    packages = environment(folder, wheel_of(built))
    # A .pth file adds the dependencies, but not the editable install of the project, which is a .pth file itself.
    dependencies = importlib.metadata.distribution("starlette").locate_file("")
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    assert run(folder, "binlog-dispatcher", "--version").stdout.split()[-1] == version()
    port = Daemon(tmp_path / "unused", {}).port  # a free port
    config = tmp_path / "dispatcher.yaml"
    config.write_text(
        f"consumers: {{files: {{files: {{path: {tmp_path}}}, databases: [shop]}}}}\n"
        f"api: {{listen: '127.0.0.1:{port}'}}\nstate: {{path: {tmp_path}/state.db}}\n"
    )
    checked = run(folder, "binlog-dispatcher", "check", "--config", str(config))
    assert checked.returncode == 2 and "no binlog file" in checked.stderr + checked.stdout
    reference = run(folder, "binlog-dispatcher", "settings", "reference", "heartbeat")
    assert "How often an idle server sends a heartbeat" in reference.stdout
    log = tmp_path / "log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            [str(folder / "bin/binlog-dispatcher"), "run", "--config", str(config)],
            stdout=output, stderr=output, cwd=folder,
        )  # fmt: skip
    try:
        api = Api(port)
        until(lambda: api.text("/livez") == "ok\n", "it answers", timeout_s=300)
        assert list(api.rows()) == ["files"]
        page = api.text("/")
        files = re.findall(r'(?:src|href)="(static/[^"]+)"', page)
        assert files and all(api.text(f"/{file}") for file in files)
        assert api.get("/openapi.json")["info"]["version"] == version()
    finally:
        daemon.terminate()
        assert daemon.wait(20) == 0, log.read_text()


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("python", "-c", "from dispatcher import BinlogClient"), "daemon"),
        (("python", "-c", "import dispatcher.library"), "daemon"),
        (("binlog-dispatcher", "--version"), "daemon"),
        (("python", "-m", "dispatcher", "--version"), "daemon"),
        (("python", "-m", "spark_sink", "--help"), "spark"),
    ],
)
def test_without_an_extra_the_error_names_it(
    base: Path, command: tuple[str, ...], extra: str
) -> None:
    answer = run(base, *command)
    lines = answer.stderr.splitlines()
    is_library = "-c" in command
    assert answer.returncode == 1
    assert lines[-1].startswith("ModuleNotFoundError: ") is is_library
    assert is_library or len(lines) == 1, answer.stderr
    assert lines[-1].endswith(f", which is not installed: pip install 'binlog-dispatcher[{extra}]'")


@pytest.mark.deep
def test_an_executor_needs_the_base_alone(built: Path, tmp_path: Path) -> None:
    packages = environment(tmp_path / "venv", wheel_of(built))
    link(packages, (*BASE, *SPARK))
    program = (
        "import sys, spark_sink, spark_sink.source.data_source, spark_sink.source.rows, pyspark_binlog_dispatcher;"
        "assert pyspark_binlog_dispatcher.DefaultSource.name() == 'binlog';"
        "print(spark_sink.__file__, *sorted({'starlette', 'pydantic', 'pymysql', 'structlog'} & sys.modules.keys()))"
    )
    answer = run(tmp_path / "venv", "python", "-c", program)
    assert answer.returncode == 0, answer.stderr
    assert Path(answer.stdout.strip()) == packages / "spark_sink/__init__.py"
    refused = run(tmp_path / "venv", "binlog-dispatcher", "--version")
    assert refused.returncode != 0


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_it_installs_with_its_dependencies(built: Path, tmp_path: Path) -> None:
    """The test installs the wheel as `pip install 'binlog-dispatcher[daemon]'` does, with the versions in the lock
    file."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True)
    lock = (ROOT / "deploy/daemon.lock").read_text(encoding="utf-8")
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("\n".join(re.findall(r"^[A-Za-z0-9_.-]+==[^\\\n]+", lock, re.MULTILINE)))
    wheel = f"{wheel_of(built)}[daemon]"
    installed = run(folder, "python", "-m", "pip", "install", "-q", "-c", str(constraints), wheel)
    assert installed.returncode == 0, installed.stderr
    assert run(folder, "binlog-dispatcher", "--version").stdout.split()[-1] == version()
    assert run(folder, "python", "-m", "pip", "check").returncode == 0
