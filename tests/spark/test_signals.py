"""Signals to the commands that start Spark: they end without a traceback, and leave no JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.daemon.harness import until

TIMEOUT_S = 300.0
# Java's and Spark's own lines at their start.
_OF_SPARK = ("WARNING: Using incubator", "Setting ", "To adjust logging level")


@dataclass
class Command:
    """A process in a group of its own, which writes into a file."""

    process: subprocess.Popen[bytes]
    file: Path

    def lines(self) -> list[str]:
        lines = self.file.read_text(encoding="utf-8").splitlines()
        return [line for line in lines if not line.startswith(_OF_SPARK)]

    def until_jvm(self) -> None:
        """Wait until the process has a child: Spark's JVM, or the shell that becomes the JVM."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task")

        def has_child() -> bool:
            return any(task.joinpath("children").read_text() for task in children.iterdir())

        until(has_child, "the JVM starts", timeout_s=TIMEOUT_S)

    def until_says(self, text: str) -> None:
        until(lambda: any(text in line for line in self.lines()), text, timeout_s=TIMEOUT_S)

    def end(self, number: signal.Signals, *, to_all: bool) -> int:
        """Send a signal. Returns the exit code, after all processes of the group have ended."""
        send = os.killpg if to_all else os.kill
        send(self.process.pid, number)
        code = self.process.wait(TIMEOUT_S)

        def is_alone() -> bool:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, 0)
                return False
            return True

        until(is_alone, "the JVM has ended")
        text = "\n".join(self.lines())
        assert "Traceback" not in text and "Exception in thread" not in text, text
        assert "\tat " not in text, text
        return code


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Command]]:
    """The commands that a test has started; they are killed at its end."""
    commands: list[Command] = []
    yield commands
    for command in commands:
        with suppress(ProcessLookupError):
            os.killpg(command.process.pid, signal.SIGKILL)
        command.process.wait()


def start(started: list[Command], folder: Path, *arguments: str) -> Command:
    file = folder / "output"
    with file.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "spark_sink", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )
    started.append(Command(process, file))
    return started[-1]


pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("to_all", [False, True])
def test_a_job_whose_start_gets_a_signal_ends_with_0(
    started: list[Command], tmp_path: Path, number: signal.Signals, to_all: bool
) -> None:
    options = ("--url=http://127.0.0.1:1", "--consumer=shop", f"--target={tmp_path / 'target'}")
    job = start(started, tmp_path, "run", *options)
    job.until_jvm()
    assert job.end(number, to_all=to_all) == 0, job.lines()
    assert any(line.endswith("the job ends as soon as Spark has started") for line in job.lines())
    assert job.lines()[-1].endswith("the job has ended with exit code 0")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("to_all", [False, True])
def test_a_command_whose_start_gets_a_signal_ends_with_its_code(
    started: list[Command], tmp_path: Path, number: signal.Signals, to_all: bool
) -> None:
    command = start(started, tmp_path, "changelog", "shop.t", f"--target={tmp_path}")
    command.until_jvm()
    assert command.end(number, to_all=to_all) == 128 + number, command.lines()
    assert command.lines()[0] == "starting Spark ..."
    assert command.lines()[-1].startswith(("the command ends as soon", "starting Spark: "))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_uses_spark_ends_at_once(
    started: list[Command], tmp_path: Path, number: signal.Signals
) -> None:
    command = start(started, tmp_path, "tables", f"--target={tmp_path}")
    command.until_says("reading the tables of")
    assert command.end(number, to_all=False) == 128 + number, command.lines()


def test_an_interrupt_ends_top_with_0(started: list[Command], tmp_path: Path) -> None:
    command = start(started, tmp_path, "top", "--json", f"--target={tmp_path}")
    command.until_says("reading the tables of")
    assert command.end(signal.SIGINT, to_all=True) == 0, command.lines()
