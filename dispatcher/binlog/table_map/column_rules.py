"""How the values of some columns are changed while they are decoded. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from dispatcher.binlog.table_map.column_types import Column, Mask, MaskForm

if TYPE_CHECKING:  # loads kernels, which commands of the mirror do not need
    from dispatcher.binlog.table_map.parse import TableMap

RuledTable: TypeAlias = "Callable[[TableMap], TableMap]"
"""Returns a TABLE_MAP with rules for its columns."""


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """The rules of one table's columns.

    `nulls_invalid`: True if a value that is invalid for its column's type becomes NULL, False if it is an error;
    `masks`: the masks of columns, by their names in upper or lower case.
    """

    nulls_invalid: bool = False
    masks: tuple[tuple[str, Mask], ...] = ()

    def mask(self, name: str) -> Mask | None:
        """Returns the mask of the column with this name."""
        named = name.casefold()
        return next((mask for other, mask in self.masks if other.casefold() == named), None)

    def column(self, column: Column) -> Column:
        """Returns the column with these rules."""
        return replace(column, nulls_invalid=self.nulls_invalid, mask=self.mask(column.name))

    def table_map(self, table_map: TableMap) -> TableMap:
        """Returns the TABLE_MAP with these rules for its columns."""
        if self == UNCHANGED:
            return table_map
        return replace(table_map, columns=tuple(map(self.column, table_map.columns)))


UNCHANGED = ColumnRules()


def hides_key(columns: Sequence[Column], key: Sequence[int]) -> str:
    """Returns the name of a key column whose mask can give two different values the same text, so that their rows could
    not be told apart; "" if there is none. `key`: the indices of the key's columns."""
    hidden = (columns[i] for i in key)
    return next((c.name for c in hidden if c.mask and c.mask.form is not MaskForm.KEYED), "")
