"""Compile Hadoop's local file system without other programs (spark_sink/java/LocalFiles.java) into the jar beside it.

`python -m deploy.local_files` needs a JDK of Java 17 or newer, and the Python package pyspark.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from spark_sink.local_files import JAR, SOURCE

JAVA = "17"  # the oldest Java on which Spark 4 runs
MANIFEST = "META-INF/MANIFEST.MF"
_AT = (1980, 1, 1, 0, 0, 0)  # of each file in the jar, so that equal classes make equal jars


def manifest() -> str:
    """Returns the manifest, which contains the digest of the source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    return f"Manifest-Version: 1.0\nSource-SHA-256: {digest[:32]}\n\n"


def compile_into(folder: Path) -> None:
    """Compile the source. Raises `CalledProcessError`."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None, "pyspark is not installed"
    jars = Path(spec.origin).parent / "jars"
    command = ["javac", "--release", JAVA, "-cp", f"{jars}/*", "-d", str(folder), str(SOURCE)]
    subprocess.run(command, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name, zipfile.ZipFile(JAR, "w") as jar:
        compile_into(Path(name))
        jar.writestr(zipfile.ZipInfo(MANIFEST, _AT), manifest())
        for path in sorted(Path(name).rglob("*.class")):
            info = zipfile.ZipInfo(str(path.relative_to(name)), _AT)
            jar.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)
    print(JAR)


if __name__ == "__main__":
    main()
