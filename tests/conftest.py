"""What all tests share: the fixtures for real servers."""

from __future__ import annotations

pytest_plugins = ["tests.servers.plugin"]
