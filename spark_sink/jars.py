"""Fetches Delta Lake's jars for the installed Spark, and the jars of Spark's connector to S3, by their Maven
coordinates.

As in `delta.pip_utils`, this module derives the coordinates from the installed Python packages: the version of the
artefact is the version of `delta-spark`, and the version of `pyspark` determines the line of Spark in the artefact's
name. A line consists of all versions with the same first two numbers. (The artefact of Delta 4.0 is for Spark 4.0 and
names no line.) `delta.pip_utils` sets `spark.jars.packages`. This setting has four disadvantages: Spark resolves the
jars at each start, ignores the mirrors and proxies of Maven's settings.xml, fails if ~/.m2 contains descriptions of
artefacts without their jars, and leaves no files that an image could contain. So this module fetches the jars once,
with `mvn`, into a cache folder. If `mvn` is not installed or fails, the module uses the Ivy in Spark's own jars, which
needs only Java. Later starts need no network.

This module does not fetch jars that Spark itself contains: a second Hadoop or Scala on the class path would conflict
with the one in Spark.

    python -m spark_sink.jars        fetches missing jars, prints the value for `spark-submit --jars`
    python -m spark_sink.jars --s3   the same, with the jars for `s3a:` paths
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.cache import cache_dir, cached_folder
from spark_sink.long_work import long_work

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Spark's settings for Delta tables, besides the jars."""

_SCALA = "2.13"
_GROUP = "io.delta"
# Large groups of artefacts. Spark contains all their jars, so they are not downloaded. After the download, `_fetch`
# compares names and leaves out all other jars that Spark contains.
_SHIPPED_BY_SPARK = (
    "org.scala-lang",
    "org.apache.hadoop",
    "org.apache.parquet",
    "org.apache.logging.log4j",
    "org.roaringbitmap",
)
# For each version of Hadoop: the version of the AWS SDK with which it was built. The connector to S3 needs only three
# modules of the SDK; the bundle of all modules takes 600 MB.
_AWS_SDK = {"3.4.1": "2.24.6", "3.4.2": "2.29.52", "3.5.0": "2.35.4"}
_HADOOP = "hadoop-client-api"
_AWS_MODULES = ("s3", "s3-transfer-manager", "sts")
_AWS_BUNDLE = ("software.amazon.awssdk", "bundle")
_NETTY = ("io.netty", "*")  # Spark has all Netty jars in a newer version
# The oldest usable line of Delta for each line of Spark. Delta 4.1 and 4.2 have artefacts for Spark 4.1, but need
# classes that Spark 4.1.4 lacks.
_OLDEST_DELTA = {"4.0": (4, 0), "4.1": (4, 3), "4.2": (4, 4)}
_UNNAMED_LINE = (4, 0)  # the line of Delta whose artefact does not name the line of Spark
_REMEDY = (
    "install Maven (`apt-get install maven`) or make Maven Central reachable; behind a mirror, configure it in"
    " Maven's settings.xml; or set `spark.jars` to jars of your own"
)


def delta_package() -> str:
    """Returns the coordinates "group:artifact:version" of Delta Lake for the installed pyspark and delta-spark.

    Raises BinlogError (SETTINGS) if there is no such artefact.
    """
    try:
        delta, spark = version("delta-spark"), version("pyspark")
    except PackageNotFoundError as error:
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"the Python package {error.name} is not installed",
            remedy="pip install 'binlog-dispatcher[spark]'",
        ) from error
    return delta_coordinates(spark, delta)


def delta_coordinates(spark: str, delta: str) -> str:
    """Returns the coordinates of Delta Lake for Spark. `spark`, `delta`: the versions of the Python packages.

    Raises BinlogError (SETTINGS) if there is no such artefact.
    """
    line = ".".join(spark.split(".")[:2])
    oldest = _OLDEST_DELTA.get(line)
    if oldest is None:
        raise BinlogError(
            ErrorKind.SETTINGS,
            f'there is no Delta Lake for Spark {spark}, and the mirror needs it; the source "binlog" works without it',
            remedy=f"run the mirror with pyspark {', '.join(_OLDEST_DELTA)}, or set spark.jars to jars of your own",
        )
    of_delta = tuple(int(number) for number in delta.split(".")[:2])
    if of_delta < oldest or (of_delta == _UNNAMED_LINE and line != "4.0"):
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"Delta Lake {delta} is not for Spark {spark}",
            remedy=f"install delta-spark {'.'.join(map(str, oldest))} or newer",
        )
    suffix = _SCALA if of_delta == _UNNAMED_LINE else f"{line}_{_SCALA}"
    return f"{_GROUP}:delta-spark_{suffix}:{delta}"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched together, and their dependencies, except those that Spark contains.

    `packages`: coordinates "group:artifact:version"; `left_out`: (group, artifact) of dependencies that the packages
    declare but do not need.
    """

    packages: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> str:
        """The name of the folder of these jars in the cache."""
        return self.packages[0].replace(":", "-")


def delta_jars(cache: Path | None = None) -> list[Path]:
    """Returns Delta Lake's jars. If the jars are missing in the folder `cache` (default: the user's cache folder),
    fetches them into this folder.

    Raises BinlogError (SETTINGS) with the failure of each way of fetching.
    """
    return _jars_of(JarSet((delta_package(),)), cache)


def s3_jars(cache: Path | None = None) -> list[Path]:
    """Returns the jars for `s3a:` paths, and fetches missing jars as `delta_jars` does. Returns an empty list if Spark
    itself has these jars."""
    shipped = list((_pyspark_home() / "jars").glob("hadoop-*.jar"))
    if any(_artifact(jar) == "hadoop-aws" for jar in shipped):
        return []
    (hadoop,) = (jar.stem.rsplit("-", 1)[1] for jar in shipped if _artifact(jar) == _HADOOP)
    if hadoop not in _AWS_SDK:
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"it is not known which AWS SDK the hadoop-aws of Hadoop {hadoop} needs",
            remedy=f"install a pyspark with Hadoop {', '.join(_AWS_SDK)}, or set spark.jars to jars of your own",
        )
    modules = (f"{_AWS_BUNDLE[0]}:{module}:{_AWS_SDK[hadoop]}" for module in _AWS_MODULES)
    packages = (f"org.apache.hadoop:hadoop-aws:{hadoop}", *modules)
    return _jars_of(JarSet(packages, (_AWS_BUNDLE, _NETTY)), cache)


def _jars_of(jars: JarSet, cache: Path | None) -> list[Path]:
    folder = cached_folder(
        (cache or cache_dir()) / "jars" / jars.folder, lambda staging: _fetch_shown(jars, staging)
    )
    return sorted(folder.glob("*.jar"))


def delta_settings(cache: Path | None = None, *, s3: bool = False) -> dict[str, str]:
    """Returns the Spark settings, by name, that a session needs to read and write Delta tables; `s3`: True for tables
    in S3."""
    jars = delta_jars(cache) + (s3_jars(cache) if s3 else [])
    return {"spark.jars": ",".join(map(str, jars))} | DELTA


def _fetch_shown(jars: JarSet, target: Path) -> None:
    """Fetch the jars, and show the progress on stderr, because the download takes a minute."""
    with long_work(f"fetching the jars of {jars.packages[0]}, once"):
        _fetch(jars, target)


def _fetch(jars: JarSet, target: Path) -> None:
    work = target / "work"
    failures = []
    for way in (_fetch_by_maven, _fetch_by_ivy):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        failure = way(jars, work)
        if failure is None:
            break
        failures.append(failure)
    else:
        reasons = "; ".join(failures)
        raise BinlogError(
            ErrorKind.SETTINGS, f"cannot fetch {jars.packages[0]}: {reasons}", remedy=_REMEDY
        )
    shipped = {_artifact(jar) for jar in (_pyspark_home() / "jars").glob("*.jar")}
    for jar in sorted((work / "jars").glob("*.jar")):
        if _artifact(jar) not in shipped:
            jar.rename(target / jar.name)
    shutil.rmtree(work)


def _artifact(jar: Path) -> str:
    """Returns the name without its version: "delta-storage" of "delta-storage-4.4.0.jar"."""
    return jar.stem.rsplit("-", 1)[0]


def _pyspark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BinlogError(ErrorKind.SETTINGS, "the Python package pyspark is not installed")
    return Path(spec.origin).parent


def _left_out(jars: JarSet) -> list[tuple[str, str]]:
    return [*((group, "*") for group in _SHIPPED_BY_SPARK), *jars.left_out]


def _fetch_by_maven(jars: JarSet, work: Path) -> str | None:
    """Fetch the jars with Maven. Returns the reason of a failure; None after success."""
    mvn = shutil.which("mvn")
    if mvn is None:
        return "mvn is not on PATH"
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        for group, artifact in _left_out(jars)
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{number}</version><exclusions>{exclusions}</exclusions></dependency>"
        for group, artifact, number in (package.split(":") for package in jars.packages)
    )
    pom = work / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
    return _run(
        [mvn, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
        + ["-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"]
    )


def _fetch_by_ivy(jars: JarSet, work: Path) -> str | None:
    """Fetch the jars with the Ivy in Spark's own jars, from Maven Central or the repositories of the user's ~/.ivy2
    settings. Returns the reason of a failure; None after success."""
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{java_home}/bin") if java_home else shutil.which("java")
    ivy = next(iter((_pyspark_home() / "jars").glob("ivy-*.jar")), None)
    if java is None or ivy is None:
        return "java is not on PATH" if java is None else "this pyspark brings no Ivy"
    dependencies = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{number}" conf="default->default">'
        f"{_ivy_exclusions(jars, artifact)}</dependency>"
        for group, artifact, number in (package.split(":") for package in jars.packages)
    )
    module = work / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="local" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>\n"
    )
    pattern = f"{work / 'jars'}/[artifact]-[revision].[ext]"
    settings = Path("~/.ivy2/ivysettings.xml").expanduser()
    return _run(
        [java, f"-Divy.default.ivy.user.dir={work / 'ivy'}", "-jar", str(ivy), "-warn"]
        + (["-settings", str(settings)] if settings.exists() else [])
        + ["-ivy", str(module), "-confs", "default", "-types", "jar", "bundle"]
        + ["-retrieve", pattern]
    )


def _ivy_exclusions(jars: JarSet, package: str) -> str:
    """Returns Ivy's exclusions, without `package`: unlike Maven, Ivy would otherwise exclude the package itself,
    too."""
    return "".join(
        f'<exclude org="{group}" module="{f"(?!{package}$).*" if artifact == "*" else artifact}" matcher="regexp"/>'
        for group, artifact in _left_out(jars)
    )


def _run(command: list[str]) -> str | None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    last_lines = [line for line in lines if line][-3:]
    return f"{Path(command[0]).name} ended with {done.returncode}: {' | '.join(last_lines)}"


def print_jars(arguments: Sequence[str]) -> int:
    if set(arguments) - {"--s3"}:
        print("usage: python -m spark_sink.jars [--s3]", file=sys.stderr)
        return 2
    try:
        jars = delta_jars() + (s3_jars() if arguments else [])
    except BinlogError as failure:
        print(failure, file=sys.stderr)
        return 1
    print(",".join(str(jar) for jar in jars))
    return 0


if __name__ == "__main__":
    sys.exit(print_jars(sys.argv[1:]))
