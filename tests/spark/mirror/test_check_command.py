"""`binlog-mirror check`: the masked columns, the log that has their values, and what `run` would fail at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.check_command import RETRY_S, check_mirror
from spark_sink.mirror.values.settings import MirrorSettings
from spark_sink.source.http.client import ConsumerClient

MASKS = {"shop.users": {"mask": {"email": "sha256"}}, "shop.o*": {"mask": {"note": "null"}}}


def settings(target: Path, **more: Any) -> MirrorSettings:
    values = {"url": "http://127.0.0.1:8085", "target": str(target), "consumers": ["shop"]}
    return MirrorSettings.model_validate(values | more)


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> list[BinlogError]:
    """A daemon that has the consumer, or answers with the errors of the list."""
    errors: list[BinlogError] = []

    def answer(client: ConsumerClient, *_arguments: object, **_options: object) -> None:
        assert client._endpoint.retry_timeout_s == RETRY_S
        if errors:
            raise errors.pop()

    monkeypatch.setattr(ConsumerClient, "open_session", answer)
    return errors


def test_it_says_where_the_values_of_masked_columns_are(tmp_path: Path) -> None:
    found = check_mirror(settings(tmp_path, tables=MASKS))
    assert found.masked == ["shop.users.email (sha256)", "shop.o*.note (null)"]
    unchecked, warning = found.warnings
    assert "the columns that mask names were not compared with the tables" in unchecked
    assert f"{tmp_path}/_binlog/log has the values of masked columns" in warning
    assert "for 7 days" in warning
    assert "set log_days: 1, encrypt the storage (docs/masks.md)" in warning
    assert found.errors == []


@pytest.mark.parametrize(("mode", "told"), [(0o755, True), (0o700, False)])
def test_a_log_that_others_can_read_is_named(tmp_path: Path, mode: int, told: bool) -> None:
    folder = tmp_path / "_binlog" / "log"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    *_, warning = check_mirror(settings(tmp_path, tables=MASKS, log_days=1)).warnings
    assert ("chmod go=" in warning) is told
    assert "set log_days" not in warning


def test_it_names_what_cannot_be_reached(tmp_path: Path, daemon: list[BinlogError]) -> None:
    daemon.append(BinlogError(ErrorKind.CONNECT_FAILED, "no answer"))
    copy = {"mysql": "repl@127.0.0.1:1", "password": "x"}
    found = check_mirror(settings(tmp_path, copy=copy))
    of_daemon, of_server = found.errors
    assert "no answer" in of_daemon
    assert of_server.startswith("copy: ")
    assert found.warnings == found.masked == []
