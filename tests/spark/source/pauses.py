"""A pause of the delivery, as an administrator begins it with `consumers pause`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fake_daemon import FakeDaemon


def pause(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let polls deliver nothing, and say that the delivery is paused, until `monkeypatch.undo`."""
    poll = daemon._poll

    def paused(body: dict[str, Any]) -> dict[str, Any]:
        nothing = {"end": body["after"], "bytes": 0, "transactions": 0, "paused": True}
        return poll(body | {"wait_ms": 0}) | nothing

    monkeypatch.setattr(daemon, "_poll", paused)
