"""The memory that the daemon releases before its event loop runs."""

from __future__ import annotations

import subprocess
import sys

from dispatcher.runtime.process import unchanged_mappings

MIB = 1 << 20

# This program loads the kernels, releases the compiler, runs a loaded kernel, and compiles another kernel.
_PROGRAM = """
from pathlib import Path
import numba
import numpy as np
from dispatcher.binlog.event.transaction_payload import whole_events
from dispatcher.stream.warmup import load_kernels
from dispatcher.runtime.process import release_compiler

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

load_kernels()
before = resident()
release_compiler()
released = before - resident()
assert whole_events(np.frombuffer(bytes(64), dtype=np.uint8))[0] == 0
assert numba.njit(lambda n: n * 3)(14) == 42
print(released)
"""

_SMAPS = """\
7f0000000000-7f0000100000 r--p 00000000 fe:00 123                        /a b/libllvmlite.so
Size:               1024 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
7f0000100000-7f0000300000 r-xp 00100000 fe:00 123                        /a b/libllvmlite.so
Anonymous:             0 kB
7f0000300000-7f0000380000 r--p 00300000 fe:00 123                        /a b/libllvmlite.so
Anonymous:           512 kB
7f0000380000-7f0000390000 rw-p 00380000 fe:00 123                        /a b/libllvmlite.so
Anonymous:             0 kB
7f0000390000-7f0000400000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000400000-7f0000500000 r-xp 00000000 fe:00 124                        /usr/lib/libc.so.6
Anonymous:             0 kB
"""


def test_only_unchanged_pages_of_the_library_are_given_back() -> None:
    found = list(unchanged_mappings(_SMAPS, "libllvmlite"))
    assert found == [(0x7F0000000000, MIB), (0x7F0000100000, 2 * MIB)]
    assert list(unchanged_mappings(_SMAPS, "libnone")) == []


def test_the_compiler_is_not_resident_and_still_works() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 32 * MIB
