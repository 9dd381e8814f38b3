"""Finds out whether the database of the state answers too slowly for this daemon to lead, and which lease would be long
enough.

The rules give up a request that is not answered in time, so the time of its answer stays unknown. After such a request
this module measures once, in a session of its own without the limits of the rules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dispatcher.leadership.lease import LeaseRow
from dispatcher.leadership.messages import Campaign, Renew, Request
from dispatcher.leadership.patience import leader_patience_s, sufficient_lease_s
from dispatcher.model.errors import BinlogError
from dispatcher.runtime.client.client_runner import Logger
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.runtime.loop.threads import in_thread


class AnswerTimes:
    """`trouble`: why the database is too slow for the lease, "" if it is fast enough or if this is unknown;
    `measuring`: True while a measurement runs."""

    def __init__(
        self, measure: Callable[[], float], lease_s: float, tasks: Tasks, log: Logger
    ) -> None:
        """`measure`: returns how long the database takes to open a session and to answer, in seconds; runs in a thread,
        and may raise BinlogError."""
        self.trouble = ""
        self._measure = measure
        self._lease_s = lease_s
        self._tasks = tasks
        self._log = log
        self.measuring = False

    def given_up(self) -> None:
        """The rules have given up a request."""
        if not self.measuring:
            self.measuring = True
            self._tasks.start("answer time", self._find_out())

    def answered(self, request: Request, row: LeaseRow | None, answer_s: float) -> None:
        """The database has answered a request after `answer_s` seconds."""
        if isinstance(request, Campaign | Renew) and answer_s > leader_patience_s(self._lease_s):
            self._tell(answer_s)
        elif row is not None and not row.free:  # a daemon leads
            self.trouble = ""

    async def _find_out(self) -> None:
        try:
            answer_s = await in_thread("answer time", self._measure)
        except BinlogError:
            return  # the request's own error says why the database is not reached
        finally:
            self.measuring = False
        if answer_s > leader_patience_s(self._lease_s):
            self._tell(answer_s)

    def _tell(self, answer_s: float) -> None:
        self.trouble = (
            f"the database of the state answered after {answer_s:.1f} s; the lease is {self._lease_s:g} s, and a daemon"
            f" can lead only if the database answers within {leader_patience_s(self._lease_s):g} s (a quarter of the"
            f" lease); set state.lease: {sufficient_lease_s(answer_s)} for all daemons of this state and restart them,"
            " or use a database that answers faster"
        )
        self._log.log(logging.WARNING, "state database too slow", error=self.trouble)
