"""Statements from the servers' grammars, run on the servers: none is followed wrongly."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pymysql
import pytest

from tests.servers import KINDS
from tests.statements.grammar import Grammar, Statement, shorter
from tests.statements.judge import Judged, Verdict, judge
from tests.statements.recorded import FOLDED, Recording
from tests.statements.recorder import Recorder, kind_of, server_of

STATEMENTS = int(os.environ.get("STATEMENTS", "20000"))
SEED = int(os.environ.get("STATEMENTS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
_SHORTEN_S = 20.0
_SHOWN = 25
# A quarter of the statements runs with lower_case_table_names=1.
_SHARES = {kind: 0.75 / len(KINDS) for kind in KINDS} | {
    kind + FOLDED: 0.25 / len(KINDS) for kind in KINDS
}


@dataclass(slots=True)
class _Run:
    """`differences`: the first statement of each kind of difference, made shorter."""

    profile: str
    verdicts: Counter[str] = field(default_factory=Counter)
    doubts: Counter[str] = field(default_factory=Counter)
    differences: dict[str, tuple[Statement, Judged]] = field(default_factory=dict)

    def add(self, recorder: Recorder, statement: Statement) -> None:
        judged = _judged(self.profile, recorder, statement)
        if judged is None:
            return
        self.verdicts[judged.verdict] += 1
        if judged.verdict is Verdict.DOUBTED:
            self.doubts[f"{statement.form}: {judged.why[:80]}"] += 1
        if judged.verdict is Verdict.DIFFERENT and len(self.differences) < _SHOWN:
            statement, judged = _shortest(self.profile, recorder, statement, judged)
            if statement.case.name not in self.differences:
                # Print each difference at once, because the run takes up to an hour.
                print(f"\n{self.profile}: {statement.case.name}\n    {judged.why}", flush=True)
            self.differences.setdefault(statement.case.name, (statement, judged))


def _judged(profile: str, recorder: Recorder, statement: Statement) -> Judged | None:
    found = recorder.record(statement.case)
    if found is None:
        return None
    try:
        return judge(found, Recording(profile, recorder.format, recorder.base, [found]))
    except Exception as error:
        error.add_note(statement.case.name)
        raise


def _shortest(
    profile: str, recorder: Recorder, statement: Statement, judged: Judged
) -> tuple[Statement, Judged]:
    until, done = time.monotonic() + _SHORTEN_S, False
    while not done:
        done = True
        for one in shorter(statement):
            if time.monotonic() > until:
                return statement, judged
            again = _judged(profile, recorder, one)
            if again is not None and again.verdict is Verdict.DIFFERENT:
                statement, judged, done = one, again, False
                break
    return statement, judged


def _statements(profile: str) -> Iterator[Statement]:
    grammar = Grammar(
        random.Random(f"{SEED} {profile}"), mariadb=kind_of(profile).startswith("mariadb")
    )
    for _ in range(int(STATEMENTS * _SHARES[profile])):
        yield grammar.statement()


@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("profile", _SHARES)
def test_generated_statements(profile: str) -> None:
    run = _Run(profile)
    began = time.monotonic()
    with server_of(profile) as server:
        recorder = Recorder(server, server.datadir)
        for statement in _statements(profile):
            try:
                run.add(recorder, statement)
            except (pymysql.OperationalError, pymysql.InterfaceError):
                # The server crashed, which is not a fault of the product.
                server.restart(kill=True)
                recorder = Recorder(server, server.datadir)
                run.verdicts["crashed the server"] += 1
    print(
        f"\n{profile}, STATEMENTS_SEED={SEED}: {dict(run.verdicts)} in {time.monotonic() - began:.0f} s"
    )
    for why, count in run.doubts.most_common(40):
        print(f"  {count} doubted: {why}")
    shown = "\n".join(
        f"{statement.case.name}\n    {judged.why}" for statement, judged in run.differences.values()
    )
    assert not run.differences, f"{profile}, STATEMENTS_SEED={SEED}:\n{shown}"
