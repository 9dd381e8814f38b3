"""Checks whether a server has the databases that consumers subscribe to.

A consumer whose databases do not exist gets no data, but it does not fail: the name may be wrong, or the database may
be created later. So the consumer gets a warning, which is withdrawn when the database exists. A login or poll runs the
check only if the server's databases have changed, because the search for names that resemble a missing one takes 2 ms
per consumer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.messages.effects import Effect, Note
from dispatcher.model.nearest import nearest
from dispatcher.model.subscription import NamePatterns


def compare_with(
    databases: frozenset[str] | None, consumers: Iterable[Consumer], lower_case_table_names: int
) -> list[Effect]:
    """Update the warnings of consumers. `databases`: the databases that the account may see, None = not known.
    `lower_case_table_names`: the server's setting."""
    effects: list[Effect] = []
    if databases is None:
        return effects
    for consumer in consumers:
        if consumer.compared_with == databases:
            continue
        consumer.compared_with = databases
        warnings = tuple(_missing(consumer.spec.databases, databases, lower_case_table_names))
        new = [warning for warning in warnings if warning not in consumer.warnings]
        consumer.warnings = warnings
        fields = {"consumer": consumer.name}
        effects += [Note("warning", "databases", {**fields, "warning": warning}) for warning in new]
    return effects


def _missing(wanted: Iterable[str], databases: Collection[str], lower_case: int) -> Iterator[str]:
    for text in wanted:
        patterns = NamePatterns([text], lower_case)
        if not any(map(patterns.match_database, databases)):
            yield (
                f"the server shows the account no database {text}{nearest(text, databases)}; correct databases, create"
                f" it, or GRANT SELECT on it"
            )
