"""`LoggedStatement`: the statement of a QUERY_EVENT with everything that its meaning depends on. The parsers take this
value. Pure data: `query_event` makes it from an event."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from dispatcher.binlog.event.session_variables import SessionVariables


@dataclass(frozen=True, slots=True)
class SessionFacts(SessionVariables):
    """What the log and the server show about the session that executed a statement.

    `thread_specific`: True if the event has LOG_EVENT_THREAD_SPECIFIC_F, the flag of statements that may have used a
    temporary table. `takes_effect`: False for the START ALTER and ROLLBACK ALTER of MariaDB, see `logged_kind`.
    `error`: the number of the error with which the statement ended, 0 without an error; a server logs a failed
    statement if the statement had changed something before it failed. `lower_case_table_names`: the server's setting,
    0, 1 or 2. `mariadb`: True if MariaDB wrote the log.
    """

    thread_specific: bool = False
    takes_effect: bool = True
    error: int = 0
    lower_case_table_names: int = 0
    mariadb: bool = False

    def to_text(self) -> str:
        """Returns the facts as JSON, without those that have the default value."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(
            {name: value for name, value in facts.items() if value != _DEFAULTS[name]}
        )

    @classmethod
    def from_text(cls, text: str) -> SessionFacts:
        """Returns the facts that `to_text` has written as `text`. Raises `ValueError` or `TypeError` for any other
        text."""
        return cls(**json.loads(text))


NO_FACTS = SessionFacts()
_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(SessionFacts)}


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """`text`: the statement as the server executed it, see `comments.executed_text`. `database`: the session's default
    database, "" if it has none. The parsers look up names without a database in this database."""

    text: str
    database: str = ""
    facts: SessionFacts = NO_FACTS
