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
    or MariaDB; `read_from`: the server from whose log the position was read, "" if it was given by a person or has no
    file. The log of that server need not be searched."""

    gtids: str
    read_from: str = ""


@dataclass(frozen=True, slots=True)
class AtFile:
    """A transaction boundary in a binlog file. If `inside` is True, the offset may lie inside a transaction, and the
    position is the beginning of that transaction."""

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

    DETACH = "detach"  # wait as long as the consumer's wait budget allows, then detach the consumer
    WAIT = "wait"  # wait without limit


class OnPurged(StrEnum):
    """What a consumer does when the server has purged log files that the consumer still needs."""

    FAIL = "fail"
    LATEST = "latest"  # continue at the end of the log, in a new epoch


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """What the settings declare about a consumer. `databases`, `tables`, `exclude_tables`: names or patterns, see
    `model.subscription`; `wait_max_s`: the largest value of the consumer's wait budget, in seconds (see `WaitBudget`);
    `declared_by`: the name of the token with which a program declared the consumer over the API, "" if the daemon has
    no tokens, None if the settings declare the consumer."""

    name: str
    databases: tuple[str, ...]
    tables: tuple[TablePattern, ...] | None
    queue_bytes_max: int
    start: Start = Latest()
    # True: for an event whose table definition is not known, use the table's current definition.
    assume_current_schema: bool = False
    wait_max_s: float = 10.0
    on_queue_full: OnQueueFull = OnQueueFull.DETACH
    on_purged: OnPurged = OnPurged.FAIL
    exclude_tables: tuple[TablePattern, ...] = ()
    declared_by: str | None = None


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of a connection key.

    `merge_bytes_max`: consumers share a dispatcher if their distance in the binlog is at most this number of bytes;
    `queues_bytes_max`: the limit of the memory of all queues together, 0 = only each queue has a limit;
    `failover_wait_s`: after a failover, how long the daemon waits until the new server has executed what the consumers
    have read; `ignore_statements_in`: names or patterns of the databases whose statements change no table of another
    database.
    """

    merge_bytes_max: int = 1 << 20
    queues_bytes_max: int = 0
    failover_wait_s: float = 60.0
    ignore_statements_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """The stored progress of a consumer. `created`: creation time of `covered.file` in seconds since 1970, 0 = unknown.
    `created` is negative if the GTIDs of `covered` may include transactions after the file and offset of `covered` (see
    `QueueFiles`)."""

    acknowledged: Position
    covered: Position
    created: int
