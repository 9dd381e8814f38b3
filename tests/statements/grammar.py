"""Makes statements from the servers' grammars: clauses, options, names, comments and settings of sessions.

A statement is a list of parts, so that a failing one can be made shorter (`shorter`). Each server refuses many of these
statements. A statement that no server accepts tests nothing, so the choices follow the manuals.

Sources: MySQL 9.7 manual, "Data Definition Statements"; MariaDB knowledge base, "Data Definition"; sql_yacc.yy of both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tests.statements.cases import Case, unescaped
from tests.statements.settings import SETTINGS

_T = TypeVar("_T")


def _words(section: str) -> tuple[str, ...]:
    """Returns the lines of a section of `words.txt`."""
    text = (Path(__file__).parent / "words.txt").read_text(encoding="utf-8")
    _, _, rest = text.partition(f"@{section}\n")
    return tuple(map(unescaped, rest.partition("\n@")[0].rstrip("\n").split("\n")))


_TABLES = (
    "t",
    "u",
    "p",
    "x",
    "h",
    "n",
    "m",
    "y",
    "parent",
    "child",
    "v",
    "sq",
    "sv",
    "nosuch",
    "t",
    "t",
    "y",
)
_COLUMNS = {
    "t": ("id", "a", "b", "c"), "u": ("id", "v"), "n": ("a", "b"), "m": ("id", "a", "b"),
    "y": ("id", "i", "d", "f", "bi", "y", "da", "dt", "ts", "tm", "ch", "tx", "bl", "vb", "e", "s"),
    "child": ("id", "parent_id"), "v": ("id", "v"),
}  # fmt: skip
_NEW = _words("names")
_TYPES = _words("types")
_LITERALS = _words("literals")
_ATTRIBUTES = _words("attributes")
_OPTIONS = _words("options")
_PARTITIONS = _words("partitions")
_PARTITIONING = _words("partitioning")
_HARMLESS = _words("clauses")
_OTHER = _words("others")
_BLANKS = _words("blanks")


@dataclass(frozen=True, slots=True)
class Statement:
    """`parts`: pieces of text that are joined by blanks; a part may be removed."""

    parts: tuple[str, ...]
    setting: str = "plain"

    @property
    def case(self) -> Case:
        return Case(" ".join(self.parts), "generated", self.setting)

    @property
    def form(self) -> str:
        return " ".join(word.upper() for word in self.parts[:2] if word.isalpha())


def shorter(statement: Statement) -> Iterator[Statement]:
    """Yields statements with fewer parts, or with the plain setting, the shortest first."""
    if statement.setting != "plain":
        yield replace(statement, setting="plain")
    parts = statement.parts
    for size in (8, 4, 2, 1):
        for at in range(2, len(parts)):
            left = parts[:at] + parts[at + size :]
            if len(left) < len(parts):
                yield replace(statement, parts=left)


class Grammar:
    """Makes statements with the choices of `chance`."""

    def __init__(self, chance: random.Random, *, mariadb: bool) -> None:
        self._chance, self._mariadb = chance, mariadb
        self._table = "t"

    def statement(self) -> Statement:
        make = self._one(
            (*[self._alter] * 10, *[self._create] * 4, self._drop, self._rename, self._truncate)
            + (self._other, self._other)
        )
        parts = make()
        if self._mariadb and self._is(0.04):
            parts = ["SET STATEMENT", "lock_wait_timeout=1", "FOR", *parts]
        if self._is(0.15):
            parts = [self._spaced(part) for part in parts]
        if self._is(0.05):
            at = self._chance.randrange(1, len(parts) + 1)
            mark = self._one(("/*!", "/*!50000", "/*!99999", "/*!80000", "/*M!", "/*M!100100"))
            parts = [*parts[:at], mark, *parts[at:], "*/"]
        setting = self._one(tuple(SETTINGS)) if self._is(0.4) else "plain"
        statement = Statement(tuple(parts), setting)
        try:
            statement.case.sql.encode(SETTINGS[setting].encoding)
        except UnicodeEncodeError:
            return replace(statement, setting="plain")
        return statement

    # -- choices -----------------------------------------------------------------------------------------------

    def _one(self, among: Sequence[_T]) -> _T:
        return self._chance.choice(among)

    def _is(self, share: float) -> bool:
        return self._chance.random() < share

    def _maybe(self, *parts: str, share: float = 0.2) -> list[str]:
        return [*parts] if self._is(share) else []

    def _spaced(self, part: str) -> str:
        return part + self._one(_BLANKS) if self._is(0.3) else part

    def _quoted(self, name: str) -> str:
        if self._is(0.1):
            return '"' + name.replace('"', '""') + '"'
        return "`" + name.replace("`", "``") + "`"

    def _word(self, name: str) -> str:
        return self._quoted(name) if self._is(0.4) else name

    def _existing(self) -> str:
        """Returns the name of a table, in some form."""
        self._table = self._one(_TABLES)
        if self._is(0.05):
            return self._one(("other.t", "`other`.`o`", "other . t", "other.`t`"))
        return self._qualified(self._table)

    def _qualified(self, table: str) -> str:
        name = self._word(table.upper() if self._is(0.05) else table)
        if self._is(0.2):
            return self._one(("shop.", "`shop`.", "shop .", "shop. ", "SHOP.", ".")) + name
        return name

    def _new(self) -> str:
        name = self._one(_NEW) if self._is(0.6) else "z"
        return self._one(("", "", "", "shop.", "other.")) + self._word(name)

    def _column(self) -> str:
        return self._word(self._one(_COLUMNS.get(self._table, ("id", "a"))))

    # -- ALTER TABLE -------------------------------------------------------------------------------------------

    def _alter(self) -> list[str]:
        parts = ["ALTER", *self._maybe(self._one(("IGNORE", "ONLINE", "OFFLINE")), share=0.08)]
        parts += ["TABLE", *self._maybe("IF EXISTS", share=0.05), self._existing()]
        if self._mariadb:
            parts += self._maybe(self._one(("NOWAIT", "WAIT 1")), share=0.05)
        if self._is(0.12):
            return (
                [*parts, self._one(_PARTITIONS)] if self._is(0.8) else [*parts, *self._exchange()]
            )
        for n in range(self._one((1, 1, 1, 2, 2, 3))):
            parts += [",", *self._clause()] if n else self._clause()
        return parts + self._maybe(self._one(_PARTITIONING), share=0.08)

    def _exchange(self) -> list[str]:
        validation = self._maybe(self._one(("WITH VALIDATION", "WITHOUT VALIDATION")))
        return ["EXCHANGE PARTITION p0 WITH TABLE", self._qualified("x"), *validation]

    def _clause(self) -> list[str]:
        makers: tuple[Callable[[], list[str]], ...] = (
            *[self._add] * 5, *[self._change] * 4, self._drop_column, self._drop_column, self._rename_column,
            self._add_key, self._add_key, self._options, self._options, self._rename_to, self._default,
            lambda: [self._one(_HARMLESS)], lambda: [self._one(_HARMLESS)],
        )  # fmt: skip
        return self._one(makers)()

    def _add(self) -> list[str]:
        parts = [
            "ADD",
            *self._maybe("COLUMN", share=0.5),
            *self._maybe("IF NOT EXISTS", share=0.05),
        ]
        if self._is(0.1):
            return [
                *parts,
                "(",
                *self._defined(self._word(self._one(_NEW))),
                ",",
                *self._in_list(),
                ")",
            ]
        return [*parts, *self._defined(self._word(self._one(_NEW))), *self._place()]

    def _in_list(self) -> list[str]:
        if self._is(0.5):
            return ["KEY zk (", self._column(), ")"]
        return self._defined(self._word(self._one(("z3", "z4", "key", "index"))))

    def _defined(self, name: str) -> list[str]:
        parts = [name, self._one(_TYPES)]
        before = self._maybe(self._one(_ATTRIBUTES), share=0.3)
        if self._is(0.5):
            before += ["DEFAULT", self._one(_LITERALS)]
        return parts + before + self._maybe(self._one(_ATTRIBUTES), share=0.2)

    def _place(self) -> list[str]:
        if self._is(0.8):
            return []
        return ["FIRST"] if self._is(0.4) else ["AFTER", self._column()]

    def _change(self) -> list[str]:
        column = self._column()
        exists = self._maybe("IF EXISTS", share=0.05)
        if self._is(0.5):
            name = self._word(self._one(_NEW)) if self._is(0.5) else column
            parts = [
                "CHANGE",
                *self._maybe("COLUMN", share=0.5),
                *exists,
                column,
                *self._defined(name),
            ]
        else:
            parts = ["MODIFY", *self._maybe("COLUMN", share=0.5), *exists, *self._defined(column)]
        return parts + self._place()

    def _drop_column(self) -> list[str]:
        exists = self._maybe("IF EXISTS", share=0.1)
        name = self._word(self._one(_NEW)) if self._is(0.2) else self._column()
        after = self._maybe(self._one(("RESTRICT", "CASCADE")), share=0.1)
        return ["DROP", *self._maybe("COLUMN", share=0.6), *exists, name, *after]

    def _rename_column(self) -> list[str]:
        return ["RENAME COLUMN", self._column(), "TO", self._word(self._one(_NEW))]

    def _rename_to(self) -> list[str]:
        return ["RENAME", *self._maybe(self._one(("TO", "AS", "=")), share=0.8), self._new()]

    def _default(self) -> list[str]:
        set_ = ["SET DEFAULT", self._one(_LITERALS)] if self._is(0.6) else ["DROP DEFAULT"]
        return ["ALTER", *self._maybe("COLUMN", share=0.5), self._column(), *set_]

    def _options(self) -> list[str]:
        return [self._one(_OPTIONS) for _ in range(self._one((1, 1, 2, 3)))]

    def _add_key(self) -> list[str]:
        kind = self._one((
            "INDEX", "KEY", "UNIQUE", "UNIQUE KEY", "FULLTEXT KEY", "PRIMARY KEY", "CONSTRAINT q UNIQUE",
            "SPATIAL INDEX", "CONSTRAINT PRIMARY KEY", "INDEX IF NOT EXISTS", "VECTOR INDEX",
        ))  # fmt: skip
        name = [] if "PRIMARY" in kind else self._maybe(self._word(self._one(_NEW)), share=0.5)
        columns = [self._column(), *self._maybe(",", self._column(), share=0.3)]
        if self._is(0.15):
            return [
                "ADD FOREIGN KEY (",
                self._column(),
                ") REFERENCES parent (id) ON DELETE CASCADE",
            ]
        using = self._maybe(self._one(("USING BTREE", "COMMENT 'c'", "INVISIBLE")), share=0.15)
        return ["ADD", kind, *name, "(", *columns, ")", *using]

    # -- other statements --------------------------------------------------------------------------------------

    def _create(self) -> list[str]:
        parts = [
            "CREATE",
            *self._maybe("OR REPLACE", share=0.12),
            *self._maybe("TEMPORARY", share=0.05),
        ]
        parts += ["TABLE", *self._maybe("IF NOT EXISTS", share=0.2)]
        parts += [self._existing() if self._is(0.15) else self._new()]
        if self._is(0.12):
            like = ["LIKE", self._existing()]
            return [*parts, *(like if self._is(0.7) else ["(", *like, ")"])]
        if self._is(0.15):
            return [*parts, *self._source()]
        parts += ["("]
        for n in range(self._one((1, 2, 3))):
            parts += (
                [",", *self._defined(self._word(self._one(_NEW)))] if n else self._defined("id")
            )
        parts += [")", *self._maybe(*self._options(), share=0.3)]
        parts += self._maybe(self._one(_PARTITIONING), share=0.1)
        return parts + (self._source() if self._is(0.12) else [])

    def _source(self) -> list[str]:
        how = self._maybe(self._one(("IGNORE", "REPLACE")), share=0.1) + self._maybe(
            "AS", share=0.5
        )
        table = self._one(("u", "t", "n"))
        return [*how, self._one((
            f"SELECT * FROM {table}", f"(SELECT * FROM {table})", f"TABLE {table}", "VALUES ROW(1,2)", "VALUES (1,2)",
            f"(TABLE {table})", "WITH w AS (SELECT 1 AS id) SELECT * FROM w", "SELECT 1 AS id", "((SELECT 2 AS id))",
            f"SELECT * FROM {table} WHERE 1 = 0",
        ))]  # fmt: skip

    def _wait(self) -> list[str]:
        return self._maybe(self._one(("NOWAIT", "WAIT 1")), share=0.08) if self._mariadb else []

    def _drop(self) -> list[str]:
        parts = [
            "DROP",
            *self._maybe("TEMPORARY", share=0.05),
            self._one(("TABLE", "TABLE", "TABLES")),
        ]
        parts += [*self._maybe("IF EXISTS", share=0.4), self._existing()]
        parts += self._maybe(",", self._existing(), share=0.3)
        return parts + self._wait() + self._maybe(self._one(("RESTRICT", "CASCADE")), share=0.1)

    def _truncate(self) -> list[str]:
        return ["TRUNCATE", *self._maybe("TABLE", share=0.7), self._existing(), *self._wait()]

    def _rename(self) -> list[str]:
        parts = [
            "RENAME",
            self._one(("TABLE", "TABLE", "TABLES")),
            *self._maybe("IF EXISTS", share=0.1),
        ]
        first, new = self._existing(), self._new()
        parts += [first, *self._wait(), "TO", new]
        if self._is(0.4):
            parts += [",", self._existing(), "TO", first if self._is(0.6) else self._new()]
        return parts

    def _other(self) -> list[str]:
        text = self._one(_OTHER)
        while "{table}" in text:
            text = text.replace("{table}", self._existing(), 1)
        return text.replace("{new}", self._new()).split(" ")
