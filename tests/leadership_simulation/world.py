"""The world of a history: daemons, their database, their source, readers, and the faults that may happen."""

from __future__ import annotations

import random

from tests.leadership_simulation.agenda import Agenda
from tests.leadership_simulation.daemon import Process
from tests.leadership_simulation.database import Database
from tests.leadership_simulation.judge import Judge, bound_s
from tests.leadership_simulation.network import Link, Network
from tests.leadership_simulation.reader import Reader
from tests.leadership_simulation.transcript import Transcript

HOSTS = ("a", "b", "c")


class World:
    """`written`: how many transactions the source's log has; `processes`: those that run, by host."""

    def __init__(
        self, rng: random.Random, transcript: Transcript, *, daemons: int, lease_s: float
    ) -> None:
        self.rng = rng
        self.transcript = transcript
        self.agenda = Agenda()
        self.judge = Judge(self)
        self.database = Database(self.agenda, self.judge.committed, self._lost)
        self.network = Network(self.agenda, rng, self.database)
        self.names = HOSTS[:daemons]
        self.lease_s = lease_s
        self.bound_s = bound_s(lease_s)
        self.processes: dict[str, Process] = {}
        self.readers: list[Reader] = []
        self.written = 0
        self.calm_since = 0.0  # when the last fault happened
        self._starts = 0
        self._source_cut_until_s = dict.fromkeys(self.names, 0.0)

    # -- what happens ----------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start the daemon of a host, with a clock of its own."""
        self._starts += 1
        id_ = f"{name}{self._starts}"
        self.network.links.setdefault(id_, Link())
        clock = self.rng.uniform(-1000, 1000), self.rng.uniform(0.9, 1.1)
        self.say(f"{name} starts")
        self.processes[name] = Process(self, name, id_, clock, self.lease_s)

    def add_reader(self, consumer: str, *, checkpoint: bool) -> None:
        self.readers.append(Reader(self, consumer, checkpoint=checkpoint))

    def write(self, count: int) -> None:
        self.written += count

    def stop(self, name: str, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after that time."""
        process = self.processes[name]
        self.say(f"{name} is stopped for {seconds:.1f} s")
        process.stop()

        def go_on() -> None:
            if process.alive and process.stopped:
                self.say(f"{name} goes on")
                process.running_since = self.agenda.now
                self._disturbed(process, 0.0)
                process.go_on()

        self._disturbed(process, seconds)
        self.agenda.after(seconds, go_on)

    def kill(self, name: str, back_after_s: float | None) -> None:
        """SIGKILL; the daemon is started again after that time."""
        self.say(f"{name} is killed")
        process = self.processes.pop(name)
        self._disturbed(process, 0.0)
        process.kill()
        self._start_later(name, back_after_s)

    def hand_over(self, name: str) -> None:
        """SIGTERM, unless an earlier fault has ended the daemon."""
        self.say(f"{name} is to end")
        if (process := self.processes.get(name)) is not None:
            process.hand_over()

    def exited(self, process: Process) -> None:
        self.say(f"{process.name} has ended")
        self.judge.exited(process)
        process.kill()
        del self.processes[process.name]
        self._start_later(process.name, self.rng.uniform(0.1, 10.0))

    def cut_database(self, name: str, seconds: float) -> None:
        self.say(f"{name} does not reach the database for {seconds:.1f} s")
        process = self.processes[name]
        link = self.network.links[process.id]
        link.cut_until_s = self.agenda.now + seconds
        self._disturbed(process, seconds)

    def disturb_database(self, name: str, seconds: float) -> None:
        self.say(f"{name} reaches the database at times for {seconds:.1f} s")
        process = self.processes[name]
        link = self.network.links[process.id]
        link.noisy_until_s = self.agenda.now + seconds
        self._disturbed(process, seconds)

    def cut_source(self, name: str, seconds: float) -> None:
        self.say(f"{name} does not reach the source for {seconds:.1f} s")
        self._source_cut_until_s[name] = self.agenda.now + seconds

    def crash_database(self, seconds: float, *, loses: bool) -> None:
        self.say(f"the database crashes{' and loses its newest second' if loses else ''}")
        self.database.crash(loses=loses)
        for process in self.processes.values():
            self._disturbed(process, seconds)

        def start() -> None:
            if not self.database.up:
                self.say("the database starts")
                self.database.start()

        self.agenda.after(seconds, start)

    def end_connections(self, name: str) -> None:
        self.say(f"the database ends the connections of {name}")
        process = self.processes[name]
        self._disturbed(process, 0.0)
        self.database.end_sessions_of(process.id)

    def set_database_clock(self, seconds: float) -> None:
        self.say(f"the database's clock is set {seconds:+.1f} s")
        self.calm_since = max(self.calm_since, self.agenda.now)
        self.database.jump(seconds)

    def heal(self) -> None:
        """End all faults, and start everything that does not run."""
        self.say("all faults end")
        if not self.database.up:
            self.database.start()
        for link in self.network.links.values():
            link.cut_until_s = link.noisy_until_s = self.agenda.now
        self._source_cut_until_s = dict.fromkeys(self.names, 0.0)
        for process in list(self.processes.values()):
            if process.stopped:
                process.running_since = self.agenda.now
                process.go_on()
            process.able_since = self.agenda.now
        for name in self.names:
            if name not in self.processes:
                self.start(name)

    # -- what is asked ---------------------------------------------------------------------------------------

    def source_reaches(self, name: str) -> bool:
        return self.agenda.now >= self._source_cut_until_s[name]

    def run(self, seconds: float) -> None:
        self.agenda.run_until(self.agenda.now + seconds, self.judge.look)

    # -- inside ----------------------------------------------------------------------------------------------

    def _disturbed(self, process: Process, seconds: float) -> None:
        """Note that the process is disturbed for so many seconds."""
        process.able_since = max(process.able_since, self.agenda.now + seconds)
        self.calm_since = max(self.calm_since, process.able_since)

    def _start_later(self, name: str, after_s: float | None) -> None:
        def start() -> None:
            if name not in self.processes:
                self.start(name)

        if after_s is not None:
            self.agenda.after(after_s, start)

    def _lost(self) -> None:
        self.judge.lost()

    def say(self, text: str) -> None:
        self.transcript.said(self.agenda.now, text)
