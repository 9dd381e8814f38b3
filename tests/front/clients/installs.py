"""Downloads the libraries of clients from PyPI, npm and Maven Central into the cache. It uses the ordinary package
clients, and downloads each library once.

It compiles Java programs with Eclipse's compiler, which is a jar, because the machine's Java may have no compiler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from spark_sink.cache import cache_dir, cached_folder
from spark_sink.jars import JarSet, _fetch_by_ivy, _fetch_by_maven
from tests.servers.tools import ServerUnavailable, run

PROGRAMS = Path(__file__).parent / "programs"
_COMPILER = "org.eclipse.jdt:ecj:3.39.0"
_JAVA = "17"
# Options for a JVM that runs only some seconds: optimizing compilation would take more time than it saves.
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx1g", "-Xshare:auto")


def _folder(name: str, what: str, make: Callable[[Path], None]) -> Path:
    digest = hashlib.blake2b(what.encode(), digest_size=4).hexdigest()
    return cached_folder(cache_dir() / "clients" / f"{name}-{digest}", make)


def python_with(*requirements: str) -> str:
    """Returns the Python of a virtual environment that has these packages, and nothing of this project."""

    def make(staging: Path) -> None:
        venv.create(staging, with_pip=False, symlinks=True)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(staging / "bin/python"),
            "install",
            "-q",
        ]
        run([*pip, *requirements], what=f"install {requirements[0]}")

    name = requirements[0].partition("==")[0]
    folder = _folder(name, f"{sys.version_info[:2]} {requirements}", make)
    return str(folder / "bin/python")


def node_modules(*packages: str) -> Path:
    """Returns the folder `node_modules` with these npm packages."""

    def make(staging: Path) -> None:
        if shutil.which("npm") is None:
            raise ServerUnavailable("npm is needed: `deploy/setup.sh npm`")
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
        run(
            ["npm", "install", *options, "--prefix", str(staging), *packages],
            what=f"install {packages[0]}",
        )

    return _folder("npm", repr(packages), make) / "node_modules"


def java_program(name: str, *packages: str) -> list[str]:
    """Returns the command that runs `programs/<name>.java` with these Maven packages and their dependencies."""
    source = PROGRAMS / f"{name}.java"
    text = source.read_text(encoding="utf-8")
    jars = _jars(*packages)

    def compile_(staging: Path) -> None:
        (compiler,) = _jars(_COMPILER).glob("ecj-*.jar")
        options = ["--release", _JAVA, "-nowarn", "-cp", _class_path(jars), "-d", str(staging)]
        run([_java(), "-jar", str(compiler), *options, str(source)], what=f"compile {source.name}")

    classes = _folder(name, f"{packages} {text}", compile_)
    return [_java(), *_QUICK, "-cp", f"{classes}:{_class_path(jars)}", name]


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise ServerUnavailable("Java 17 or newer is needed: `deploy/setup.sh java`")
    return found


def _class_path(jars: Path) -> str:
    return ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))


def _jars(*packages: str) -> Path:
    """Returns a folder with the jars of these packages, fetched by Maven, or by Ivy if there is no Maven."""

    def make(staging: Path) -> None:
        failures = []
        for way in (_fetch_by_maven, _fetch_by_ivy):
            work = staging / "work"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            failure = way(JarSet(packages), work)
            if failure is None:
                for jar in (work / "jars").glob("*.jar"):
                    jar.rename(staging / jar.name)
                shutil.rmtree(work)
                return
            failures.append(failure)
        raise ServerUnavailable(f"cannot fetch {packages[0]}: {'; '.join(failures)}")

    return _folder(packages[0].split(":")[1], repr(packages), make)
