"""Files and folders of any Hadoop file system. PySpark has only private interfaces for them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from dispatcher.model.errors import BinlogError, ErrorKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OBJECT_STORES = frozenset(
    ("s3", "s3a", "s3n", "gs", "oss", "obs", "cos", "cosn", "swift", "wasb", "wasbs", "dbfs")
)


class FileSystem:
    """Files and folders of any Hadoop file system, by path."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001
        java_session: Any = spark._jsparkSession  # noqa: SLF001
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        self._names: Any = jvm.org.apache.hadoop.fs.GlobFilter
        self._text: Any = jvm.org.apache.commons.io.IOUtils.toString
        self._conf: Any = java_session.sessionState().newHadoopConf()

    def qualified(self, path: str) -> str:
        """Returns a path as an absolute URI, with the scheme of its file system."""
        where = self._path(path)
        return str(where.getFileSystem(self._conf).makeQualified(where).toString())

    def exists(self, path: str) -> bool:
        where = self._path(path)
        return bool(where.getFileSystem(self._conf).exists(where))

    def names(self, path: str) -> list[str]:
        """Returns the names in a folder, sorted; an empty list if there is no such folder."""
        where = self._path(path)
        system = where.getFileSystem(self._conf)
        if not system.exists(where):
            return []
        return sorted(str(status.getPath().getName()) for status in system.listStatus(where))

    def names_before(self, path: str, before_ms: int) -> list[str]:
        """Returns the names of the files in a folder that were last modified before a time, in milliseconds since 1970;
        an empty list if there is no such folder."""
        where = self._path(path)
        system = where.getFileSystem(self._conf)
        if not system.exists(where):
            return []
        old = (s for s in system.listStatus(where) if int(s.getModificationTime()) < before_ms)
        return sorted(str(status.getPath().getName()) for status in old)

    def modified(self, path: str, pattern: str) -> dict[str, float]:
        """Returns, by name, when the files of a folder were last modified, s since 1970. `pattern`: a pattern of Hadoop
        for their names."""
        where = self._path(path)
        found = where.getFileSystem(self._conf).listStatus(where, self._names(pattern))
        return {str(s.getPath().getName()): int(s.getModificationTime()) / 1000 for s in found}

    def read(self, path: str) -> str | None:
        """Returns the text of a file, in UTF-8; None if there is no such file."""
        where = self._path(path)
        system = where.getFileSystem(self._conf)
        if not system.exists(where):
            return None
        stream = system.open(where)
        try:
            return str(self._text(stream, "UTF-8"))
        finally:
            stream.close()

    def local(self, path: str) -> str | None:
        """Returns the path by which this process opens a file; None if the file is not on a local file system."""
        where = self._path(path)
        if where.getFileSystem(self._conf).getScheme() != "file":
            return None
        return str(where.toUri().getPath())

    def fetch(self, path: str, folder: str) -> str:
        """Copy a file into a local folder. Returns the path of the copy."""
        where = self._path(path)
        copy = f"{folder}/{uuid.uuid4()}"
        system = where.getFileSystem(self._conf)
        system.copyToLocalFile(False, where, self._path(f"file://{copy}"), True)
        return copy

    def write(self, path: str, data: bytes) -> None:
        """Write a new file. Raises an error if the file exists."""
        if (local := self.local(path)) is not None:
            Path(local).parent.mkdir(parents=True, exist_ok=True)
            with Path(local).open("xb") as file:
                file.write(data)
            return
        where = self._path(path)
        stream = where.getFileSystem(self._conf).create(where, False)
        try:
            stream.write(data)
        finally:
            stream.close()

    def rename(self, old: str, new: str) -> None:
        """Rename the folder `old` to `new`, and create the parent folder of `new`. Raises `BinlogError` if the rename
        fails or `new` exists."""
        source, target = self._path(old), self._path(new)
        system = source.getFileSystem(self._conf)
        why = "the new folder exists"
        if not system.exists(target):
            system.mkdirs(target.getParent())
            try:
                if system.rename(source, target):
                    return
                why = "the file system refuses it"
            except Py4JJavaError as error:
                why = str(error.java_exception.getMessage())
        raise BinlogError(
            ErrorKind.INTERNAL,
            f"cannot rename the folder {old} to {new}: {why}",
            remedy="check that both folders can be written, and that nothing else writes into the target",
        )

    def moves_folders(self, path: str) -> bool:
        """True if the file system renames a folder with its content in one operation; False for object stores, which
        copy files."""
        where = self._path(path)
        return str(where.getFileSystem(self._conf).getScheme()) not in _OBJECT_STORES

    def files_below(self, path: str) -> list[str]:
        """Returns all files in and below a folder, as paths relative to this folder; an empty list if there is no such
        folder."""
        where = self._path(path)
        system = where.getFileSystem(self._conf)
        if not system.exists(where):
            return []
        names, files = [], system.listFiles(where, True)
        root = str(system.makeQualified(where).toString())
        while files.hasNext():
            names.append(str(files.next().getPath().toString())[len(root) + 1 :])
        return names

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content. A missing file or folder is no error."""
        where = self._path(path)
        where.getFileSystem(self._conf).delete(where, True)
