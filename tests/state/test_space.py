"""The errors when the disk of the state is full, on a small file system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.faults.disk import SmallDisk

KIB = 1 << 10
_CODE = """
import sys
from pathlib import Path
from dispatcher.model.errors import BinlogError
from dispatcher.state.copies import dump_state
from dispatcher.state.space import full_disk
from dispatcher.state.spill import Spill
from dispatcher.state.store import StateStore

path = Path(sys.argv[1])
calls = {
    "open": lambda: StateStore(path).close(),
    "look": lambda: print(full_disk(path) or "", end=""),
    "dump": lambda: dump_state(path),
    "spill": lambda: Spill(path.with_name("spill"), 1 << 30).allocate(1 << 20),
    "limit": lambda: Spill(path.with_name("spill"), 1 << 10).allocate(1 << 20),
}
try:
    calls[sys.argv[2]]()
except BinlogError as error:
    print(error)
"""


def said(disk: SmallDisk, call: str) -> str:
    """Returns the error of a call that is made on the disk; "" if the call succeeded."""
    command = [*disk.within, sys.executable, "-c", _CODE, str(disk.folder / "state.db"), call]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(root)}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_is_named_and_never_a_traceback(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 512 * KIB) as disk:
        disk.fill()
        new = said(disk, "open")
        assert "cannot write state.db.lock: No space left on device" in new
        disk.free()
        assert said(disk, "open") == ""
        assert said(disk, "look") == ""
        disk.fill(but=4 * KIB)
        assert "database or disk is full (4096 bytes are free)" in said(disk, "look")
        for call in ("open", "dump"):  # SQLite says "disk I/O error"
            full = said(disk, call)
            assert full.startswith("state store: database or disk is full (disk I/O error, ")
            assert "; free space on the file system" in full and "free space" in new
        disk.free()
        assert said(disk, "open") == ""


def test_the_remedy_of_a_transaction_without_space_names_what_helps(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 512 * KIB) as disk:
        disk_full, limited = said(disk, "spill"), said(disk, "limit")
    assert "No space left on device for 1048576 more bytes" in disk_full
    assert "; free space for the whole transaction" in disk_full
    assert "max_bytes_in_spill" not in disk_full
    assert "do not fit into 1024" in limited and "; raise state.max_bytes_in_spill" in limited
    assert "free space" not in limited
