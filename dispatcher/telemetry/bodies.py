"""JSON bodies of the messages for MQTT and for the webhook. Every body describes one moment, and contains no values of
rows and no secrets."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from dispatcher.model.printable import json_escaped
from dispatcher.telemetry.lifecycle import LifecycleEvent
from dispatcher.telemetry.logs import redact

# The keys of a status, each with the field of a row of GET /v1/binlogs from which its value comes.
STATUS_KEYS = {
    "consumer": "name",
    "connection": "binlog_client_name",
    "dispatcher": "dispatcher_name",
    "state": "state",
    "lag_seconds": "lag_seconds",
    "queue_bytes": "bytes",
    "queue_limit_bytes": "max_bytes",
    "unacknowledged_bytes": "unacknowledged_bytes",
    "position": "acknowledged",
    "runway_seconds": "runway_seconds",
    "detaches": "detaches",
    "gaps": "gaps",
    "last_error": "last_error",
    "state_store_error": "state_store_error",
}
_TEXTS = ("last_error", "state_store_error")  # may contain a message of a server or of the system


class Bodies:
    """Makes the bodies. `daemon`: the id of the state store, which no other daemon has; `secrets` are replaced in the
    texts of errors. The other values of a status cannot contain a secret, so `Bodies` does not search them; this saves
    time for a thousand statuses."""

    def __init__(self, daemon: str, secrets: Collection[str]) -> None:
        self._daemon = daemon
        self._redact = redact(secrets)

    def status(self, row: Mapping[str, Any]) -> bytes:
        """The status of a consumer, from its row of GET /v1/binlogs."""
        body = {key: row[column] for key, column in STATUS_KEYS.items()}
        if texts := {key: body[key] for key in _TEXTS if body[key] is not None}:
            body |= self._redact(None, "", texts)
        return self._json(body)

    def role(self, role: Mapping[str, Any]) -> bytes:
        """Whether this daemon leads, and which daemon leads, as in `GET /v1/leader`."""
        return self._json(dict(role))

    def event(self, event: LifecycleEvent) -> bytes:
        subject = {"connection": event.connection, "consumer": event.consumer}
        return self._json(
            {
                "event": event.kind,
                "at": utc(event.at_s),
                **{key: name for key, name in subject.items() if name},
                "details": self._redact(None, "", dict(event.details)),
            }
        )

    def commit(
        self,
        consumer: str,
        position: Mapping[str, Any],
        *,
        transactions: int,
        bytes_: int,
        committed_s: float,
        at_s: float,
    ) -> bytes:
        return self._json(
            {
                "consumer": consumer,
                "at": utc(at_s),
                "position": dict(position),
                "transactions": transactions,
                "bytes": bytes_,
                "committed_at": utc(committed_s),
            }
        )

    def is_own(self, body: bytes) -> bool:
        """True for a status that this daemon has published, also before a restart."""
        try:
            value = json.loads(body)
        except ValueError:
            return False
        return isinstance(value, dict) and value.get("daemon") == self._daemon

    def _json(self, value: dict[str, Any]) -> bytes:
        body = {**value, "daemon": self._daemon}
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        return json_escaped(text).encode()


def utc(seconds: float) -> str:
    """Returns a time, in seconds since 1970, in the form 2026-11-21T12:00:00.123456Z."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:-6] + "Z"
