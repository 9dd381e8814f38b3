"""A step of the images' builds: compile the kernels of the daemon, or of `mirror`, into $NUMBA_CACHE_DIR.

The cache belongs to the sources as they are, by their time of change. Engines keep these times in whole seconds when
they store a layer, so the fractions are cut off first; compiled Python files, which know whole seconds, stay valid.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path


def cut_fractions(folder: Path) -> None:
    """Cut off the fractions of seconds of the times of change of all Python files."""
    for path in folder.rglob("*.py"):
        seconds = int(path.stat().st_mtime)
        os.utime(path, (seconds, seconds))


def inspect_each_type() -> None:
    """Show the binlog with one column of each type, from which the mirror's kernels are compiled too."""
    from dispatcher.inspect.command import Login, parse_options, run_inspection  # noqa: PLC0415

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
    # Imported only now: the name of the cache's folder follows from the times.
    if image == "mirror":
        from spark_sink.kernels import load_kernels as load_decoding_kernels  # noqa: PLC0415

        load_decoding_kernels()
    else:
        from dispatcher.binlog.stream.warmup import load_kernels  # noqa: PLC0415

        load_kernels()
        inspect_each_type()


if __name__ == "__main__":
    main(sys.argv[1])
