"""Options of the source: all findings at once, each with its remedy."""

from __future__ import annotations

import json

import pytest

from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import UserError
from dispatcher.model.position import Position
from dispatcher.settings.model import StartSettings
from dispatcher.yaml_settings.values import parse_bytes
from spark_sink.source.options import KEYS, MAX_PARTITIONS, SourceOptions
from spark_sink.source.places import Place

GOOD = {"url": "http://daemon:8085", "consumer": "shop"}
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
START = Position("s", "", "binlog.000001", 4, 0, 0)


def test_defaults() -> None:
    options = SourceOptions.parse(GOOD)
    assert (options.table, options.raw, options.start, options.max_bytes) == (
        None,
        False,
        None,
        None,
    )
    assert options.max_partitions == MAX_PARTITIONS


def test_all_options_in_any_case() -> None:
    given = {
        "URL": "https://daemon/base/",
        "Consumer": "shop",
        "tokenfile": "/run/token",
        "cafile": "/ca.pem",
        "TABLE": "shop.or.ders",
        "raw": "FALSE",
        "startingoffsets": START.to_json(),
        "maxBytesPerTrigger": "2MiB",
        "maxpartitions": "7",
        "INVALIDDATES": "Text",
        "retryTimeoutSeconds": "5",
    }
    options = SourceOptions.parse(given)
    assert options.table == ("shop", "or.ders")
    assert options.invalid_dates is InvalidDates.TEXT
    assert options.start == START
    assert (options.max_bytes, options.max_partitions) == (2 << 20, 7)
    assert (options.address.token_file, options.address.retry_timeout_s) == ("/run/token", 5.0)
    assert {key.lower() for key in given} <= {key.lower() for key in KEYS}


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"maxBytesPerTriger": "1"}, "unknown option 'maxBytesPerTriger', did you mean 'maxBytes"),
        ({"path": "/x"}, "unknown option 'path'"),
        ({"consumer": ""}, "option 'consumer' is missing"),
        ({"url": "daemon:1"}, "option 'url': not the address of a daemon"),
        ({"url": "http://a,b"}, "option 'url': not the address of a daemon: 'b'"),
        ({"table": "orders"}, "option 'table' must be database.table"),
        ({"invalidDates": "zero"}, "option 'invalidDates' must be null, error or text, not 'zero'"),
        ({"raw": "yes"}, "option 'raw' must be true, false or slices"),
        (
            {"tables": "shop"},
            "must be a list like shop.*, billing.invoices, not 'shop', did you mean 'shop.*'?",
        ),
        ({"tables": "a.b, .c"}, "not '.c'"),
        ({"tables": " , "}, "option 'tables' is empty"),
        ({"tables": "a.*", "table": "a.b"}, "options 'table' and 'tables' exclude each other"),
        ({"tables": "a.*", "raw": "slices"}, "options 'tables' and 'raw' exclude each other"),
        ({"raw": "true", "table": "a.b"}, "options 'table' and 'raw' exclude each other"),
        ({"token": "x", "tokenFile": "y"}, "options 'token' and 'tokenFile' exclude each other"),
        ({"columns": "id"}, "not 'id', did you mean '*.*.id'?"),
        ({"columns": "a.b"}, "not 'a.b', did you mean '*.a.b'?"),
        ({"columns": " ,"}, "option 'columns' is empty: leave it out for all columns"),
        ({"columns": "a.b.c", "raw": "true"}, "options 'columns' and 'raw' exclude each other"),
        ({"schemaChanges": "project"}, "option 'schemaChanges' needs 'table'"),
        ({"schemaChanges": "skip", "table": "a.b"}, "must be project or fail, not 'skip'"),
        (
            {"metadata": "server_id, keys"},
            "transaction_rows, transaction_end, not 'keys', did you mean 'key'?",
        ),
        ({"metadata": "key", "raw": "true"}, "options 'metadata' and 'raw' exclude each other"),
        ({"flat": "after"}, "option 'flat' needs 'table'"),
        ({"flat": "before", "table": "a.b"}, "option 'flat' must be after or false, not 'before'"),
        ({"flatPrefix": "__", "table": "a.b"}, "option 'flatPrefix' needs flat=after"),
        (
            {"flat": "after", "flatPrefix": "a.", "table": "a.b"},
            "option 'flatPrefix' must consist of letters, digits and _, like __, not 'a.'",
        ),
        (
            {"ops": "insert, updat"},
            "insert, update, delete, ddl, not 'updat', did you mean 'update'?",
        ),
        ({"ops": " ,"}, "option 'ops' is empty: leave it out for all kinds of changes"),
        (
            {"ops": "ddl", "table": "a.b"},
            "option 'ops' selects statements alone, of which a stream",
        ),
        ({"ops": "insert", "raw": "true"}, "options 'ops' and 'raw' exclude each other"),
        ({"startingOffsets": "earlist"}, "not 'earlist', did you mean 'earliest'?"),
        (
            {"startingOffsets": "1763700000000"},
            "must be stored, earliest, latest, snapshot, a position as JSON",
        ),
        ({"startingOffsets": '{"gtid": "x"}'}, "'x' is not a UUID"),
        ({"startingOffsets": f"{UUID}:5-x"}, "'5-x' is neither an interval nor a tag"),
        (
            {"startingOffsets": "binlog.000003:1"},
            "option 'startingOffsets' offset 1 of binlog.000003",
        ),
        ({"startingOffsets": '{"shop":{"0":23}}'}, "unknown key 'shop'"),
        ({"startingOffsets": "{"}, "option 'startingOffsets' not JSON"),
        (
            {"endingOffsets": "earliest"},
            "option 'endingOffsets' must be latest, a position as JSON",
        ),
        ({"endingTimestamp": "soon"}, "option 'endingTimestamp' must be a time like 2026-"),
        (
            {"startingTimestamp": "yesterday"},
            "option 'startingTimestamp' must be a time like 2026-",
        ),
        ({"startingTimestamp": "-1"}, "in 1970 or later, or milliseconds since 1970, not '-1'"),
        (
            {"startingTimestamp": "1", "startingOffsets": "latest"},
            "options 'startingOffsets' and 'startingTimestamp' exclude each other",
        ),
        ({"startingOffsets": '{"seq":1}'}, "key 'server' is missing"),
        ({"maxBytesPerTrigger": "0"}, "must be a size like 16MiB"),
        (
            {"minBytesPerTrigger": "4m"},
            "'minBytesPerTrigger' must be a size like 16MiB, not '4m': write",
        ),
        (
            {"minBytesPerTrigger": "2MB", "maxBytesPerTrigger": "1MB"},
            "'minBytesPerTrigger' (2000000 bytes) must not exceed 'maxBytesPerTrigger' (1000000 bytes)",
        ),
        ({"maxTriggerDelay": "15m"}, "option 'maxTriggerDelay' needs 'minBytesPerTrigger'"),
        (
            {"maxTriggerDelay": "soon", "minBytesPerTrigger": "1"},
            "option 'maxTriggerDelay' must be a time like 500ms, 30s, 15m or 1h, not 'soon'",
        ),
        ({"maxTransactionsPerTrigger": "0"}, "'maxTransactionsPerTrigger' must be a number from 1"),
        ({"maxPartitions": "0"}, "must be a number from 1"),
        ({"retryTimeoutSeconds": "soon"}, "must be a number from 1"),
        ({"flatPrefix": "_", "flat": "false", "table": "a.b"}, "'flatPrefix' needs flat=after"),
    ],
)
def test_findings(change: dict[str, str], finding: str) -> None:
    with pytest.raises(UserError) as caught:
        SourceOptions.parse(GOOD | change)
    assert finding in caught.value.what


def test_columns_and_metadata() -> None:
    options = SourceOptions.parse(GOOD | {"columns": "a.b.c.d, *.x?.id", "metadata": "key,query"})
    assert options.columns == (("a", "b.c", "d"), ("*", "x?", "id"))
    assert options.metadata == (Metadata.QUERY, Metadata.KEY)
    typed = {"table": "a.b[1]", "columns": "id, a.b[1].n*", "schemaChanges": "Project"}
    options = SourceOptions.parse(GOOD | typed)
    assert options.columns == (("a", "b[[]1]", "id"), ("a", "b[[]1]", "n*"))
    assert options.project


@pytest.mark.parametrize(
    ("text", "seconds"), [("500", 0.5), ("500ms", 0.5), ("30 s", 30), ("15m", 900), ("2H", 7200)]
)
def test_delays_are_those_of_spark_s_kafka_source(text: str, seconds: float) -> None:
    given = GOOD | {"minBytesPerTrigger": "1MB", "maxTriggerDelay": text}
    assert SourceOptions.parse(given).max_trigger_delay_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("options", "to"),
    [
        ({"startingOffsets": "earliest"}, "earliest"),
        ({"startingOffsets": " latest "}, "latest"),
        ({"startingOffsets": f"{UUID}:1-5"}, {"gtid": f"{UUID}:1-5"}),
        ({"startingOffsets": f'{{"gtid": "{UUID}:1-5"}}'}, {"gtid": f"{UUID}:1-5"}),
        ({"startingOffsets": '{"gtid": "2026-11-21"}'}, {"gtid": "2026-11-21"}),
        ({"startingOffsets": "0-1-42, 1-2-3"}, {"gtid": "0-1-42, 1-2-3"}),
        ({"startingOffsets": "binlog.000003:120"}, {"file": "binlog.000003", "offset": 120}),
        (
            {"startingOffsets": '{"file": "my.bin.000003", "offset": 4}'},
            {"file": "my.bin.000003", "offset": 4},
        ),
        ({"startingOffsets": "1970-01-02"}, {"timestamp": "1970-01-02T00:00:00+00:00"}),
        (
            {"startingOffsets": '{"timestamp": 1500}'},
            {"timestamp": "1970-01-01T00:00:01.500000+00:00"},
        ),
        ({"startingTimestamp": "1500"}, {"timestamp": "1970-01-01T00:00:01.500000+00:00"}),
        (
            {"startingTimestamp": "1970-01-01T02:00:00+01:00"},
            {"timestamp": "1970-01-01T01:00:00+00:00"},
        ),
    ],
)
def test_places(options: dict[str, str], to: object) -> None:
    place = SourceOptions.parse(GOOD | options).start
    assert isinstance(place, Place) and json.loads(place.to) == to
    StartSettings.parse(to)  # the daemon takes it, too


def test_lists_of_tables() -> None:
    options = SourceOptions.parse(GOOD | {"tables": "shop.*, billing.in.voices,a.b_?"})
    assert options.tables == (("shop", "*"), ("billing", "in.voices"), ("a", "b_?"))


def test_all_findings_at_once() -> None:
    with pytest.raises(UserError) as caught:
        SourceOptions.parse({"raw": "no", "colour": "red"})
    for finding in ("'colour'", "'url' is missing", "'consumer' is missing", "'raw'"):
        assert finding in caught.value.what


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("16777216", 16 << 20),
        ("16MiB", 16 << 20),
        ("16MB", 16_000_000),
        ("16mb", 16_000_000),
        (" 3 kib ", 3 << 10),
        ("1.5GiB", 3 << 29),
        ("5B", 5),
    ],
)
def test_sizes_mean_what_they_mean_in_the_daemon_s_settings(text: str, size: int) -> None:
    assert SourceOptions.parse(GOOD | {"maxBytesPerTrigger": text}).max_bytes == size
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("16m", "write 16MB or 16MiB"),
        ("16Mi", "write 16MiB"),
        ("1.5", "not '1.5'"),
        *((text, f"not {text!r}") for text in ("", "0", "-1", "m", "1mm", "0.1B", "9999999TB")),
    ],
)
def test_texts_that_are_not_sizes(text: str, near: str) -> None:
    with pytest.raises(UserError, match=r"'maxBytesPerTrigger' must be a size like 16MiB") as error:
        SourceOptions.parse(GOOD | {"maxBytesPerTrigger": text})
    assert error.value.what.endswith(near)


def test_options_of_a_table_that_was_made_with_create_table() -> None:
    """Spark passes them lowercased, with and without a prefix, among the properties of the table."""
    properties = {"provider": "binlog", "owner": "root", "comment": "changes", "purpose": "test"}
    options = {"url": "http://daemon:8085", "consumer": "shop", "maxpartitions": "7"}
    given = properties | options | {f"option.{key}": value for key, value in options.items()}
    assert SourceOptions.parse(given) == SourceOptions.parse(options)
    with pytest.raises(UserError, match="unknown option 'colour'"):
        SourceOptions.parse(given | {"colour": "red", "option.colour": "red"})


def test_without_options_the_remedy_tells_how_sql_passes_them() -> None:
    with pytest.raises(UserError) as caught:
        SourceOptions.parse({})
    assert "FROM the_table WITH (url" in caught.value.remedy
    with pytest.raises(UserError) as caught:
        SourceOptions.parse({"url": "http://daemon:8085"})
    assert "WITH" not in caught.value.remedy


@pytest.mark.parametrize(
    ("more", "listed"),
    [({"qqq": "red"}, True), ({"maxBytesPerTriger": "1"}, False), ({"raw": "maybe"}, False)],
)
def test_all_options_are_listed_only_for_one_that_resembles_none(
    more: dict[str, str], *, listed: bool
) -> None:
    with pytest.raises(UserError) as caught:
        SourceOptions.parse(GOOD | more)
    assert ("retryTimeoutSeconds" in str(caught.value)) is listed
