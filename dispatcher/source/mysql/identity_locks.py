"""Recognises another daemon that has the identities of this daemon, because it runs with a copy of this daemon's state.

A server ends the older of two dumps with the same identity. But an identity includes the number of its dispatcher, so
the server does not end a dump if the dispatchers of the two daemons have different numbers. Therefore the session of
each dump holds a user-level lock with the name of its identity until the session ends. If a connection that this daemon
did not make holds the lock of one of its identities, that connection belongs to another daemon, or it is left from a
crashed machine and the server has not closed it yet.

User-level locks need no privilege, and every server has them. Source: MySQL manual, "Locking Functions".
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from uuid import UUID

from dispatcher.model.errors import BinlogError
from dispatcher.mysql.answers import (
    Row,
    Value,
    ask,
    ask_one,
    fetch,
    number_value,
    optional_text,
)
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.error_map import is_refusal
from dispatcher.mysql.replication_commands import Identity

NUMBERS = 16  # locks of dispatchers 1 to 16 are examined; more dispatchers at a time are rare


class IdentityLocks:
    """The locks of one source's identities. Several threads may call at a time."""

    def __init__(self, installation: UUID, name: str) -> None:
        """`installation`, `name`: the same as for `Identity.of`."""
        self._identities = [Identity.of(installation, name, n) for n in range(1, NUMBERS + 1)]
        self._lock = threading.Lock()
        # Server uuid and connection id of each connection of this daemon, including ended connections.
        self._own: set[tuple[str, int]] = set()

    def take(self, connection: Connection, server: str, identity: Identity) -> None:
        """Take the lock of an identity; the server releases it when the connection ends. Do nothing if the server
        refuses locks.

        Raises BinlogError.
        """
        name = _lock_name(identity)
        statement = "SELECT CONNECTION_ID(), GET_LOCK(%s, 0), IS_USED_LOCK(%s)"

        def numbers(row: Row) -> tuple[int, bool, int | None]:
            own, got, holder = row
            return number_value(own), optional_text(got) == "1", _holder(holder)

        try:
            own, got, holder = ask_one(connection, statement, numbers, (name, name))
            if not got and holder is not None and self._is_own(server, holder):
                # The holder is this dispatcher's former connection, whose end the server has not noticed. The new dump
                # would end that connection, too.
                fetch(connection, f"KILL {holder}")
                fetch(connection, "SELECT GET_LOCK(%s, 1)", (name,))
        except BinlogError as error:
            if not is_refusal(error):
                raise
            return
        with self._lock:
            self._own.add((server, own))

    def held_by_others(self, connection: Connection, server: str) -> tuple[str, ...]:
        """Return number and address of each connection of another daemon that holds a lock of this daemon's identities;
        () if no such connection exists, or if the server refuses to answer. Raises BinlogError."""
        statement = "SELECT " + ", ".join(["IS_USED_LOCK(%s)"] * NUMBERS)
        names = [_lock_name(identity) for identity in self._identities]
        try:
            holders = ask_one(connection, statement, lambda row: [_holder(v) for v in row], names)
            others = {h for h in holders if h is not None and not self._is_own(server, h)}
            return tuple(_described(connection, others)) if others else ()
        except BinlogError as error:
            if not is_refusal(error):
                raise
            return ()

    def _is_own(self, server: str, connection_id: int) -> bool:
        with self._lock:
            return (server, connection_id) in self._own


def _lock_name(identity: Identity) -> str:
    return f"binlog-dispatcher:{identity.server_uuid}"  # at most 64 characters since MySQL 5.7


def _holder(value: Value) -> int | None:
    return None if value is None else number_value(value)


def _described(connection: Connection, ids: set[int]) -> Sequence[str]:
    """Describe connections by number and address. An account needs no privilege to see its own connections in the
    list."""

    def place(row: Row) -> tuple[int, str]:
        return number_value(row[0]), optional_text(row[2]) or ""

    places = dict(ask(connection, "SHOW PROCESSLIST", place))
    return [
        f"connection {n}" + (f" from {places[n]}" if places.get(n) else "") for n in sorted(ids)
    ]
