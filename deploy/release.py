"""Lists what the built archives contain, by folder, and checks that they contain nothing that does not belong there.
Also checks that the SBOMs (CycloneDX, in JSON) name each package of the images.

`make release` calls it after the build. Exit code 1 if an archive or an SBOM is missing, if an archive has a file that
it must not have, or if an SBOM does not list the packages of its lock.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

# What users and packagers of the source do not need: figures of this project's machines, and other archives.
_EXCLUDED = ("benchmarks/",)
_ARCHIVES = (".whl", ".gz", ".jar")
_FILE_BYTES_MAX = 1 << 20
_LOCKS = Path(__file__).parent
IMAGES = ("daemon", "spark")  # deploy/NAME.lock lists the packages of an image
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def contents(archive: Path) -> dict[str, int]:
    """Returns the size of each file in an sdist or a wheel, by its path without the sdist's own folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {item.filename: item.file_size for item in wheel.infolist()}
    with tarfile.open(archive) as sdist:
        return {m.name.partition("/")[2]: m.size for m in sdist.getmembers() if m.isfile()}


def misplaced(files: dict[str, int]) -> list[str]:
    """Returns a text for each file that does not belong into an archive: its name and the reason."""
    found = [f"{name}: benchmarks are not shipped" for name in files if name.startswith(_EXCLUDED)]
    found += [f"{name}: an archive" for name in files if name.endswith(_ARCHIVES)]
    large = {name: size for name, size in files.items() if size > _FILE_BYTES_MAX}
    return found + [f"{name}: {size:,} bytes" for name, size in large.items()]


def unlisted(image: str, sbom: str) -> list[str]:
    """Returns a text for each package that only the SBOM of an image, or only the lock of the image, lists."""
    pinned = set(_PIN.findall((_LOCKS / f"{image}.lock").read_text(encoding="utf-8")))
    listed = {(one["name"], one["version"]) for one in json.loads(sbom)["components"]}
    lacking = [f"{name} {version} is not listed" for name, version in sorted(pinned - listed)]
    return lacking + [
        f"{name} {version} is not in the lock" for name, version in sorted(listed - pinned)
    ]


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
    for image in IMAGES:
        sbom = folder / f"binlog-dispatcher-{image}.cdx.json"
        if not sbom.is_file():
            faults.append(f"{sbom.name}: is missing")
            continue
        text = sbom.read_text(encoding="utf-8")
        faults += [f"{sbom.name}: {fault}" for fault in unlisted(image, text)]
        print(f"{sbom.name}: {len(json.loads(text)['components'])} packages")
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
