"""The section mqtt: defaults, the url, secrets, topics, and settings that do not fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dispatcher.settings.load import load_settings
from dispatcher.settings.mqtt import MqttSettings
from dispatcher.yaml_settings.validation import SettingsError, parse_section


def parsed(**values: Any) -> MqttSettings:
    return parse_section(MqttSettings, {"name": "d1", **values}, "test")


def test_the_defaults() -> None:
    settings = parsed(url="mqtt://broker")
    assert (settings.url.host, settings.url.port, settings.url.tls) == ("broker", 1883, False)
    assert (settings.prefix, settings.identifier) == (
        "binlog-dispatcher/d1",
        "binlog-dispatcher-d1",
    )
    assert (settings.qos, settings.protocol, settings.secret) == (1, "5", None)
    assert parse_section(MqttSettings, {"url": "mqtt://b"}, "test").name  # the name of the host


def test_the_url() -> None:
    assert str(parsed(url="mqtts://[::1]:9").url) == "mqtts://[::1]:9"
    assert parsed(url="mqtts://broker/").url.port == 8883
    assert parsed(url="mqtt://b", protocol=5).protocol == "5"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"url": "tcp://broker"}, "expected mqtt://host:port, or mqtts://host:port for TLS"),
        ({"url": "mqtt://u:secret@broker"}, "must not contain a user or password"),
        ({"url": "mqtt://b", "password": "x"}, "a password needs user"),
        ({"url": "mqtt://b", "tls": {}}, "tls needs a url that begins with mqtts://"),
        ({"url": "mqtt://b", "topic_prefix": "a/#"}, "must not contain '+', '#'"),
        ({"url": "mqtt://b", "topic_prefix": "/a"}, "nor contain an empty level"),
        ({"url": "mqtt://b", "topic_prefix": "{host}"}, "the only variable is {name}"),
        ({"url": "mqtt://b", "protocol": "4"}, "must be '5' or '3.1.1'"),
        ({"url": "mqtt://b", "qos": 3}, "less than or equal to 2"),
        ({"url": "mqtt://b", "name": "a/b"}, "pattern"),
    ],
)
def test_what_does_not_fit(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parsed(**values)
    assert message in str(raised.value) and "secret" not in str(raised.value)


def test_the_password_is_a_secret_and_goes_over_the_network_with_tls_only(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("geheim\n", encoding="utf-8")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "d.yaml").write_text(
        "consumers: {a: {mysql: r@db, password: p, databases: [d]}}\n"
        "mqtt: {url: 'mqtt://broker', user: u, password_file: secret}\n",
        encoding="utf-8",
    )
    (tmp_path / "d.yaml").chmod(0o600)
    settings = load_settings([tmp_path / "d.yaml"], environment={})
    assert settings.secrets() == ("p", "geheim")
    assert "geheim" not in repr(settings)
    assert any("goes to mqtt://broker:1883 unencrypted" in line for line in settings.warnings)


def test_commits_need_a_broker(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text(
        "consumers:\n  a: {mysql: r@db, password: p, databases: [d], mqtt: {commits: true}}\n",
        encoding="utf-8",
    )
    with pytest.raises(SettingsError, match="set the section mqtt with the broker's url"):
        load_settings([tmp_path / "d.yaml"], environment={})
