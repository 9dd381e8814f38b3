"""A small disk that can be filled and freed while a daemon runs on it.

It is a tmpfs in a mount namespace of its own, which a helper process holds. No other process sees the mount, and
nothing remains when the helper dies. Where users may create namespaces, it needs no root. `within` runs a command on
the disk; other processes reach it through the helper's root.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

import pytest

_HOLD = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'


class SmallDisk:
    """`with SmallDisk(folder, size) as disk:` `folder` is the disk for commands that run `within`."""

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir()
        self.folder = folder
        namespaces = ["--mount"]
        if os.geteuid() != 0:
            namespaces += ["--user", "--map-root-user"]
        self._holder = subprocess.Popen(
            ["unshare", *namespaces, "sh", "-c", _HOLD, "hold", str(size), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if self._holder.stdout.readline() != b"mounted\n":
            said = self._holder.stderr.read().decode()
            self._end()
            pytest.skip(f"a file system of one's own cannot be mounted on this machine: {said}")
        within = ["nsenter", f"--target={self._holder.pid}", "--mount", f"--wd={folder.parent}"]
        if os.geteuid() != 0:
            within += ["--user", "--preserve-credentials"]
        self.within = tuple(within)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._holder.communicate(b"")
        assert self._holder.returncode is not None

    @property
    def seen(self) -> Path:
        """The disk's folder as other processes reach it."""
        return Path(f"/proc/{self._holder.pid}/root{self.folder}")

    def free_bytes(self) -> int:
        found = os.statvfs(self.seen)
        return found.f_bavail * found.f_frsize

    def fill(self, *, but: int = 0) -> None:
        """Leave this many bytes free, rounded to pages."""
        with (self.seen / "filler").open("wb", buffering=0) as filler:
            while (left := self.free_bytes() - but) > 0:
                filler.write(bytes(min(left, 1 << 20)))

    def free(self) -> None:
        (self.seen / "filler").unlink()
