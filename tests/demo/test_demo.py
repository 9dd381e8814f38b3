"""Runs the demo as `make demo` does, but with a short load, and interrupts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.demo.processes import Interrupts, of_session
from tests.support.java import QUICK_JAVA

ROOT = Path(__file__).parents[2]
TAKEOVER = re.compile(
    r"Daemon a led until it was killed with SIGKILL, \d+\.\d s after the load had begun; \d+\.\d s later daemon b led\."
)

REPLICATED = re.compile(
    r"mysqlbinlog read [1-9]\d+ rows of shop and billing through the front, equal to the rows in the server's log;"
    r" the server had no dump thread for it\."
)


def start(temporary: Path, *arguments: str) -> subprocess.Popen[str]:
    """Starts the demo with all its files below `temporary`."""
    return subprocess.Popen(
        [sys.executable, "-m", "deploy.demo", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **os.environ,
            "TMPDIR": str(temporary),
            "PYTHONUNBUFFERED": "1",
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
        },
    )


def left_behind(temporary: Path) -> list[str]:
    """Files below `temporary`, and processes that were started with it."""
    found = [str(path) for path in temporary.iterdir()]
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = environ.read_bytes().split(b"\0")
        except OSError:
            continue  # the process has ended, or belongs to another user
        if any(one.startswith(f"TMPDIR={temporary}".encode()) for one in variables):
            found.append((environ.parent / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.rotate(1)
@pytest.mark.parametrize("daemons", [1, 2])
def test_every_table_is_equal_and_nothing_is_left_behind(tmp_path: Path, daemons: int) -> None:
    temporary, target = tmp_path / "tmp", tmp_path / "target"
    temporary.mkdir()
    arguments = ["--seconds=3", "--seed=5", "--parts=20000", f"--target={target}"]
    with start(temporary, *arguments, *(["--standby"] if daemons == 2 else [])) as demo:
        said, _ = demo.communicate()
    assert demo.returncode == 0, said
    assert "all 9 tables are equal" in said
    assert len(TAKEOVER.findall(said)) == daemons - 1, said
    assert REPLICATED.search(said), said
    assert sorted(path.name for path in target.iterdir()) == [
        "_binlog",
        "billing",
        "shop",
        "warehouse",
    ]
    assert (target / "shop" / "order_lines" / "_delta_log").is_dir()
    assert left_behind(temporary) == []


@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: int) -> None:
    with start(tmp_path) as demo:
        assert demo.stdout is not None
        said = []
        for line in demo.stdout:
            said.append(line)
            if "starting the daemon and Spark" in line:
                break
        else:
            pytest.fail("".join(said))
        demo.send_signal(number)
        rest, _ = demo.communicate(timeout=90)
    assert (demo.returncode, "interrupted" in rest) == (1, True), rest
    assert left_behind(tmp_path) == []


def test_the_processes_of_a_session_are_found_in_all_process_groups() -> None:
    program = "import subprocess; print(subprocess.Popen(['sleep', '100'], process_group=0).pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        try:
            assert sorted(of_session(leader.pid)) == sorted((leader.pid, child))
        finally:
            os.kill(child, signal.SIGKILL)
            leader.communicate("done\n")
    assert of_session(leader.pid) == []


@pytest.mark.parametrize("arguments", [("--seconds", "x"), ("--target", "/proc"), ("--what",)])
def test_invalid_arguments_are_reported_at_once(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with start(tmp_path, *arguments) as demo:
        said, _ = demo.communicate(timeout=60)
    assert demo.returncode == 2 and "error:" in said


def test_an_interrupt_waits_until_the_pid_is_recorded() -> None:
    interrupts = Interrupts()
    before = {number: signal.getsignal(number) for number in Interrupts.SIGNALS}
    known = False
    try:
        interrupts.install()
        with pytest.raises(KeyboardInterrupt), interrupts.held():  # noqa: PT012 - it is raised at the end
            os.kill(os.getpid(), signal.SIGTERM)
            known = True
        assert known
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
