"""The facts that a queue records about the binlog files in which its positions lie."""

from __future__ import annotations

from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode
from dispatcher.model.position import file_number


class QueueFiles:
    """When each file was created, and the position from which all positions are *anchored*.

    A position is anchored if all of its transactions lie before its file and offset in the server's log. With GTIDs, a
    position is not anchored after a start at a GTID set or after a failover: transactions of its set may lie after its
    file and offset.
    """

    def __init__(self) -> None:
        self._mode = Mode.GTID
        self._created: dict[
            str, int
        ] = {}  # for the file of the acknowledged position and later files, s since 1970
        self._anchored_from: tuple[int, int] | None = None

    def begin(
        self, mode: Mode, executed: ExecutedPosition, created: int, *, anchored: bool
    ) -> None:
        """Begin (again) at a position. `created`: creation time of its file, s since 1970, 0 = unknown."""
        self._mode = mode
        self._created = {executed.file: created} if created else {}
        self._anchored_from = executed.log_order if anchored else None

    def created_of(self, file: str) -> int:
        """Returns when a file was created, s since 1970, 0 = unknown."""
        return self._created.get(file, 0)

    def read(self, file: str, created: int) -> None:
        """Record the creation time of a file that is being read; 0 = unknown."""
        if created:
            self._created[file] = created

    def learn_created(self, file: str, created: int) -> None:
        """Record the creation time that a server reports for a file, unless the time is known already; 0 = not
        reported."""
        if created:
            self._created.setdefault(file, created)

    def drop_before(self, file: str) -> None:
        if len(self._created) == 1 and file in self._created:  # nearly always true
            return
        oldest = file_number(file)
        self._created = {f: at for f, at in self._created.items() if file_number(f) >= oldest}

    def anchor(self, executed: ExecutedPosition) -> None:
        """Record that `executed` and all later positions are anchored."""
        if self._anchored_from is None:
            self._anchored_from = executed.log_order

    def is_anchored(self, executed: ExecutedPosition) -> bool:
        if not self._mode.by_gtid:
            return True
        return self._anchored_from is not None and executed.log_order >= self._anchored_from

    def created_stored(self, executed: ExecutedPosition) -> int:
        """Returns `Progress.created` of a position."""
        created = self.created_of(executed.file)
        return created if self.is_anchored(executed) else -created
