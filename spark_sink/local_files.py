"""Spark's settings for local paths: Hadoop's local file system without other programs (`java/LocalFiles.java`).

The repository contains the compiled class, because a machine that runs Spark needs no Java compiler. After a change of
the source, `python -m deploy.local_files` compiles it, and writes a digest of the source into the jar.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).parent / "java" / "LocalFiles.java"
JAR = SOURCE.with_name("local-files.jar")
CLASS_PATH = (
    "spark.driver.extraClassPath"  # the JVM loads the class when it starts, before `spark.jars`
)
LOCAL_FILES = {
    CLASS_PATH: str(JAR),
    "spark.hadoop.fs.file.impl": "binlogdispatcher.LocalFiles$ForFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "binlogdispatcher.LocalFiles$ForFileContext",
}
"""For a Spark of which driver and executors are one process: other executors would not find the classes."""
