"""A primary of MariaDB and its replicas, each behind a proxy, which replicate by GTID in two domains.

The replicas apply transactions of the two domains in parallel, so the domains interleave differently in the servers'
logs. `Group.kill` ends a member as `kill -9` does, `promote` makes a replica the primary, `rejoin` lets a dead member
replicate again, or replaces it if its log has transactions that the others never received.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from dispatcher.model.gtid import DomainGtids
from tests.daemon.harness import PASSWORD, until
from tests.servers import Instance
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory
from tests.support.proxy import NORMAL, STALLED, Proxy

# With the value 0 of the other tests, a server that is killed loses commits that are in its binlog.
REPLICA_OPTIONS = (
    "--slave-parallel-threads=4",
    "--skip-slave-start",
    "--innodb-flush-log-at-trx-commit=2",
)


@dataclass
class Member:
    server: Instance
    proxy: Proxy
    server_id: int

    @property
    def logged(self) -> DomainGtids:
        """The GTIDs in the server's own log."""
        return self.variable("gtid_binlog_pos")

    def variable(self, name: str) -> DomainGtids:
        return DomainGtids.parse(str(self.server.execute(f"SELECT @@GLOBAL.{name}")[0][0]))

    def statuses(self) -> list[dict[str, Any]]:
        """The row of SHOW SLAVE STATUS; [] on a primary."""
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW SLAVE STATUS")
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
        return [dict(zip(names, values, strict=True)) for values in rows]

    @property
    def received(self) -> DomainGtids:
        (status,) = self.statuses()
        assert not status["Last_Error"], status["Last_Error"]
        return DomainGtids.parse(status["Gtid_IO_Pos"]).union(self.logged)

    def until_received(self, wanted: DomainGtids) -> None:
        until(lambda: self.received.contains(wanted), f"{self.server_id} has received {wanted}")

    def until_logged(self, wanted: DomainGtids) -> None:
        def has_logged() -> bool:
            for status in self.statuses():
                error = status["Last_SQL_Error"] or status["Last_IO_Error"]
                assert not error or "reconnecting" in error, error
            return self.logged.contains(wanted)

        until(has_logged, f"{self.server_id} has logged {wanted}")

    def replicate_from(self, primary: Member) -> None:
        self.server.execute(
            "STOP SLAVE",
            f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.server.port},"
            f" MASTER_USER = 'reader', MASTER_PASSWORD = \"{PASSWORD}\", MASTER_CONNECT_RETRY = 1,"
            " MASTER_USE_GTID = slave_pos",
            "START SLAVE",
        )


@dataclass
class Group:
    kind: Kind
    factory: ServerFactory
    options: tuple[str, ...]
    members: list[Member] = field(default_factory=list)
    primary: Member = field(init=False)
    promoted_at: DomainGtids = field(
        default_factory=DomainGtids
    )  # the log of the primary when it became the primary
    replaced: int = 0  # the server id of the primary before it
    rebuilt: int = 0  # how many members were replaced because their logs had diverged

    def start(self, stack: ExitStack, count: int) -> None:
        for number in range(1, count + 1):
            server = self._new_server(number)
            self.members.append(Member(server, stack.enter_context(Proxy(server.port)), number))
        self.primary = self.members[0]
        self.primary.server.add_user("reader", PASSWORD)
        for member in self.members[1:]:
            member.replicate_from(self.primary)

    def _new_server(self, number: int) -> Instance:
        options = (*REPLICA_OPTIONS, *self.options)
        return self.factory(self.kind, f"--server-id={number}", *options)

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{member.proxy.port}" for member in self.members)

    @property
    def replicas(self) -> list[Member]:
        return [member for member in self.members if member is not self.primary]

    def read_member(self) -> Member | None:
        """The member that sends its log to the daemon."""
        for member in self.members:
            links = {link.server_side for link in member.proxy.links if link.is_open}
            if not links:
                continue
            rows = member.server.execute("SHOW PROCESSLIST")
            if any("Binlog Dump" in str(row[4]) and row[2] in links for row in rows):
                return member
        return None

    def cut_off(self, member: Member) -> DomainGtids:
        """Cut the daemon off from a member. Returns the GTIDs of everything that the daemon may have received."""
        member.proxy.set(STALLED)
        return member.logged

    def kill(self, member: Member) -> None:
        member.server.kill()
        member.proxy.refuse()
        member.proxy.cut()

    def promote(self, dead: Member) -> None:
        """Let the replica that has received most apply all of it and become the primary."""
        others = [member for member in self.members if member is not dead]
        for member in others:
            member.server.execute("STOP SLAVE IO_THREAD", "START SLAVE SQL_THREAD")
        best = max(others, key=lambda member: len(member.received))
        best.until_logged(best.received)
        best.server.execute("STOP SLAVE", "RESET SLAVE ALL")
        self.replaced = dead.server_id
        self.primary, self.promoted_at = best, best.logged
        for member in others:
            if member is not best:
                if best.logged.contains(member.received):
                    member.replicate_from(best)
                else:
                    self._rebuild(member)

    def rejoin(self, dead: Member) -> None:
        """Let a killed member replicate from the primary. If it was the primary, its log may have transactions that the
        present primary did not have when it was promoted."""
        dead.server.restart()
        dead.proxy.target = ("127.0.0.1", dead.server.port)
        if dead.server_id == self.replaced and not self.promoted_at.contains(dead.logged):
            self._rebuild(dead)
        else:
            dead.server.execute(f"SET GLOBAL gtid_slave_pos = '{dead.logged}'")
            dead.replicate_from(self.primary)
        dead.proxy.set(NORMAL)
        dead.proxy.accept()

    def _rebuild(self, member: Member) -> None:
        """Replace a member by a new server, which replicates everything anew."""
        member.server.close()
        self.rebuilt += 1
        member.server_id += 10
        member.server = self._new_server(member.server_id)
        member.proxy.target = ("127.0.0.1", member.server.port)
        member.replicate_from(self.primary)

    def until_equal(self) -> None:
        for member in self.replicas:
            member.until_logged(self.primary.logged)


@contextmanager
def new_group(factory: ServerFactory, kind: Kind, *options: str, count: int = 3) -> Iterator[Group]:
    with ExitStack() as stack:
        group = Group(kind, factory, options)
        group.start(stack, count)
        yield group
