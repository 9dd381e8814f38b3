"""Spark finds the source in the installed module `pyspark_binlog_dispatcher`."""

from __future__ import annotations

import subprocess
import sys

# Prints the names of the sources that Spark finds, by Spark's own search in a separate process.
LOOKUP = """
import io
from pyspark.serializers import read_int
from pyspark.sql.worker.lookup_data_sources import _main
from pyspark.worker_util import pickleSer

out = io.BytesIO()
_main(io.BytesIO(), out)
out.seek(0)
for _ in range(read_int(out)):
    name = out.read(read_int(out)).decode()
    print(name, pickleSer._read_with_length(out).__module__)
"""


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_spark_is_told_of_it() -> None:
    done = run(LOOKUP)
    assert (done.returncode, done.stdout.split()) == (
        0,
        ["binlog", "spark_sink.source.data_source"],
    ), done.stderr


def test_importing_it_loads_nothing_and_asking_for_its_class_nothing_heavy() -> None:
    done = run(
        "import sys, pyspark_binlog_dispatcher as module\n"
        "assert not {'pyspark', 'spark_sink.source.data_source'} & set(sys.modules)\n"
        "assert module.DefaultSource.name() == 'binlog'\n"
        "heavy = {'numba', 'numpy', 'pyarrow', 'pydantic', 'dispatcher.settings', 'dispatcher.source'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    assert done.returncode == 0, done.stderr


def test_an_old_pyspark_does_not_break_the_other_sources() -> None:
    """If the import of one such module fails, Spark ignores all of them."""
    done = run(
        "import sys, pyspark_binlog_dispatcher as module\n"
        "sys.modules['pyspark.sql.streaming.datasource'] = None\n"
        "assert not hasattr(module, 'DefaultSource')\n"
    )
    assert done.returncode == 0, done.stderr
    assert 'the source "binlog" is not available' in done.stderr
