"""Builds the declarations of clients from the settings, each with its consumers and its source."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from uuid import UUID

from dispatcher.dispatch.values.specs import (
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
from dispatcher.runtime.client.client_service import ClientDecl, ConsumerDecl
from dispatcher.settings.model import (
    ConnectionSettings,
    DeclaredConsumer,
    Settings,
    StartSettings,
    StateSettings,
    SubscriptionSettings,
)
from dispatcher.source.files.source import files_source
from dispatcher.source.mysql.source import ServerSource, endpoints_of
from dispatcher.source.protocols import Source

ClientKey = Hashable


def client_decls(settings: Settings, installation: UUID) -> dict[ClientKey, ClientDecl]:
    """Return one declaration for each connection key, and one for each consumer that does not share its connection.

    Raises BinlogError if a folder of binlog files cannot be a source.
    """
    members: dict[ClientKey, list[str]] = {}
    for name, consumer in settings.consumers.items():
        key = consumer.connection_key if consumer.use_binlog_client else ("unshared", name)
        members.setdefault(key, []).append(name)
    return {key: _shared_decl(settings, names, installation) for key, names in members.items()}


def start_spec(start: StartSettings) -> Start:
    """Convert the start in the settings to the form that the rules use."""
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


def consumer_spec(
    name: str, settings: SubscriptionSettings, state: StateSettings | None = None
) -> ConsumerSpec:
    """Convert the settings of a consumer to the form that the rules use. If `state` is a database, the consumer does
    not read this database.

    If a consumer of all databases read it, the consumer would get each write of its own acknowledgement as a change,
    and its reader would acknowledge this change, without end.
    """
    hidden = [] if state is None or state.mysql is None else [(state.mysql.database, "*")]
    declared_by = None
    if isinstance(settings, DeclaredConsumer):
        hidden += settings.excluded_by_source
        declared_by = settings.declared_by
    return ConsumerSpec(
        name,
        tuple(settings.databases),
        settings.table_patterns,
        settings.max_bytes_in_binlog_queue,
        start_spec(settings.start),
        settings.assume_current_schema,
        settings.max_milliseconds_to_wait_in_binlog_queue / 1000,
        OnQueueFull(settings.on_queue_full),
        OnPurged(settings.on_purged),
        (*settings.excluded_patterns, *hidden),
        declared_by,
    )


def client_decl(
    connection: ConnectionSettings,
    consumers: Iterable[ConsumerDecl],
    installation: UUID,
    alone: str = "",
) -> ClientDecl:
    """Return the declaration of a client. `alone`: the name of its consumer if the consumer does not share the
    connection."""
    source = source_at(connection, installation, alone)
    limits = ClientLimits(
        connection.max_bytes_to_merge,
        connection.max_bytes_in_all_queues,
        float(connection.failover_wait_seconds),
        connection.ignore_statements_in,
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


def _shared_decl(settings: Settings, names: list[str], installation: UUID) -> ClientDecl:
    """Return the declaration of one client: the client of the consumers with equal connection settings, or that of one
    consumer that does not share its connection."""
    first = settings.consumers[names[0]]
    consumers = ((name, settings.consumers[name]) for name in names)
    declared = (
        ConsumerDecl(
            consumer_spec(name, consumer, settings.state), consumer.max_seconds_between_markers
        )
        for name, consumer in consumers
    )
    return client_decl(first, declared, installation, "" if first.use_binlog_client else names[0])


def source_at(connection: ConnectionSettings, installation: UUID, alone: str = "") -> Source:
    """Return the source of a connection, as its settings describe it. `alone`: as in `client_decl`."""
    if connection.files is not None:
        return files_source(connection.files, installation)
    # The name is part of each dispatcher's identity, and two connections to a server need different identities.
    name = f"{connection.label}/{alone}" if alone else connection.label
    heartbeat_s = connection.heartbeat_milliseconds / 1000
    flush_s = connection.max_flush_milliseconds_in_binlog_dispatcher / 1000
    return ServerSource(
        endpoints_of(connection), installation, name, heartbeat_s=heartbeat_s, flush_s=flush_s
    )
