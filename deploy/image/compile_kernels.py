"""A step of the images' builds: compile the kernels of the daemon, or of `mirror`, into $NUMBA_CACHE_DIR.

numba uses a cached kernel only if the source file has the same modification time as when the kernel was compiled. A
container engine stores only whole seconds of this time in a layer, so this step first removes the fractions of a
second. Compiled Python files stay valid, because they record whole seconds.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path


def cut_fractions(folder: Path) -> None:
    """Set the modification times of all Python files to whole seconds."""
    for path in folder.rglob("*.py"):
        seconds = int(path.stat().st_mtime)
        os.utime(path, (seconds, seconds))


def inspect_each_type() -> None:
    """Inspect the binlog with one column of each type, so that numba compiles the kernels that decode rows.

    The mirror's kernels are compiled from the same binlog.
    """
    from dispatcher.inspect.command import parse_options, run_inspection  # noqa: PLC0415
    from dispatcher.mysql.server_address import Login  # noqa: PLC0415

    spec = find_spec("spark_sink")
    assert spec is not None and spec.origin is not None
    sample = Path(spec.origin).with_name("kernels.binlog")
    options = parse_options(
        as_json=False, summary=False, hexdump=False, databases=(), tables=(), bounds=(None, None), invalid_dates="text"
    )  # fmt: skip
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        code = run_inspection([str(sample)], options, Login(), follow=False)
    assert code == 0, f"{sample} was not shown"


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
        from dispatcher.front.dump.warmup import load_dump_kernels  # noqa: PLC0415
        from dispatcher.stream.warmup import load_kernels  # noqa: PLC0415

        load_kernels()
        load_dump_kernels()
        inspect_each_type()


if __name__ == "__main__":
    main(sys.argv[1])
