"""Which exceptions mean that a file is lost, and which mean that the storage is temporarily unavailable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.damage import MISSING, naming_damage, table_damage, why_lost


class LocalFiles:
    """Implements, without a JVM, the methods of `FileSystem` that the code uses."""

    def local(self, path: str) -> str:
        return path.removeprefix("file://")

    def read(self, path: str) -> str | None:
        file = Path(self.local(path))
        return file.read_text(encoding="utf-8") if file.exists() else None


SYSTEM: Any = LocalFiles()


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    file = tmp_path / "part-0.parquet"
    pq.write_table(pa.table({"id": list(range(1000))}), file)
    return file


def test_a_whole_file_is_not_lost(parquet: Path) -> None:
    assert why_lost(SYSTEM, str(parquet)) == ""


@pytest.mark.parametrize("size", [0, 3, 200])
def test_a_file_that_was_cut_is_lost(parquet: Path, size: int) -> None:
    parquet.write_bytes(parquet.read_bytes()[:size])
    assert "Parquet" in why_lost(SYSTEM, str(parquet))


def test_a_file_whose_pages_are_damaged_is_lost(parquet: Path) -> None:
    data = bytearray(parquet.read_bytes())
    data[4:200] = bytes(196)
    parquet.write_bytes(data)
    assert why_lost(SYSTEM, str(parquet))


def test_a_missing_file_is_lost(tmp_path: Path) -> None:
    assert why_lost(SYSTEM, str(tmp_path / "none.parquet")) == MISSING
    assert why_lost(SYSTEM, str(tmp_path / "none.json")) == MISSING


def test_a_commit_that_is_no_json_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "0.json"
    file.write_text('{"add": 1}\n{"remo', encoding="utf-8")
    assert why_lost(SYSTEM, str(file)).startswith("no JSON: ")
    file.write_text('{"add": 1}\n', encoding="utf-8")
    assert why_lost(SYSTEM, str(file)) == ""


@pytest.mark.parametrize(
    "text",
    [
        "x.DeltaIllegalStateException: [DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (11, 13) are not contiguous.",
        "x.DeltaIllegalStateException: [DELTA_MISSING_PART_FILES] Couldn't find all part files of 10",
        "java.lang.IllegalStateException: Could not find any delta files for version 4",
    ],
)
def test_deltas_own_words_for_a_log_that_has_a_hole_are_kept(text: str) -> None:
    said = table_damage(SYSTEM, RuntimeError(f"An error occurred\n: {text}\n\tat org.apache"))
    assert said
    assert said in text


def test_a_file_that_spark_could_not_read_is_read_again(parquet: Path) -> None:
    text = f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file://{parquet}.  SQLSTATE: KD001"
    assert table_damage(SYSTEM, RuntimeError(text)) == ""  # the storage answers again
    parquet.unlink()
    assert table_damage(SYSTEM, RuntimeError(text)) == f"file://{parquet}: {MISSING}"


def test_an_exception_of_another_kind_stays_as_it_is() -> None:
    with pytest.raises(OSError, match="timed out"), naming_damage(lambda: SYSTEM, "/t"):
        raise OSError("timed out")


def test_the_error_of_a_lost_file_names_the_table_and_the_remedy() -> None:
    with (
        pytest.raises(BinlogError, match="the Delta table at /t cannot be read: ") as caught,
        naming_damage(lambda: SYSTEM, "/t", "what to do"),
    ):
        raise RuntimeError("Could not find any delta files for version 4")
    assert (caught.value.kind, caught.value.remedy) == (ErrorKind.TARGET_FILES, "what to do")
