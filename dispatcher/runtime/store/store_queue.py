"""The queue of what a client has to store.

`flush` stores the queued progress of all consumers in one transaction, so several acknowledgements that wait cost one
write to the disk. Older progress of a consumer never replaces newer progress.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.errors import BinlogError
from dispatcher.runtime.store.store_thread import StoreThread


@dataclass(slots=True)
class _Pending:
    """The newest progress of each consumer, and the newest table versions. `stored`: True once all of this is
    stored."""

    progress: dict[str, Progress] = field(default_factory=dict)
    versions: StoreVersions | None = None
    stored: bool = False

    def put_back(self, older: _Pending) -> None:
        """Queue again what could not be stored (`older`), except where something newer is queued."""
        self.progress = {**older.progress, **self.progress}
        self.versions = _merged(older.versions, self.versions)


class StoreQueue:
    """The queue of one client. Every coroutine raises BinlogError (STATE_STORE)."""

    def __init__(self, store: StoreThread, client: Client, key: str) -> None:
        """`key`: the client's key in the state store."""
        self._store = store
        self._client = client
        self._key = key
        self._pending = _Pending()
        self._acknowledging: dict[str, Progress] = {}
        self._lock = asyncio.Lock()

    def put_progress(self, consumer: str, progress: Progress) -> None:
        """Queue progress, unless an acknowledgement beyond this progress is being stored.

        The rules get an acknowledgement only after it is stored, so the progress that the rules return until then is
        older.
        """
        coming = self._acknowledging.get(consumer)
        if coming is None or coming.acknowledged.order <= progress.acknowledged.order:
            self._pending.progress[consumer] = progress

    def put_versions(self, versions: StoreVersions) -> None:
        self._pending.versions = _merged(self._pending.versions, versions)

    async def acknowledge(self, consumer: str, progress: Progress) -> None:
        """Store the progress that results from an acknowledgement. The caller makes one call at a time for a
        consumer."""
        self._pending.progress[consumer] = self._acknowledging[consumer] = progress
        try:
            await self.flush()
        finally:
            del self._acknowledging[consumer]

    async def flush(self, *, final: bool = False) -> None:
        """Store everything that is queued now. Changed table versions are stored before progress. If storing raises
        BinlogError, everything stays queued.

        `final`: also store the changed rows of prepared transactions, which are otherwise stored with the next
        progress, and the position up to which unchanged table versions are valid.
        """
        queued = self._pending
        async with self._lock:
            # Another call has stored `queued` while this call waited for the lock. What was queued since then belongs
            # to the calls that queued it.
            if queued.stored and not final:
                return
            pending, self._pending = self._pending, _Pending()
            prepared = self._client.prepared
            if pending.progress or final:
                for versions in self._client.unstored_versions(final=final):
                    pending.versions = _merged(pending.versions, versions)
            try:
                if pending.versions is not None:
                    await self._store.save_versions(self._key, pending.versions)
                    pending.versions = None
                if pending.progress or (final and prepared.changes()):
                    await self._store.save(list(pending.progress.items()), self._key, prepared)
            except BaseException:
                self._pending.put_back(pending)
                raise
            pending.stored = True

    async def stored(self, consumer: str) -> Progress | BinlogError | None:
        """Store the queued progress of a consumer, then return the consumer's stored progress; see
        `StoreThread.load`."""
        while True:
            async with self._lock:  # a flush may be storing progress of the consumer
                queued = consumer in self._pending.progress
            if queued:
                await self.flush()
            progress = await self._store.load(consumer)
            if consumer not in self._pending.progress:
                return progress


def _merged(older: StoreVersions | None, newer: StoreVersions | None) -> StoreVersions | None:
    """Combine two queued effects into one. If the newer effect has no versions, it gets those of the older effect."""
    if older is None or newer is None or newer.versions is not None:
        return newer or older
    return StoreVersions(newer.position, older.versions)
