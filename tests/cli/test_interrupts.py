"""Ctrl-C while a program loads, and while it compiles kernels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from dispatcher.terminal.interrupts import EXIT_INTERRUPTED, exit_at_interrupt
from tests.cli.program import DEADLINE_S, command, environment
from tests.daemon.harness import until

Handler = Callable[[int, FrameType | None], object] | signal.Handlers

# Runs a program in a Python that sends itself SIGINT when the program begins to import the named module.
_INTERRUPTED = """
import os, runpy, signal, sys
program, module = sys.argv.pop(1), sys.argv.pop(1)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
runpy.run_module(program, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("program", "module"),
    [
        ("dispatcher", "dispatcher.cli.commands"),
        ("dispatcher", "typer"),
        ("dispatcher", "dispatcher.settings.load"),  # `check` imports it
        ("spark_sink", "spark_sink.mirror.cli"),
        ("spark_sink", "spark_sink.mirror.values.settings"),
    ],
)
def test_an_interrupt_during_imports_ends_without_a_traceback(program: str, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, program, module, "check", "--config=/none"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "")


def test_a_process_with_other_handlers_keeps_them() -> None:
    def other(*_: object) -> None:
        pass

    handlers: tuple[Handler, ...] = (signal.SIG_IGN, other)
    for handler in handlers:
        with _handling(handler), exit_at_interrupt():
            assert signal.getsignal(signal.SIGINT) is handler
    with _handling(signal.default_int_handler):
        with exit_at_interrupt():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        seen: list[object] = []

        def elsewhere() -> None:
            with exit_at_interrupt():
                seen.append(signal.getsignal(signal.SIGINT))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert seen == [signal.default_int_handler]


@contextmanager
def _handling(handler: Handler) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("arguments", [["compile"], ["read", "files:."]])
@pytest.mark.parametrize("to_all", [False, True])
def test_an_interrupt_while_kernels_compile_ends_all_processes(
    tmp_path: Path, arguments: list[str], to_all: bool
) -> None:
    process = subprocess.Popen(
        command(*arguments),
        env=environment({"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}),
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("compiling kernels")
    if to_all:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    try:
        _, rest = process.communicate(timeout=DEADLINE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert (process.returncode, rest) == (EXIT_INTERRUPTED, "")

    def is_alone() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    until(is_alone, "all processes have ended")
