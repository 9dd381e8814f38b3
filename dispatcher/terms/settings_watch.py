"""Detects whether this standby, after a takeover, would serve consumers other than those of the present leader.

The leader stores digests of its settings in the state's database, and again after each reload that changes them. A
standby reads and compares them regularly.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from dispatcher.leadership.role import Role
from dispatcher.model.errors import BinlogError
from dispatcher.runtime.client.client_runner import Logger
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.settings.comparison import Digests, differences, digests_of
from dispatcher.settings.model import Settings

EVERY_S = 5.0
_SHOWN = 20  # log lines name at most this many differences
_REMEDY = "write the same settings for all daemons of this state, and reload or restart them"


class SettingsStore(Protocol):
    def write_leader_settings(self, digests: str) -> None:
        """Raises BinlogError."""


class SettingsWatch:
    """`differences`: see `comparison.differences`; None if this daemon leads, or does not know the leader's settings.
    `store`: the store of this daemon's term, None on a standby."""

    def __init__(
        self,
        read: Callable[[], tuple[int, str]],
        settings: Callable[[], Settings],
        role: Callable[[], Role | None],
        log: Logger,
    ) -> None:
        """`read`: reads the term and the digests of the leader's settings, in a thread; may raise BinlogError."""
        self.differences: Mapping[str, str] | None = None
        self.store: SettingsStore | None = None
        self._read = read
        self._settings = settings
        self._role = role
        self._log = log
        self._digested: tuple[Settings, Digests] | None = None
        self._written: tuple[SettingsStore, Digests] | None = None
        self._logged: Mapping[str, str] = {}

    async def run(self) -> None:
        """Never returns."""
        while True:
            try:
                await self._look()
            except BinlogError:
                # The next round tries again. Other log lines say what is wrong with the database, because each term and
                # each request about the lease needs it, too.
                self.differences = None
            await asyncio.sleep(EVERY_S)

    async def _look(self) -> None:
        own, store = self._own(), self.store
        if store is not None:
            self.differences = None
            if self._written != (store, own):
                text = json.dumps(own, ensure_ascii=False)
                await in_thread("settings", partial(store.write_leader_settings, text))
                self._written = store, own
            return
        term, text = await in_thread("settings", self._read)
        role = self._role()
        if self.store is None and role is not None and not role.leads and role.term == term > 0:
            self.differences = differences(json.loads(text), own)
            self._log_differences(self.differences, role.leader)
        else:
            self.differences = None

    def _own(self) -> Digests:
        settings = self._settings()
        if self._digested is None or self._digested[0] is not settings:
            self._digested = settings, digests_of(settings)
        return self._digested[1]

    def _log_differences(self, found: Mapping[str, str], leader: str) -> None:
        """Log the differences, unless the last call has logged the same ones. Also log when the differences have
        ended."""
        if found == self._logged:
            return
        self._logged = found
        if not found:
            self._log.log(logging.INFO, "the settings are those of the leader", leader=leader)
            return
        shown = [f"{name}: {what}" for name, what in list(found.items())[:_SHOWN]]
        if len(found) > _SHOWN:
            shown.append(f"and {len(found) - _SHOWN} more")
        self._log.log(
            logging.WARNING,
            "the settings differ from those of the leader",
            leader=leader,
            settings=shown,
            remedy=_REMEDY,
        )
