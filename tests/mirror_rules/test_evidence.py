"""The command `evidence` finds the newest differences of a table in a local folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dispatcher.model.errors import UserError
from spark_sink.mirror.evidence import local_folder, newest_evidence


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for table_id, label, times in (("t1", "shop.a", "312"), ("t2", "shop.b", "5")):
        (tmp_path / table_id).mkdir()
        for at in times:
            text = json.dumps({"table": label, "at": at})
            (tmp_path / table_id / f"2026112{at}T120000.000000.json").write_text(text)
    return tmp_path


def times(texts: list[str]) -> list[str]:
    return [json.loads(text)["at"] for text in texts]


def test_the_newest_difference_of_each_table_that_fits_is_printed(folder: Path) -> None:
    assert times(newest_evidence(folder, ["shop.*"], 1)) == ["3", "5"]
    assert times(newest_evidence(folder, ["shop.a"], 2)) == ["2", "3"]


def test_a_table_without_a_difference_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no difference was found of a table that fits shop\.c"):
        newest_evidence(folder, ["shop.c"], 1)
    with pytest.raises(UserError, match="no difference"):
        newest_evidence(tmp_path / "absent", ["*"], 1)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/lake/a", Path("/lake/a/_binlog/evidence")),
        ("file:///lake/a%20b", Path("/lake/a b/_binlog/evidence")),
        ("s3a://bucket/lake", None),
    ],
)
def test_only_a_local_target_has_a_local_folder(target: str, path: Path | None) -> None:
    assert local_folder(target) == path
