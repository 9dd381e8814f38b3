"""Each recorded statement: the daemon and the mirror follow it as the server executed it, or say that they do not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.statements import known
from tests.statements.cases import corpus
from tests.statements.judge import Verdict, judge
from tests.statements.recorded import DATA, read

FILES = sorted(DATA.glob("*.jsonl.zst"))
_BYTES_MAX = 300_000
_PEOPLE = "written by people"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_recorded_statements(path: Path) -> None:
    recording, listed = read(path), known.known()
    verdicts: Counter[str] = Counter()
    by_group: dict[str, Counter[str]] = {}
    wrong, doubts = [], []
    for case in recording.cases:
        judged = judge(case, recording)
        verdicts[judged.verdict] += 1
        by_group.setdefault(case.group, Counter())[judged.verdict] += 1
        line = known.entry(recording.server, case.name)
        differs = judged.verdict is Verdict.DIFFERENT
        if differs and line not in listed:
            wrong.append(f"{line}\n    {judged.why}")
        elif not differs and line in listed:
            wrong.append(f"{line}\n    {judged.verdict} now: python -m tests.statements prune")
        if judged.verdict is Verdict.DOUBTED and _PEOPLE in case.group:
            doubts.append(f"{line}\n    doubted: {judged.why}")
    print(f"\n{recording.server}: {_shown(verdicts)}")
    for group, counts in by_group.items():
        print(f"  {group}: {_shown(counts)}")
    assert not wrong, "\n".join(wrong)
    assert not doubts, "\n".join(doubts)


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


def test_the_files_hold_the_corpus() -> None:
    assert FILES
    names = {case.name for case in corpus()}
    recorded = {case.name for path in FILES for case in read(path).cases}
    assert recorded <= names, f"no longer in the corpus: {sorted(recorded - names)[:5]}"
    assert names <= recorded, f"record them: {sorted(names - recorded)[:5]}"
    assert all(path.stat().st_size < _BYTES_MAX for path in FILES)


def test_known_differences_are_of_recorded_cases() -> None:
    lines = {
        known.entry(recording.server, case.name)
        for recording in map(read, FILES)
        for case in recording.cases
    }
    assert set(known.known()) <= lines
