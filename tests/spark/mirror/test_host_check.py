"""The checks of an executor's host, run on this host: a fault is reported with its place and remedy."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dispatcher.mysql.login import Endpoint
from spark_sink.mirror.cluster import host_check
from spark_sink.mirror.cluster.host_check import HostNeeds, check_hosts, host_fault, package_version
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.source.http.endpoint import DaemonEndpoint
from tests.support.fake_daemon import fake_daemon

NOTHING = HostNeeds(package_version(), None, None, "shop", None)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_check, "_RETRY_S", 0.0)


def test_a_host_that_has_everything_has_no_fault(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    with fake_daemon() as daemon:
        needs = replace(NOTHING, mark=str(mark), daemon=DaemonEndpoint(daemon.url))
        numbers = iter([pa.RecordBatch.from_pydict({"id": [0]})])
        (answer,) = check_hosts(pickle.loads(pickle.dumps(needs)), numbers)
        assert daemon.session == 0  # no reader is fenced
    (row,) = answer.to_pylist()
    assert row.pop("host")
    assert row == {"what": "", "place": "", "remedy": ""}
    assert list(tmp_path.iterdir()) == [mark]


def test_another_version_is_a_fault() -> None:
    fault = host_fault(replace(NOTHING, version="0.0.1"))
    assert fault is not None
    assert f"has version {package_version()} of binlog-dispatcher, the driver's has 0.0.1" in str(
        fault
    )


def test_a_missing_folder_is_a_fault(tmp_path: Path) -> None:
    fault = host_fault(replace(NOTHING, mark=str(tmp_path / "target/_binlog/mark")))
    assert fault is not None and fault.what.startswith("an executor does not have the folder")


def test_a_folder_of_the_same_name_is_a_fault(tmp_path: Path) -> None:
    fault = host_fault(replace(NOTHING, mark=str(tmp_path / "mark")))
    assert fault is not None
    assert "of its own, which is not the driver's" in fault.what
    assert "one shared file system" in fault.remedy


def test_a_folder_that_cannot_be_written_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    mark = tmp_path / "mark"
    mark.touch()
    monkeypatch.setattr(Path, "touch", refuse)
    fault = host_fault(replace(NOTHING, mark=str(mark)))
    assert fault is not None and fault.what.endswith(f"write into {tmp_path}: Permission denied")


def test_a_daemon_that_is_not_reached_is_a_fault() -> None:
    daemon = DaemonEndpoint("http://127.0.0.1:1")
    fault = host_fault(replace(NOTHING, daemon=daemon))
    assert fault is not None
    assert (
        fault.what.startswith("the daemon does not answer: ")
        and "127.0.0.1 is each host itself" in fault.remedy
    )


def test_a_token_file_that_is_missing_is_a_fault(tmp_path: Path) -> None:
    daemon = DaemonEndpoint("http://127.0.0.1:1", token_file=str(tmp_path / "token"))
    fault = host_fault(replace(NOTHING, daemon=daemon))
    assert fault is not None
    assert str(tmp_path / "token") in fault.what and "every executor" in fault.remedy


def test_a_server_that_is_not_reached_is_a_fault_that_hides_the_password() -> None:
    server = CopyServer(Endpoint("127.0.0.1", 1, "copier", "the password of the copy"))
    needs = replace(NOTHING, server=server)
    fault = host_fault(needs)
    assert fault is not None and fault.where.startswith("copy.mysql, copier@127.0.0.1")
    assert "the password of the copy" not in f"{needs!r} {fault}"
