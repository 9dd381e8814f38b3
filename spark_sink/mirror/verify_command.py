"""The command `verify`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dispatcher.model.names import folded_name
from dispatcher.mysql.server_facts import lower_case_table_names
from spark_sink.long_work import long_work
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.chosen_tables import fitting_names
from spark_sink.mirror.values.settings import MirrorSettings, copy_section
from spark_sink.mirror.verify.verify import TableDifference, VerifyWatch, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_verify(
    spark: SparkSession,
    settings: MirrorSettings,
    patterns: Sequence[str],
    *,
    wait_s: float,
    watch: VerifyWatch,
) -> list[TableDifference]:
    """Compare mirrored tables with the server: those that fit a pattern or, without patterns, all tables that the
    settings of their consumers include."""
    section = copy_section(settings)
    with long_work(f"reading which tables {settings.target} has"):
        with CopyServer.of_settings(section).session() as connection:
            value = lower_case_table_names(connection)
        records = ControlTable(spark, settings.target).records().values()
    settings = settings.with_server_names(dict.fromkeys(settings.consumers, value))
    patterns = [folded_name(text, value) for text in patterns]
    server = CopyServer.of_settings(section, settings.table_policy)
    existing = [record for record in records if not record.is_dropped]
    mirrored = {r.name for r in existing if not settings.excludes(r.consumer, r.name)}
    chosen = fitting_names([r.name for r in existing], patterns) if patterns else sorted(mirrored)
    return verify(
        spark,
        server,
        settings.target,
        chosen,
        watch=watch,
        wait_s=wait_s,
        invalid_dates=settings.invalid_dates,
    )
