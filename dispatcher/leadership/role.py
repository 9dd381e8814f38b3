"""The role of one of several daemons that share a state store, in the form that people and programs see."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """`leads`: True for the leader, False for a standby; `term`: the leader's term, 0 if unknown; `leader`: the address
    of the leader's API, "" if unknown."""

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
        """Return the role as `GET /v1/leader` shows it."""
        return {"role": self.name, "term": self.term or None, "leader": self.leader or None}
