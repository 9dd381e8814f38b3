"""The Spark session of the mirror job."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink import register
from spark_sink.jars import DELTA, delta_settings
from spark_sink.local_files import CLASS_PATH, LOCAL_FILES
from spark_sink.mirror.lake.delta_line import delta_line
from spark_sink.mirror.values.small_tables import SMALL_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.values.settings import MirrorSettings

_PYTHON = "spark.pyspark.python"  # a setting that only spark-submit reads
_JARS = "spark.jars"
_OWN_JARS = {_JARS, "spark.jars.packages", "spark.driver.extraClassPath"}
_NAME = {"spark.app.name": "binlog-dispatcher mirror"}


class SparkNotStarted(BinlogError):
    """The JVM has ended before Spark had started."""


def spark_session(settings: MirrorSettings) -> SparkSession:
    """Returns a session with the settings for small tables, in which the source "binlog" is registered.

    The settings of spark-submit and `spark.conf` override the settings of this module. This module sets `spark.jars`
    only if this process starts Spark itself. Raises `SparkNotStarted` SETTINGS if Spark does not start, and
    `BinlogError` SETTINGS if the mirror was never tested with the version of Delta Lake.
    """
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        given = _NAME | SMALL_TABLES | DELTA | _submitted() | settings.spark.conf
    else:
        given = _NAME | SMALL_TABLES | _standalone(settings) | settings.spark.conf
    for key, value in given.items():
        builder = builder.config(key, value)
    try:
        # Not in the main thread: there, Spark would replace the process's handler of SIGINT by one that raises
        # KeyboardInterrupt, and a KeyboardInterrupt during the start would leave a JVM that does not end.
        with ThreadPoolExecutor(1, "start of Spark") as starting:
            spark = starting.submit(builder.getOrCreate).result()
    except PySparkRuntimeError as error:
        raise SparkNotStarted(
            ErrorKind.SETTINGS,
            f"Spark does not start: {error.getMessage()}",
            remedy="install Java 17 or newer, on PATH or in JAVA_HOME",
        ) from None
    delta_line(spark)
    register(spark)
    return spark


def _submitted() -> dict[str, str]:
    """Returns the settings of spark-submit, from its command line and its file of defaults."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415

    SparkContext._ensure_initialized()  # noqa: SLF001 - only the JVM, which runs already, knows these options
    given = dict(SparkConf().getAll())
    if given.get("spark.app.name", "").endswith(".py"):  # the default of --name
        del given["spark.app.name"]
    return given


def _standalone(settings: MirrorSettings) -> dict[str, str]:
    """Returns the settings for a Spark that this process starts itself."""
    # The command with which Spark starts its Python workers. The default, python3, may be an interpreter without this
    # package.
    os.environ.setdefault("PYSPARK_PYTHON", settings.spark.conf.get(_PYTHON, sys.executable))
    master = settings.spark.master
    s3 = settings.target.startswith("s3a:") and not _OWN_JARS & settings.spark.conf.keys()
    given = DELTA if _JARS in settings.spark.conf else delta_settings(s3=s3)
    given = given | {"spark.master": master, "spark.ui.enabled": "false"}
    # Spark's default of 1 GiB is too small: the driver commits small steps itself, and with a local master it is the
    # executor, too.
    given["spark.driver.memory"] = settings.spark.driver_memory
    if master.startswith("local"):
        if CLASS_PATH not in settings.spark.conf:
            given |= LOCAL_FILES
        given |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if settings.log_level != "DEBUG":
        quiet = Path(__file__).with_name("log4j2.properties").as_uri()
        given |= {
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}",
            "spark.log.level": "FATAL",
            "spark.ui.showConsoleProgress": "false",
        }
    return given
