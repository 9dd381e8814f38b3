"""Lets a test kill one of Spark's processes at a named point. If the `PYTHONPATH` of a job contains this folder, Python
imports this module in every process of the job. The product does not refer to this module.

A test arms a point with a file of the point's name in the folder `KILL_FOLDER`. An armed point first disarms itself, so
that a restarted process passes the point.

    decoding         an executor's worker has decoded the first batch of a payload; the worker dies
    slice_written    an executor's worker has written a slice into the log's folder; the worker dies
    chunk_read       an executor's worker has read the first rows of a range of a copy; the worker dies

With `KILL_EXECUTOR`, the worker's executor also dies. If a worker's point is armed with `_slow` after its name, the
worker waits at this point until a second attempt of its task has also reached the point. With speculation, Spark starts
such a second attempt.

At all other points the driver and its JVM die:

    log_appended        a batch is in the log, and not acknowledged
    before_apply        a step of rows is about to be committed
    step_committed      a step of rows is committed: between two steps of a table, or between two tables
    quarantined         invalid values are in the quarantine, and their rows are not committed
    control_written     rows of the control table have been written
    inside_rename       one folder of a RENAME is moved aside
    copy_begun          the record contains the log's position at the beginning of a copy
    group_staged        a group of rows is in the copy
    copy_read           all rows are in the copy; the record does not say so yet
    before_swap_in      the record is about to say that the copy replaces the table
    folder_in_place     a folder has moved to its place
    file_moved          one of the files of a folder has moved, in an object store
    after_swap_in       the record says that the copy replaces the table
    iceberg_written     the manifests of an Iceberg snapshot are written, and the catalog does not have it yet
    iceberg_committed   the catalog has a new snapshot
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


def _pass(point: str) -> bool:
    """Returns True if this process has to die at the point. At most one of several processes gets True."""
    try:
        Path(os.environ["KILL_FOLDER"], point).unlink()
    except FileNotFoundError:
        return False
    return True


def _worker_passes(point: str) -> None:
    """Handle that a worker has reached the point. If a test has armed the point, the worker waits, or dies alone or
    with its executor."""
    if _pass(point):
        if os.environ.get("KILL_EXECUTOR"):
            # The worker was forked by Spark's Python daemon, which the executor has started.
            status = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
            os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    second = Path(os.environ["KILL_FOLDER"], f"{point}_second")
    if _pass(f"{point}_slow"):
        deadline = time.monotonic() + 600
        while not second.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    elif _attempt():
        second.touch()


def _attempt() -> int:
    from pyspark import TaskContext  # noqa: PLC0415 - only a worker of Spark's has it

    context = TaskContext.get()
    return 0 if context is None else int(context.attemptNumber())


def _in_worker() -> bool:
    """True in a Python worker of Spark's, false in the driver, which decodes small steps itself."""
    spec = sys.modules["__main__"].__spec__
    return spec is not None and spec.name.startswith("pyspark.")


def _patch_delivered(module: ModuleType) -> None:
    decode: Callable[..., Iterator[Any]] = module.decode_table

    def killing(*arguments: Any, **more: Any) -> Iterator[Any]:
        for batch in decode(*arguments, **more):
            yield batch
            if _in_worker():
                _worker_passes("decoding")

    vars(module)["decode_table"] = killing


def _die(point: str) -> None:
    if _pass(point):
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _between(owner: type, name: str, *, before: str = "", after: str = "") -> None:
    """Patch a method so that the driver dies at the points before and after a call."""
    original: Callable[..., Any] = getattr(owner, name)

    def killing(*arguments: Any, **more: Any) -> Any:
        if before:
            _die(before)
        result = original(*arguments, **more)
        if after:
            _die(after)
        return result

    setattr(owner, name, killing)


def _patch_log_slices(module: ModuleType) -> None:
    write: Callable[..., Iterator[Any]] = module.write_slices

    def killing(*arguments: Any) -> Iterator[Any]:
        for batch in write(*arguments):
            _worker_passes("slice_written")
            yield batch

    vars(module)["write_slices"] = killing


def _patch_chunk_reader(module: ModuleType) -> None:
    read: Callable[..., Iterator[Any]] = module.read_chunks

    def killing(*arguments: Any) -> Iterator[Any]:
        for batch in read(*arguments):
            _worker_passes("chunk_read")
            yield batch

    vars(module)["read_chunks"] = killing


def _patch_log(module: ModuleType) -> None:
    # A smaller limit, so that workers instead of the driver write some of the few rows of a test.
    vars(module)["DRIVER_BYTES_MAX"] = 100_000
    _between(module.LogAppender, "append", after="log_appended")


def _patch_steps(module: ModuleType) -> None:
    # Smaller limits, so that workers instead of the driver decode some of the few rows of a test.
    vars(module).update(DRIVER_BYTES_MAX=100_000, LOCAL_BYTES_MAX=100_000)
    _between(module.RowStep, "commit", before="before_apply", after="step_committed")


def _patch_quarantine(module: ModuleType) -> None:
    _between(module.Quarantine, "add", after="quarantined")


def _patch_control(module: ModuleType) -> None:
    write: Callable[..., Any] = module.ControlTable.write

    def killing(self: Any, records: Any, *arguments: Any) -> Any:
        written = list(records)
        begin = any(type(record.state).__name__ == "Copying" for record in written)
        sources = [record.move.source for record in written if record.move is not None]
        swap = any(source.startswith("_binlog/copies/") for source in sources)
        if swap:
            _die("before_swap_in")
        result = write(self, written, *arguments)
        _die("control_written")
        if begin:
            _die("copy_begun")
        if swap:
            _die("after_swap_in")
        return result

    vars(module)["ControlTable"].write = killing


def _patch_renames(module: ModuleType) -> None:
    for name in ("_aside", "_gather"):
        _between(module.FolderMover, name, after="inside_rename")
    for name in ("_into_place", "_arrive"):
        _between(module.FolderMover, name, after="folder_in_place")


def _patch_moved_files(module: ModuleType) -> None:
    move: Callable[..., None] = module._move_file

    def killing(*arguments: Any) -> None:
        move(*arguments)
        _die("file_moved")

    vars(module)["_move_file"] = killing


def _patch_staging(module: ModuleType) -> None:
    _between(module.StagingTable, "append", after="group_staged")


def _patch_copier(module: ModuleType) -> None:
    _between(module.Copier, "copy", after="copy_read")


def _patch_iceberg(module: ModuleType) -> None:
    from pyiceberg.table import CreateTableTransaction, Transaction  # noqa: PLC0415 - an extra

    for owner in (CreateTableTransaction, Transaction):
        _between(owner, "commit_transaction", before="iceberg_written", after="iceberg_committed")


_PATCHES = {
    "dispatcher.binlog.decode.delivered": _patch_delivered,
    "spark_sink.mirror.log.slices": _patch_log_slices,
    "spark_sink.mirror.log.append": _patch_log,
    "spark_sink.mirror.tables.steps": _patch_steps,
    "spark_sink.mirror.tables.quarantine": _patch_quarantine,
    "spark_sink.mirror.lake.control_table": _patch_control,
    "spark_sink.mirror.runtime.folder_mover": _patch_renames,
    "spark_sink.mirror.lake.moved_files": _patch_moved_files,
    "spark_sink.mirror.copy.chunk_reader": _patch_chunk_reader,
    "spark_sink.mirror.copy.staging": _patch_staging,
    "spark_sink.mirror.copy.copier": _patch_copier,
    "spark_sink.mirror.iceberg.catalog": _patch_iceberg,
}


class _Finder(MetaPathFinder):
    """Patches a module right after it is loaded, so that no module is imported only to be patched."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        patch = _PATCHES.pop(fullname, None)
        spec = importlib.util.find_spec(fullname) if patch else None
        if spec is None or spec.loader is None or patch is None:
            return None
        load = spec.loader.exec_module

        def load_and_patch(module: ModuleType) -> None:
            load(module)
            patch(module)

        vars(spec.loader)["exec_module"] = load_and_patch
        return spec


if os.environ.get("KILL_FOLDER"):
    sys.meta_path.insert(0, _Finder())
