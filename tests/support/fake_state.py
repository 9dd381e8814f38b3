"""A state store in memory. It records what was stored, in order. A test can make its disk slow or full."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.dispatch.values.specs import Progress
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.stream.xa_store import XaChanges, XaEntry

DEADLINE_S = 20


class FakeState:
    """`saves`: the arguments of each `save`; `full`: True to let each call fail that stores something."""

    installation_id = UUID(int=7)
    epoch = 0

    def __init__(self) -> None:
        self.saves: list[list[str]] = []
        self.rows: dict[str, Progress] = {}
        self.sessions: dict[str, int] = {}
        self.versions: dict[str, StoredVersions] = {}
        self.paused_names: set[str] = set()
        self.declared: dict[str, Declaration] = {}
        self.full = False
        self.checkpoints = 0
        self._go_on = threading.Event()
        self._go_on.set()

    def hold(self) -> None:
        self._go_on.clear()

    def release(self) -> None:
        self._go_on.set()

    def checkpoint(self) -> None:
        if self.full:
            raise BinlogError(ErrorKind.STATE_STORE, "the disk is full")
        self.checkpoints += 1

    def load(self, consumer: str) -> Progress | None:
        return self.rows.get(consumer)

    def save(
        self,
        progress: Sequence[tuple[str, Position, Position, int]],
        client: str,  # noqa: ARG002 - a test has one
        prepared: XaChanges | None,
    ) -> None:
        assert prepared is None, "a fake server prepares nothing"
        self._write()
        self.saves.append([name for name, *_ in progress])
        for name, acknowledged, covered, created in progress:
            self.rows[name] = Progress(acknowledged, covered, created)

    def load_prepared(self, client: str) -> list[XaEntry]:  # noqa: ARG002
        return []

    def load_versions(self, client: str) -> StoredVersions | None:
        return self.versions.get(client)

    def save_versions(self, client: str, what: StoreVersions) -> None:
        self._write()
        if what.versions is not None:
            self.versions[client] = what.versions

    def paused(self, consumer: str) -> bool:
        return consumer in self.paused_names

    def set_paused(self, consumer: str, paused: bool) -> None:
        self._write()
        self.paused_names = (self.paused_names - {consumer}) | ({consumer} if paused else set())

    def session(self, consumer: str) -> int:
        return self.sessions.get(consumer, 0)

    def next_session(self, consumer: str) -> int:
        self._write()
        self.sessions[consumer] = self.session(consumer) + 1
        return self.sessions[consumer]

    def forget(self, consumer: str) -> None:
        self._write()
        self.rows.pop(consumer, None)
        self.sessions.pop(consumer, None)

    def declarations(self) -> list[Declaration]:
        return [self.declared[name] for name in sorted(self.declared)]

    def declare(self, declaration: Declaration) -> None:
        self.forget(declaration.name)
        self.declared[declaration.name] = declaration

    def undeclare(self, consumer: str) -> None:
        self.forget(consumer)
        self.declared.pop(consumer, None)

    def note_reads(self, consumers: Sequence[str], read_s: int) -> None:
        self._write()
        for name in consumers:
            self.declared[name] = replace(self.declared[name], read_s=read_s)

    def check(self) -> None:
        """Does nothing: there is no file."""

    def _write(self) -> None:
        assert self._go_on.wait(DEADLINE_S)
        if self.full:
            raise BinlogError(ErrorKind.STATE_STORE, "the disk is full")
