"""The settings that result from the options of the command line and a settings file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.cli import settings_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "mirror.yaml"
    file.write_text(
        "url: http://daemon:8085\nconsumers: [shop]\ntarget: /data\n"
        "spark:\n  conf: {spark.executor.memory: 4g, spark.executor.cores: '2'}\n",
        encoding="utf-8",
    )
    return file


def test_options_of_spark_are_added_to_those_of_the_file(file: Path) -> None:
    settings = settings_of([file], spark__conf=["spark.executor.memory=8g", "spark.a = b=c"])
    assert settings.spark.conf == {
        "spark.executor.memory": "8g",
        "spark.executor.cores": "2",
        "spark.a": "b=c",
    }
    assert settings_of([file], spark__conf=None).spark.conf["spark.executor.memory"] == "4g"


def test_an_option_of_spark_without_a_value_is_refused(file: Path) -> None:
    with pytest.raises(
        BinlogError, match=r"--conf: spark\.conf: write it like spark\.x=1, not 'x'"
    ):
        settings_of([file], spark__conf=["x"])
