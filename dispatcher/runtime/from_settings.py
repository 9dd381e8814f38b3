"""What settings declare, as what runs: groups of consumers that share a connection, and the source of each."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from uuid import UUID

from dispatcher.dispatch.specs import (
    AtFile,
    AtGtid,
    AtTime,
    ClientLimits,
    ConsumerSpec,
    Earliest,
    Latest,
    OnPurged,
    OnQueueFull,
    Start,
)
from dispatcher.runtime.client_service import ClientDecl, ConsumerDecl
from dispatcher.settings.model import (
    ConnectionSettings,
    Settings,
    StartSettings,
    SubscriptionSettings,
)
from dispatcher.source.files.source import files_source
from dispatcher.source.mysql.login import endpoints_of
from dispatcher.source.mysql.source import ServerSource
from dispatcher.source.protocols import Source

ClientKey = Hashable


def client_decls(settings: Settings, installation: UUID) -> dict[ClientKey, ClientDecl]:
    """Consumers by connection: one group per connection key, and one for each that shares with nobody.

    Raises BinlogError for files that cannot be a source.
    """
    members: dict[ClientKey, list[str]] = {}
    for name, consumer in settings.consumers.items():
        key = consumer.connection_key if consumer.use_binlog_client else ("unshared", name)
        members.setdefault(key, []).append(name)
    return {key: _group(settings, names, installation) for key, names in members.items()}


def start_spec(start: StartSettings) -> Start:
    """Returns a declared start as `dispatch` takes it."""
    match start.at:
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case "gtid":
            return AtGtid(start.gtid)
        case "file":
            return AtFile(start.file, start.offset)
        case "timestamp":
            return AtTime(start.timestamp_us)


def consumer_spec(name: str, wanted: SubscriptionSettings) -> ConsumerSpec:
    tables = None
    if wanted.tables is not None:
        split = (table.partition(".") for table in wanted.tables)
        tables = tuple((database, table) for database, _, table in split)
    return ConsumerSpec(
        name,
        tuple(wanted.databases),
        tables,
        wanted.max_bytes_in_binlog_queue,
        start_spec(wanted.start),
        wanted.assume_current_schema,
        wanted.max_milliseconds_to_wait_in_binlog_queue / 1000,
        OnQueueFull(wanted.on_queue_full),
        OnPurged(wanted.on_purged),
    )


def client_decl(
    connection: ConnectionSettings,
    consumers: Iterable[ConsumerDecl],
    installation: UUID,
    alone: str = "",
) -> ClientDecl:
    """Consumers of one connection, none yet if need be. `alone`: the name of one that never shares it."""
    source = _source(connection, installation, alone)
    limits = ClientLimits(
        connection.max_bytes_to_merge,
        connection.max_bytes_in_all_queues,
        float(connection.failover_wait_seconds),
    )
    return ClientDecl(
        f"{source.label}/{alone}" if alone else source.label,
        source,
        tuple(consumers),
        limits,
        connection.max_bytes_in_binlog_dispatcher_buffer,
        (
            connection.connection_key,
            connection.files,
            connection.tls,
            connection.heartbeat_milliseconds,
            connection.max_flush_milliseconds_in_binlog_dispatcher,
        ),
    )


def _group(settings: Settings, names: list[str], installation: UUID) -> ClientDecl:
    """What belongs to the connection is as the first one says it; they agree, or stand alone."""
    first = settings.consumers[names[0]]
    consumers = ((name, settings.consumers[name]) for name in names)
    declared = (
        ConsumerDecl(consumer_spec(name, consumer), consumer.max_seconds_between_markers)
        for name, consumer in consumers
    )
    return client_decl(first, declared, installation, "" if first.use_binlog_client else names[0])


def _source(connection: ConnectionSettings, installation: UUID, alone: str) -> Source:
    if connection.files is not None:
        return files_source(connection.files, installation)
    # Part of each dispatcher's identity: one for the shared connection, and one for each that is not shared.
    name = f"{connection.label}/{alone}" if alone else connection.label
    heartbeat_s = connection.heartbeat_milliseconds / 1000
    flush_s = connection.max_flush_milliseconds_in_binlog_dispatcher / 1000
    return ServerSource(
        endpoints_of(connection), installation, name, heartbeat_s=heartbeat_s, flush_s=flush_s
    )
