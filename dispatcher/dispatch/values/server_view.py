"""The state that a server reports at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode, make_executed
from dispatcher.dispatch.values.specs import Start
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import GtidSet


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a server's log has at an offset of a file. `whole`: True if an event begins or the file ends there; `gtid`:
    source and number of the transaction that begins there, None if no transaction begins or it has no MySQL GTID."""

    whole: bool
    gtid: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ServerView:
    """The state of a server before a dump, or at a poll.

    * `created`: creation times of the files that were asked for, s since 1970.
    * `knows_tables`: True if the source can be asked for the definition of a table.
    * `starts`: the positions of the starts that the log was searched for, or an error for a start that has no position,
      such as an offset inside a transaction.
    * `boundaries`: the boundaries at the files and offsets that were asked for. Boundaries about which the server could
      not be asked are left out.
    * `databases`: the databases that the account may see, None = not known.
    * `duplicates`: connections of other daemons that have the same identity as this daemon, as text.
    * `owned`: GTIDs of transactions that MySQL may have sent already and has not counted as executed yet.
    """

    server: str
    mode: Mode
    executed: str
    purged: str
    files: tuple[tuple[str, int], ...]  # names and sizes, oldest first
    file: str  # the newest file; `offset` is its end
    offset: int
    created: Mapping[str, int]
    knows_tables: bool = True
    starts: Mapping[Start, ExecutedPosition | BinlogError] = field(default_factory=dict)
    boundaries: Mapping[tuple[str, int], Boundary] = field(default_factory=dict)
    databases: frozenset[str] | None = None
    duplicates: tuple[str, ...] = ()
    owned: str = ""

    @property
    def written(self) -> GtidSet:
        """The transactions that the log may hold: no other transaction can have been read from it. Only with MySQL's
        GTIDs."""
        return _union(self.executed, self.owned)

    @property
    def tip(self) -> ExecutedPosition:
        """The end of the log."""
        return make_executed(self.mode, self.executed, self.file, self.offset)


@lru_cache(maxsize=4)
def _union(executed: str, owned: str) -> GtidSet:
    """Returns the union of two sets. It is cached, because every consumer's position is compared with the same view."""
    return GtidSet.parse(executed).union(GtidSet.parse(owned))
