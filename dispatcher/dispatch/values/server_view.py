"""The state that a server reports at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    Mode,
    make_executed,
    parse_set,
)
from dispatcher.dispatch.values.specs import Start
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import ExecutedSet


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a server's log contains at an offset of a file. `whole`: True if an event begins or the file ends at the
    offset; `gtid`: source and number of the transaction that begins at the offset. `gtid` is None if no transaction
    begins there, or if the transaction has no GTID of MySQL."""

    whole: bool
    gtid: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ServerView:
    """The state of a server before a dump or at a survey.

    * `created`: the creation times of the files that the daemon asked for, in seconds since 1970.
    * `knows_tables`: True if the source can be asked for the definition of a table.
    * `starts`: for each start that the daemon searched for in the log, the position that it found, or an error if there
      is no position, as for an offset inside a transaction.
    * `boundaries`: the boundaries at the files and offsets that the daemon asked for. If the daemon could not ask the
      server about a boundary, the boundary is left out.
    * `databases`: the databases that the account may see, None = not known.
    * `purged`: the transactions that the log no longer holds. Only for positions by GTID.
    * `duplicates`: descriptions of other daemons' connections that use the same identity as this daemon.
    * `owned`: GTIDs of transactions that MySQL may have sent already, but has not yet added to its executed set.
    * `lower_case_table_names`: the setting by which the server compares names.
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
    lower_case_table_names: int = 0

    @property
    def written(self) -> ExecutedSet:
        """All transactions that a reader can have read from the log so far. Only for positions by GTID."""
        return _union(self.mode, self.executed, self.owned)

    @property
    def tip(self) -> ExecutedPosition:
        """The end of the log."""
        return make_executed(self.mode, self.executed, self.file, self.offset)


@lru_cache(maxsize=4)
def _union(mode: Mode, executed: str, owned: str) -> ExecutedSet:
    """Returns the union of two sets. The result is cached, because the same union is compared with every consumer's
    position."""
    return parse_set(mode, executed).union(parse_set(mode, owned))
