"""The kinds of events of the daemon, of its connections and of its consumers. docs/mqtt.md describes each kind."""

from __future__ import annotations

from typing import Literal, get_args

LifecycleKind = Literal[
    "started", "stopped", "reloaded", "reload_failed", "leading", "standby", "lease_lost",
    "connected", "disconnected", "reconnected", "merged", "ended",
    "attached", "detached", "caught_up", "failed", "waiting", "gap", "moved", "removed",
]  # fmt: skip
LIFECYCLE_KINDS: tuple[LifecycleKind, ...] = get_args(LifecycleKind)
