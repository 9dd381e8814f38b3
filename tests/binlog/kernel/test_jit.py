"""Where compiled kernels are cached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dispatcher.binlog.kernel.jit import release_folder

_PROGRAM = """
import sys
import numpy as np
from dispatcher.binlog.kernel.bytes import little
print(little(np.frombuffer(b"\\x01\\x02", np.uint8), 0, 2), "numba.np.linalg" in sys.modules)
"""


def test_each_state_of_the_sources_has_a_folder_of_its_own(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    (sources / "event").mkdir(parents=True)
    module = sources / "event" / "header.py"
    module.write_text("HEADER_SIZE = 19\n")
    first = release_folder("/cache", sources)
    assert first.startswith("/cache/") and release_folder("/cache", sources) == first
    os.utime(module, (1, 1))
    second = release_folder("/cache", sources)
    (sources / "new.py").touch()
    assert len({first, second, release_folder("/cache", sources)}) == 3


def test_kernels_are_cached_below_the_folder_that_the_environment_names(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", _PROGRAM]
    # numba loads its support for numpy when it compiles a kernel, but not when it loads a compiled kernel.
    for answer in ("513 True\n", "513 False\n"):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        assert done.stdout == answer
    (release,) = tmp_path.iterdir()
    assert list(release.rglob("*.nbi"))
