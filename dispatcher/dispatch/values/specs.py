"""What the settings declare about a consumer and a client, and the stored progress of a consumer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from dispatcher.model.position import Position
from dispatcher.model.subscription import TablePattern


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first transaction that the server still has."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of the server's log."""


@dataclass(frozen=True, slots=True)
class AtGtid:
    """The first transaction that a set of executed GTIDs does not contain. `gtids`: the set in the text form of MySQL
    or MariaDB."""

    gtids: str


@dataclass(frozen=True, slots=True)
class AtFile:
    """A transaction boundary in a binlog file. With `inside`, the offset may also lie inside of a transaction, and the
    position is where that transaction begins."""

    file: str
    offset: int = 4
    inside: bool = False


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first transaction that was committed at or after `commit_us`, microseconds since 1970 UTC."""

    commit_us: int


Start = Earliest | Latest | AtGtid | AtFile | AtTime
"""Where a consumer without a stored position begins."""


def starts_to_search(starts: Iterable[Start]) -> list[Start]:
    """Returns the starts whose positions must be searched for in the server's log."""
    return [start for start in starts if not isinstance(start, Earliest | Latest)]


class OnQueueFull(StrEnum):
    """How a dispatcher treats a consumer whose queue stays full while other consumers are attached."""

    DETACH = "detach"  # wait as long as the consumer's budget allows, then detach it
    WAIT = "wait"  # wait without limit


class OnPurged(StrEnum):
    """What a consumer does when the server has purged log files that it still needs."""

    FAIL = "fail"
    LATEST = "latest"  # go on at the end of the log, in a new epoch


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """What the settings declare about a consumer. `databases`, `tables`, `exclude_tables`: names or patterns, see
    `model.subscription`; `wait_max_s`: the full budget for waiting for the consumer's queue (see `WaitBudget`);
    `declared_by`: the name of the token that has declared the consumer over the API, "" without tokens, None for a
    consumer of the settings."""

    name: str
    databases: tuple[str, ...]
    tables: tuple[TablePattern, ...] | None
    queue_bytes_max: int
    start: Start = Latest()
    # True: use a table's current definition if the log does not show the definition at the time of an event.
    assume_current_schema: bool = False
    wait_max_s: float = 10.0
    on_queue_full: OnQueueFull = OnQueueFull.DETACH
    on_purged: OnPurged = OnPurged.FAIL
    exclude_tables: tuple[TablePattern, ...] = ()
    declared_by: str | None = None


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of a connection key.

    `merge_bytes_max`: consumers share a dispatcher up to this distance in the binlog, in bytes; `queues_bytes_max`: the
    memory of all queues together, 0 = only each queue's own limit; `failover_wait_s`: how long another server may take
    to execute what the consumers have read.
    """

    merge_bytes_max: int = 1 << 20
    queues_bytes_max: int = 0
    failover_wait_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The stored progress of a consumer. `created`: creation time of `covered.file`, s since 1970, 0 = unknown;
    negative if transactions of `covered` may lie after its file and offset (see `QueueFiles`)."""

    acknowledged: Position
    covered: Position
    created: int
