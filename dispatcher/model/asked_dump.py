"""A dump that a replication client asks for, and a server's refusal of a dump."""

from __future__ import annotations

from typing import NamedTuple

from dispatcher.model.gtid import GtidSet


class AskedDump(NamedTuple):
    """`file`: "" = the first file of the log; `offset`: bytes. `gtids`: the set that a client of MySQL has executed,
    None in a dump by file. `state`: MariaDB's @slave_connect_state, as the client has written it, None in a dump by
    file; `strict`: MariaDB's @slave_gtid_strict_mode."""

    file: str
    offset: int
    gtids: GtidSet | None = None
    state: str | None = None
    strict: bool = False

    @property
    def by_gtid(self) -> bool:
        return self.gtids is not None or self.state is not None


class DumpRefusal(NamedTuple):
    """The number and the text of the error with which a server refuses a dump."""

    number: int
    text: str
