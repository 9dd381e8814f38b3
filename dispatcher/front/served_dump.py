"""Serves a client's dump: derives its options from the client's request and variables, and sends the packet that ends
it."""

from __future__ import annotations

import asyncio

from dispatcher.dispatch.queue.reader import Caller
from dispatcher.front.daemon_errors import wire_error
from dispatcher.front.dump.options import AfterGtids, AfterPlace, Checksum, RelayOptions
from dispatcher.front.dump.relay import Relay
from dispatcher.front.dump.request import DumpRequest
from dispatcher.front.dump_session import DumpOptions, DumpSession
from dispatcher.front.interfaces import GetConsumers
from dispatcher.front.questions.variables import Variables
from dispatcher.front.start import Wanted
from dispatcher.front.wire.channel import Channel, ClientGone
from dispatcher.front.wire.errors import WireError, fatal_reading
from dispatcher.front.wire.login import FrontLogin
from dispatcher.model.asked_dump import AskedDump
from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import MariadbGtids
from dispatcher.model.printable import printable
from dispatcher.model.server_picture import Picture
from dispatcher.settings.front import FrontSettings

_QUIT_BYTES_MAX = 1 << 10
_PROGRAM_MAX = 80  # the longest name of a program, in characters
# To count its offset, a replica of MySQL adds up the sizes of the events that it gets. If events are left out, the
# offset that the replica stores is too low, so after a lost connection it would apply transactions twice.
_MYSQL_REPLICA = "mysqld"
_BY_FILE_REFUSED = (
    "a replica of MySQL cannot read by file and offset here, because events of other consumers are left out; set"
    " gtid_mode=ON, and CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION=1"
)

# A replica of MariaDB also adds up the sizes. It corrects its sum only if the sum is too low. After events to which the
# daemon has added metadata, and after XA transactions, the sum is too high, and the replica would miss transactions.
_MARIADB_BY_FILE_REFUSED = (
    "a replica of MariaDB cannot read by file and offset here, because events have other sizes than in the source's"
    " log: CHANGE MASTER TO MASTER_USE_GTID=slave_pos"
)


class ServedDump:
    """Serves one dump on a connection. The connection is closed after the dump."""

    def __init__(
        self,
        channel: Channel,
        login: FrontLogin,
        consumers: GetConsumers,
        settings: FrontSettings,
        variables: Variables,
        picture: Picture,
        *,
        is_mariadb_replica: bool = False,
    ) -> None:
        self._channel = channel
        self._login = login
        self._consumers = consumers
        self._settings = settings
        self._variables = variables
        self._picture = picture
        self._is_mariadb_replica = is_mariadb_replica

    async def admit(self, request: DumpRequest) -> None:
        """Raise WireError if the front or the source refuses the request."""
        self._check(request)
        await self._ask_source(request)

    async def serve(self, request: DumpRequest) -> None:
        """Serve the dump until the client disconnects. If the client has set BINLOG_DUMP_NON_BLOCK, the dump ends at
        the end of the log. Raises ClientGone when the client disconnects."""
        wanted = self._wanted(request)
        relay = Relay(self._relay_options(request), wanted)
        dump = DumpSession(
            self._consumers,
            self._login.user,
            self._caller(),
            self._options(request, wanted),
            relay,
            self,
        )
        try:
            await self._while_connected(dump)
        except BinlogError as error:
            self.write(relay.error(wire_error(error)))
        except WireError as error:
            self.write(relay.error(error))
        else:
            self.write(relay.end())
        await self.drain()

    # -- what the client has asked for -----------------------------------------------------------------------

    def _check(self, request: DumpRequest) -> None:
        """Raise WireError 1236 for a request that the source would serve, but the front does not."""
        if self._variables.slave_until_gtid is not None:
            raise fatal_reading("START SLAVE UNTIL is not possible here")
        if self._state is not None or request.gtids is not None:
            return
        is_mysql_replica = self._login.attributes.get("program_name") == _MYSQL_REPLICA
        if is_mysql_replica and not self._picture.mariadb:
            raise fatal_reading(_BY_FILE_REFUSED)
        if self._is_mariadb_replica:
            raise fatal_reading(_MARIADB_BY_FILE_REFUSED)

    async def _ask_source(self, request: DumpRequest) -> None:
        """Raise the source's own error if the source refuses the request: for a place that it has purged or never had,
        and for an offset at which no event begins."""
        asked = AskedDump(
            request.file,
            request.offset,
            None if self._picture.mariadb else request.gtids,
            self._state,
            self._variables.slave_gtid_strict_mode,
        )
        refusal = await self._consumers().dump_refusal(self._login.user, asked)
        if refusal is not None:
            raise WireError(refusal.number, refusal.text)

    @property
    def _state(self) -> str | None:
        """The GTIDs of a client of MariaDB that reads by GTID; None for any other client."""
        return self._variables.slave_connect_state if self._picture.mariadb else None

    def _wanted(self, request: DumpRequest) -> Wanted:
        """Return where the client asks the dump to begin. Raises BinlogError for malformed GTIDs."""
        if self._state is not None:
            return AfterGtids(MariadbGtids.parse(self._state))
        if request.gtids is not None:
            return AfterGtids(request.gtids)
        return AfterPlace(request.file or self._first_file(), request.offset)

    def _first_file(self) -> str:
        return next((name for name, _ in self._picture.log_files), "")

    def _options(self, request: DumpRequest, wanted: Wanted) -> DumpOptions:
        executed = None
        if isinstance(wanted, AfterGtids):
            executed = type(wanted.gtids).parse(self._picture.executed)
        return DumpOptions(
            wanted,
            executed,
            self._variables.heartbeat_period_ns / 1e9,
            self._settings.acknowledge_after_seconds,
            to_end=request.non_blocking,
        )

    def _relay_options(self, request: DumpRequest) -> RelayOptions:
        picture, variables = self._picture, self._variables
        checksum = variables.binlog_checksum
        return RelayOptions(
            server_id=picture.server_id,
            checksum=Checksum.UNSET if checksum is None else Checksum[checksum],
            heartbeat_v2=request.heartbeat_v2 and not picture.mariadb,
            annotate=request.annotate,
            mariadb=picture.mariadb,
            mariadb_capability=variables.mariadb_capability,
        )

    def _caller(self) -> Caller:
        """Return the client's name and address for the status page."""
        attributes = self._login.attributes
        names = (attributes.get(key) for key in ("program_name", "_client_name"))
        program = next(filter(None, names), "replication client")
        return Caller.of(self._login.host, f"{printable(program[:_PROGRAM_MAX])} (front)")

    # -- the connection --------------------------------------------------------------------------------------

    def write(self, packets: bytes | memoryview) -> None:
        self._channel.write(packets)

    async def drain(self) -> None:
        await self._channel.drain(self._settings.write_timeout_seconds)

    async def _while_connected(self, dump: DumpSession) -> None:
        """Run the dump until it ends or the client disconnects. Raises BinlogError, WireError, ClientGone."""
        channel = self._channel

        async def until_closed() -> None:
            await asyncio.shield(channel.closed)
            raise ClientGone("the client has left")

        # During a dump, the only command of a client is COM_QUIT.
        channel.watch(lambda _: channel.abort(), _QUIT_BYTES_MAX)
        try:
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(until_closed())
                await dump.run()
                watcher.cancel()
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        finally:
            channel.unwatch()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
