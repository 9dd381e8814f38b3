"""Tables with masked columns and invalid values are mirrored under a load of rows while the job is killed, a table is
copied, and planted differences are repaired. In the end `verify` finds the tables equal, no file of the target except
the mirror's log has a value that is masked, and the quarantine has each invalid value once.

MySQL and MariaDB accept an invalid value only as a date without a day or month, and as half a surrogate pair in a
column of the character set ucs2. A JSON document is always valid.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from deploy.demo import delta
from tests.daemon.harness import until
from tests.mirror.harness import TIMEOUT_S, MirrorJob, meanwhile
from tests.mirror.planting import plant
from tests.mirror.test_proofs import DATABASE, OFTEN, differs, is_proved_since, proofs
from tests.servers import Server

pytestmark = pytest.mark.deep

SEED = int(os.environ.get("MASKED_SEED") or random.SystemRandom().randrange(1 << 31))
SETTINGS = f"""{OFTEN}
invalid_dates: error
mask_secret: a secret of the deep test
tables:
  "*.*":
    on_invalid: quarantine
    on_difference: repair
    mask: {{mail: sha256, phone: keyed, code: keyed, card: last4, note: "null", born: sha256}}
"""
CLEAR = "clear-"  # part of each text of a masked column
COLUMNS = (
    "mail VARCHAR(60), phone VARCHAR(60), card VARCHAR(60), note TEXT, born DATE, d DATE, m DATETIME(3),"
    " u VARCHAR(9) CHARACTER SET ucs2, j JSON, n INT"
)
# The literals of the columns that may be invalid, and what the quarantine has of them: None for a valid value.
DATES = (("NULL", None), ("'2024-01-31'", None), ("'2024-00-31'", b"2024-00-31"))
MOMENTS = (
    ("'2024-01-31 10:00:00.5'", None),
    ("'0000-00-00 00:00:00'", b"0000-00-00 00:00:00.000"),
)
TEXTS = (("'text'", None), ("X'D800'", b"\xd8\0"), ("X'0061DC000062'", b"\0a\xdc\0\0b"))
BIRTHS = (("'1999-12-31'", None), ("'1999-12-00'", b""))  # a masked column has no bytes
INVALID = {"born": BIRTHS, "d": DATES, "m": MOMENTS, "u": TEXTS}
TABLES = ("people", "accounts", "copied")
KILLS = ("quarantined", "before_apply", "step_committed", "", "quarantined")
CHANGES_PER_KILL = 12
BASE = 25  # rows of `people` that no change deletes


class Value(NamedTuple):
    """An invalid value of the row with the key `id`. `data`: its bytes in the quarantine."""

    table: str
    id: int
    column: str
    data: bytes


@dataclass
class Load:
    """Changes rows of the tables. `rows`: the invalid cells of each row, by table and id; `written`: how often each
    invalid value was in the row after a change."""

    server: Server
    rng: random.Random
    rows: dict[tuple[str, int], dict[str, bytes]] = field(default_factory=dict)
    written: Counter[Value] = field(default_factory=Counter)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def change(self) -> None:
        roll, known = self.rng.random(), sorted(self.rows)
        table, row = self.rng.choice(known)
        if roll < 0.4:
            self.insert(self.rng.choice(TABLES), self.rng.randrange(1, 4))
        elif roll < 0.6:
            self.execute(f"UPDATE {table} SET n = n + 1 WHERE id = {row}")
            self._wrote(table, row, self.rows[table, row])
        elif roll < 0.8:
            column = self.rng.choice(tuple(INVALID))
            literal, data = self.rng.choice(INVALID[column])
            self.execute(f"UPDATE {table} SET n = n + 1, {column} = {literal} WHERE id = {row}")
            cells = {c: b for c, b in self.rows[table, row].items() if c != column}
            self._wrote(table, row, cells if data is None else cells | {column: data})
        elif row > BASE:  # the other rows stay for the planted differences
            self.execute(f"DELETE FROM {table} WHERE id = {row}")
            del self.rows[table, row]

    def insert(self, table: str, count: int) -> None:
        """Insert rows in one statement."""
        lines, wrote = [], []
        for number in itertools.islice(self.ids, count):
            chosen = {name: self.rng.choice(literals) for name, literals in INVALID.items()}
            cells = {name: data for name, (_, data) in chosen.items() if data is not None}
            literals = {name: literal for name, (literal, _) in chosen.items()}
            code = f"'{CLEAR}code{number}', " if table == "accounts" else ""
            lines.append(
                f"({code}{number}, '{CLEAR}{number}@mail', '{CLEAR}{number}-phone', '4111 {CLEAR}card {number:04}',"
                f" '{CLEAR}note', {literals['born']}, {literals['d']}, {literals['m']}, {literals['u']},"
                f" '{{\"n\": [{number}, null]}}', 0)"
            )
            wrote.append((number, cells))
        names = "mail, phone, card, note, born, d, m, u, j, n"
        first = "code, id" if table == "accounts" else "id"
        self.execute(f"INSERT INTO {table} ({first}, {names}) VALUES {', '.join(lines)}")
        for number, cells in wrote:
            self._wrote(table, number, cells)

    def _wrote(self, table: str, row: int, cells: dict[str, bytes]) -> None:
        self.rows[table, row] = cells
        self.written.update(Value(table, row, column, data) for column, data in cells.items())

    def execute(self, *statements: str) -> None:
        lenient = ("SET NAMES utf8mb4", "SET SESSION sql_mode = ''")
        self.server.execute(*lenient, *statements, database=DATABASE)

    def make_changes(self) -> None:
        for _ in range(CHANGES_PER_KILL):
            self.change()


def kill(job: MirrorJob, load: Load, point: str) -> None:
    """Kill the job at a point that it reaches by the changes, "" for any time, and start it again."""
    if point:
        (job.kills / point).touch()
    load.insert("accounts", 3)
    with meanwhile(load.make_changes):
        assert job.process is not None
        if not point:
            os.killpg(job.process.pid, signal.SIGKILL)
        assert job.process.wait(TIMEOUT_S) == -signal.SIGKILL, job.log
    job.start(DATABASE, now=False)


def quarantined(job: MirrorJob) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = delta.read(job.target / "_binlog" / "quarantine").to_pylist()
    return rows


def values_of(rows: list[dict[str, Any]], origin: str) -> Counter[Value]:
    """Returns how often the quarantine has each value of the tables whose key is not masked."""
    found: Counter[Value] = Counter()
    for row in rows:
        if row["origin"] == origin and row["table"] in ("people", "copied"):
            number = int(row["key"].removeprefix('{"id": ').removesuffix("}"))
            found[Value(row["table"], number, row["column"], bytes(row["bytes"]))] += 1
    return found


def with_clear_values(target: Path) -> list[str]:
    """Returns the files of a target, except the mirror's log, that show a value of a masked column."""
    found = []
    for file in target.rglob("*"):
        name = str(file.relative_to(target))
        if not file.is_file() or name.startswith("_binlog/log/"):
            continue
        if file.suffix == ".parquet":
            with pq.ParquetFile(file) as parquet:
                text = str(parquet.read().to_pylist()) + str(parquet.metadata.to_dict())
        else:
            text = file.read_bytes().decode("utf-8", "replace")
        if CLEAR in text or "1999-12-31" in text:
            found.append(name)
    return found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", [("mysql97",), ("mariadb118",)], indirect=True)
def test_no_clear_value_is_shown_and_each_invalid_value_is_in_the_quarantine_once(
    job: MirrorJob,
) -> None:
    print(f"\nMASKED_SEED={SEED}")
    job.settings, job.copy_settings = SETTINGS, ", lock_keyless_tables: true"
    load = Load(job.server, random.Random(SEED))
    load.execute(
        f"CREATE TABLE people (id INT PRIMARY KEY, {COLUMNS})",
        f"CREATE TABLE copied (id INT PRIMARY KEY, {COLUMNS})",
        f"CREATE TABLE accounts (code VARCHAR(40) PRIMARY KEY, id INT, {COLUMNS})",
        "CREATE TABLE loose (n INT, mail VARCHAR(60), d DATE)",
        f"INSERT INTO loose VALUES (1, '{CLEAR}a', '2024-00-01'), (1, '{CLEAR}a', '2024-00-02'),"
        f" (1, '{CLEAR}a', '2024-00-02'), (2, '{CLEAR}b', '2024-01-31')",
    )
    load.insert("people", BASE)
    for table in ("copied", "accounts"):
        load.insert(table, 5)
    job.start(DATABASE, now=False)
    label, people = f"{DATABASE}.people", job.target / DATABASE / "people"
    until(lambda: proofs(job).get(label, {}).get("proved"), "it is proved", timeout_s=TIMEOUT_S)
    plant(people, "id")
    until(partial(differs, job, label), "the difference is found", timeout_s=TIMEOUT_S)
    for point in KILLS:
        kill(job, load, point)

    for table in ("copied", "loose"):
        (job.kills / "quarantined").touch()
        with meanwhile(load.make_changes):
            load.execute(f"ALTER TABLE {table} ADD c DATETIME DEFAULT CURRENT_TIMESTAMP")
            assert job.process is not None
            assert job.process.wait(TIMEOUT_S) == -signal.SIGKILL, job.log
        (job.kills / "group_staged").touch()
        process = job.start(DATABASE, now=False)
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL, job.log
        job.start(DATABASE, now=False)
    job.until_complete(DATABASE)
    since = time.time()
    with meanwhile(load.make_changes):
        pass
    proved = partial(is_proved_since, job, label, since)
    until(proved, "the table is proved again", timeout_s=TIMEOUT_S)
    assert job.stop() == 0, job.log
    assert job.run(DATABASE) == 0, job.log

    assert job.verify(DATABASE).count(": equal") == len(TABLES) + 1
    assert with_clear_values(job.target) == []
    found = quarantined(job)
    assert max(Counter(row["id"] for row in found).values()) == 1
    of_log, of_copy = (values_of(found, origin) for origin in ("log", "copy"))
    ids = Counter(
        (r["table_id"], r["lsn"], r["seq"], r["ordinal"], r["column"])
        for r in found
        if r["origin"] == "log"
    )
    assert max(ids.values()) == 1
    written = Counter({v: n for v, n in load.written.items() if v.table == "people"})
    assert Counter({v: n for v, n in of_log.items() if v.table == "people"}) == written
    accounts = Counter({v: n for v, n in load.written.items() if v.table == "accounts"})
    assert sum(r["table"] == "accounts" for r in found) == accounts.total()
    assert not any(value.table == "people" for value in of_copy)
    # Entries from before a copy are not applied, because the copy reads the rows as they are after these entries.
    assert of_log <= load.written
    assert of_copy.keys() <= load.written.keys()
    now = {
        Value("copied", row, column, data)
        for (table, row), cells in load.rows.items()
        if table == "copied"
        for column, data in cells.items()
    }
    assert now <= of_log.keys() | of_copy.keys()
    loose = [r for r in found if r["table"] == "loose" and r["origin"] == "copy"]
    assert Counter(bytes(r["bytes"]) for r in loose) == {b"2024-00-01": 1, b"2024-00-02": 1}
