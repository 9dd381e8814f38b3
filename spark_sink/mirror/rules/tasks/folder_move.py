"""Begins a move of folders (a move is a work of a task), and updates the records with the result of the move. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from spark_sink.mirror.rules.effects import MoveFolders
from spark_sink.mirror.rules.events import Answer, FoldersMoved
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.tasks.task import Task
from spark_sink.mirror.rules.transitions import in_its_place, place_taken

PLACE_AGAIN_S = 60.0  # after this time a task checks again whether a table's place is free


def begin_move(
    task: Task, moving: Sequence[TableRecord], then: Callable[[FoldersMoved], None]
) -> None:
    """Begin to move the folders of the tables `moving` to the places that their records name. When the move or, in an
    object store, a step of the move has ended, this module updates the records and then calls `then`.

    Until the last step of the move has ended, and after a failure, the rules do not know where the folders are. During
    this time, no other work than this move may begin on the tables (`MirrorState.unsure`).
    """
    state = task.state
    ids = [record.table_id for record in moving]
    state.unsure.update(ids)

    def moved(answer: Answer) -> None:
        assert isinstance(answer, FoldersMoved)
        state.unsure.difference_update(ids if answer.step is None else answer.refused)
        after_move(state, ids, answer)
        then(answer)

    every = tuple(state.tables())
    task.begin(ids, lambda run: MoveFolders(run, tuple(moving), every), moved)


def must_wait(state: MirrorState, moving: Sequence[TableRecord]) -> bool:
    """True if another table's folder still has to move out of one of the places of `moving`. In an object store, where
    a move takes several steps, the files of two tables would otherwise be in one folder."""
    ids = {record.table_id for record in moving}
    places = {record.folder for record in moving}
    others = (record for record in state.tables() if record.table_id not in ids)
    return any(other.move is not None and other.move.source in places for other in others)


def after_move(state: MirrorState, ids: Sequence[str], moved: FoldersMoved) -> None:
    """Update the records of the tables `ids` with the result of a move of their folders."""
    after = []
    for record in (state.records[table_id] for table_id in ids):
        if (fault := moved.refused.get(record.table_id)) is not None:
            after.append(place_taken(record, moved.aside[record.table_id], fault))
        elif moved.step is None:
            after.append(in_its_place(record))
        elif record.move is not None:
            after.append(replace(record, move=replace(record.move, step=moved.step)))
        state.doubt(record.table_id)
    state.save(*after)
