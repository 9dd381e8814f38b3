"""Each rule of a stream that begins with a snapshot, broken on purpose, which the simulation must notice."""

from __future__ import annotations

from functools import partial

from tests.simulation.changes import Drop, If, Replace, Return
from tests.simulation.mutant import Mutant

_mutant = partial(Mutant, package="spark_sink.source.snapshot")

MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "delivers rows that have changed meanwhile",
        "a chunk has no row that has changed behind its position",
        "rules.unchanged",
        Return("[True for _ in keys]"),
    ),
    _mutant(
        "takes each committed chunk for read",
        "a chunk whose batch had no rows is read again",
        "rules.is_settled",
        Return("True"),
    ),
    _mutant(
        "takes a chunk for read however many processes planned it",
        "a chunk is read again unless this process is the first one after that which planned it",
        "rules.is_settled",
        Replace("session == state.chunk.session + 1", "session > state.chunk.session"),
    ),
    _mutant(
        "leaves out changes of a chunk that is not settled",
        "rows of a chunk that is not settled count as read",
        "rules.delivered",
        If("state.chunk is not None", "False"),
    ),
    _mutant(
        "delivers changes of rows that are not read",
        "a change of a row that is not read is left out",
        "rules.delivered",
        Replace("Delivers.NONE if state.after is None else state.after", "Delivers.ALL"),
    ),
    _mutant(
        "delivers changes of tables that are not begun",
        "a change of a table that is not begun is left out",
        "rules.delivered",
        If("state.table is None or table > state.table", "state.table is None"),
    ),
    _mutant(
        "leaves out changes of tables that are read",
        "changes of a table that is read are delivered",
        "rules.delivered",
        If("table < state.table or state.whole", "state.whole"),
    ),
    _mutant(
        "delivers an UPDATE out of the rows that are read as a whole",
        "an UPDATE that moves a row to those that are not read is a DELETE",
        "rules.delivered_part",
        Return("DeliveredPart.NOTHING if not before and (not after) else DeliveredPart.WHOLE"),
    ),
    _mutant(
        "leaves out an UPDATE out of the rows that are read",
        "an UPDATE that moves a row to those that are not read is a DELETE",
        "rules.delivered_part",
        Replace(
            "DeliveredPart.DELETE if after is False else DeliveredPart.WHOLE",
            "DeliveredPart.NOTHING if after is False else DeliveredPart.WHOLE",
        ),
    ),
    _mutant(
        "leaves out an UPDATE into the rows that are read",
        "an UPDATE that moves a row to those that are read is an INSERT",
        "rules.delivered_part",
        Replace("DeliveredPart.INSERT", "DeliveredPart.NOTHING"),
    ),
    _mutant(
        "takes another end for a chunk that is read again",
        "a chunk is read again as a whole",
        "rules.with_chunk",
        Replace(
            "ChunkEnd(chunk.upper, chunk.attempt + 1, session)",
            "ChunkEnd(upper, chunk.attempt + 1, session)",
        ),
    ),
    _mutant(
        "does not count attempts",
        "the offset of a chunk that is read again names another attempt",
        "rules.with_chunk",
        Replace("chunk.attempt + 1", "chunk.attempt"),
    ),
    _mutant(
        "goes on behind another key than the chunk's",
        "the next chunk begins behind the settled one",
        "rules.settled",
        Replace(
            "replace(state, after=upper, whole=upper is None, chunk=None)",
            "replace(state, whole=upper is None, chunk=None)",
        ),
    ),
    _mutant(
        "ends a table at its first chunk",
        "a table is read when its last chunk is settled",
        "rules.settled",
        Replace("upper is None", "True"),
    ),
    _mutant(
        "skips a table",
        "the next table has the next name",
        "rules.next_table",
        Replace("min", "max"),
    ),
    _mutant(
        "counts the last key of a chunk as behind it",
        "a chunk includes its end",
        "key_order.KeyLimit.includes",
        Replace(
            "tuple((_comparable(order, value) for order, value in pairs)) <= self._bound",
            "tuple((_comparable(order, value) for order, value in pairs)) < self._bound",
        ),
    ),
    _mutant(
        "reads a chunk again whose changes the queue cannot hold",
        "a batch whose changes the queue cannot hold gets no rows",
        "planner.SnapshotPlanner.reads",
        Replace("self._sources.backlog(position).servable", "True"),
    ),
    _mutant(
        "reads on in a table that is no longer selected",
        "a table that the options no longer select counts as read",
        "rules.without_rest",
        Return("state"),
    ),
    _mutant(
        "reads planned rows of a table that is no longer selected",
        "a batch gets no rows of a table that the options no longer select",
        "planner.SnapshotPlanner.reads",
        Replace("self._sources.selects(state.table)", "True"),
    ),
    _mutant(
        "forgets that a batch got no rows",
        "a chunk whose batch had no rows is read again",
        "planner.SnapshotPlanner.reads",
        Replace("(state, read)", "(state, True)"),
    ),
    _mutant(
        "does not settle a chunk",
        "a chunk is settled by the batch behind it",
        "planner.SnapshotPlanner.next",
        Drop("state = rules.settled(state, read=rules.is_settled(state, session, read_here))"),
    ),
)
