"""Segments on disk that are used like memory: counted, freed with their last view, removed with the process."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dispatcher.model.errors import Action, BinlogError, ErrorKind
from dispatcher.state.spill import Spill
from dispatcher.stream.segments import release_pages

MIB = 1 << 20
_LARGE = Path(__file__).with_name("large_transaction.py")


@pytest.fixture
def spill(tmp_path: Path) -> Spill:
    return Spill(tmp_path / "deep" / "spill", 10 * MIB)


def mappings(folder: Path) -> list[str]:
    """Returns the files of a folder that this process has mapped."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if str(folder) in line]


def resident_bytes() -> int:
    """Returns the resident bytes of this process that are mapped files."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    names = ("RssFile:", "RssShmem:")
    return 1024 * sum(int(li.split()[1]) for li in status.splitlines() if li.startswith(names))


def test_a_segment_is_written_and_read_like_memory(spill: Spill, tmp_path: Path) -> None:
    segment = spill.allocate(3 * MIB + 5)
    assert segment.flags.writeable and segment.dtype == np.uint8 and len(segment) == 3 * MIB + 5
    segment[:] = np.arange(len(segment), dtype=np.uint32).view(np.uint8)[: len(segment)]
    want = segment.tobytes()
    release_pages(segment)
    view = memoryview(segment)[MIB : 2 * MIB]  # type: ignore[arg-type]
    assert segment.tobytes() == want and view == want[MIB : 2 * MIB]
    release_pages(view)
    assert view == want[MIB : 2 * MIB]
    assert list((tmp_path / "deep" / "spill").iterdir()) == [], "a file has no name"


def test_the_last_view_frees_the_space(spill: Spill, tmp_path: Path) -> None:
    segment = spill.allocate(MIB)
    view = memoryview(segment)[5:10]  # type: ignore[arg-type]
    part = segment[100:][5:]
    del segment
    assert spill.bytes == MIB
    del view
    assert spill.bytes == MIB and len(mappings(tmp_path)) == 1
    del part
    assert spill.bytes == 0 and mappings(tmp_path) == []


def test_released_pages_are_not_resident(spill: Spill) -> None:
    before = resident_bytes()
    segment = spill.allocate(8 * MIB)
    segment[:] = 7
    assert resident_bytes() - before >= 7 * MIB
    release_pages(segment)
    assert resident_bytes() - before < MIB
    assert int(segment.sum(dtype=np.int64)) == 7 * 8 * MIB
    release_pages(memoryview(segment)[MIB:])  # type: ignore[arg-type]
    assert resident_bytes() - before < MIB


def test_releasing_pages_does_not_change_memory() -> None:
    memory = np.full(MIB, 3, dtype=np.uint8)
    release_pages(memory)
    release_pages(memoryview(memory)[5:])  # type: ignore[arg-type]
    release_pages(memoryview(b"bytes"))
    assert (memory == 3).all()


def test_no_more_than_the_limit_is_allocated(spill: Spill) -> None:
    first = spill.allocate(6 * MIB)
    with pytest.raises(BinlogError, match=r"max_bytes_in_spill") as info:
        spill.allocate(4 * MIB + 1)
    assert (info.value.kind, info.value.action) == (ErrorKind.SPILL, Action.OPERATOR)
    second = spill.allocate(4 * MIB)
    assert spill.bytes == len(first) + len(second)
    del first
    assert len(spill.allocate(6 * MIB)) == 6 * MIB


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limits files to 1 MiB; a larger one fails like a file on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("small_files")
def test_a_full_disk_is_refused_before_anything_is_written(spill: Spill) -> None:
    with pytest.raises(BinlogError, match="File too large for 2097152 more bytes") as info:
        spill.allocate(2 * MIB)
    assert info.value.kind is ErrorKind.SPILL and info.value.__cause__ is None
    assert spill.bytes == 0
    assert len(spill.allocate(MIB)) == MIB


def test_an_invalid_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BinlogError) as info:
        Spill(tmp_path / "file" / "spill", MIB)
    assert info.value.kind is ErrorKind.SPILL and str(tmp_path) in str(info.value)


def test_an_existing_folder_is_made_private(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill").chmod(0o755)
    Spill(tmp_path / "spill", MIB)
    assert (tmp_path / "spill").stat().st_mode & 0o777 == 0o700


def test_only_files_of_an_earlier_daemon_are_removed(tmp_path: Path) -> None:
    (tmp_path / "spill-abc").write_bytes(b"left")
    (tmp_path / "notes").write_bytes(b"mine")
    Spill(tmp_path, MIB)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


_DIES = """
import sys, signal, os
from pathlib import Path
from dispatcher.state.spill import Spill
spill = Spill(Path(sys.argv[1]), 1 << 24)
segment = spill.allocate(1 << 23)
segment[:] = 1
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_no_files(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", _DIES, str(tmp_path)], env=os.environ, check=False)
    assert died.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_a_large_transaction_in_little_memory(tmp_path: Path) -> None:
    """One transaction of 200 MB passes from the splitter through two queues of 1 MiB."""
    out = subprocess.run(
        [sys.executable, str(_LARGE), str(tmp_path), "2000"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    peak, held, _ = map(float, out.split())
    assert peak < 20 * MIB, f"{peak / MIB:.0f} MiB more than for 2 MB"
    assert held < 2 * MIB
