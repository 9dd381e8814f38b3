"""What a source said of itself at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dispatcher.dispatch.executed_position import ExecutedPosition, Mode
from dispatcher.dispatch.specs import Start
from dispatcher.model.errors import BinlogError


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a server's log has at an offset of a file. `whole`: an event begins there, or the file ends there; `gtid`:
    source and number of the transaction that begins there, None where none begins or it has no MySQL GTID."""

    whole: bool
    gtid: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ServerView:
    """What a server says of itself before a dump. `created`: creation times of the files that were asked for;
    `knows_tables`: can it be asked for the definition of a table? `boundaries`: of the files and offsets that were
    asked for, as far as the server could be asked."""

    server: str
    mode: Mode
    executed: str
    purged: str
    files: tuple[tuple[str, int], ...]
    file: str
    offset: int
    created: Mapping[str, int]
    knows_tables: bool = True
    # What starts that the log was searched for mean here; an error where one means nothing, such as an offset inside a
    # transaction.
    starts: Mapping[Start, ExecutedPosition | BinlogError] = field(default_factory=dict)
    boundaries: Mapping[tuple[str, int], Boundary] = field(default_factory=dict)
