"""Plays a random history from a seed: changes on the server, kills, requests, and when and how each work ends. Then it
plays the end of the history."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from dispatcher.binlog.table_map.column_types import Mask, MaskForm
from spark_sink.mirror.rules.proofs import is_provable
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import Wish
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
from tests.mirror_simulation.changes import ServerChanges
from tests.mirror_simulation.choices import RandomChoices
from tests.mirror_simulation.column_values import INVALID, ColumnValues
from tests.mirror_simulation.lake import FOREIGN, LakeTable
from tests.mirror_simulation.proofs import plant
from tests.mirror_simulation.queue_rules import is_of
from tests.mirror_simulation.transcript import Transcript
from tests.mirror_simulation.world import FAILURES, SINCE_1970_S, World

NAMES: list[TableName] = [("shop", name) for name in ("a", "b", "c", "out")]
OUT = NAMES[-1]  # the settings may exclude this name
MOVES = (40, 80, 160)
FOLDING = 0.3  # the probability that the server folds names
RESOLVED_MAX = 10  # after so many resolved stops, people request copies
TAKEN_S = 600.0  # how long foreign folders stay at the end of a history
HINDERED_S = 2000.0  # the pause of a table whose steps have to wait
PROOFS = ProofOptions(rows_per_second=1000, share=0.9, every_s=500.0, rows_max=3, wait_s=60.0)
PLANTED_S = 2000.0  # after this time, planted differences are found
SPECIAL_VALUES = 0.25  # the probability that a history has masked columns or invalid values
MASKS = (Mask(MaskForm.SHA256), Mask(MaskForm.KEYED, b"a secret of the server"))
NULL_IN_PLACE = "on_invalid"  # a part of the reason of a table that is stopped at an invalid value
FINISH_MAX = 4000  # the most works that may run until no work is left


def play(seed: int, transcript: Transcript | None = None) -> World:
    """Play the history of a seed. Raises AssertionError, or any error of the rules."""
    rng = random.Random(seed)
    names = random.Random(f"names {seed}")
    folding = names if names.random() < FOLDING else None
    values = random.Random(f"values {seed}")
    special = values if values.random() < SPECIAL_VALUES else None
    history = _History(rng, transcript or Transcript(kept=False), folding, special)
    for _ in range(rng.choice(MOVES)):
        history.move()
    history.finish()
    return history.world


def trace(seed: int) -> list[str]:
    """Returns the transcript of a seed."""
    transcript = Transcript(kept=True)
    play(seed, transcript)
    assert transcript.lines is not None
    return transcript.lines


class _History:
    """`calm`: True if the job is not killed; `failing`: the probability that a work fails; `may_leave`: True if the
    settings may exclude a name; `folding`: see `ServerChanges`; `values`: the random generator of a history with masked
    columns or invalid values, None for another history."""

    def __init__(
        self,
        rng: random.Random,
        transcript: Transcript,
        folding: random.Random | None,
        values: random.Random | None,
    ) -> None:
        self.rng = rng
        self.calm = rng.random() < 0.3
        self.failing = 0.0 if self.calm else rng.choice((0.03, 0.06, 0.3))
        self.values = values
        policy = _random_policy(rng)
        if values is not None:
            policy = _with_values(values, policy)
        self.policy = policy
        self.waiting: list[TableName] = []  # tables whose steps have to wait
        self.unmasked: set[TableName] = set()
        self.world = world = World(RandomChoices(rng), self._policy_of, transcript)
        world.held_bytes_max = rng.choice((8 << 10, 32 << 10, 256 << 20))
        world.parallel = rng.choice((1, 2, 2))
        has_invalid = values is not None and values.random() < 0.7
        if values is not None:
            bad = INVALID if has_invalid else ()
            if policy.masks and not has_invalid and values.random() < 0.7:
                self.unmasked.add(values.choice(NAMES))
            world.lake.values = ColumnValues(policy.rules, bad, policy.invalid, self.unmasked)
        self.world.works.by_files = rng.random() < 0.3
        self.may_leave = rng.random() < 0.7
        if self.may_leave and rng.random() < 0.7:
            world.excluded.add(OUT)
            world.judge.tables.may_be_unknown = True
        self.proof = random.Random(f"proof {rng.random()}")
        if self.proof.random() < 0.4:
            world.proofs = PROOFS
            self.policy = replace(policy, on_difference=self.proof.choice(tuple(OnDifference)))
        self.resolved = 0
        # A history table treats each statement that could not be parsed as a change of its table.
        unclear = not policy.history
        self.changes = ServerChanges(
            rng,
            world.server,
            NAMES,
            unclear=unclear,
            may_leave=self.may_leave,
            folding=folding,
            invalid=values if has_invalid else None,
        )
        moves: list[tuple[int, Callable[[], None]]] = [
            (30, self.work),
            (16, self.changes.change),
            (6, self.append),
            (4, self.pass_time),
            (4, self.world.see),
            (2, self.ask),
            (1, self.gap),
            (1, self.stop),
            (2, self.world.forget),
            (0 if self.calm else 1, self.lose_append),
            (0 if self.calm else 1, self.restore_appends),
            (0 if self.calm else 1, self.put_foreign_folder),
            (0 if self.calm else 2, self.kill),
            (0 if self.calm else 1, self.lose_claim),
        ]
        self._weights, self._moves = zip(*moves, strict=True)
        for name in rng.sample(NAMES, rng.randrange(0, 4)):
            self.changes.make_old(name)
        world.start()

    def move(self) -> None:
        self.rng.choices(self._moves, self._weights)[0]()

    # -- the server and its log --------------------------------------------------------------------------------

    def append(self) -> None:
        self.world.server.end_append()
        self.world.look()

    def gap(self) -> None:
        """Let the server purge changes before the consumer has read them."""
        server = self.world.server
        server.end_append()
        server.hidden = True
        for _ in range(self.rng.randrange(1, 4)):
            self.changes.change()
        server.hidden = False
        server.end_append(gap=True)
        self.world.judge.tables.may_be_unknown = True
        self.world.look()

    def lose_append(self) -> None:
        log = self.world.log
        if self.rng.random() < 0.3 and log.append:
            log.lose(self.rng.randrange(1, log.append + 1))

    def restore_appends(self) -> None:
        """Restore the lost files of appends, as a person would."""
        if self.rng.random() < 0.3:
            self.world.log.lost.clear()
            self.world.judge.tables.may_be_unknown = True

    def put_foreign_folder(self) -> None:
        """Make a foreign folder at the place of a table."""
        folder = "/".join(self.rng.choice(NAMES))
        moves = any(record.move for record in self.world.known_records())
        if self.rng.random() < 0.3 and not moves:
            self.world.lake.folders.setdefault(folder, LakeTable(FOREIGN, ()))

    # -- the job -----------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Let a running work continue or end."""
        running = self.world.running()
        if not running:
            self.world.look()
            return
        effect = self.rng.choice(running)
        fails = self.rng.choice(FAILURES) if self.rng.random() < self.failing else ""
        self.world.finish(effect, fails=fails)

    def pass_time(self) -> None:
        self.world.tick(self.rng.choice((0.1, 1.0, 10.0, 70.0)))

    def kill(self) -> None:
        """Kill the job, and start the next job, sometimes with other settings."""
        world = self.world
        world.kill()
        if self.may_leave and self.rng.random() < 0.2:
            world.excluded ^= {OUT}
            world.judge.tables.may_be_unknown = True
        stops = self.policy.invalid is InvalidValue.STOP
        if self.values is not None and stops and self.values.random() < 0.2:
            self._allow_invalid()
        world.start()
        self._ask_about_invalid()

    def lose_claim(self) -> None:
        """Another job takes the consumer, and dies. The works of the first job end, and that job changes nothing any
        more."""
        if self.rng.random() < 0.5:
            return
        self.world.claim()
        for effect in self.world.running()[: self.rng.randrange(0, 3)]:
            self.world.finish(effect)
        self.kill()

    def stop(self) -> None:
        """Let the job end in order, and start the next job."""
        world = self.world
        world.stop()
        if self.rng.random() < 0.3:
            world.look()  # a read that the job had begun before
        while running := world.running():
            world.finish(self.rng.choice(running))
        world.end()
        world.start()

    def ask(self) -> None:
        """Make a random request about a table."""
        world = self.world
        records = sorted(world.control.records.values(), key=lambda r: r.serial)
        if not records or self.rng.random() >= 0.7:
            world.ask_by_name(self.rng.choice(NAMES))
            return
        record = self.rng.choice(records)
        wish = self.rng.choice((Wish.RECOPY, Wish.RETRY, Wish.SKIP, Wish.REPAIR))
        world.ask(record.table_id, Wish.RECOPY if record.history else wish)

    def _policy_of(self, name: TableName) -> TablePolicy:
        policy = self.policy
        if name in self.unmasked:
            policy = replace(policy, masks=())
        return replace(policy, interval_s=HINDERED_S) if name in self.waiting else policy

    # -- proofs ------------------------------------------------------------------------------------------------

    def prove(self) -> None:
        """Change rows of Delta tables as another program would, and let the history go on. Each difference that remains
        is found, and is corrected if the policy or a person says so. Then the tables are equal again."""
        world, rng, wanted = self.world, self.proof, self.policy.on_difference
        planted = world.judge.tables.planted
        self.append()
        self._prove_for(rng.choice((20.0, 200.0, PLANTED_S)))
        asks = wanted is not OnDifference.REPAIR and rng.random() < 0.6
        # Without a repair, this method makes a table's rows equal at the end, but its history would still differ.
        may_plant = not self.policy.history or asks or wanted is OnDifference.REPAIR
        if may_plant and rng.random() < 0.7:
            for record in list(world.control.records.values()):
                table, server = world.lake.of(record), world.server.tables.get(record.name)
                may_plant = is_provable(record) and server is not None and server.keyed
                if table is not None and may_plant and rng.random() < 0.7:
                    planted.add(record.table_id)
                    way = plant(rng, table, world.lake.values.of(record))
                    world.stats["planted"] += 1
                    world.say(f"somebody changes {record.label}: {way}")
            for _ in range(rng.choice((0, 5, 30))):
                self.move()
        self.append()
        since = world.now + SINCE_1970_S
        self._prove_for(PLANTED_S)
        records = list(world.control.records.values())
        found = world.judge.proofs.found(records, world.control.proofs, since)
        world.stats["found"] += found
        if wanted is not OnDifference.REPORT:
            world.judge.proofs.corrected(records, wanted)
        if asks:
            for record in records:
                if not (record.is_dropped or record.history):
                    world.ask(record.table_id, Wish.REPAIR)
            world.look()
            self._prove_for(PLANTED_S)
            world.judge.proofs.corrected(world.control.records.values(), OnDifference.REPAIR)
        for record in list(world.control.records.values()):
            table, server = world.lake.of(record), world.server.tables.get(record.name)
            if table is not None and server is not None and is_provable(record):
                table.rows = Counter(world.lake.values.of(record).rows(server.rows))
                world.judge.proofs.equal(record.table_id)
        self.kill()
        world.proofs = None
        self.kill()

    def _prove_for(self, seconds: float) -> None:
        """Let works end and time pass, and then let the rounds that run end."""
        world = self.world
        until = world.now + seconds
        for _ in range(FINISH_MAX):
            if running := world.running():
                world.finish(self.rng.choice(running))
                continue
            world.look()
            wakeup = world.mirror.next_wakeup()
            if world.running():
                continue
            if world.now > until and not self._is_in_round():
                return
            world.tick(max(0.1, (wakeup or until) - world.now))
        raise AssertionError("the proofs do not come to rest")

    def _is_in_round(self) -> bool:
        """True if the next range of a table has to be compared now."""
        state = self.world.mirror.state
        proved = ((state.records[i], proof) for i, proof in state.proofs.items())
        return any(
            is_provable(record) and proof.needs_range(record, state.at, PROOFS.every_s)
            for record, proof in proved
        )

    # -- the end -----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End the history: the server makes no more changes, and no work fails. People request copies of stopped
        tables, and remove foreign folders. Then another job drains the log."""
        world = self.world
        if world.proofs is not None:
            self.prove()
        if self.values is not None and self.policy.invalid is InvalidValue.STOP:
            self._rest(until=world.now + TAKEN_S)
            world.kill()
            self._allow_invalid()
            world.start()
            self._ask_about_invalid()
        self.append()
        world.makes_missing = True
        self.append()
        folders = world.lake.folders
        foreign = [folder for folder, table in folders.items() if table.owner == FOREIGN]
        if foreign:
            self._rest(until=world.now + TAKEN_S)
            self.resolved = RESOLVED_MAX
            self._ask_about_stopped()
            self._rest(until=world.now + TAKEN_S)
            world.judge.tables.at_rest()
            for folder in foreign:
                del folders[folder]
        self._rest()
        world.judge.tables.at_rest()
        world.judge.watermark.at_rest()
        if self.rng.random() < 0.5:
            self._hinder()
            self._rest()
            world.judge.tables.at_rest()
            world.judge.watermark.at_rest()
        world.judge.values.at_rest()
        world.kill()
        self._drain()

    def _allow_invalid(self) -> None:
        """Change the settings of the next job, as the reason of a table that is stopped at an invalid value tells a
        person to do."""
        assert self.values is not None
        wanted = self.values.choice((InvalidValue.NULL, InvalidValue.QUARANTINE))
        self.world.say(f"the settings have on_invalid: {wanted}")
        self.policy = replace(self.policy, invalid=wanted)
        self.world.lake.values.policy = wanted

    def _ask_about_invalid(self) -> None:
        """Make a request about each table that is stopped at an invalid value, if the settings now allow invalid
        values."""
        if self.values is None or self.policy.invalid is InvalidValue.STOP:
            return
        world = self.world
        for record in world.control.records.values():
            waits = record.word is TableState.STOPPED and NULL_IN_PLACE in record.reason
            if waits and record.name in world.server.tables and not record.history:
                world.ask(record.table_id, Wish.RETRY)
        world.look()

    def _hinder(self) -> None:
        """Keep some tables from continuing: their works fail, or their steps have to wait, or the works of one of these
        tables hang. All other tables continue to the end of the log."""
        world, rng = self.world, self.rng
        ways = ("fails", "waits", "hangs") if world.parallel > 1 else ("fails", "waits")
        way = rng.choice(ways)
        hindered = rng.sample(NAMES[:-1], 1 if way == "hangs" else rng.randrange(1, 4))
        if way == "waits":
            self.waiting = hindered
        for _ in range(rng.randrange(10, 60)):
            self.changes.change_table(rng.choice((*hindered, *NAMES)))
            if rng.random() < 0.3:
                self.append()
            if rng.random() < 0.5:
                self._work_beside(hindered, way)
        self.append()
        self._work_on_beside(hindered, way)
        until = world.now + HINDERED_S / 2
        while (wakeup := world.mirror.next_wakeup()) is not None and wakeup < until:
            world.tick(wakeup - world.now)
            self._work_on_beside(hindered, way)
        others = [n for n in NAMES if n not in hindered and n not in world.excluded]
        world.judge.queues.go_on(others, world.mirror.state)
        self.waiting = []

    def _work_on_beside(self, hindered: list[TableName], way: str) -> None:
        for _ in range(FINISH_MAX):
            if not self._work_beside(hindered, way):
                return
        raise AssertionError("works do not end beside a table that cannot go on")

    def _work_beside(self, hindered: list[TableName], way: str) -> bool:
        """Let a running work end. Works of the tables `hindered` fail or hang. Returns False if no work can end."""
        world = self.world
        records = world.known_records()
        running = [(effect, is_of(effect, hindered, records)) for effect in world.running()]
        running = [(effect, own) for effect, own in running if not (own and way == "hangs")]
        if not running:
            return False
        effect, own = self.rng.choice(running)
        world.finish(effect, fails="before" if own and way == "fails" else "")
        return True

    def _drain(self) -> None:
        """Make a few more changes on the server, and perhaps a request. Then start a job that applies everything and
        ends."""
        world = self.world
        for _ in range(self.rng.randrange(0, 6)):
            self.changes.change()
        world.server.end_append()
        if self.rng.random() < 0.5:
            self.ask()
        if self.rng.random() < 0.3:
            # These foreign folders stay until the drain has ended.
            for name in self.rng.sample(NAMES, 2):
                world.lake.folders.setdefault("/".join(name), LakeTable(FOREIGN, ()))
        world.drain = True
        world.start()
        self._rest()
        world.judge.tables.drained()
        world.judge.values.at_rest()

    def _rest(self, until: float = math.inf) -> None:
        """Let works end until none is left. `until`: after this time, only the running works end."""
        world = self.world
        for _ in range(FINISH_MAX):
            if world.drain and world.mirror.at_rest():
                return  # works may still run at this time
            if running := world.running():
                world.finish(self.rng.choice(running))
                continue
            wakeup = world.mirror.next_wakeup()
            if world.now > until:
                return
            if wakeup is not None:
                world.tick(wakeup - world.now)
            elif not self._resolve():
                assert not world.drain, "a drain does not end"
                return
        raise AssertionError("the mirror does not come to rest")

    def _resolve(self) -> bool:
        """Make requests about stopped tables, in the end requests for copies. Returns False if nothing is left to
        do."""
        world = self.world
        world.look()
        if world.running():
            return True
        asked = self._ask_about_stopped()
        return asked or bool(world.running())

    def _ask_about_stopped(self) -> bool:
        """Make requests about stopped tables. Returns True if at least one was made."""
        world = self.world
        stopped = [
            record
            for record in world.control.records.values()
            if record.word is TableState.STOPPED
            and record.name in world.server.tables
            and not record.history
        ]
        for record in stopped:
            self.resolved += 1
            wishes = (Wish.RECOPY, Wish.RETRY, Wish.SKIP)
            wish = self.rng.choice(wishes) if self.resolved < RESOLVED_MAX else Wish.RECOPY
            world.ask(record.table_id, wish)
        world.look()
        return bool(stopped)


def _with_values(rng: random.Random, policy: TablePolicy) -> TablePolicy:
    """Returns the policy of a history with masked columns or invalid values."""
    masks = (("a", rng.choice(MASKS)),) if rng.random() < 0.6 else ()
    return replace(policy, masks=masks, invalid=rng.choice(tuple(InvalidValue)))


def _random_policy(rng: random.Random) -> TablePolicy:
    return TablePolicy(
        unknown=rng.choice((UnknownTables.COPY, *UnknownTables)),
        unfollowed=rng.choice(tuple(UnfollowedChange)),
        purged=rng.choice(tuple(PurgedChanges)),
        history=rng.random() < 0.3,
        interval_s=rng.choice((0.0, 0.0, 1.0)),
    )
