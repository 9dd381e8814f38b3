"""Holds the `Leader` of this daemon while the daemon leads, and describes the daemon's role and readiness to the API,
the status page and supervisors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dispatcher.dispatch.client.client import Client
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.leadership.role import Role
from dispatcher.model.errors import NotLeaderError
from dispatcher.model.timings import ConnectionTimings
from dispatcher.runtime.administration import Administration
from dispatcher.runtime.consumer_sessions import ConsumerSessions
from dispatcher.runtime.declarations import Declarations
from dispatcher.telemetry.systemd import states_in_words
from dispatcher.terms.leader import Leader
from dispatcher.terms.standby import Standby


@dataclass(slots=True)
class Serving:
    """`standby`: None if the state is in a file; `leader`: None while this daemon is a standby; `kernels`: returns what
    is being done to load the kernels, "" once they are loaded."""

    standby: Standby | None = None
    leader: Leader | None = None
    kernels: Callable[[], str] = str

    # -- for the calls of the API, which raise NotLeaderError on a standby -----------------------------------

    def consumers(self) -> ConsumerSessions:
        return self._leading().sessions

    def administration(self) -> Administration:
        return self._leading().administration

    def declarations(self) -> Declarations:
        return self._leading().declarations

    def owners(self) -> Mapping[str, str] | None:
        """Return the name of the token that has declared each consumer; None while this daemon does not lead."""
        return None if self.leader is None else self.leader.declarations.owners

    def _leading(self) -> Leader:
        leader = self.leader
        if leader is None or not (self.standby is None or self.standby.serves()):
            raise self.refusal()
        return leader

    def refusal(self) -> NotLeaderError:
        """Return the error with which this daemon refuses calls."""
        return NotLeaderError.of("") if self.standby is None else self.standby.refusal()

    # -- for the page, the metrics and MQTT ------------------------------------------------------------------

    def sessions(self) -> ConsumerSessions | None:
        return None if self.leader is None else self.leader.sessions

    def clients(self) -> Sequence[Client]:
        return () if self.leader is None else self.leader.clients()

    def rows(self) -> Iterable[tuple[dict[str, Any], Consumer]]:
        return () if self.leader is None else self.leader.sessions.rows_with_consumers()

    def connection_timings(self) -> Iterable[tuple[str, ConnectionTimings]]:
        return () if self.leader is None else self.leader.timings()

    def role(self) -> Role | None:
        return None if self.standby is None else self.standby.role()

    # -- for supervisors -------------------------------------------------------------------------------------

    def status(self) -> str:
        """Return a line for the service manager."""
        role = self.role()
        if kernels := self.kernels():
            return kernels
        if self.leader is None:
            return str(role)
        states = states_in_words(self.leader.sessions.states())
        return states if role is None else f"{role}; {states}"

    def not_ready(self) -> list[str]:
        """Return the reasons why this daemon cannot serve readers; an empty list if it can."""
        role, kernels = self.role(), list(filter(None, [self.kernels()]))
        if role is not None and not role.leads:
            return [str(role), *kernels, *self.store_faults()]
        if self.leader is None:
            return ["it begins to lead", *kernels]
        return [*kernels, *self.store_faults()]

    def store_faults(self) -> list[str]:
        """Return the reasons why nothing can be stored. A leader does not report errors of its lease, because it
        becomes a standby soon if it cannot renew the lease."""
        if self.leader is not None:
            return [str(fault) for fault in self.leader.store.faults]
        trouble = "" if self.standby is None else self.standby.trouble
        return [trouble] if trouble else []
