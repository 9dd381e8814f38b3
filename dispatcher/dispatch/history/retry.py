"""Decides when a dispatcher connects again after a fault, and which faults a new connection cannot repair."""

from __future__ import annotations

from dispatcher.dispatch.values.executed_position import ExecutedPosition
from dispatcher.model.errors import Action, BinlogError, ErrorKind

BACKOFF_MIN_S, BACKOFF_MAX_S = 0.5, 30.0
OPERATOR_RETRY_S = 10.0
# If the same fault occurs this often in a row, without a transaction in between, the log itself is damaged: damage on
# the network does not repeat. If the cause is a purge or a RESET instead, the next login finds the consumers that are
# concerned.
DAMAGE_MAX = 3
# If the server ends a dump because of a duplicate UUID, the other dump may be the dispatcher's own earlier dump, whose
# end the server had not noticed yet. This can be the cause only once within this time.
DUPLICATE_WINDOW_S = 60.0
_READ_AGAIN = (
    ErrorKind.CHECKSUM_MISMATCH,
    ErrorKind.MALFORMED_EVENT,
    ErrorKind.POSITION_PURGED,
    ErrorKind.HISTORY_DIFFERS,
    ErrorKind.INTERNAL,
)


class RetryPolicy:
    """The faults of one dispatcher since its last good connection."""

    def __init__(self) -> None:
        self._attempts = 0
        # The place of the last damage, and how often in a row it occurred there.
        self._damage: tuple[str, int] = ("", 0)
        self._duplicate_at: float | None = None
        self._unreadable_at: ExecutedPosition | None = None

    def connected(self) -> None:
        self._attempts = 0

    def passed_damage(self) -> None:
        """Record that a whole transaction was read."""
        self._damage = ("", 0)

    def classify(
        self, error: BinlogError, read: ExecutedPosition | None
    ) -> tuple[BinlogError, bool]:
        """Returns the error to report, and True if a new connection cannot help. `read`: the dispatcher's position."""
        if error.kind is ErrorKind.SERVER_LOG and self._unreadable_at != read:
            # The server also reports this error if its log is reset during the dump. So at first the daemon only logs
            # in again; the login finds such a reset.
            self._unreadable_at = read
            error = BinlogError(ErrorKind.CONNECTION_LOST, error.what, where=error.where)
        read_again = error.kind in _READ_AGAIN
        if read_again:
            where, count = self._damage
            self._damage = (error.where, count + 1 if error.where == where else 1)
        fatal = error.action is Action.FATAL and not read_again
        return error, fatal or self._damage[1] >= DAMAGE_MAX

    def delay_s(self, error: BinlogError, now: float, fixed_s: float | None) -> float:
        """Returns how long to wait before the next attempt. `fixed_s`: None for an exponential backoff."""
        delay_s = fixed_s
        if delay_s is None:
            delay_s = min(BACKOFF_MIN_S * 2**self._attempts, BACKOFF_MAX_S)
            if error.action is Action.OPERATOR and not self._first_duplicate(error, now):
                delay_s = max(delay_s, OPERATOR_RETRY_S)
        self._attempts = min(self._attempts + 1, 10)
        return delay_s

    def _first_duplicate(self, error: BinlogError, now: float) -> bool:
        if error.kind is not ErrorKind.DUPLICATE_SERVER_UUID:
            return False
        before, self._duplicate_at = self._duplicate_at, now
        return before is None or now - before >= DUPLICATE_WINDOW_S
