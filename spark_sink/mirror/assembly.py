"""Builds the parts of the mirror from its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_sink.mirror.copy.copier import Copier
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.mirror.values.policies import ApplyOptions, IcebergOptions, ProofOptions
from spark_sink.mirror.verify.range_prover import RangeProver
from spark_sink.source.table_rows.chunks import ROWS_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.runtime.claims import Claims
    from spark_sink.mirror.values.settings import MirrorSettings


def apply_options(settings: MirrorSettings) -> ApplyOptions:
    """Returns the applier's options that follow from the settings."""
    return ApplyOptions(
        target=settings.target,
        consumers=list(settings.consumers),
        policy=settings.table_policy,
        excludes=settings.excludes,
        own_columns=settings.own_columns,
        can_copy=settings.copy_from is not None,
        parallel=settings.parallel_tables,
        invalid_dates=settings.invalid_dates,
        step_bytes_max=settings.max_bytes_per_step,
        held_bytes_max=settings.max_bytes_waiting,
        log_days=settings.log_days,
        delta_log_hours=settings.delta_log_hours,
        catalog=CatalogTemplate.parse(settings.catalog) if settings.catalog else None,
        iceberg=iceberg_options(settings),
        proofs=proof_options(settings),
    )


def proof_options(settings: MirrorSettings) -> ProofOptions | None:
    """Returns how much proofs may cost; None if the settings name no server, or switch proofs off."""
    chosen = settings.prove
    if settings.copy_from is None or not chosen.rows_per_second:
        return None
    return ProofOptions(
        chosen.rows_per_second,
        chosen.share_of_time,
        chosen.every_seconds,
        chosen.window_s,
        rows_max=min(ROWS_MAX, 20 * chosen.rows_per_second),
    )


def iceberg_options(settings: MirrorSettings) -> IcebergOptions | None:
    """Returns how the tables are published in an Iceberg catalog; None if the settings name no such catalog."""
    if (chosen := settings.iceberg) is None:
        return None
    properties = {name: value.get_secret_value() for name, value in chosen.catalog.items()}
    return IcebergOptions(chosen.name, properties, chosen.interval_seconds, chosen.snapshot_hours)


def make_applier(spark: SparkSession, settings: MirrorSettings, claims: Claims) -> Applier:
    """Returns the applier of the consumers in the settings. The job has already claimed these consumers."""
    options = apply_options(settings)
    copier = make_copier(spark, settings)
    return Applier(spark, options, copier, claims, make_prover(settings, options))


def make_prover(
    settings: MirrorSettings, options: ApplyOptions
) -> Callable[[str, BinlogLog], RangeProver] | None:
    """Returns a function that makes, for a consumer, the object that compares the consumer's tables with the server;
    None if `options` contain no proofs."""
    chosen = settings.copy_from
    if chosen is None or options.proofs is None:
        return None
    server = CopyServer.of_settings(chosen, settings.table_policy)

    def prover(consumer: str, binlog_log: BinlogLog) -> RangeProver:
        return RangeProver(consumer, options, server, chosen, binlog_log)

    return prover


def make_copier(spark: SparkSession, settings: MirrorSettings) -> Copier | None:
    """Returns the object that copies tables; None if the settings name no server to copy from."""
    if settings.copy_from is None:
        return None
    return Copier(
        spark,
        settings.copy_from,
        settings.target,
        settings.invalid_dates,
        settings.table_policy,
        iceberg=settings.iceberg is not None,
    )
