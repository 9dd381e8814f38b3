"""TABLE_MAP events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; `name` is "" where the server wrote none."""

    name: str
    type: int
    meta: int
    unsigned: bool
    nullable: bool
    charset: int
    labels: tuple[str, ...]
    visible: bool


@dataclass(frozen=True, slots=True)
class TableMap:
    table_id: int
    database: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    layout: str

    @classmethod
    def parse(cls, body: bytes) -> TableMap:
        """`body`: the event without header and checksum."""
        raise NotImplementedError

    def with_columns(self, definition: Mapping[str, Any]) -> TableMap:
        """What the server did not write, from what GET .../tables/{database.table} answers."""
        raise NotImplementedError


def defined_columns(definition: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns (for `change_schema`, `arrow_type`) of what GET .../tables/{database.table} answers, no event needed."""
    raise NotImplementedError
