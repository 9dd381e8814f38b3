"""Generates tables and operations on them, as plain values that the tests can print as SQL, run, and reduce."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.differential.catalogue import Declared, Features, kinds


@dataclass(frozen=True, slots=True)
class Column:
    """`sql`: the type; `clauses`: the SQL after the type; `written`: False for a generated column, into which no value
    is inserted."""

    name: str
    sql: str
    reading: str
    clauses: str = ""
    written: bool = True
    large: bool = False


@dataclass(frozen=True, slots=True)
class Insert:
    """Inserts rows of literals for `columns`. The row number `rid` is one of these columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    verb: str = "INSERT IGNORE"

    def sql(self, table: str) -> str:
        rows = ", ".join(f"({', '.join(row)})" for row in self.rows)
        return f"{self.verb} INTO {table} ({', '.join(map(quoted, self.columns))}) VALUES {rows}"


@dataclass(frozen=True, slots=True)
class Update:
    """`values`: (column, new value); the value is a literal, or an expression with {} for the column."""

    rid: str
    rids: tuple[int, ...]
    values: tuple[tuple[str, str], ...]

    def sql(self, table: str) -> str:
        sets = ", ".join(
            f"{quoted(name)} = {value.replace('{}', quoted(name))}" for name, value in self.values
        )
        return f"UPDATE IGNORE {table} SET {sets} WHERE {quoted(self.rid)} IN ({_list(self.rids)})"


@dataclass(frozen=True, slots=True)
class Delete:
    rid: str
    rids: tuple[int, ...]

    def sql(self, table: str) -> str:
        return f"DELETE FROM {table} WHERE {quoted(self.rid)} IN ({_list(self.rids)})"


@dataclass(frozen=True, slots=True)
class Undone:
    """A change that ROLLBACK TO SAVEPOINT undoes."""

    step: Update | Delete

    def sql(self, table: str) -> str:
        return self.step.sql(table)


Step = Insert | Update | Delete | Undone


@dataclass(frozen=True, slots=True)
class Table:
    """`rid`: name of the column that numbers the rows and is never updated; `keys`: clauses of CREATE TABLE for further
    keys; `primary`: columns of the primary key; `transactions`: each makes at most one transaction in the log;
    `settings`: statements that the session runs first; `full`: True if the session logs all columns of a row;
    `generated_left_out`: True if the server always omits generated columns from the images of UPDATE and DELETE."""

    name: str
    rid: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    primary: tuple[str, ...]
    engine: str
    transactions: tuple[tuple[Step, ...], ...]
    settings: tuple[str, ...] = ()
    full: bool = True
    generated_left_out: bool = False

    @property
    def left_out(self) -> frozenset[str]:
        """Returns the generated columns if the server omits them from images, else nothing."""
        generated = (column.name for column in self.columns if not column.written)
        return frozenset(generated if self.generated_left_out else ())

    def create(self, table: str) -> str:
        columns = [f"{quoted(c.name)} {c.sql} {c.clauses}".rstrip() for c in self.columns]
        primary = [f"PRIMARY KEY ({', '.join(map(quoted, self.primary))})"] if self.primary else []
        inside = ",\n  ".join([*columns, *primary, *self.keys])
        return f"CREATE TABLE {table} (\n  {inside}\n) ENGINE={self.engine}"

    def statements(self, table: str) -> Iterator[list[str]]:
        """Yields the statements of each transaction."""
        for steps in self.transactions:
            if len(steps) == 1 and not isinstance(steps[0], Undone):
                yield [steps[0].sql(table)]
                continue
            statements = ["BEGIN"]
            for step in steps:
                if isinstance(step, Undone):
                    statements += [
                        "SAVEPOINT `s p`",
                        step.sql(table),
                        "ROLLBACK TO SAVEPOINT `s p`",
                    ]
                else:
                    statements.append(step.sql(table))
            yield [*statements, "COMMIT"]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The tables to generate. `only`: names of kinds, None for all; `rows`, `columns`: the largest numbers; `settings`:
    statements that the session runs first; `full`: True if the session logs all columns of a row. If `full` is False,
    the row number must be in the primary key, because otherwise the test could not find a changed row."""

    only: tuple[str, ...] | None = None
    rows: int = 6
    columns: int = 9
    settings: tuple[str, ...] = ()
    full: bool = True


_AT_ONCE = 8

_KINDS: dict[int, tuple[Features, dict[str, st.SearchStrategy[Declared]]]] = {}


def _kinds(features: Features) -> dict[str, st.SearchStrategy[Declared]]:
    """Returns `kinds(features)`. Cached, because building the strategies takes longer than drawing from them."""
    if id(features) not in _KINDS:
        _KINDS[id(features)] = (features, kinds(features))
    return _KINDS[id(features)][1]


# Letters of many scripts that identifiers may contain (the BMP). A trailing number makes the names differ.
_NAME_LETTERS = st.text("abzAZ_ $`'\"\\.%?é中ж0;-#/*{}", max_size=10)


@st.composite
def _name(draw: st.DrawFn, number: int, most: int = 64) -> str:
    if draw(st.integers(0, 19)) == 0:
        return "n" * (most - 2) + f"{number:02}"
    return (draw(_NAME_LETTERS) + f"{number}").lstrip(" ")


@st.composite
def tables(draw: st.DrawFn, features: Features, wanted: Wanted) -> Table:
    catalogue = _kinds(features)
    names = list(wanted.only) if wanted.only else list(catalogue)
    # Hypothesis prefers short lists. So draw a number, and take that many kinds from the beginning of a permutation:
    # each kind has the same probability.
    number = draw(st.integers(2, wanted.columns))
    chosen = draw(st.permutations(names))[:number]
    declared = {draw(_name(i)): draw(catalogue[name]) for i, name in enumerate(chosen, start=1)}
    rid = draw(_name(0))
    columns = [draw(_column(name, kind, features)) for name, kind in declared.items()]
    columns.append(Column(rid, "INT", "integer", "NOT NULL"))
    columns += draw(_extra_columns(features, rid)) if features.generated else []
    columns = draw(st.permutations(columns))
    primary, keys = draw(_keys(declared, rid, columns, keyed=not wanted.full))
    engine = draw(st.sampled_from(("InnoDB", "InnoDB", "InnoDB", "MyISAM")))
    if not wanted.full:
        engine = "InnoDB"
    given_columns = {column.name for column in columns if column.written and column.name != rid}
    writable = {name: kind for name, kind in declared.items() if name in given_columns}
    plain, numbered = engine == "MyISAM", primary == (rid,)
    transactions = draw(
        _transactions(
            writable,
            rid,
            wanted.rows,
            plain=plain,
            numbered=numbered,
            replaces=wanted.full or not features.mariadb,
        )
    )
    name = draw(_name(0, 60))
    return Table(
        name,
        rid,
        tuple(columns),
        keys,
        primary,
        engine,
        transactions,
        wanted.settings,
        wanted.full,
        features.generated_left_out,
    )


@st.composite
def _column(draw: st.DrawFn, name: str, kind: Declared, features: Features) -> Column:
    # The server makes the columns of a primary key NOT NULL.
    clauses = draw(st.sampled_from(("", "", "", "NOT NULL")))
    if kind.sql.startswith("TIMESTAMP"):
        clauses = ""
    if features.invisible and not clauses and draw(st.integers(0, 9)) == 0:
        clauses = features.invisible
    return Column(name, kind.sql, kind.reading, clauses, large=kind.large)


@st.composite
def _extra_columns(draw: st.DrawFn, features: Features, rid: str) -> list[Column]:
    columns = []
    for i, (sql, reading, expression) in enumerate(
        (
            ("BIGINT", "integer", "{} * 3"),
            ("VARCHAR(20) CHARACTER SET utf8mb4", "text", "CONCAT('é', {})"),
        )
    ):
        kept = draw(st.sampled_from(("", "", "VIRTUAL", "STORED")))
        if kept:
            clauses = f"GENERATED ALWAYS AS ({expression.replace('{}', quoted(rid))}) {kept}"
            columns.append(Column(f"generated {i}.", sql, reading, clauses, written=False))
    return columns


@st.composite
def _keys(
    draw: st.DrawFn, declared: Mapping[str, Declared], rid: str, columns: Sequence[Column], *, keyed: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:  # fmt: skip
    """Draws the columns of the primary key, and clauses for further keys."""
    able = [name for name, kind in declared.items() if kind.keyed]
    if any(column.clauses == "INVISIBLE" for column in columns):
        able = [c.name for c in columns if c.name in able and c.clauses != "INVISIBLE"]
    some = draw(st.lists(st.sampled_from(able), max_size=2, unique=True)) if able else []
    which = draw(st.sampled_from(("none", "rid", "with", "unique", "index")))
    if keyed and which in ("none", "unique", "index"):
        which = "rid"
    if which == "with":
        return tuple(draw(st.permutations([*some, rid]))), ()
    if which == "rid":
        return (rid,), tuple(f"KEY ({quoted(name)})" for name in some)
    if which == "unique" and some:
        return (), (f"UNIQUE KEY ({', '.join(map(quoted, some))})",)
    return (), (f"KEY ({', '.join(map(quoted, some))})",) if some and which == "index" else ()


@st.composite
def _transactions(
    draw: st.DrawFn,
    declared: Mapping[str, Declared],
    rid: str,
    rows: int,
    *,
    plain: bool,
    numbered: bool,
    replaces: bool,
) -> tuple[tuple[Step, ...], ...]:
    """Draws transactions. `plain`: True if the engine has no transactions; `numbered`: True if the primary key is only
    the row number, by which REPLACE finds the row to replace."""
    n = draw(st.integers(1, rows))
    # If MariaDB does not log all columns, the image of a row that REPLACE changes lacks the columns for which the
    # statement has no value. The server sets these columns to their defaults, but MariaDB's own replicas keep the old
    # values.
    verbs = ("INSERT IGNORE", "REPLACE") if replaces else ("INSERT IGNORE",)
    some = st.lists(st.integers(1, n), min_size=1, max_size=n, unique=True).map(tuple)
    transactions: list[tuple[Step, ...]] = [(draw(_insert(declared, rid, range(1, n + 1))),)]
    for _ in range(draw(st.integers(1, 3))):
        steps: list[Step] = []
        for _ in range(1 if plain else draw(st.sampled_from((1, 1, 2, 3)))):
            what = draw(st.sampled_from(("update", "update", "update", "delete", "insert")))
            if what == "insert" or (what == "update" and not declared):
                verb = draw(st.sampled_from(verbs)) if numbered else ""
                rids = draw(some) if verb else (n := n + 1,)
                steps.append(draw(_insert(declared, rid, rids, verb or "INSERT IGNORE")))
                continue
            rids = draw(some)
            step = Delete(rid, rids) if what == "delete" else draw(_update(declared, rid, rids))
            steps.append(Undone(step) if not plain and draw(st.integers(0, 5)) == 0 else step)
        transactions.append(tuple(steps))
    transactions.append((Delete(rid, tuple(range(1, n + 1))),))
    return tuple(transactions)


@st.composite
def _insert(
    draw: st.DrawFn,
    declared: Mapping[str, Declared],
    rid: str,
    rids: Sequence[int],
    verb: str = "INSERT IGNORE",
) -> Insert:
    left_out: set[str] = set()
    if declared and draw(st.integers(0, 4)) == 0:
        left_out = draw(st.sets(st.sampled_from(list(declared))))
    names = [name for name in declared if name not in left_out]
    rows = tuple(
        (str(number), *(draw(_literal(declared[name])) for name in names)) for number in rids
    )
    return Insert((rid, *names), rows, verb)


def _literal(kind: Declared) -> st.SearchStrategy[str]:
    return st.one_of(kind.literals, kind.literals, kind.literals, kind.literals, st.just("NULL"))


@st.composite
def _update(
    draw: st.DrawFn, declared: Mapping[str, Declared], rid: str, rids: tuple[int, ...]
) -> Update:
    names = draw(st.lists(st.sampled_from(list(declared)), min_size=1, max_size=3, unique=True))
    values = []
    for name in names:
        kind = declared[name]
        own = kind.changes if kind.changes is not None and draw(st.integers(0, 2)) else None
        values.append((name, draw(_literal(kind) if own is None else own)))
    return Update(rid, rids, tuple(values))


def generate(
    features: Features, wanted: Wanted, number: int, random_seed: int, label: str = ""
) -> list[Table]:
    """Returns `number` tables. They depend only on the seed, the server version and the catalogue. `label`: a part of
    the tables' names."""
    tables_: list[Table] = []
    # After ten examples, hypothesis mostly varies earlier examples, but each table should be new.
    for start in range(0, number, _AT_ONCE):

        @seed(random_seed * 10_000 + start)
        @settings(
            max_examples=min(_AT_ONCE, number - start) + 1,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        @given(tables(features, wanted))
        def collect(table: Table) -> None:
            tables_.append(table)

        collect()
        if start:
            del tables_[start]  # the first table of each run of hypothesis is the simplest table
    return [
        replace(table, name=f"{table.name} {label}.{i}"[-64:])
        for i, table in enumerate(tables_[:number])
    ]
