"""The daemons of tests/daemon."""

from __future__ import annotations

from tests.daemon.conftest import make_daemon, source

__all__ = ["make_daemon", "source"]
