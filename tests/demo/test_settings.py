"""The daemons and the mirror job accept the settings that the demo writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.demo.settings import (
    CONSUMERS,
    MIRRORED,
    daemon_settings,
    mirror_settings,
    state_in_database,
    state_in_file,
)
from dispatcher.settings.load import load_settings
from dispatcher.settings.model import Settings
from spark_sink.mirror.values.settings import load_mirror_settings

PASSWORD = {"DEMO_PASSWORD": "secret"}


def loaded(file: Path, port: int, state: str) -> Settings:
    file.write_text(daemon_settings(3306, port, port + 1000, state))
    return load_settings([file], environment=PASSWORD)


def test_the_daemon_accepts_the_settings(tmp_path: Path) -> None:
    given = loaded(tmp_path / "dispatcher.yaml", 8085, state_in_file(tmp_path / "state.db"))
    assert list(given.consumers) == [declared.name for declared in CONSUMERS]
    for declared in CONSUMERS:
        consumer = given.consumers[declared.name]
        assert consumer.max_bytes_in_binlog_queue == declared.queue_bytes_max
        assert (consumer.use_binlog_client, consumer.start.at) == (declared.shared, "earliest")
    assert (given.state.mysql, given.state.path) == (None, tmp_path / "state.db")
    assert given.front is not None and str(given.front.listen) == "127.0.0.1:9085"


def test_two_daemons_share_the_database_of_their_state(tmp_path: Path) -> None:
    a, b = (
        loaded(tmp_path / f"{name}.yaml", port, state_in_database(3307, tmp_path / name))
        for name, port in (("a", 8085), ("b", 8086))
    )
    assert a.consumers == b.consumers
    assert str(a.state.mysql) == str(b.state.mysql) == "dispatcher@127.0.0.1:3307/binlog_dispatcher"
    assert a.state.secret == "secret"
    assert a.state.spill_path != b.state.spill_path
    assert (a.api.address, b.api.address) == ("http://127.0.0.1:8085", "http://127.0.0.1:8086")


@pytest.mark.parametrize(
    ("ports", "url"),
    [
        ([8085], "http://127.0.0.1:8085"),
        ([8085, 8086], "http://127.0.0.1:8085,http://127.0.0.1:8086"),
    ],
)
def test_the_mirror_accepts_the_settings(tmp_path: Path, ports: list[int], url: str) -> None:
    file = tmp_path / "mirror.yaml"
    file.write_text(mirror_settings(3306, ports, 9464, tmp_path / "delta"))
    given = load_mirror_settings([file], {}, PASSWORD)
    assert given.url == url
    assert tuple(given.consumers) == MIRRORED
    assert given.copy_from is not None and given.copy_from.secret == "secret"
