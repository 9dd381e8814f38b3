"""The declaration of a consumer: the body of the daemon's call `POST /v1/consumers`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeclareOptions:
    """The consumer that the source declares for a query. `source`: the daemon's source, None if the daemon chooses it;
    `tables`: None for all tables of the databases; `start`: the place where the consumer begins, as JSON in the form of
    the daemon's `start`."""

    prefix: str
    source: str | None
    databases: tuple[str, ...]
    tables: tuple[str, ...] | None
    start: str
