"""The command `compile`: compiles all kernels of the program, when it is installed rather than at its first start."""

from __future__ import annotations

import os
from contextlib import redirect_stdout
from pathlib import Path

import typer

from dispatcher.cli.calls import EXIT_FAULT, errors_as_exit_codes
from dispatcher.cli.kernel_loads import load_with_progress, read_each_type
from dispatcher.terminal.output import say


def compile_command() -> None:
    """Compile the kernels, in one to three minutes.

    Example: binlog-dispatcher compile

    Without it, the first start of the daemon compiles. Run it as a user who may write into the installation, or set
    NUMBA_CACHE_DIR to one folder for this command and for the daemon. Spark's workers have kernels of their own:
    python -m spark_sink.kernels
    """
    with errors_as_exit_codes():
        done = compile_kernels()
    if not done:
        raise typer.Exit(EXIT_FAULT)


def compile_kernels() -> bool:
    """Compile what numba's cache lacks, and print the progress. Returns False if numba has no folder for kernels."""
    from dispatcher.binlog.kernel.jit import is_cached  # noqa: PLC0415
    from dispatcher.front.dump.warmup import load_dump_kernels  # noqa: PLC0415
    from dispatcher.inspect import command as _inspect  # noqa: F401, PLC0415 - so that its kernels are counted
    from dispatcher.library.warm import load_decoder  # noqa: PLC0415
    from dispatcher.stream.warmup import KERNEL_LOADS  # noqa: PLC0415

    if not is_cached():
        say(
            "numba has no folder for compiled kernels; set NUMBA_CACHE_DIR to a folder that you may write to",
            err=True,
        )
        return False
    loads = [inspect_each_type, read_each_type, *KERNEL_LOADS, load_dump_kernels, load_decoder]
    if not load_with_progress(loads):
        say("all kernels are compiled")
    return True


def inspect_each_type() -> None:
    """Inspect the sample binlog, which has one column of each type, so that numba compiles the kernels that decode
    rows.

    Raises RuntimeError if the binlog cannot be shown.
    """
    from dispatcher.binlog.kernel.sample import SAMPLE  # noqa: PLC0415
    from dispatcher.inspect.command import parse_options, run_inspection  # noqa: PLC0415
    from dispatcher.mysql.server_address import Login  # noqa: PLC0415

    for as_json in (False, True):
        options = parse_options(
            as_json=as_json, summary=False, hexdump=False, databases=(), tables=(), bounds=(None, None),
            invalid_dates="text",
        )  # fmt: skip
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            code = run_inspection([str(SAMPLE)], options, Login(), follow=False)
        if code != 0:
            raise RuntimeError(f"{SAMPLE} was not shown")
