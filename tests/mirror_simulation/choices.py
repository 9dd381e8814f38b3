"""The choices of a simulated world that a history or a play makes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from spark_sink.mirror.rules.effects import Effect
from spark_sink.mirror.rules.table_record import TableRecord


class Choices(Protocol):
    """The choices that a world leaves open."""

    def appends(self) -> int:
        """Returns how many appends of the log one work reads at most."""

    def chunks(self) -> int:
        """Returns in how many chunks a copy reads a table."""

    def reads_early(self) -> bool:
        """Returns True if a proof reads the rows of a range before it asks for the executed position, False if nothing
        happens in between."""

    def registered(self, records: Sequence[TableRecord], /) -> str:
        """Returns the id of a stored table that the catalog registers now, "" for none."""

    def is_done(self, effect: Effect, /) -> bool:
        """Returns True if a running work is done although the job is killed."""

    def keeps_invalid(self) -> bool:
        """Returns True if a work that ends before its commit has written its invalid values to the quarantine."""

    def moved_tables(self, count: int) -> int:
        """Returns for how many of `count` tables a step of their move is done when the job is killed."""

    def renamed_folders(self) -> int:
        """Returns how many folders at most a move has renamed when the job is killed."""


class RandomChoices:
    """Makes the choices with a random generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def appends(self) -> int:
        return self._rng.randrange(1, 4)

    def chunks(self) -> int:
        return self._rng.randrange(1, 4)

    def reads_early(self) -> bool:
        return self._rng.random() < 0.5

    def registered(self, records: Sequence[TableRecord]) -> str:
        if records and self._rng.random() < 0.1:
            return self._rng.choice(records).table_id
        return ""

    def is_done(self, _: Effect) -> bool:
        return self._rng.random() < 0.5

    def keeps_invalid(self) -> bool:
        return self._rng.random() < 0.5

    def moved_tables(self, count: int) -> int:
        return self._rng.randrange(0, count + 1)

    def renamed_folders(self) -> int:
        return self._rng.randrange(0, 5)
