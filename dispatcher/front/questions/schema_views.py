"""The views of information_schema that the front answers, and the columns of each that a client may select.

These views show metadata that the log does not contain: the columns, keys and character sets of the consumer's tables.
The allowed columns never name accounts or other consumers' tables. The columns about foreign keys are not allowed,
because they can name other consumers' tables.

Source: MySQL manual, "INFORMATION_SCHEMA Tables".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchemaView:
    """`owner`: the columns that name the database, or the database and the table, that a row describes."""

    columns: frozenset[str]
    owner: tuple[str, ...] = ("table_schema", "table_name")


def _view(columns: str) -> SchemaView:
    return SchemaView(frozenset(("table_schema", "table_name", *columns.split())))


VIEWS = {
    "columns": _view(
        "table_catalog column_name ordinal_position column_default is_nullable data_type character_maximum_length"
        " character_octet_length numeric_precision numeric_scale datetime_precision character_set_name collation_name"
        " column_type column_key extra column_comment generation_expression srs_id"
    ),
    "tables": _view(
        "table_catalog table_type engine version row_format table_rows avg_row_length data_length index_length"
        " auto_increment create_time table_collation create_options table_comment"
    ),
    "schemata": SchemaView(
        frozenset(
            ("catalog_name", "schema_name", "default_character_set_name", "default_collation_name")
        ),
        ("schema_name",),
    ),
}
