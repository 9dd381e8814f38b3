"""The daemon tests' fixtures, for tests of what goes wrong."""

from __future__ import annotations

from tests.daemon.conftest import make_daemon, source

__all__ = ["make_daemon", "source"]
