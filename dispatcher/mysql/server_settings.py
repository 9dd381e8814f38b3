"""Finds everything that prevents complete replication from a server, and describes how each of the server's settings is
changed.

`needed_changes` lists the settings. `check` and the daemon show this list as errors (`findings`), and `init` carries
out what SQL can change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.grants import Grants, missing_privileges
from dispatcher.mysql.server_facts import (
    ServerFacts,
    log_engine_finding,
    read_grants,
    read_variables,
    version_numbers,
)

_NO_FAILOVER = "without GTIDs another host's log is another history"
_SESSIONS = "; sessions that are open keep their value"


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that must change.

    `what`: what is wrong now. `statement`: the SQL that changes the setting while the server runs, "" if SQL cannot.
    `option`: the line of the option file that keeps the value after a restart, "" if none is needed or possible.
    `elsewhere`: how the setting is changed without SQL, "" if a statement changes it. `of_sessions`: True if open
    sessions keep the old value.
    """

    what: str
    statement: str = ""
    option: str = ""
    elsewhere: str = ""
    of_sessions: bool = False

    @property
    def remedy(self) -> str:
        """How to make the change, as one sentence."""
        in_file = ", and the same in the server's option file" if self.option else ""
        change = self.elsewhere or f"{self.statement}{in_file}"
        return change + (_SESSIONS if self.of_sessions else "")


def needed_changes(facts: ServerFacts) -> list[SettingChange]:
    """Return the settings that must change, worst first."""
    return list(_changes(facts))


def _changes(facts: ServerFacts) -> Iterator[SettingChange]:
    def change(what: str, variable: str, value: str, *, of_sessions: bool = False) -> SettingChange:
        if facts.service.change:
            elsewhere = facts.service.change.format(variable=variable, value=value)
            return SettingChange(what, elsewhere=elsewhere, of_sessions=of_sessions)
        # SET PERSIST exists since MySQL 8.0.
        if facts.flavour == "mysql" and version_numbers(facts.version) >= (8,):
            statement = f"SET PERSIST {variable} = {value}"
            return SettingChange(what, statement, of_sessions=of_sessions)
        statement = f"SET GLOBAL {variable} = {value}"
        option = f"{variable.replace('_', '-')}={value}"
        return SettingChange(what, statement, option, of_sessions=of_sessions)

    if not facts.log_bin:
        elsewhere = facts.service.log_bin or "start the server with --log-bin"
        yield SettingChange("log_bin=OFF: the server writes no binlog", elsewhere=elsewhere)
    if (error := log_engine_finding(facts)) is not None:
        yield SettingChange(error.what, elsewhere=error.remedy)
    if facts.server_id == 0:
        yield change("server_id=0: the server refuses replicas", "server_id", "1")
    if facts.binlog_format != "ROW":
        what = f"binlog_format={facts.binlog_format}: statements instead of rows"
        yield change(what, "binlog_format", "ROW", of_sessions=True)
    if facts.row_image != "FULL":
        what = f"binlog_row_image={facts.row_image}: rows without all their columns"
        yield change(what, "binlog_row_image", "FULL", of_sessions=True)
    if facts.row_metadata not in ("FULL", ""):
        what = (
            f"binlog_row_metadata={facts.row_metadata}: rows without their columns' names, which are then looked up;"
            " consumers that begin before a table was altered stop there"
        )
        yield change(what, "binlog_row_metadata", "FULL")


def findings(
    facts: ServerFacts, grants: Grants, databases: Sequence[str] = ()
) -> list[BinlogError]:
    """Return everything that prevents complete replication from this server, worst first. `databases`: the databases
    that consumers read."""
    return [
        *(_finding(each.what, each.remedy) for each in _changes(facts)),
        *missing_privileges(grants, databases, facts.lower_case_table_names),
    ]


def examine(
    connection: Connection, databases: Sequence[str] = (), *, several: bool = False
) -> list[BinlogError]:
    """Return all findings about a server. Works with an account that may not ask for the position of the log.
    `several`: True if the source has standby hosts."""
    facts = read_variables(connection)
    errors = findings(facts, read_grants(connection), databases)
    if several and (error := several_hosts_finding(facts)):
        errors.append(error)
    return errors


def several_hosts_finding(facts: ServerFacts) -> BinlogError | None:
    """Return the finding that says why other hosts cannot replace this host; None if other hosts can replace it."""
    if facts.flavour == "mariadb":
        if facts.logs_replicated:
            return None
        return _finding(
            "log_slave_updates=OFF: the server's log lacks what it replicates from the other hosts",
            "start all hosts with --log-slave-updates, and rebuild their replicas' logs from a copy; or name one host",
        )
    if facts.gtid_mode != "ON":
        remedy = "set gtid_mode=ON on all hosts, or name one host"
        return _finding(f"gtid_mode={facts.gtid_mode or 'OFF'}: {_NO_FAILOVER}", remedy)
    return None


def _finding(what: str, remedy: str) -> BinlogError:
    return BinlogError(ErrorKind.SERVER_SETTING, what, remedy=remedy)
