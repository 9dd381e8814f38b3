"""`python -m tests.spark.lines provision`: install all lines of Spark, and fetch the jars of their Delta.

`python -m tests.spark.lines record [--spark 4.1 [--delta 4.1.0]] [--python PATH]`: run the contract with a line of
Spark (default: each), and write the versions that ran into `tried.json`. `--delta`: another delta-spark than that of
the lock file; `--python`: another Python, in which the packages of `requirements.lock` and this project are installed.

`python -m tests.spark.lines matrix`: write docs/spark-versions.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

from spark_sink.cache import cache_dir, cached_folder
from tests.spark.lines import matrix
from tests.spark.lines.installs import (
    LINES,
    ROOT,
    SparkLine,
    contract_command,
    environment,
    install,
    provision,
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.lines", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("provision", help="install all lines into the cache folder")
    record = commands.add_parser("record", help="run the contract, and write down what ran")
    record.add_argument("--spark", choices=[matrix.OWN.name, *LINES], help="default: each")
    record.add_argument("--delta", help="a version of delta-spark; default: that of the lock")
    record.add_argument("--python", default=sys.executable, help="default: this Python")
    commands.add_parser("matrix", help="write docs/spark-versions.md")
    options = parser.parse_args(arguments)
    if options.command == "provision":
        for line in LINES.values():
            provision(line)
        return 0
    failed = 0
    if options.command == "record":
        of_name = {matrix.OWN.name: matrix.OWN} | LINES
        chosen = [options.spark] if options.spark else list(of_name)
        failed = sum(_record(of_name[name], options.delta, options.python) for name in chosen)
    matrix.PAGE.write_text(matrix.text(), encoding="utf-8")
    return min(failed, 1)


def _record(line: SparkLine, delta: str | None, python: str) -> int:
    """Run the contract. Returns 1 if it failed."""
    folders = [] if line is matrix.OWN else [line.folder()]
    if delta is not None and delta != line.version("delta-spark"):
        package = f"delta-spark=={delta}"
        folder = cache_dir() / f"sparks/delta-spark-{delta}"
        folders.insert(0, cached_folder(folder, lambda staging: install(staging, package)))
    delta = delta or line.version("delta-spark")
    with tempfile.TemporaryDirectory(prefix="spark-lines-") as base:
        report = Path(base, "report.xml")
        command = contract_command(Path(base, "tests"), f"--junitxml={report}", python=python)
        done = subprocess.run(
            command, env=environment(*folders), cwd=ROOT, stdin=subprocess.DEVNULL, check=False
        )
        if done.returncode:
            return 1
        suite = ET.parse(report).getroot().find("testsuite")
        assert suite is not None
        passed = int(suite.attrib["tests"]) - int(suite.attrib["skipped"])
    version = "import sys; print('%d.%d' % sys.version_info[:2])"
    asked = subprocess.run([python, "-c", version], capture_output=True, text=True, check=True)
    spark = line.version("pyspark")
    assert spark is not None
    today = datetime.now(UTC).date().isoformat()
    matrix.add(matrix.Tried(spark, delta, asked.stdout.strip(), passed, today))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
