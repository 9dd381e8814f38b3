"""Options with which tests start Java. They turn off optimizing compilation, because in a process of one minute it
takes more time than it saves.

`python -m tests.support.java` writes an archive of Spark's loaded classes (class data sharing of the JVM) into
`.cache`. With the archive a JVM needs less CPU time to start. A JVM ignores the archive if it is missing, or was
written by another Java or for other jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyspark

_ROOT = Path(__file__).parents[2]
ARCHIVE = _ROOT / ".cache" / f"spark-{pyspark.__version__}.jsa"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Without -Xlog:disable a JVM that ignores the archive writes a message to stdout.
QUICK_JAVA = f'{_QUICK} -Xshare:auto "-XX:SharedArchiveFile={ARCHIVE}" -Xlog:disable'
# Queries of tests have few rows, so generated code saves no time.
QUICK_SPARK = ("spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN")


def _is_current() -> bool:
    jars = Path(pyspark.__file__).parent / "jars"
    newest = max(jar.stat().st_mtime for jar in jars.iterdir())
    return ARCHIVE.exists() and ARCHIVE.stat().st_mtime > newest


def _use_spark(folder: Path) -> None:
    """Run a session, Delta's commands, a stream and Python workers, so that the JVM loads their classes; then end the
    JVM."""
    from spark_sink.mirror.session import spark_session  # noqa: PLC0415 - after the environment is set
    from spark_sink.mirror.values.settings import MirrorSettings  # noqa: PLC0415

    conf = dict(setting.split("=", 1) for setting in QUICK_SPARK)
    conf["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    settings = MirrorSettings.model_validate(
        {
            "url": "http://127.0.0.1:1",
            "consumers": ["none"],
            "target": "/none",
            "spark": {"master": "local[2]", "conf": conf},
        }
    )
    spark = spark_session(settings)
    table = f"delta.`{folder / 'table'}`"
    rows = "SELECT id, CAST(id AS STRING) AS name FROM range({})"
    for statement in (
        f"CREATE TABLE {table} (id BIGINT, name STRING) USING delta",
        f"INSERT INTO {table} {rows.format(100)}",
        f"ALTER TABLE {table} ADD COLUMNS (more INT)",
        f"MERGE INTO {table} t USING ({rows.format(150)}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name"
        " WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)",
        f"DELETE FROM {table} WHERE id < 10",
        f"OPTIMIZE {table}",
    ):
        spark.sql(statement).collect()
    stream = spark.readStream.format("delta").load(str(folder / "table"))
    query = (
        stream.mapInArrow(lambda batches: batches, stream.schema)
        .writeStream.format("delta")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "copy"))
    )
    query.awaitTermination()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # the JVM writes the archive at its end


def main() -> None:
    if _is_current():
        return
    ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        written = Path(folder, "classes.jsa")
        os.environ["JDK_JAVA_OPTIONS"] = (
            f'{_QUICK} "-XX:ArchiveClassesAtExit={written}" -Xlog:disable'
        )
        _use_spark(Path(folder))
        if not written.exists():
            sys.exit("Java wrote no archive of classes")
        written.replace(ARCHIVE)


if __name__ == "__main__":
    main()
