"""Lists what the built archives contain, by folder, and checks that they contain nothing that does not belong there.

`make release` calls it after the build. Exit code 1 if an archive is missing or has a file that it must not have.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

# What users and packagers of the source do not need: figures of this project's machines, and other archives.
_EXCLUDED = ("benchmarks/",)
_ARCHIVES = (".whl", ".gz", ".jar")
_FILE_BYTES_MAX = 1 << 20


def contents(archive: Path) -> dict[str, int]:
    """Returns the size of each file in an sdist or a wheel, by its path without the sdist's own folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {item.filename: item.file_size for item in wheel.infolist()}
    with tarfile.open(archive) as sdist:
        return {m.name.partition("/")[2]: m.size for m in sdist.getmembers() if m.isfile()}


def misplaced(files: dict[str, int]) -> list[str]:
    """Returns why files do not belong into an archive, a text for each."""
    found = [f"{name}: benchmarks are not shipped" for name in files if name.startswith(_EXCLUDED)]
    found += [f"{name}: an archive" for name in files if name.endswith(_ARCHIVES)]
    large = {name: size for name, size in files.items() if size > _FILE_BYTES_MAX}
    return found + [f"{name}: {size:,} bytes" for name, size in large.items()]


def main(folder: Path) -> int:
    archives = sorted((*folder.glob("*.tar.gz"), *folder.glob("*.whl")))
    if len(archives) != 2:
        print(f"{folder} has not one sdist and one wheel", file=sys.stderr)
        return 1
    faults = []
    for archive in archives:
        files = contents(archive)
        faults += [f"{archive.name}: {fault}" for fault in misplaced(files)]
        counts: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for name, size in files.items():
            top = name.partition("/")[0]
            counts[top] += 1
            sizes[top] += size
        print(f"{archive.name}: {archive.stat().st_size:,} bytes, {len(files)} files")
        for top, size in sizes.most_common():
            print(f"  {top:44}{counts[top]:6} files{size:14,} bytes")
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
