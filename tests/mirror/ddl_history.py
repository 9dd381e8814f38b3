"""Random, repeatable histories of DDL and DML over a few tables, with the kinds of changes that teams make to schemas
over years.

Every statement is valid, because the generator knows the columns and keys of each table. A `Change` names the tables
that the mirror may copy again because of this change. It must follow the changes of all other tables with the log
alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_LIMITS = dict(zip(INTEGERS, (7, 15, 23, 31, 63), strict=True))
LABELS = ("small", "medium", "large", "grün", "größer", "extra", "none", "other", "a")


@dataclass(frozen=True, slots=True)
class Change:
    """One or more statements. `recopied`: tables whose existing rows the statements change in a way that the log does
    not show."""

    statements: tuple[str, ...]
    recopied: frozenset[str] = frozenset()


@dataclass(slots=True)
class ColumnModel:
    """A column. `kind`: 'integer', 'float', 'decimal', 'text', 'enum', 'date', 'datetime' or 'blob'; `size`: depending
    on the kind, the index in `INTEGERS`, or the number of digits, characters or labels."""

    name: str
    kind: str
    size: int
    unsigned: bool = False
    nullable: bool = True

    @property
    def type(self) -> str:
        match self.kind:
            case "integer":
                return INTEGERS[self.size] + (" unsigned" if self.unsigned else "")
            case "float":
                return ("float", "double")[self.size]
            case "decimal":
                return f"decimal({self.size + 2},2)"
            case "text":
                return f"varchar({self.size})"
            case "enum":
                return "enum(" + ",".join(f"'{label}'" for label in LABELS[: self.size]) + ")"
            case "blob":
                return "blob"
        return self.kind

    @property
    def definition(self) -> str:
        return self.type + ("" if self.nullable else " NOT NULL")


@dataclass(slots=True)
class TableModel:
    """A table. `columns`: all columns except the key `id`; `rows`: the ids of the existing rows."""

    name: str
    columns: list[ColumnModel]
    rows: list[int] = field(default_factory=list)
    next_id: int = 1
    next_column: int = 1


def _integer(chance: random.Random, column: ColumnModel) -> str:
    bits = _LIMITS[INTEGERS[column.size]]
    least, most = (0, 2 ** (bits + 1) - 1) if column.unsigned else (-(2**bits), 2**bits - 1)
    return str(chance.choice((0, 1, least, most, chance.getrandbits(bits))))


def _text(chance: random.Random, column: ColumnModel) -> str:
    length = chance.randint(0, min(column.size, 12))
    return "'" + "".join(chance.choice("abcä€😀 '") for _ in range(length)).replace("'", "''") + "'"


def _day(chance: random.Random, first: int, last: int) -> str:
    return f"{chance.randint(first, last)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"


# SELECT shows six digits of a FLOAT, so these values have at most six digits.
_LITERALS: dict[str, Callable[[random.Random, ColumnModel], str]] = {
    "integer": _integer,
    "float": lambda chance, _: str(
        chance.choice((0.5, -1.25, 1e10, chance.randrange(1 << 12) / 8))
    ),
    "decimal": lambda chance, column: (
        f"{chance.randrange(-(10**column.size) + 1, 10**column.size)}.25"
    ),
    "text": _text,
    "enum": lambda chance, column: f"'{chance.choice(LABELS[: column.size])}'",
    "date": lambda chance, _: f"'{_day(chance, 1000, 9999)}'",
    "datetime": lambda chance, _: f"'{_day(chance, 1970, 2037)} 23:59:{chance.randrange(60):02}'",
    "blob": lambda chance, _: f"x'{chance.randbytes(chance.randint(0, 9)).hex()}'",
}


class History:
    """Generates changes of `tables` tables. The same seed gives the same changes. `old`: True for the syntax of MySQL
    5.6."""

    def __init__(
        self, seed: int, tables: int = 10, *, recopies: bool = True, old: bool = False
    ) -> None:
        self._chance = random.Random(seed)
        self._recopies, self._old = recopies, old
        self._tables = [
            TableModel(f"t{n}", [self._new_column(f"c{k}") for k in range(4)], next_column=4)
            for n in range(tables)
        ]
        self._shadows = 0

    @property
    def tables(self) -> list[str]:
        return [table.name for table in self._tables]

    def creation(self) -> Iterator[Change]:
        for table in self._tables:
            yield Change((self._create(table), self._insert(table, 5)))

    def changes(self, statements: int) -> Iterator[Change]:
        """Yields changes with at least `statements` statements in total."""
        done = 0
        while done < statements:
            change = self._next(self._chance.choice(self._tables))
            done += len(change.statements)
            yield change

    # -- columns and values ------------------------------------------------------------------------------------

    def _new_column(self, name: str) -> ColumnModel:
        chance = self._chance
        kind = chance.choice(
            ("integer", "integer", "float", "decimal", "text", "text", "enum", "date", "datetime")
            + ("blob",)
        )
        size = {"integer": chance.randrange(3), "float": 0, "decimal": 6, "text": 10, "enum": 3}
        return ColumnModel(
            name, kind, size.get(kind, 0), kind == "integer" and chance.random() < 0.4
        )

    def _value(self, column: ColumnModel) -> str:
        chance = self._chance
        if column.nullable and chance.random() < 0.2:
            return "NULL"
        return _LITERALS[column.kind](chance, column)

    # -- changes of rows -----------------------------------------------------------------------------------------

    def _create(self, table: TableModel) -> str:
        columns = "".join(f", `{column.name}` {column.definition}" for column in table.columns)
        return f"CREATE TABLE {table.name} (id INT PRIMARY KEY{columns})"

    def _insert(self, table: TableModel, rows: int) -> str:
        ids = range(table.next_id, table.next_id + rows)
        table.next_id += rows
        table.rows += ids
        names = ", ".join(["id", *(f"`{column.name}`" for column in table.columns)])
        values = ", ".join(
            "(" + ", ".join([str(id_), *map(self._value, table.columns)]) + ")" for id_ in ids
        )
        return f"INSERT INTO {table.name} ({names}) VALUES {values}"

    def _some(self, table: TableModel) -> Sequence[int]:
        return self._chance.sample(table.rows, min(len(table.rows), self._chance.randint(1, 4)))

    def _dml(self, table: TableModel) -> Change:
        chance = self._chance
        if not table.rows or chance.random() < 0.45:
            return Change((self._insert(table, chance.randint(1, 6)),))
        ids = self._some(table)
        where = f"WHERE id IN ({', '.join(map(str, ids))})"
        if chance.random() < 0.25:
            table.rows = [row for row in table.rows if row not in ids]
            return Change((f"DELETE FROM {table.name} {where}",))
        if table.columns and chance.random() < 0.8:
            column = chance.choice(table.columns)
            return Change(
                (f"UPDATE {table.name} SET `{column.name}` = {self._value(column)} {where}",)
            )
        moved = table.next_id
        table.next_id += 1
        table.rows[table.rows.index(ids[0])] = moved
        return Change((f"UPDATE {table.name} SET id = {moved} WHERE id = {ids[0]}",))

    # -- changes of tables ---------------------------------------------------------------------------------------

    def _next(self, table: TableModel) -> Change:
        kinds: list[tuple[Callable[[TableModel], Change], int]] = [
            (self._dml, 60), (self._add, 7), (self._drop_column, 4), (self._rename_column, 4), (self._widen, 9),
            (self._harmless, 5), (self._truncate, 1), (self._drop_table, 2), (self._rename_table, 2),
            (self._shadow, 3), (self._several, 3),
        ]  # fmt: skip
        if self._recopies:
            kinds.append((self._recopied, 2))
        weights = [weight for _, weight in kinds]
        ((make, _),) = self._chance.choices(kinds, weights)
        return make(table)

    def _alter(self, table: TableModel, clause: str) -> Change:
        return Change((f"ALTER TABLE {table.name} {clause}",))

    def _add_clause(self, table: TableModel) -> str:
        column = self._new_column(f"c{table.next_column}")
        table.next_column += 1
        place = self._chance.choice(("", " FIRST", " AFTER id"))
        default = ""
        if column.kind not in ("blob", "date", "datetime") and self._chance.random() < 0.5:
            column.nullable = self._chance.random() < 0.5
            value = self._value(column)
            default = "" if value == "NULL" else f" DEFAULT {value}"
        table.columns.append(column)
        return f"ADD COLUMN `{column.name}` {column.definition}{default}{place}"

    def _add(self, table: TableModel) -> Change:
        return self._alter(table, self._add_clause(table))

    def _drop_column(self, table: TableModel) -> Change:
        if len(table.columns) < 2:
            return self._add(table)
        column = table.columns.pop(self._chance.randrange(len(table.columns)))
        return self._alter(table, f"DROP COLUMN `{column.name}`")

    def _rename_clause(self, table: TableModel) -> str:
        column = self._chance.choice(table.columns)
        old, column.name = column.name, f"c{table.next_column}"
        table.next_column += 1
        if self._chance.random() < 0.5 and not self._old:
            return f"RENAME COLUMN `{old}` TO `{column.name}`"
        return f"CHANGE `{old}` `{column.name}` {column.definition}"

    def _rename_column(self, table: TableModel) -> Change:
        return self._alter(table, self._rename_clause(table)) if table.columns else self._add(table)

    def _widen(self, table: TableModel) -> Change:
        growing = [
            column
            for column in table.columns
            if (column.kind == "integer" and column.size < len(INTEGERS) - 1)
            or (column.kind == "float" and column.size == 0)
            or (column.kind == "decimal" and column.size < 16)
            or (column.kind == "text" and column.size < 1000)
            or (column.kind == "enum" and column.size < 8)
            or column.kind == "date"
        ]
        if not growing:
            return self._add(table)
        column = self._chance.choice(growing)
        match column.kind:
            case "date":
                column.kind = "datetime"
            case "text":
                column.size *= 3
            case "decimal":
                column.size += 4
            case _:
                column.size += 1
        return self._alter(table, f"MODIFY `{column.name}` {column.definition}")

    def _harmless(self, table: TableModel) -> Change:
        chance = self._chance
        column = chance.choice(table.columns) if table.columns else None
        clauses = [
            f"COMMENT 'number {chance.randrange(100)}'",
            "ENGINE=InnoDB",
            "AUTO_INCREMENT=7000",
        ]
        if column:
            clauses.append(f"MODIFY `{column.name}` {column.definition} COMMENT 'x' FIRST")
            if column.kind in ("integer", "date", "decimal"):
                clauses.append(f"ADD INDEX (`{column.name}`)")
            if not column.nullable:
                column.nullable = True
                clauses = [f"MODIFY `{column.name}` {column.definition}"]
        return self._alter(table, chance.choice(clauses))

    def _several(self, table: TableModel) -> Change:
        clauses = [self._add_clause(table), self._add_clause(table)]
        if len(table.columns) > 3:
            clauses.append(f"DROP COLUMN `{table.columns.pop(0).name}`")
        return self._alter(table, ", ".join(clauses))

    def _truncate(self, table: TableModel) -> Change:
        table.rows = []
        return Change((f"TRUNCATE {table.name}", self._insert(table, 2)))

    def _drop_table(self, table: TableModel) -> Change:
        """Drop the table, and create a table with the same name: a table with other columns, or one with the same rows
        (LIKE and SELECT)."""
        if self._chance.random() < 0.4:
            other = f"{table.name}_kept"
            return Change(
                (
                    f"CREATE TABLE {other} LIKE {table.name}",
                    f"INSERT INTO {other} SELECT * FROM {table.name}",
                    f"DROP TABLE {table.name}",
                    f"RENAME TABLE {other} TO {table.name}",
                )
            )
        table.rows, table.columns = [], [self._new_column(f"c{k}") for k in range(3)]
        table.next_column = 3
        return Change((f"DROP TABLE {table.name}", self._create(table), self._insert(table, 3)))

    def _rename_table(self, table: TableModel) -> Change:
        """Rename a table to a free name and back, or swap two tables in one statement."""
        other = self._chance.choice(self._tables)
        if other is table:
            free = f"{table.name}_away"
            insert = self._insert(table, 1).replace(f"INTO {table.name} ", f"INTO {free} ", 1)
            return Change(
                (
                    f"RENAME TABLE {table.name} TO {free}",
                    insert,
                    f"ALTER TABLE {free} RENAME TO {table.name}",
                )
            )
        swap = f"RENAME TABLE {table.name} TO swap_, {other.name} TO {table.name}, swap_ TO {other.name}"
        table.name, other.name = other.name, table.name
        return Change((swap, self._insert(table, 1), self._insert(other, 1)))

    def _shadow(self, table: TableModel) -> Change:
        """Alter a table by means of a shadow table, with the names and the order of statements of gh-ost or pt-osc."""
        self._shadows += 1
        shadow, old = (f"_{table.name}_gho", f"_{table.name}_del")
        if self._shadows % 2:
            shadow, old = (f"_{table.name}_new", f"_{table.name}_old")
        names = ", ".join(["id", *(f"`{column.name}`" for column in table.columns)])
        made = f"CREATE TABLE {shadow} LIKE {table.name}"
        altered = self._add_clause(table)
        return Change(
            (
                made,
                f"ALTER TABLE {shadow} {altered}",
                f"INSERT IGNORE INTO {shadow} ({names}) SELECT {names} FROM {table.name}",
                f"RENAME TABLE {table.name} TO {old}, {shadow} TO {table.name}",
                f"DROP TABLE {old}",
            )
        )

    def _recopied(self, table: TableModel) -> Change:
        """Make a change that gives existing rows values that the log does not contain."""
        recopied = frozenset((table.name,))
        name = f"c{table.next_column}"
        table.next_column += 1
        if self._chance.random() < 0.5:
            table.columns.append(ColumnModel(name, "datetime", 0))
            return Change(
                (
                    f"ALTER TABLE {table.name} ADD COLUMN `{name}` datetime DEFAULT CURRENT_TIMESTAMP",
                ),
                recopied,
            )
        narrow = [column for column in table.columns if column.kind == "datetime"]
        if not narrow:
            return self._add(table)
        column = self._chance.choice(narrow)
        column.kind = "date"
        return Change((f"ALTER TABLE {table.name} MODIFY `{column.name}` date",), recopied)
