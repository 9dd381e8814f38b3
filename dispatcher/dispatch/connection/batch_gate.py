"""Holds one batch of a dispatcher until the server has answered a question about it.

The dispatcher asks one of two questions: what are the definitions of tables in the batch (`FetchSchema`), or does the
batch's file follow the log that was read (`PollServer`, see `continuity`).
"""

from __future__ import annotations

from dispatcher.dispatch.messages.effects import Effect, FetchSchema, Note
from dispatcher.dispatch.messages.events import BatchReceived, SchemaFetched
from dispatcher.dispatch.tables.enrichment import Outcome
from dispatcher.dispatch.values.executed_position import Gtids

# One fetch is enough, unless the server's log changes during the fetch, for instance by a RESET.
FETCHES_MAX = 3


class BatchGate:
    """The held batch of a dispatcher, and its requests for table definitions."""

    def __init__(self, dispatcher: int) -> None:
        self._dispatcher = dispatcher
        self.held: BatchReceived | None = None
        self.awaits_poll = False  # the held batch waits for a `ServerPolled`
        self._awaited = 0  # number of the request that is under way, 0 = none
        self._requests = 0
        self._fetches = 0  # how often definitions were fetched for the held batch
        # The newest answer for which the server's log was read ahead, and the GTID set that the dispatcher had read
        # when this answer came.
        self._read_ahead: tuple[Gtids, SchemaFetched] | None = None

    @property
    def fetching(self) -> bool:
        """True if a request has no answer yet, even if its batch is no longer held."""
        return bool(self._awaited)

    @property
    def may_fetch(self) -> bool:
        return self._fetches < FETCHES_MAX

    def begin(self) -> None:
        """Record that a stream begins: drop the held batch."""
        self.release()
        self._fetches = 0

    def passed(self) -> None:
        """Record that the batch needs no further fetch."""
        self._fetches = 0

    def release(self) -> BatchReceived | None:
        """Return the held batch, and hold it no longer; None if no batch is held."""
        held, self.held, self.awaits_poll = self.held, None, False
        return held

    def hold_for_poll(self, received: BatchReceived) -> None:
        self.held, self.awaits_poll = received, True

    def hold_for_schema(
        self, received: BatchReceived, outcome: Outcome, *, streaming: bool
    ) -> list[Effect]:
        """Hold a batch for which table definitions are missing. Request the definitions, unless the dispatcher is
        paused and a request is under way."""
        assert outcome.start is not None
        self.held = received
        if self._awaited and not streaming:
            return []
        self._fetches += 1
        self._requests += 1
        self._awaited = self._requests
        tables = [".".join(name) for name in outcome.missing]
        fields = {"tables": tables, "from": str(outcome.start)}
        fetch = FetchSchema(
            self._dispatcher,
            self._awaited,
            outcome.missing,
            outcome.start,
            all_tables=outcome.gaps,
        )
        return [fetch, Note("info", "looking up tables", fields)]

    def answered(self, answer: SchemaFetched, read: Gtids | None) -> bool:
        """Record an answer. Returns True if the answer belongs to the newest request, and the log was read ahead for
        that request.

        `read`: the set up to which the dispatcher has read.
        """
        if answer.request.number != self._awaited:
            return False
        self._awaited = 0
        if not answer.request.all_tables or read is None:
            return False
        self._read_ahead = read, answer
        return True

    def awaits(self, request: FetchSchema) -> bool:
        """True if the answer to this request has not come, and no newer request was made."""
        return request.number == self._awaited

    def forget(self, request: FetchSchema) -> None:
        """Do not wait for the answer to this request any more."""
        if self.awaits(request):
            self._awaited = 0

    def read_ahead_from(self, read: Gtids) -> SchemaFetched | None:
        """Returns the answer for which the log was read ahead, if the dispatcher had read the set `read` when that
        answer came, else None."""
        at, answer = self._read_ahead or (None, None)
        return answer if at == read else None
