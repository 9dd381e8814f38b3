"""Routes: small integers that stand for the tables that an event concerns, so that kernels compare integers, not names.

Each (database, table) that occurs in the log gets one route, and so does each set of tables and databases that a DDL
touches. A consumer converts its filter to one byte per route (`Filter.route_mask`), so routing an event is an array
look-up.

The kernel finds names in an open-addressing table of FNV-1a hashes. The kernel then compares the names themselves, so
two names with the same hash get different routes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.kernel.jit import part
from dispatcher.model.names import folded_name
from dispatcher.model.subscription import NamePatterns, Subscription, TablePattern

ALL = -1  # the event concerns every consumer of the connection
NO_ROUTE = -2  # the event concerns no table

Target = tuple[str, str | None]  # (database, table), or (database, None) for the database itself

FNV_OFFSET = np.uint64(0xCBF29CE484222325)
FNV_PRIME = np.uint64(0x100000001B3)


@part
def hash_names(
    buf: NDArray[np.uint8], database: int, database_size: int, table: int, table_size: int
) -> int:
    """FNV-1a over `database`, a zero byte, `table`; the arguments are offsets and sizes in `buf`."""
    value = FNV_OFFSET
    for i in range(database, database + database_size):
        value = (value ^ np.uint64(buf[i])) * FNV_PRIME
    value = value * FNV_PRIME  # the zero byte
    for i in range(table, table + table_size):
        value = (value ^ np.uint64(buf[i])) * FNV_PRIME
    return int(value)


@part
def find_route(  # noqa: PLR0913 - kernels take arrays one by one, see `split_packets`
    buf: NDArray[np.uint8],
    database: int,
    database_size: int,
    table: int,
    table_size: int,
    slots: NDArray[np.int32],
    names: NDArray[np.uint8],
    spans: NDArray[np.int64],
) -> int:
    """The route of the (database, table) pair in `buf`, or -1. `spans[r]` = (start, database size, end) in `names`."""
    mask = np.uint64(len(slots) - 1)
    at = np.uint64(hash_names(buf, database, database_size, table, table_size)) & mask
    while slots[at] >= 0:
        route = slots[at]
        start, split, end = spans[route, 0], spans[route, 1], spans[route, 2]
        if split == database_size and end - start == database_size + table_size:
            same = True
            for i in range(database_size):
                if names[start + i] != buf[database + i]:
                    same = False
                    break
            if same:
                for i in range(table_size):
                    if names[start + database_size + i] != buf[table + i]:
                        same = False
                        break
            if same:
                return int(route)
        at = (at + np.uint64(1)) & mask
    return -1


class Routes:
    """The routes of one connection key. Append-only: a route never changes its meaning.

    `lower_case_table_names`: the setting of the server, which all hosts of a source share. The source sets it when it
    opens a log, before the first route. The names of `targets` are those of `folded_name`. `own_statements`: the names
    or patterns of `ignore_statements_in`, the databases whose statements change no table of another database.
    """

    def __init__(self, own_statements: Iterable[str] = ()) -> None:
        self.lower_case_table_names = 0
        self._own_statements = tuple(own_statements)
        self.targets: list[tuple[Target, ...]] = []
        self.slots: NDArray[np.int32] = np.full(1024, -1, dtype=np.int32)
        self.names: NDArray[np.uint8] = np.zeros(1 << 14, dtype=np.uint8)
        self.spans: NDArray[np.int64] = np.zeros((512, 3), dtype=np.int64)
        self._names_end = 0
        self._ddl: dict[tuple[Target, ...], int] = {}

    def __len__(self) -> int:
        return len(self.targets)

    def table(self, database: bytes, table: bytes) -> int:
        """Add a route for a table that the kernel did not find, and return the route."""
        route = self._append((self._target(_name(database), _name(table)),))
        name = database + table
        while self._names_end + len(name) > len(self.names):
            self.names = np.concatenate((self.names, np.zeros_like(self.names)))
        self.names[self._names_end : self._names_end + len(name)] = np.frombuffer(
            name, dtype=np.uint8
        )
        self.spans[route] = (self._names_end, len(database), self._names_end + len(name))
        self._names_end += len(name)
        if 2 * len(self.targets) > len(self.slots):
            self.slots = np.full(2 * len(self.slots), -1, dtype=np.int32)
            for r in range(route):
                self._place(r)
        self._place(route)
        return route

    def ddl(self, targets: Iterable[Target]) -> int:
        """Return the route for the tables and databases that a statement changes, and add the route if it is new.
        Return `NO_ROUTE` if the statement changes no table and no database."""
        own = {self._target(database, table) for database, table in targets}
        key = tuple(sorted(own, key=lambda target: (target[0], target[1] or "")))
        if not key:
            return NO_ROUTE
        if key not in self._ddl:
            self._ddl[key] = self._append(key)
        return self._ddl[key]

    def ignores_statements_in(self, database: str) -> bool:
        """True if a statement on a table of this database concerns only the database's consumers."""
        patterns = NamePatterns(self._own_statements, self.lower_case_table_names)
        return patterns.match_database(database)

    def _target(self, database: str, table: str | None) -> Target:
        value = self.lower_case_table_names
        return folded_name(database, value), None if table is None else folded_name(table, value)

    def _append(self, targets: tuple[Target, ...]) -> int:
        route = len(self.targets)
        self.targets.append(targets)
        if route >= len(self.spans):
            self.spans = np.concatenate((self.spans, np.zeros_like(self.spans)))
        return route

    def _place(self, route: int) -> None:
        start, split, end = (int(n) for n in self.spans[route])
        if start == end:
            return  # a DDL's route: `ddl` finds it by its targets
        mask = len(self.slots) - 1
        at = int(hash_names(self.names, start, split, start + split, end - start - split)) & mask
        while self.slots[at] >= 0:
            at = (at + 1) & mask
        self.slots[at] = route


class Filter:
    """The databases and tables of one consumer, as names or patterns: see `model.subscription`.

    Each pattern is matched once per route, not once per event.
    """

    def __init__(
        self,
        databases: Iterable[str],
        tables: Iterable[TablePattern] | None = None,
        exclude_tables: Iterable[TablePattern] = (),
    ) -> None:
        self._names = (
            list(databases),
            None if tables is None else list(tables),
            list(exclude_tables),
        )
        self._subscription: Subscription | None = None
        self._mask: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)

    def route_mask(self, routes: Routes) -> NDArray[np.uint8]:
        """One byte per route, 1 = the consumer reads at least one of its tables. New routes extend the mask."""
        known = len(self._mask)
        if known < len(routes):
            if self._subscription is None:
                self._subscription = Subscription(*self._names, routes.lower_case_table_names)
            wanted = self._subscription
            more = [
                any(_matches(wanted, target) for target in targets)
                for targets in routes.targets[known:]
            ]
            self._mask = np.concatenate((self._mask, np.array(more, dtype=np.uint8)))
        return self._mask


def _matches(wanted: Subscription, target: Target) -> bool:
    database, table = target
    return wanted.has_database(database) if table is None else wanted.has_table(database, table)


def _name(raw: bytes) -> str:
    # Every server stores identifiers in utf8mb3. A name with other bytes must not raise an error, which would stop the
    # consumers of all other tables, too.
    return raw.decode("utf-8", "surrogateescape")
