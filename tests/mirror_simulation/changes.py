"""Random changes of the server's tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from spark_sink.mirror.values.names import TableName
from tests.mirror_simulation.column_values import INVALID
from tests.mirror_simulation.log import Row, RowChange
from tests.mirror_simulation.server import Server
from tests.support.spelling import in_random_case

COLUMNS_MAX = 5
INVALID_SHARE = 0.15  # the probability that a written row has an invalid value


class ServerChanges:
    """`names`: the names that tables may have; `unclear`: True if the mirror cannot parse some statements; `may_leave`:
    True if the settings may exclude some of the names; `folding`: for a server that folds names, the random generator
    of upper and lower case in the names that people type. People of such a server also drop databases, and end
    statements early; `invalid`: for a server with invalid values, the random generator of these values."""

    def __init__(
        self,
        rng: random.Random,
        server: Server,
        names: Sequence[TableName],
        *,
        unclear: bool,
        may_leave: bool,
        folding: random.Random | None = None,
        invalid: random.Random | None = None,
    ) -> None:
        self._invalid = invalid
        self._folding = folding
        if folding is not None:
            server.lower_case = folding.choice((1, 2))
            server.spelled = partial(in_random_case, folding)
        self._unclear = unclear
        self._rng, self._server, self._names, self._may_leave = rng, server, names, may_leave
        self._key = 0
        # (cumulative probability, change)
        self._changes: list[tuple[float, Callable[[TableName], None]]] = [
            (0.45, self._insert),
            (0.73, self._change_rows),
            (0.78, self._add_column),
            (0.81, self._drop_column),
            (0.84, server.truncate),
            (0.87, self._drop),
            (0.90, server.change_rows_silently),
            (0.91, server.change_unclear if unclear else server.change_rows_silently),
            (0.92, self._create_if_absent),
            (0.93, server.create),
            (1.00, self._rename),
        ]

    def make_old(self, name: TableName) -> None:
        """Create a table that is older than the mirror's log."""
        server = self._server
        server.hidden = True
        server.create(name, keyed=self._rng.random() < 0.7)
        server.insert(name, *(self._row(name) for _ in range(3)))
        server.hidden = False
        server.log.tell(name, 0, server.tables[name])

    def change(self) -> None:
        rng = self._rng
        name = rng.choice(self._names)
        if name not in self._server.tables:
            self._server.create(name, keyed=rng.random() < 0.7)
            return
        if self._folding is not None and self._folding.random() < 0.04:
            self._change_by_name(name)
            return
        roll = rng.random()
        change = next(change for until, change in self._changes if roll < until)
        change(name)

    def _change_by_name(self, name: TableName) -> None:
        if self._unclear and self._folding is not None and self._folding.random() < 0.5:
            self._server.change_with_error(name)
        else:
            self._server.drop_database(name[0])

    def change_table(self, name: TableName) -> None:
        """Change one table, without a RENAME."""
        if name not in self._server.tables:
            self._server.create(name)
            return
        change = self._rng.choice((self._insert, self._insert, self._change_rows, self._add_column))
        change(name)

    # -- rows --------------------------------------------------------------------------------------------------

    def _row(self, name: TableName, key: int | None = None) -> Row:
        if key is None:
            self._key += 1
            key = self._key
        columns = self._server.tables[name].columns
        row = tuple((c, key if c == "id" else self._rng.randrange(5)) for c in columns)
        return row if self._invalid is None else self._with_invalid(self._invalid, row)

    @staticmethod
    def _with_invalid(rng: random.Random, row: Row) -> Row:
        if rng.random() >= INVALID_SHARE:
            return row
        bad = rng.choice([c for c, _ in row if c != "id"])
        return tuple((c, rng.choice(INVALID) if c == bad else v) for c, v in row)

    def _insert(self, name: TableName) -> None:
        self._server.insert(name, *(self._row(name) for _ in range(self._rng.randrange(1, 4))))

    def _change_rows(self, name: TableName) -> None:
        rows = self._server.tables[name].rows
        changes = []
        for row in self._rng.sample(sorted(rows), min(len(rows), 2)):
            key = dict(row)["id"]
            after = self._row(name, key) if self._rng.random() < 0.7 else None
            changes.append(RowChange(row, after))
        if changes:
            self._server.change(name, *changes)

    def _create_if_absent(self, name: TableName) -> None:
        self._server.create_if_absent(name)

    # -- statements --------------------------------------------------------------------------------------------

    def _add_column(self, name: TableName) -> None:
        if len(self._server.tables[name].columns) >= COLUMNS_MAX:
            return
        self._server.add_column(name, self._new_column(name), self._rng.choice((None, 3)))

    def _new_column(self, table: TableName) -> str:
        """Returns a name that no column of the table has."""
        while True:
            column = f"c{len(self._server.log.offsets)}x{self._rng.randrange(1000)}"
            if column not in self._server.tables[table].columns:
                return column

    def _drop_column(self, name: TableName) -> None:
        columns = self._server.tables[name].columns
        if len(columns) > 2:
            self._server.drop_column(name, columns[-1])
        else:
            self._server.truncate(name)

    def _drop(self, name: TableName) -> None:
        others = [other for other in self._server.tables if other != name]
        names = [self._rng.choice(others)] if others and self._rng.random() < 0.2 else []
        self._server.drop(name, *names)

    def _rename(self, name: TableName) -> None:
        other = self._rng.choice(self._names)
        if other == name:
            return
        if other not in self._server.tables:
            # If a RENAME to an excluded name also changes columns, the rules do not delete the rows of the table.
            if not self._may_leave and self._rng.random() < 0.3:
                self._server.rename_and_add(name, other, self._new_column(name))
            else:
                self._server.rename((name, other))
            return
        spare = (name[0], "spare")
        self._server.rename((name, spare), (other, name), (spare, other))
