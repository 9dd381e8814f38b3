"""Finds for `check` what is wrong with the database of the state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.answers import text_value
from dispatcher.mysql.grants import Grants, parse_grants
from dispatcher.settings.model import StateSettings
from dispatcher.state.server.durability import durability_warnings, variables_of
from dispatcher.state.server.schema import installed_of, refuse_old, refuse_unusable
from dispatcher.state.server.session import (
    PRIVILEGES,
    READ_ONLY_VARIABLES,
    DatabaseSession,
    SessionLimits,
)
from dispatcher.state.statements import Statements

PACKET_BYTES_MIN = 4 << 20  # enough for a position whose set has some 100,000 intervals
_VARIABLES = (*READ_ONLY_VARIABLES, "log_bin", "binlog_format")
_TABLES = """
SELECT table_name FROM information_schema.tables WHERE table_schema = ? AND engine <> 'InnoDB'
"""
_INNODB = (
    "SELECT count(*) FROM information_schema.engines WHERE engine = 'InnoDB' AND support <> 'NO'"
)


@dataclass(frozen=True, slots=True)
class StateReport:
    """`errors`: the reasons why a daemon cannot use the database. `warnings`: one line each. `version`: the version of
    the server, "" if it cannot be asked; `schema`: the version of the schema, 0 if there are no tables yet."""

    errors: tuple[BinlogError, ...]
    warnings: tuple[str, ...] = ()
    version: str = ""
    schema: int = 0


def examine_state(settings: StateSettings) -> StateReport:
    """Examine the database. Changes nothing."""
    with closing(DatabaseSession(settings, SessionLimits(idle_s=60))) as session:
        try:
            version = session.run(lambda db: str(db.execute("SELECT VERSION()").fetchone()[0]))
            refuse_old(session)
            errors = list(_errors(session))
            warnings = session.run(durability_warnings) + session.run(_packet_warnings)
        except BinlogError as error:
            return StateReport((error,))
        schema = 0
        try:
            installed = installed_of(session)
            if installed is not None:
                schema, _ = installed
                refuse_unusable(session, *installed)
        except BinlogError as error:
            errors.append(error)
    return StateReport(tuple(errors), tuple(warnings), version, schema)


def _errors(session: DatabaseSession) -> Iterator[BinlogError]:
    grants = session.run(_grants)
    if lacking := grants.lacking(session.database, PRIVILEGES):
        what = f"the account lacks {', '.join(lacking)} on the database {session.database}"
        remedy = session.grant(lacking)
        yield BinlogError(ErrorKind.GRANT_MISSING, what, where=session.label, remedy=remedy)
    variables = session.run(lambda db: variables_of(db, _VARIABLES))
    if read_only := session.read_only_error(variables):
        yield read_only
    if variables.get("log_bin") == "ON" and variables.get("binlog_format") == "STATEMENT":
        yield session.error(
            "binlog_format=STATEMENT: the server refuses the transactions of the state",
            "set binlog_format=ROW on the database's server",
        )
    if not session.run(lambda db: db.execute(_INNODB).fetchone()[0]):
        yield session.error("the server has no InnoDB", "enable it: the state needs transactions")
    tables = session.run(lambda db: [name for (name,) in db.execute(_TABLES, (session.database,))])
    if tables:
        remedy = "; ".join(
            f"ALTER TABLE {session.database}.{name} ENGINE=InnoDB" for name in tables
        )
        yield session.error(f"tables without transactions: {', '.join(tables)}", remedy)


def _grants(db: Statements) -> Grants:
    return parse_grants(text_value(line) for (line,) in db.execute("SHOW GRANTS"))


def _packet_warnings(db: Statements) -> tuple[str, ...]:
    size = int(variables_of(db, ("max_allowed_packet",)).get("max_allowed_packet", "0"))
    if size >= PACKET_BYTES_MIN:
        return ()
    remedy = f"SET GLOBAL max_allowed_packet = {PACKET_BYTES_MIN}, and the same in the server's option file"
    return (f"max_allowed_packet={size}: a position with a long GTID set may not fit; {remedy}",)
