"""The schemas of streams and batches: raw, JSON and typed.

Spark asks for the schema before anything else, so this must be fast: only the schema of a typed stream needs pyarrow,
and no schema needs kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructType,
)

from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.subscription import NamePatterns
from spark_sink.source.options import SourceOptions
from spark_sink.source.selection.column_choice import ColumnChoice, unknown_column
from spark_sink.source.selection.flat import check_names
from spark_sink.source.slices import SLICE_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa


def _struct(columns: Iterable[tuple[str, str | DataType, bool]]) -> StructType:
    """Returns the schema of `columns`, each of which is (name, type, True if the column may be null)."""
    schema = StructType()
    for column in columns:
        schema.add(*column)
    return schema


_NAMES = ArrayType(StringType())
_TABLES = ArrayType(StructType().add("database", "string").add("table", "string"))
_RAW_COLUMNS = (
    ("entry", "long", False),
    ("kind", "string", False),
    ("database", "string", True),
    ("table", "string", True),
    ("layout", "string", True),
    ("epoch", "long", False),
    ("first_seq", "long", False),
    ("last_seq", "long", False),
    ("rows", "long", False),
    ("inserts", "long", True),
    ("updates", "long", True),
    ("deletes", "long", True),
    ("table_map", "binary", True),
    ("payload", "binary", True),
    ("query", "string", True),
    ("session", "string", True),
    ("file", "string", True),
    ("pos", "long", True),
    ("committed_at", "timestamp", True),
    ("position", "string", True),
    ("gap", "boolean", True),
    ("default_database", "string", True),
    ("tables", _TABLES, True),
)
RAW_SCHEMA = _struct(_RAW_COLUMNS)

# The columns of `arrow_types.ENVELOPE`, with JSON texts as images.
_JSON_COLUMNS = (
    ("epoch", "long", False),
    ("seq", "long", False),
    ("ordinal", "long", False),
    ("gtid", "string", True),
    ("file", "string", True),
    ("pos", "long", True),
    ("committed_at", "timestamp", True),
    ("database", "string", True),
    ("table", "string", True),
    ("op", "string", True),
    ("before_absent", _NAMES, True),
    ("after_absent", _NAMES, True),
    ("before", "string", True),
    ("after", "string", True),
    ("tables", _TABLES, True),
)
_METADATA: dict[Metadata, DataType] = {
    Metadata.SERVER_ID: LongType(),
    Metadata.QUERY: StringType(),
    Metadata.CHANGED: _NAMES,
    Metadata.TRANSACTION_ROWS: LongType(),
    Metadata.TRANSACTION_END: BooleanType(),
}


def stream_schema(options: SourceOptions, definition: Mapping[str, Any] | None) -> StructType:
    """Returns the schema that the options select. `definition`: the definition of the table that the option `table`
    names; None without this option. Without a definition, `before` and `after` are JSON text. With the option `flat`,
    the table's columns replace `before` and `after`.

    Raises `UserError` for options that do not fit the table.
    """
    if options.raw:
        return SLICE_SCHEMA if options.unread else RAW_SCHEMA
    key: DataType = StringType()
    if definition is None:
        schema = _struct(_JSON_COLUMNS)
    else:
        schema, key = _table_schema(options, definition)
    if options.select is not None:
        schema = _selected(schema, options.select)
    for name in options.metadata:
        kind = key if name == Metadata.KEY else _METADATA[name]
        schema.add(options.flat_prefix + name.value, kind)
    return schema


def _selected(schema: StructType, names: Sequence[str]) -> StructType:
    """Returns the columns with these names, in the schema's order. Raises `UserError` for a name that the schema
    lacks."""
    findings = [
        f"option 'select': {finding}"
        for name in names
        if (finding := unknown_column(name, schema.names))
    ]
    if findings:
        raise UserError(
            ErrorKind.SETTINGS,
            f'source "binlog": {"; ".join(findings)}',
            remedy=f"the columns of the stream are {', '.join(schema.names)}; those of the option metadata are added",
        )
    chosen = NamePatterns(names)
    return StructType([field for field in schema if chosen.match(field.name.lower())])


def _table_schema(
    options: SourceOptions, definition: Mapping[str, Any]
) -> tuple[StructType, DataType]:
    """Returns the schema of a typed stream without its metadata, and the type of its key."""
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415 - loads pyarrow

    from dispatcher.binlog.decode.arrow.arrow_types import (  # noqa: PLC0415
        NEWEST_ENVELOPE,
        arrow_type,
        change_schema,
    )

    database, table = options.table or ("", "")
    label, columns = f"{database}.{table}", defined_columns(definition)
    names = [column.name for column in columns]
    findings = [
        f"option 'columns': {finding}"
        for _, _, pattern in options.columns or ()
        if (finding := unknown_column(pattern, names))
    ]
    by_name = {column.name: column for column in columns}
    key = [by_name[name] for name in definition.get("key", ()) if name in by_name]
    if Metadata.KEY in options.metadata and not key:
        findings.append(f"option 'metadata': {label} has no key, so leave out 'key'")
    if findings:
        remedy = f"the columns of {label} are {', '.join(names)}"
        raise UserError(
            ErrorKind.SETTINGS, f'source "binlog": {"; ".join(findings)}', remedy=remedy
        )
    # The patterns of the option `columns` contain the table's name as the option `table` spells it.
    chosen = set(ColumnChoice(options.columns).choose(database, table, names, 0))
    kept = [column for column in columns if column.name in chosen]
    of_key = StructType()
    for column in key:
        kind = arrow_type(column, label, options.invalid_dates)
        of_key.add(column.name, from_arrow_type(kind, prefer_timestamp_ntz=True))
    schema = change_schema(kept, label, options.invalid_dates)
    if options.flat:
        check_names(options, [column.name for column in kept])
        own = (field.with_name(options.flat_prefix + field.name) for field in NEWEST_ENVELOPE)
        schema = pa.schema([*own, *schema.field("after").type])
    return spark_schema(schema), of_key


def spark_schema(schema: pa.Schema) -> StructType:
    """Returns the Spark schema whose Arrow form is `schema`. Timestamps without a time zone become TIMESTAMP_NTZ."""
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415 - loads pyarrow

    spark = StructType()
    for field in schema:
        spark.add(
            field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True), field.nullable
        )
    return spark
