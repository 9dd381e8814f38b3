"""Finds for `check` the faults that would make a start of the daemon fail: faults of the state's file, of its folder,
and of the folder of the spill files. To try a folder, the module creates a file, and removes it again. It changes
nothing else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.sizes import size_text
from dispatcher.settings.model import StateSettings
from dispatcher.state.copies import dump_state
from dispatcher.state.files import resolved
from dispatcher.state.lock import FileOwner, owner_of, refuse_hard_links
from dispatcher.state.private import FOLDER_MODE
from dispatcher.state.space import full_disk


@dataclass(frozen=True, slots=True)
class FilesReport:
    """`errors`: the reasons why a daemon cannot start with these files. `warnings`: one line each. `owner`: the process
    that has the file of the state open; None if there is none."""

    errors: tuple[BinlogError, ...] = ()
    warnings: tuple[str, ...] = ()
    owner: FileOwner | None = None


def examine_files(settings: StateSettings) -> FilesReport:
    """Examine the files of the state. If the state is in a database, examine only the folder of the spill files."""
    errors: list[BinlogError] = []
    owner = None
    if settings.mysql is None:
        try:
            path = resolved(settings.path)
            owner = owner_of(path)
            errors += _of_store(path)
        except BinlogError as error:
            errors.append(error)
    folder = settings.spill_folder
    refused = _try_folder(folder)
    if refused is not None and not errors:
        what = _refused(folder, refused)
        remedy = (
            "give the daemon's user write access to the folder, or set another state.spill_path"
        )
        errors.append(BinlogError(ErrorKind.SPILL, what, remedy=remedy))
    warnings = () if errors else tuple(_of_spill_space(folder, settings.max_bytes_in_spill))
    return FilesReport(tuple(errors), warnings, owner)


def _of_store(path: Path) -> Iterator[BinlogError]:
    """Yield what is wrong with the file and its folder. Raises BinlogError."""
    if path.is_dir():
        remedy = f"set state.path to a file, such as {path / 'state.db'}"
        what = "the path is a folder"
        raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy)
    if (error := _try_folder(path.parent)) is not None:
        what = _refused(path.parent, error)
        remedy = "give the daemon's user write access to the folder, or set another state.path"
        raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy)
    if path.exists():
        refuse_hard_links(path)
        if not os.access(path, os.R_OK | os.W_OK):
            remedy = (
                "run check as the daemon's user, or make the daemon's user the owner of the file"
            )
            what = "the file cannot be read and written by this user"
            raise BinlogError(ErrorKind.STATE_STORE, what, where=str(path), remedy=remedy)
        if path.stat().st_size:
            dump_state(path)
    if (full := full_disk(path)) is not None:
        yield full


def _try_folder(folder: Path) -> OSError | None:
    """Write a file into the folder, and create the folder for it if necessary. Returns the error."""
    made: list[Path] = []
    try:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(FOLDER_MODE)
            made.append(each)
        with tempfile.TemporaryFile(prefix="check-", dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        return error
    finally:
        for each in reversed(made):
            with suppress(OSError):  # a daemon that starts now uses the folder
                each.rmdir()
    return None


def _refused(folder: Path, error: OSError) -> str:
    try:
        there = folder.exists()
    except OSError:
        there = False
    if there:
        return f"cannot write to the folder {folder}: {error.strerror}"
    return f"cannot create the folder {folder}: {error.strerror}"


def _of_spill_space(folder: Path, bytes_max: int) -> Iterator[str]:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    found = os.statvfs(there)
    free = found.f_bavail * found.f_frsize
    if free < bytes_max:
        yield (
            f"state.max_bytes_in_spill: {size_text(bytes_max)}, but the file system of {folder} has {size_text(free)}"
            " free; make room or lower the limit: a consumer whose transaction does not fit stops until there is room"
        )
