"""What a daemon is among those that share a state store, as people and programs are told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """`leads`: True for the leader, False for a standby; `term`: of the leader, 0 if none is known; `leader`: the
    address of its API, "" if none is known."""

    leads: bool
    term: int
    leader: str

    @property
    def name(self) -> str:
        return "leader" if self.leads else "standby"

    def __str__(self) -> str:
        if self.leads:
            return f"leader, term {self.term}"
        known = f"{self.leader} leads, term {self.term}" if self.leader else "no daemon leads now"
        return f"standby: {known}"

    def as_dict(self) -> dict[str, str | int | None]:
        """As in `GET /v1/leader`."""
        return {"role": self.name, "term": self.term or None, "leader": self.leader or None}
