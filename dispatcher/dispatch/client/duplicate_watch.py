"""Detects another daemon that has the identity of this daemon and reads the same server at the same time.

A server may keep the connection of a process for a while after the process has ended. So this module reports a
connection only if it stays.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.dispatch.messages.effects import Effect, Note
from dispatcher.model.errors import BinlogError, ErrorKind

# This is longer than a server needs to notice that a process has ended: the server notices it at the next heartbeat.
CONFIRMED_S = 45.0


class DuplicateWatch:
    """`error`: the error if the last poll has shown another daemon with this identity, else None."""

    def __init__(self) -> None:
        self.error: BinlogError | None = None
        self._seen: dict[str, float] = {}  # the time at which each connection was first seen

    def compare(self, duplicates: Iterable[str], label: str, now: float) -> list[Effect]:
        """Compare the connections that a poll has found with those that earlier polls have found. `label`: the label of
        the client."""
        self._seen = {name: self._seen.get(name, now) for name in duplicates}
        lasting = [name for name, since in self._seen.items() if now - since >= CONFIRMED_S]
        before, self.error = self.error, None
        if lasting:
            self.error = BinlogError(
                ErrorKind.DUPLICATE_SERVER_UUID,
                f"another daemon with a copy of this state reads this server: {', '.join(lasting)}",
                where=label,
                remedy="stop the daemon at that address (ss -tnp there shows its process); if none runs there any more,"
                " end the connection on the server with KILL and its number",
            )
            return [Note("warning", "another daemon has this state", {"error": str(self.error)})]
        return [Note("info", "no other daemon has this state any more", {})] if before else []
