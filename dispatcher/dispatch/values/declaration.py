"""The stored form of a consumer that was declared over the API with a token."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from dispatcher.model.errors import BinlogError, ErrorKind


@dataclass(frozen=True, slots=True)
class Declaration:
    """`owner`: the name of the token, "" if the settings had no tokens; `source`: a name of the settings' `sources`;
    `databases`, `tables`, `exclude_tables`: names or patterns, sorted as text, `tables` None for all tables; `start`:
    where the consumer begins, as JSON in the form of the settings; `declared_s`: when the consumer was declared;
    `read_s`: when a reader called last, as far as it is stored. Both times are in seconds since 1970."""

    name: str
    owner: str
    source: str
    databases: tuple[str, ...]
    tables: tuple[str, ...] | None = None
    exclude_tables: tuple[str, ...] = ()
    start: str = '"latest"'
    declared_s: int = 0
    read_s: int = 0

    def same_content(self, other: Declaration) -> bool:
        """True if both declarations have the same content. Their `start`s may differ, because a start has no effect on
        a consumer that has begun."""
        stored = replace(other, start=self.start, declared_s=self.declared_s, read_s=self.read_s)
        return self == stored

    @property
    def content(self) -> dict[str, Any]:
        """{"source", "databases", "tables", "exclude_tables", "start"}, as in the API."""
        return {
            "source": self.source,
            "databases": list(self.databases),
            "tables": None if self.tables is None else list(self.tables),
            "exclude_tables": list(self.exclude_tables),
            "start": json.loads(self.start),
        }

    def to_row(self) -> tuple[str, str, str, int, int]:
        """Returns (name, owner, content as JSON, declared_s, read_s), the row in a state store."""
        content = json.dumps(self.content, separators=(",", ":"))
        return self.name, self.owner, content, self.declared_s, self.read_s

    @classmethod
    def from_row(
        cls, name: str, owner: str, content: str, declared_s: int, read_s: int
    ) -> Declaration:
        """Returns the declaration of a stored row. Raises BinlogError (STATE_STORE) for content of another form."""
        try:
            values = json.loads(content)
            tables = values["tables"]
            return cls(
                name,
                owner,
                str(values["source"]),
                tuple(map(str, values["databases"])),
                None if tables is None else tuple(map(str, tables)),
                tuple(map(str, values["exclude_tables"])),
                json.dumps(values["start"], separators=(",", ":")),
                declared_s,
                read_s,
            )
        except (ValueError, KeyError, TypeError) as error:
            what = f"the declaration of consumer {name} cannot be read: {error}"
            remedy = "restore the state from a backup"
            raise BinlogError(ErrorKind.STATE_STORE, what, remedy=remedy) from error
