"""Builds the parts of the mirror from its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_sink.mirror.copy.copier import Copier
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import (
    ApplyOptions,
    Deletes,
    IcebergOptions,
    MetadataColumn,
    PurgedChanges,
    TablePolicy,
    UnfollowedChange,
    UnknownTables,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.runtime.claims import Claims
    from spark_sink.mirror.values.settings import MirrorSettings


def apply_options(settings: MirrorSettings) -> ApplyOptions:
    """Returns the applier's options that follow from the settings."""
    can_copy = settings.copy_from is not None
    unknown = UnknownTables.COPY if can_copy else UnknownTables.STOP

    def policy(name: TableName) -> TablePolicy:
        chosen = settings.policy(name)
        return TablePolicy(
            unknown=UnknownTables(chosen.unknown_tables or unknown),
            purged=PurgedChanges(chosen.on_gap or PurgedChanges.COPY),
            unfollowed=UnfollowedChange(chosen.on_alter or UnfollowedChange.RECOPY),
            deletes=Deletes(chosen.deletes or Deletes.HARD),
            metadata=tuple(map(MetadataColumn, chosen.metadata_columns or ())),
            interval_s=chosen.seconds_between_steps or 0.0,
            history=chosen.history or False,
            feed=chosen.change_data_feed or False,
            omitted=chosen.omit_columns or (),
            all_versions=chosen.all_versions or False,
        )

    return ApplyOptions(
        target=settings.target,
        consumers=list(settings.consumers),
        policy=policy,
        excludes=settings.excludes,
        can_copy=can_copy,
        parallel=settings.parallel_tables,
        invalid_dates=settings.invalid_dates,
        step_bytes_max=settings.max_bytes_per_step,
        held_bytes_max=settings.max_bytes_waiting,
        log_days=settings.log_days,
        catalog=CatalogTemplate.parse(settings.catalog) if settings.catalog else None,
        iceberg=iceberg_options(settings),
    )


def iceberg_options(settings: MirrorSettings) -> IcebergOptions | None:
    """Returns how the tables are published in an Iceberg catalog; None if the settings name none."""
    if (chosen := settings.iceberg) is None:
        return None
    properties = {name: value.get_secret_value() for name, value in chosen.catalog.items()}
    return IcebergOptions(chosen.name, properties, chosen.interval_seconds, chosen.snapshot_hours)


def make_applier(spark: SparkSession, settings: MirrorSettings, claims: Claims) -> Applier:
    """Returns the applier of the consumers in the settings. The job has already claimed these consumers."""
    return Applier(spark, apply_options(settings), make_copier(spark, settings), claims)


def make_copier(spark: SparkSession, settings: MirrorSettings) -> Copier | None:
    """Returns the object that copies tables; None if the settings name no server to copy from."""
    if settings.copy_from is None:
        return None
    return Copier(
        spark,
        settings.copy_from,
        settings.target,
        settings.invalid_dates,
        settings.omitted_columns,
        settings.has_all_versions,
        iceberg=settings.iceberg is not None,
    )
