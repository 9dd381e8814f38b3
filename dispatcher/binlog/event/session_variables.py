"""The session variables that a QUERY event contains. This module is separate, because readers of rows load it, and must
not load the parsers of events."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionVariables:
    """The variables of a session on which the meaning of its statement depends. If the event lacks a variable, the
    field is None, or 0 for ids and flags.

    `sql_mode`: MySQL's bit mask. `client`: a collation id of `character_set_client`, the character set of the
    statement's text. `connection`, `server`: the ids of `collation_connection` and `collation_server`.
    `database_collation`: id of `collation_database`. `time_zone`: the text of `time_zone`. `unknown_variable`: the code
    of the first status variable that the parser does not know; the variables after it are not read.
    """

    sql_mode: int = 0
    client: int = 0
    connection: int = 0
    server: int = 0
    database_collation: int | None = None
    time_zone: str | None = None
    explicit_defaults_for_timestamp: bool | None = None
    unknown_variable: int | None = None
