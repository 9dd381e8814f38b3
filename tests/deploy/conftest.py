"""The daemons of tests/daemon."""

from __future__ import annotations

from tests.daemon.conftest import make_daemon, make_pair, source, source_server, state_server

__all__ = ["make_daemon", "make_pair", "source", "source_server", "state_server"]
