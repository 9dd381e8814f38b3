"""Hadoop's local file system without other programs does what Hadoop's own local file system does."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from deploy.local_files import MANIFEST, manifest
from spark_sink.local_files import CLASS_PATH, JAR, LOCAL_FILES

OURS = {
    name.removeprefix("spark.hadoop."): value
    for name, value in LOCAL_FILES.items()
    if name != CLASS_PATH
}
HADOOPS = {
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs",
}
CHOICES = {"ours": OURS, "hadoop": HADOOPS}


def test_the_jar_is_that_of_the_source() -> None:
    with zipfile.ZipFile(JAR) as jar:
        found = jar.read(MANIFEST).decode()
    assert found == manifest(), "run `python -m deploy.local_files`"


@pytest.fixture(params=["ours", "hadoop"])
def conf(request: pytest.FixtureRequest, spark: SparkSession) -> Any:
    """Hadoop's settings with which both file systems of the scheme `file` are ours, or Hadoop's own."""
    jvm: Any = spark._jvm
    java: Any = spark._jsc
    conf = jvm.org.apache.hadoop.conf.Configuration(java.hadoopConfiguration())
    for name, value in CHOICES[request.param].items():
        conf.set(name, value)
    return conf


class Operations:
    """What tests do with a file system, through both of Hadoop's interfaces."""

    def __init__(self, spark: SparkSession, conf: Any) -> None:
        jvm: Any = spark._jvm
        self.jvm = jvm
        self._fs = jvm.org.apache.hadoop.fs
        uri = jvm.java.net.URI.create("file:///")
        self.context = self._fs.FileContext.getFileContext(uri, conf)
        self.system = self._fs.FileSystem.newInstance(uri, conf)
        self._gateway: Any = spark._sc._gateway

    def path(self, path: Path) -> Any:
        return self._fs.Path(str(path))

    def write(self, path: Path, text: str) -> None:
        stream = self.system.create(self.path(path), False)
        stream.write(bytearray(text.encode()))
        stream.close()

    def rename(self, source: Path, target: Path, *, over: bool) -> None:
        options = self._gateway.new_array(self._fs.Options.Rename, 1)
        kind = self._fs.Options.Rename
        options[0] = kind.OVERWRITE if over else kind.NONE
        self.context.rename(self.path(source), self.path(target), options)

    def allow(self, path: Path, mode: int) -> None:
        permission = self._fs.permission.FsPermission(self.jvm.Short.parseShort(str(mode)))
        self.context.setPermission(self.path(path), permission)


@pytest.fixture
def operations(spark: SparkSession, conf: Any) -> Operations:
    return Operations(spark, conf)


def test_the_classes_are_those_of_the_settings(operations: Operations, conf: Any) -> None:
    context = operations.context.getDefaultFileSystem().getClass().getName()
    assert context == conf.get("fs.AbstractFileSystem.file.impl")
    assert operations.system.getClass().getName() == conf.get("fs.file.impl")


def test_a_new_file_has_the_mode_of_the_umask_and_a_checksum(
    operations: Operations, tmp_path: Path
) -> None:
    operations.write(tmp_path / "new", "text")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o644
    assert (tmp_path / "new").read_text() == "text"
    assert (tmp_path / ".new.crc").exists()


def test_a_rename_replaces_a_file_only_if_it_may(operations: Operations, tmp_path: Path) -> None:
    for name in ("a", "b"):
        operations.write(tmp_path / name, name)
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        operations.rename(tmp_path / "a", tmp_path / "b", over=False)
    assert (tmp_path / "a").exists() and (tmp_path / "b").read_text() == "b"
    operations.rename(tmp_path / "a", tmp_path / "b", over=True)
    assert not (tmp_path / "a").exists() and (tmp_path / "b").read_text() == "a"
    operations.rename(tmp_path / "b", tmp_path / "c", over=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".c.crc", "c"]
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        operations.rename(tmp_path / "b", tmp_path / "d", over=False)


def test_a_link_is_a_link_and_names_its_target(operations: Operations, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name, target in (("link", "file"), ("dangling", "gone")):
        status = operations.context.getFileLinkStatus(operations.path(tmp_path / name))
        assert status.isSymlink() and str(status.getSymlink()).endswith(f"/{target}")
    status = operations.context.getFileLinkStatus(operations.path(tmp_path / "file"))
    assert not status.isSymlink() and status.getLen() == 1
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        operations.context.getFileLinkStatus(operations.path(tmp_path / "gone"))


def listed(operations: Operations, folder: Path) -> dict[str, tuple[object, ...]]:
    """Returns what a listing says of each file."""
    found = operations.system.listStatus(operations.path(folder))
    return {
        str(one.getPath().toString()): (
            one.getLen(), one.isDirectory(), one.isFile(), one.isSymlink(), one.getReplication(),
            one.getBlockSize(), one.getModificationTime(), one.getAccessTime(), one.getOwner(),
            one.getGroup(), one.getPermission().toString(),
        )
        for one in found
    }  # fmt: skip


def test_a_log_of_delta_is_listed_as_any_folder(operations: Operations, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("_delta_log", "other")]
    for folder in folders:
        (folder / "_staged").mkdir(parents=True)
        operations.write(folder / f"{7:020d}.json", "{}")
        (folder / ".hidden").write_text("")
        (folder / "link").symlink_to(folder / f"{7:020d}.json")
        for path in (folder, *folder.iterdir()):
            os.utime(path, (1_700_000_000, 1_700_000_000))
    ours, others = (listed(operations, folder) for folder in folders)
    assert [name.rsplit("/", 1)[1] for name in sorted(ours)] == [
        ".hidden", f"{7:020d}.json", "_staged", "link",
    ]  # fmt: skip
    assert {name.replace("_delta_log", "other"): facts for name, facts in ours.items()} == others
    (only,) = operations.system.listStatus(operations.path(folders[0] / f"{7:020d}.json"))
    assert only.getLen() == 2
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        operations.system.listStatus(operations.path(tmp_path / "none" / "_delta_log"))


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o777, 0o1777, 0o000])
def test_a_mode_is_set(operations: Operations, tmp_path: Path, mode: int) -> None:
    (tmp_path / "folder").mkdir()
    operations.allow(tmp_path / "folder", mode)
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == mode


def test_the_mirrors_session_has_these_classes(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    uri = jvm.java.net.URI.create("file:///")
    java: Any = spark._jsc
    system = jvm.org.apache.hadoop.fs.FileSystem.get(uri, java.hadoopConfiguration())
    assert system.getClass().getName() == OURS["fs.file.impl"]
