"""Plays written as text: the moves of a server, of people and of the job, and the effects of the mirror's rules.

A file of `plays/` begins with the rule that it shows; `tests.simulation.scripts` describes its lines. Below a move,
`==` lines show the tables that the move has changed: the word of the state, and the rows as key=value. An lsn is
written as append.index. `judge` checks each step, as in the simulation.

The moves:

    settings [unknown=copy|partial|stop] [unfollowed=recopy|stop|new_column] [purged=copy|partial] [history=yes]
             [files=yes] [held=KIB] [proofs=yes] [difference=report|repair|stop] [mask=COLUMN]
             [invalid=stop|null|quarantine] first;
             `files`: folders move as in an object store; `held`: memory of what waits; `proofs`: tables are compared
             with the server, in ranges of two rows; `invalid`: what happens to the values 5 and 6, which are invalid
             in all columns except `id`
    old NAME KEY=VALUE ...          a table that is older than the mirror, with these rows; `keyless=yes`: without a key
    create NAME                     CREATE TABLE, with the columns `id` and `a`; `keyless=yes`: without a key;
                                    `absent=yes`: IF NOT EXISTS, for a table that exists
    insert NAME KEY=VALUE ...       rows are inserted, updated or deleted
    update NAME KEY=VALUE ...
    delete NAME KEY=VALUE ...
    add NAME COLUMN=VALUE           ALTER TABLE: a column whose value is VALUE in all rows
    truncate NAME; drop NAME        the statements
    clean NAME                      a statement that deletes a row; the log does not contain the deletion
    swap NAME OTHER                 RENAME TABLE, which exchanges two tables; `rename NAME OTHER`: to a free name;
                                    `rename NAME OTHER add=COLUMN`: ALTER TABLE, which also adds a column
    append                          the changes so far become an append of the log, and the job reads it
    purge                           the server purges its changes from now on before they are read
    gap                             the log continues after the purged changes, and the job reads it
    lose APPEND; restore            an append of the log cannot be read; its file is restored
    forget                          maintenance deletes the part of the log that is not needed
    start                           a job starts; with `drain=yes` it drains the log
    kill [WORK ...]                 the job is killed, after running works of these kinds were done
    stop                            the job ends in order: running works end, and it stores its records
    unmask NAME; mask NAME          changes the settings of the next job: columns of tables with this name have no mask
    exclude NAME; include NAME      changes the settings of the next job; `allow null|quarantine`: what happens to
                                    invalid values
    work KIND ...                   the oldest work of each kind ends, or a copy reads its next chunk; `fails=before`,
                                    after (its commit), conflict or fault (of the table's data or files)
    works                           works end until no work is running
    wait SECONDS                    time passes
    ask NAME WISH                   a person makes a request about a table; `copy NAME`: a copy, by name
    write NAME KEY=VALUE ...        another program writes rows into the Delta table; `erase NAME KEY ...`: deletes them
    put NAME; free NAME             a foreign folder is made at the place of the table; the place's folder is removed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dispatcher.binlog.table_map.column_types import Mask, MaskForm
from spark_sink.mirror.rules.effects import Effect
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.rules.table_record import TableRecord, Wish
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import (
    InvalidValue,
    OnDifference,
    ProofOptions,
    PurgedChanges,
    TablePolicy,
    UnfollowedChange,
    UnknownTables,
)
from tests.mirror_simulation.column_values import INVALID, ColumnValues
from tests.mirror_simulation.lake import FOREIGN, LakeTable
from tests.mirror_simulation.log import Row, RowChange, Rows, ServerTable
from tests.mirror_simulation.transcript import Transcript
from tests.mirror_simulation.world import World
from tests.simulation.scripts import parsed

PLAYS = Path(__file__).parent / "plays"
PROOFS = ProofOptions(rows_per_second=1000, share=0.5, every_s=500.0, rows_max=2, wait_s=60.0)
WORKS_MAX = 500  # the most works of one move `works`


class _Decided:
    """The decisions of a play, instead of random ones. `done`: the kinds of works that are done although the job is
    killed."""

    done: tuple[str, ...] = ()
    keeps = (
        False  # a work that ends before its commit has written its invalid values to the quarantine
    )

    def appends(self) -> int:
        return 100

    def chunks(self) -> int:
        return 2

    def reads_early(self) -> bool:
        return False

    def registered(self, _: Sequence[TableRecord]) -> str:
        return ""

    def is_done(self, effect: Effect) -> bool:
        return type(effect).__name__ in self.done

    def keeps_invalid(self) -> bool:
        return self.keeps

    def moved_tables(self, count: int) -> int:
        return count

    def renamed_folders(self) -> int:
        return 100


class Stage:
    """Executes the moves of one play."""

    def __init__(self) -> None:
        self.transcript = Transcript(kept=True)
        self.decided = _Decided()
        self.policy = TablePolicy()
        self.unmasked: set[TableName] = set()
        self.world = World(self.decided, self._policy_of, self.transcript)
        self.server = self.world.server
        self._seen: dict[str, str] = {}

    def move(self, text: str) -> list[str]:
        """Make a move. Returns its transcript."""
        lines: list[str] = []
        self.transcript.lines = lines
        verb, arguments, options = parsed(text)
        getattr(self, f"_{verb}")(*arguments, **options)
        return [*lines, *self._changed()]

    def _changed(self) -> list[str]:
        """Returns a line for each table whose state or rows differ from those after the previous move."""
        seen: dict[str, str] = {}
        for record in self.world.control.records.values():
            table = self.world.lake.of(record)
            rows = "" if table is None else "".join(f" {row}" for row in _texts(table.rows))
            seen[f"{record.table_id} {record.label}"] = f"{record.word}{rows}"
        changed = [
            f"{'':12}== {who}: {what}" for who, what in seen.items() if self._seen.get(who) != what
        ]
        self._seen = seen
        return changed

    # -- settings ----------------------------------------------------------------------------------------------

    def _settings(
        self,
        unknown: str = "copy",
        unfollowed: str = "recopy",
        purged: str = "copy",
        history: str = "",
        files: str = "",
        held: str = "",
        proofs: str = "",
        difference: str = "report",
        mask: str = "",
        invalid: str = "",
    ) -> None:
        self.policy = TablePolicy(
            unknown=UnknownTables(unknown),
            unfollowed=UnfollowedChange(unfollowed),
            purged=PurgedChanges(purged),
            history=bool(history),
            on_difference=OnDifference(difference),
            invalid=InvalidValue(invalid or "stop"),
            masks=((mask, Mask(MaskForm.SHA256)),) if mask else (),
        )
        bad = INVALID if invalid else ()
        policy = self.policy
        self.world.lake.values = ColumnValues(policy.rules, bad, policy.invalid, self.unmasked)
        self.world.works.by_files = bool(files)
        if proofs:
            self.world.proofs = PROOFS
        if held:
            self.world.held_bytes_max = int(held) << 10

    def _policy_of(self, name: TableName) -> TablePolicy:
        return replace(self.policy, masks=()) if name in self.unmasked else self.policy

    def _unmask(self, name: str) -> None:
        self.unmasked.add(_name(name))

    def _mask(self, name: str) -> None:
        self.unmasked.remove(_name(name))

    def _exclude(self, name: str) -> None:
        self.world.excluded.add(_name(name))

    def _include(self, name: str) -> None:
        self.world.excluded.remove(_name(name))

    def _allow(self, invalid: str) -> None:
        self.policy = replace(self.policy, invalid=InvalidValue(invalid))
        self.world.lake.values.policy = self.policy.invalid

    # -- the server --------------------------------------------------------------------------------------------

    def _old(self, name: str, keyless: str = "", **rows: str) -> None:
        self.server.hidden = True
        self.server.create(_name(name), keyed=not keyless)
        self._insert(name, **rows)
        self.server.hidden = False
        self.world.log.tell(_name(name), 0, self.server.tables[_name(name)])

    def _create(self, name: str, keyless: str = "", absent: str = "") -> None:
        if absent:
            self.server.create_if_absent(_name(name))
            return
        self.server.create(_name(name), keyed=not keyless)

    def _insert(self, name: str, **rows: str) -> None:
        self.server.insert(_name(name), *(_row(self._table(name), *row) for row in rows.items()))

    def _update(self, name: str, **rows: str) -> None:
        table = self._table(name)
        changes = [RowChange(_found(table, key), _row(table, key, v)) for key, v in rows.items()]
        self.server.change(_name(name), *changes)

    def _delete(self, name: str, *keys: str) -> None:
        table = self._table(name)
        self.server.change(_name(name), *(RowChange(_found(table, key), None) for key in keys))

    def _add(self, name: str, **columns: str) -> None:
        for column, value in columns.items():
            self.server.add_column(_name(name), column, int(value))

    def _truncate(self, name: str) -> None:
        self.server.truncate(_name(name))

    def _drop(self, name: str) -> None:
        self.server.drop(_name(name))

    def _clean(self, name: str) -> None:
        self.server.change_rows_silently(_name(name))

    def _rename(self, name: str, other: str, add: str = "") -> None:
        if add:
            self.server.rename_and_add(_name(name), _name(other), add)
            return
        self.server.rename((_name(name), _name(other)))

    def _swap(self, name: str, other: str) -> None:
        one, two, spare = map(_name, (name, other, "spare"))
        self.server.rename((one, spare), (two, one), (spare, two))

    def _table(self, name: str) -> ServerTable:
        return self.server.tables[_name(name)]

    # -- the log -----------------------------------------------------------------------------------------------

    def _append(self) -> None:
        self.server.end_append()
        self.world.look()

    def _purge(self) -> None:
        self.server.end_append()
        self.server.hidden = True

    def _gap(self) -> None:
        self.server.hidden = False
        self.server.end_append(gap=True)
        self.world.look()

    def _lose(self, append: str) -> None:
        self.world.log.lose(int(append))

    def _restore(self) -> None:
        self.world.log.lost.clear()

    def _forget(self) -> None:
        self.world.forget()

    # -- the job -----------------------------------------------------------------------------------------------

    def _start(self, drain: str = "") -> None:
        self.world.drain = bool(drain)
        self.world.start()

    def _kill(self, *done: str) -> None:
        self.decided.done = done
        self.world.kill()

    def _stop(self) -> None:
        self.world.stop()
        self._works()
        self.world.end()

    def _work(self, *kinds: str, fails: str = "") -> None:
        for kind in kinds:
            running = self.world.running()
            of_kind = [effect for effect in running if type(effect).__name__ == kind]
            names = ", ".join(type(effect).__name__ for effect in running)
            assert of_kind, f"no {kind} runs, but {names or 'nothing'}"
            self.world.finish(of_kind[0], fails=fails)

    def _works(self) -> None:
        for _ in range(WORKS_MAX):
            running = self.world.running()
            if not running:
                return
            self.world.finish(running[0])
        raise AssertionError("works do not end")

    def _wait(self, seconds: str) -> None:
        self.world.tick(float(seconds))

    # -- people ------------------------------------------------------------------------------------------------

    def _ask(self, name: str, wish: str) -> None:
        (record,) = (r for r in self.world.control.tables(_name(name)) if not r.is_dropped)
        self.world.ask(record.table_id, Wish(wish))
        self.world.look()

    def _copy(self, name: str) -> None:
        self.world.ask_by_name(_name(name))
        self.world.look()

    def _write(self, name: str, **rows: str) -> None:
        self._erase(name, *rows)
        for row in rows.items():
            self._delta(name).rows[_row(self._table(name), *row)] += 1

    def _erase(self, name: str, *keys: str) -> None:
        (record,) = (r for r in self.world.control.tables(_name(name)) if not r.is_dropped)
        self.world.judge.tables.planted.add(record.table_id)
        rows = self._delta(name).rows
        for row in [row for row in rows if str(dict(row)["id"]) in keys]:
            del rows[row]

    def _delta(self, name: str) -> LakeTable:
        return self.world.lake.folders[folder_of(_name(name))]

    def _put(self, name: str) -> None:
        self.world.lake.folders[folder_of(_name(name))] = LakeTable(FOREIGN, ())

    def _free(self, name: str) -> None:
        del self.world.lake.folders[folder_of(_name(name))]


def _name(table: str) -> TableName:
    return "shop", table


def _row(table: ServerTable, key: str, value: str) -> Row:
    """Returns a row: the key, and the value of each other column."""
    return tuple((c, int(key if c == "id" else value)) for c in table.columns)


def _found(table: ServerTable, key: str) -> Row:
    return next(row for row in table.rows if dict(row)["id"] == int(key))


def _texts(rows: Rows) -> list[str]:
    """Returns rows as key=value, with the values of further columns, and the number of copies of each row."""
    texts: Counter[str] = Counter()
    for row, count in rows.items():
        values = dict(row)
        key = values.pop("id")
        texts[f"{key}={','.join(map(str, values.values()))}"] += count
    return [text if count == 1 else f"{text}*{count}" for text, count in sorted(texts.items())]
