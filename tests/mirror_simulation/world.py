"""A simulated world: the mirror's rules for one consumer, a server, a log, Delta tables, a control table, people.

The play decides when works are executed, in any order. A work may fail before or after its commit. The play may kill
the job at any moment: each running work is then done or not done, and the next job knows only the stored parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules.effects import (
    AskTable,
    ChangeTable,
    ClearCopy,
    CommitRows,
    CopyTable,
    Effect,
    EndConsumer,
    MoveFolders,
    ReadKeyRange,
    ReadLog,
    RepairRows,
    Stepped,
    StopCopy,
    StoreRecords,
    WriteNote,
)
from spark_sink.mirror.rules.events import (
    Claimed,
    Event,
    Failure,
    LogGrew,
    Registered,
    RequestsRead,
    Started,
    Stopping,
    StoreFailed,
    Ticked,
    WorkFailed,
)
from spark_sink.mirror.rules.mirror import Mirror
from spark_sink.mirror.rules.mirror_state import MirrorOptions
from spark_sink.mirror.rules.table_record import Request, TableRecord, Wish
from spark_sink.mirror.values.entries import last_lsn
from spark_sink.mirror.values.names import TableName, table_label
from spark_sink.mirror.values.policies import ProofOptions, TablePolicy
from tests.mirror_simulation.choices import Choices
from tests.mirror_simulation.control import Control
from tests.mirror_simulation.copies import Copies, UnreadableError
from tests.mirror_simulation.judge import Judge
from tests.mirror_simulation.lake import Lake
from tests.mirror_simulation.server import Server
from tests.mirror_simulation.transcript import Transcript
from tests.mirror_simulation.works import Works

CONSUMER = "shop"
SINCE_1970_S = 1e9  # the time at which a history begins
LAST_STORE_S = 60.0  # by which a job's end advances the clock, so that the rules store all

# How a work fails: before its commit, after its commit, by a conflict with another writer, by a fault of the table's
# data or files.
FAILURES = ("before", "after", "conflict", "fault")
_WITH_FAULTS = (AskTable, ChangeTable, ClearCopy, CommitRows, MoveFolders, RepairRows)


class World:
    """`excluded`: names whose tables the settings exclude; `owners`: other consumers, by the names of their tables;
    `drain`: True if the next job drains the log; `makes_missing`: True if people create the tables that a copy does not
    find; `held_bytes_max`, `parallel`, `proofs`: see `MirrorOptions`."""

    def __init__(
        self,
        choices: Choices,
        policy: Callable[[TableName], TablePolicy],
        transcript: Transcript,
    ) -> None:
        self.choices, self.policy, self.transcript = choices, policy, transcript
        self.server = Server(self.say if transcript.lines is not None else None)
        self.log = self.server.log
        self.lake = Lake(self.log)
        self.control = Control()
        self.excluded: set[TableName] = set()
        self.judge = Judge(self.server, self.lake, self.control, self.excluded)
        self.copies = Copies(self.server, self.lake, self.judge.values)
        self.works = Works(choices, self.lake, self.control, self.judge)
        self.works.proofs.serves(self.server)
        self.now = 0.0
        self.judge.proofs.clock = lambda: self.now + SINCE_1970_S
        self.owners: dict[TableName, str] = {}
        self.drain = False
        self.makes_missing = False
        self.held_bytes_max, self.parallel = 256 << 20, 2
        self.proofs: ProofOptions | None = None
        self.stats: Counter[str] = Counter()
        self._mirror: Mirror | None = None
        self._running: list[Effect] = []  # the running works, without copies
        self._seen: tuple[LogGrew, RequestsRead] | None = None  # not passed to the rules yet
        self._ids = self._asked = 0

    @property
    def mirror(self) -> Mirror:
        assert self._mirror is not None, "no job runs"
        return self._mirror

    def say(self, text: str) -> None:
        self.transcript.said(self.now, text)

    # -- the job -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.judge.works.starts()
        self.works.proofs.forget()
        self._mirror = Mirror(self._options())
        goal = last_lsn(self.log.append) if self.drain else None
        records = tuple(replace(r, request=None) for r in self.control.records.values())
        log, applied = self.log, self.control.applied
        proofs = tuple(self.control.proofs.values())
        self.step(
            Started(
                records,
                self.owners,
                applied,
                log.end,
                log.append,
                log.oldest,
                goal,
                proofs,
                self.now + SINCE_1970_S,
            )
        )
        self._tell(self._requests())

    def _options(self) -> MirrorOptions:
        return MirrorOptions(
            CONSUMER,
            self._policy_of,
            lambda name: name in self.excluded,
            lambda folder: f"/lake/{folder}",
            can_copy=True,
            copies=True,
            new_id=self._new_id,
            step_bytes_max=50,
            held_bytes_max=self.held_bytes_max,
            parallel=self.parallel,
            watermark_s=5.0,
            proofs=self.proofs,
        )

    def _policy_of(self, name: TableName) -> TablePolicy:
        return self.policy(name)

    def _new_id(self) -> str:
        self._ids += 1
        return f"t{self._ids}"

    def kill(self) -> None:
        """Kill the job. For each running work, the play decides whether the work is done."""
        self.say("the job is killed")
        self.stats["kills"] += 1
        self._mirror = self._seen = None
        works, self._running = self._running, []
        for effect in works:
            if self.choices.is_done(effect):
                self.say(f"{type(effect).__name__} is done all the same")
                with suppress(BinlogError):
                    self._do(effect, killed=True)
            else:
                self._keep_invalid(effect)
        for copy in self.copies.running.values():
            self._keep_invalid(copy.effect)
        self.copies.running.clear()
        self.judge.works.stopping = self.judge.works.ended = False
        self.judge.tables.registered.clear()

    def claim(self) -> None:
        """Let another job claim the consumer."""
        error = BinlogError(ErrorKind.UNSUPPORTED_CHANGE, "another job applies the consumer")
        self.step(Claimed(error))
        assert self.judge.works.ended, "a job goes on beside another one"

    def stop(self) -> None:
        """Tell the job to end: running works end, and no new works begin. See `end`."""
        self.judge.works.stopping = True
        self.step(Stopping())

    def end(self) -> None:
        """End the stopped job, which has no running works any more. It stores how far everything is applied, and
        ends."""
        assert not self.running(), "the job ends before its works have ended"
        self.tick(LAST_STORE_S)
        while running := self.running():
            self.finish(running[0])
        self.judge.works.ends(self.mirror)
        self.judge.works.stopping = False
        self._mirror = self._seen = None
        self.judge.tables.registered.clear()

    def step(self, event: Event) -> None:
        effects = self.mirror.step(event, self.now)
        self.judge.queues.stepped(event, self.mirror.state)
        self.transcript.stepped(self.now, event, effects)
        for effect in effects:
            match effect:
                case WriteNote() | Stepped():
                    self.stats[type(effect).__name__] += 1
                case EndConsumer():
                    assert isinstance(event, Claimed), f"the consumer has ended: {effect.error}"
                    self.judge.works.ended = True
                case StopCopy():
                    self.copies.stop(effect.run)
                case _:
                    self._begin(effect)
        if self.copies.running:
            self.judge.works.copies(self.copies.running.values(), self.mirror.state.records)

    def _begin(self, effect: Effect) -> None:
        self.judge.works.begins(effect, self.running(), self.mirror.state.records)
        self.judge.queues.begins(effect, self.mirror.state)
        if isinstance(effect, CopyTable):
            self.copies.begin(effect, self.choices.chunks())
        else:
            if isinstance(effect, ReadKeyRange) and self.choices.reads_early():
                self.works.proofs.reads_now(effect)
            self._running.append(effect)

    # -- events that come by themselves ------------------------------------------------------------------------

    def tick(self, seconds: float) -> None:
        self.now += seconds
        if self._mirror is not None:
            self.step(Ticked())

    def see(self) -> None:
        """Let the job read whether the log has grown and whether people have made requests. The rules get the result at
        the next `look`."""
        if self._mirror is not None and self._seen is None:
            self._seen = LogGrew(self.log.append, self.log.oldest), self._requests()

    def look(self) -> None:
        """Let the job read the log's end and requests, and pass the result to the rules."""
        if self._mirror is None:
            return
        if self._seen is not None:
            self._tell_seen()
        self.see()
        self._tell_seen()

    def _tell_seen(self) -> None:
        assert self._seen is not None
        (grew, read), self._seen = self._seen, None
        self.step(grew)
        self._tell(read)

    def _requests(self) -> RequestsRead:
        return RequestsRead(*self.control.standing(), dict(self.owners))

    def _tell(self, read: RequestsRead) -> None:
        # If a table has a request by name and a request by id, the request by name comes first.
        named = {r.table_id for r in self.mirror.state.records.values() if r.name in read.by_name}
        self.judge.works.asked = {i: r for i, r in read.by_id.items() if i not in named}
        self.step(read)

    def ask(self, table_id: str, wish: Wish) -> None:
        """Make a person's request about a table."""
        self._asked += 1
        self.say(f"somebody asks: {wish} of {self.control.records[table_id].label}")
        self.control.requests[table_id] = Request(f"q{self._asked}", wish)
        self.judge.values.asked(self.control.records[table_id])
        if wish is Wish.SKIP:
            self.judge.tables.skipped.add(table_id)

    def ask_by_name(self, name: TableName) -> None:
        """Make a person's request for a copy of the table with this name."""
        self._asked += 1
        self.say(f"somebody asks: copy of {table_label(name)}")
        self.control.named[name] = f"q{self._asked}"
        for record in self.control.records.values():
            if record.name == name:
                self.judge.values.asked(record)

    def forget(self) -> None:
        """Let maintenance delete the part of the log that is not needed."""
        needed = self.mirror.needed_to
        self.judge.watermark.forgets(needed, self.mirror.state.records)
        self.log.forget(needed)

    # -- works -------------------------------------------------------------------------------------------------

    def known_records(self) -> list[TableRecord]:
        """Returns the stored records, and the records in memory of the rules."""
        decided = [] if self._mirror is None else self._mirror.state.records.values()
        return [*self.control.records.values(), *decided]

    def running(self) -> list[Effect]:
        return [*self._running, *(copy.effect for copy in self.copies.running.values())]

    def finish(self, effect: Effect, *, fails: str = "") -> None:
        """Let a work end; a copy only reads its next chunk. `fails`: "", or one of `FAILURES`."""
        if isinstance(effect, CopyTable):
            self._copy(effect, fails)
            return
        self._running.remove(effect)
        failure = Failure("storage does not answer", conflict=fails == "conflict")
        if fails in ("before", "conflict"):
            self._keep_invalid(effect)
            self._fail(effect, failure)
            return
        reads_one = isinstance(effect, ReadLog) and effect.tables is not None
        if fails == "fault" and (reads_one or isinstance(effect, _WITH_FAULTS)):
            self._fail(effect, _of(_fault_of(effect)))
            return
        try:
            answer = self._do(effect)
        except BinlogError as fault:
            self._fail(effect, _of(fault))
            return
        if fails == "after":
            self._fail(effect, failure)
            return
        self.judge.works.answered(effect, answer)
        self.step(answer)
        self._register()

    def _keep_invalid(self, effect: Effect) -> None:
        """Let a work that ends before its commit have written its invalid values to the quarantine, if the play decides
        so."""
        may_keep = isinstance(effect, CommitRows | CopyTable) and self.lake.values.are_kept
        if not (may_keep and self.choices.keeps_invalid()):
            return
        self.say(f"{type(effect).__name__} has written its invalid values")
        if isinstance(effect, CommitRows):
            self.lake.keep_invalid(effect.record, effect.rows.entries, effect.snapshot)
        elif isinstance(effect, CopyTable):
            self.copies.keep_invalid(effect)

    def _do(self, effect: Effect, *, killed: bool = False) -> Event:
        self.judge.works.done(effect)
        return self.works.do(effect, killed=killed)

    def _fail(self, effect: Effect, failure: Failure) -> None:
        self.stats["failures"] += 1
        run: int = getattr(effect, "run")  # noqa: B009 - all works have a number
        failed = StoreFailed if isinstance(effect, StoreRecords) else WorkFailed
        answer = failed(run, failure)
        self.judge.works.answered(effect, answer)
        self.step(answer)

    def _register(self) -> None:
        """Let the catalog register a table."""
        table_id, self.works.registers = self.works.registers, ""
        if table_id:
            self.judge.tables.registered[table_id] = f"catalog.{self.now}"
            self.step(Registered(table_id, self.judge.tables.registered[table_id]))

    def _copy(self, effect: CopyTable, fails: str) -> None:
        """Let a copy read a chunk of its table, or end."""
        copy = self.copies.running[effect.run]
        stops = copy.stop and copy.left > 1
        if not stops and self.copies.table(effect) is None and self.makes_missing:
            self.server.create(effect.record.name)
            self.server.end_append()
            self.look()
            return
        try:
            if fails in ("before", "after", "conflict") and not stops:
                raise UnreadableError
            answer = self.copies.read(effect)
        except UnreadableError:
            self._keep_invalid(effect)
            self.copies.end(effect)
            self._fail(effect, Failure("the table cannot be read"))
            return
        except BinlogError as fault:
            self.copies.end(effect)
            self._fail(effect, _of(fault))
            return
        if answer is not None:
            self.step(answer)


def _fault_of(effect: Effect) -> BinlogError:
    if isinstance(effect, CommitRows):
        return BinlogError(ErrorKind.INVALID_VALUE, "a value is invalid")
    return BinlogError(ErrorKind.TARGET_FILES, "a file cannot be read")


def _of(fault: BinlogError) -> Failure:
    return Failure(str(fault), fault)
