"""A step of the images' builds: compile the kernels of the daemon, or of `mirror`, into $NUMBA_CACHE_DIR.

numba uses a cached kernel only if the source file has the same modification time as when the kernel was compiled. A
container engine stores only whole seconds of this time in a layer, so this step first removes the fractions of a
second. Compiled Python files stay valid, because they record whole seconds.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def cut_fractions(folder: Path) -> None:
    """Set the modification times of all Python files to whole seconds."""
    for path in folder.rglob("*.py"):
        seconds = int(path.stat().st_mtime)
        os.utime(path, (seconds, seconds))


def main(image: str) -> None:
    for package in ("dispatcher", "spark_sink"):
        spec = find_spec(package)
        assert spec is not None and spec.origin is not None, f"{package} is not installed"
        cut_fractions(Path(spec.origin).parent)
    # Import these modules only after the modification times are set, because `dispatcher.binlog.kernel.jit` computes
    # the name of the cache's folder from these times.
    if image == "mirror":
        from spark_sink.kernels import load_kernels as load_decoding_kernels  # noqa: PLC0415

        load_decoding_kernels()
    else:
        from dispatcher.cli.compile import compile_kernels  # noqa: PLC0415

        assert compile_kernels(), "numba has no folder for the kernels"


if __name__ == "__main__":
    main(sys.argv[1])
