"""The reference has every setting, with the models' description of it."""

from __future__ import annotations

import pytest

from deploy import settings_reference
from dispatcher.settings.reference import SettingReference, daemon_settings, format_size
from dispatcher.yaml_settings.values import parse_bytes

ROWS = {row.path: row for row in daemon_settings()}


def test_the_document_is_current() -> None:
    """Run `python -m deploy.settings_reference` after a change."""
    assert settings_reference.PATH.read_text(encoding="utf-8") == settings_reference.text()


def test_every_setting_has_a_meaning() -> None:
    rows = [*ROWS.values(), *settings_reference.of_mirror()]
    assert [row.path for row in rows if not row.meaning] == []


@pytest.mark.parametrize(
    ("path", "type_", "default", "unit", "limits"),
    [
        ("defaults.max_bytes_in_binlog_queue", "size", "64MiB", "bytes", ">= 1"),
        ("defaults.heartbeat_milliseconds", "number", "1000", "milliseconds", "100 to 3600000"),
        ("consumers.NAME.databases", "list of text", "required", "", ""),
        ("consumers.NAME.password_file", "file name", "", "", ""),
        ("consumers.NAME.start", "position", "latest", "", ""),
        ("api.tokens[].consumers", "`all` or list of text", "required", "", ""),
        ("api.max_bytes_in_request", "size", "1MiB", "bytes", "4KiB to 1GiB"),
        ("mqtt.url", "`mqtt://host:port`", "required", "", ""),
        ("webhook.url", "`https://host/path`", "required", "", ""),
    ],
)
def test_a_setting_is_described(
    path: str, type_: str, default: str, unit: str, limits: str
) -> None:
    assert ROWS[path] == SettingReference(path, type_, default, unit, limits, ROWS[path].meaning)


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1536, 64 * 2**20, 10 * 2**30, 2**40])
def test_a_size_is_read_as_it_is_written(size: int) -> None:
    assert parse_bytes(format_size(size)) == size
