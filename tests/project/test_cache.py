"""The cache folder, and Delta's jars that lie in it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError
from spark_sink import jars
from spark_sink.cache import cache_dir, cached_folder


def test_the_folder_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BINLOG_DISPATCHER_CACHE", str(tmp_path / "one"))
    assert cache_dir() == tmp_path / "one"
    monkeypatch.delenv("BINLOG_DISPATCHER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    assert cache_dir() == tmp_path / "two/binlog-dispatcher"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home/.cache/binlog-dispatcher"


def test_an_entry_is_made_once_however_many_ask(tmp_path: Path) -> None:
    made: list[Path] = []
    together = threading.Barrier(4)

    def make(staging: Path) -> None:
        made.append(staging)
        (staging / "file").write_text("complete")

    def ask(_: int) -> str:
        together.wait(10)
        return (cached_folder(tmp_path / "entry", make) / "file").read_text()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == ["complete"] * 4
    assert len(made) == 1


def test_an_entry_that_failed_is_not_there_and_is_made_afresh(tmp_path: Path) -> None:
    def fail(staging: Path) -> None:
        (staging / "half").touch()
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        cached_folder(tmp_path / "entry", fail)
    assert not (tmp_path / "entry").exists()
    made = cached_folder(tmp_path / "entry", lambda staging: (staging / "whole").touch())
    assert [path.name for path in made.iterdir()] == ["whole"]


def test_coordinates_follow_from_the_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"pyspark": "4.2.0", "delta-spark": "4.4.0"}
    monkeypatch.setattr(jars, "version", installed.__getitem__)
    assert jars.delta_package() == "io.delta:delta-spark_4.2_2.13:4.4.0"


@pytest.mark.parametrize(
    ("pyspark", "delta", "coordinates"),
    [
        ("4.0.5", "4.0.1", "io.delta:delta-spark_2.13:4.0.1"),
        ("4.0.5", "4.4.0", "io.delta:delta-spark_4.0_2.13:4.4.0"),
        ("4.1.4", "4.3.1", "io.delta:delta-spark_4.1_2.13:4.3.1"),
        ("4.2.0", "4.4.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_coordinates_of_each_line_of_spark(pyspark: str, delta: str, coordinates: str) -> None:
    assert jars.delta_coordinates(pyspark, delta) == coordinates


@pytest.mark.parametrize(
    ("pyspark", "delta", "what", "remedy"),
    [
        ("4.3.0", "4.4.0", "there is no Delta Lake for Spark 4.3.0", "pyspark 4.0, 4.1, 4.2"),
        ("4.1.4", "4.0.1", "Delta Lake 4.0.1 is not for Spark 4.1.4", "delta-spark 4.3 or newer"),
        ("4.2.0", "4.3.1", "Delta Lake 4.3.1 is not for Spark 4.2.0", "delta-spark 4.4 or newer"),
    ],
)
def test_a_spark_without_delta_is_named(pyspark: str, delta: str, what: str, remedy: str) -> None:
    with pytest.raises(BinlogError) as caught:
        jars.delta_coordinates(pyspark, delta)
    assert what in caught.value.what
    assert remedy in str(caught.value.remedy)


def test_jars_hold_delta_and_nothing_that_spark_ships() -> None:
    found = jars.delta_jars()
    names = {jar.name.rsplit("-", 1)[0] for jar in found}
    assert {"delta-spark_4.2_2.13", "delta-storage"} <= names
    assert not {"scala-library", "hadoop-client-api", "jackson-core", "slf4j-api"} & names
    assert all(jar.stat().st_size > 1000 for jar in found)


def test_jars_in_the_cache_need_no_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = jars.delta_jars()
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert jars.delta_jars() == expected
    assert jars.delta_settings()["spark.jars"] == ",".join(str(jar) for jar in expected)


@pytest.mark.parametrize(
    ("fetch", "package"),
    [
        (jars.delta_jars, "io.delta:delta-spark"),
        (jars.s3_jars, "org.apache.hadoop:hadoop-aws:3.5.0"),
    ],
)
def test_without_a_tool_the_error_says_what_to_do(
    fetch: Callable[[Path], list[Path]],
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(BinlogError) as caught:
        fetch(tmp_path)
    assert f"cannot fetch {package}" in caught.value.what
    assert "mvn is not on PATH; java is not on PATH" in caught.value.what
    assert "apt-get install maven" in caught.value.remedy
    assert list((tmp_path / "jars").glob("*[0-9]")) == []


def test_the_jars_of_s3_are_those_of_the_installed_hadoop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "pyspark"
    (home / "jars").mkdir(parents=True)
    monkeypatch.setattr(jars, "_pyspark_home", lambda: home)
    (home / "jars" / "hadoop-client-api-9.9.9.jar").touch()
    with pytest.raises(BinlogError, match=r"which AWS SDK the hadoop-aws of Hadoop 9\.9\.9 needs"):
        jars.s3_jars(tmp_path)
    (home / "jars" / "hadoop-aws-9.9.9.jar").touch()
    assert jars.s3_jars(tmp_path) == []  # Spark has the connector itself
