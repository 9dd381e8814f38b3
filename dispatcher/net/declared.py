"""What settings declare, as what runs: groups of consumers that share a connection, and the source of each."""

from __future__ import annotations

from collections.abc import Hashable
from uuid import UUID

from dispatcher.dispatch.inputs import ClientLimits, ConsumerSpec, OnPurged, OnQueueFull, Start
from dispatcher.net.files import files_source
from dispatcher.net.running import Declared, Group
from dispatcher.net.server import endpoints_of
from dispatcher.net.source import ServerSource, Source
from dispatcher.settings import Consumer, Settings

GroupKey = Hashable


def groups(settings: Settings, installation: UUID) -> dict[GroupKey, Group]:
    """Consumers by connection: one group per connection key, and one for each that shares with nobody.

    Raises BinlogError for files that cannot be a source.
    """
    members: dict[GroupKey, list[str]] = {}
    for name, consumer in settings.consumers.items():
        key = consumer.connection_key if consumer.use_binlog_client else ("unshared", name)
        members.setdefault(key, []).append(name)
    return {key: _group(settings, names, installation) for key, names in members.items()}


def spec_of(name: str, consumer: Consumer) -> ConsumerSpec:
    tables = None
    if consumer.tables is not None:
        split = (table.partition(".") for table in consumer.tables)
        tables = tuple((database, table) for database, _, table in split)
    start = consumer.start
    return ConsumerSpec(
        name,
        tuple(consumer.databases),
        tables,
        consumer.max_bytes_in_binlog_queue,
        Start(start.at, start.gtid, start.file, start.offset, start.timestamp_us),
        consumer.assume_current_schema,
        consumer.max_milliseconds_to_wait_in_binlog_queue / 1000,
        OnQueueFull(consumer.on_queue_full),
        OnPurged(consumer.on_purged),
    )


def _group(settings: Settings, names: list[str], installation: UUID) -> Group:
    """What belongs to the connection is as the first one says it; they agree, or stand alone."""
    first = settings.consumers[names[0]]
    source = _source(names[0], first, installation)
    limits = ClientLimits(
        first.max_bytes_to_merge,
        first.max_bytes_in_all_queues,
        float(first.failover_wait_seconds),
    )
    consumers = ((name, settings.consumers[name]) for name in names)
    return Group(
        source.label if first.use_binlog_client else f"{source.label}/{names[0]}",
        source,
        tuple(
            Declared(spec_of(name, consumer), consumer.max_seconds_between_markers)
            for name, consumer in consumers
        ),
        limits,
        first.max_bytes_in_binlog_dispatcher_buffer,
        (first.connection_key, first.files, first.tls, first.heartbeat_milliseconds),
    )


def _source(name: str, consumer: Consumer, installation: UUID) -> Source:
    if consumer.files is not None:
        return files_source(consumer.files, installation)
    # Part of each dispatcher's identity: one for the shared connection, and one for each that is not shared.
    name = consumer.label if consumer.use_binlog_client else f"{consumer.label}/{name}"
    heartbeat_s = consumer.heartbeat_milliseconds / 1000
    return ServerSource(endpoints_of(consumer), installation, name, heartbeat_s=heartbeat_s)
