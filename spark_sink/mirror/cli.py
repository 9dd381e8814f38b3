"""The command line of the mirror: `python -m spark_sink COMMAND`.

Exit codes: 0 success; 1 an error, or a difference that `verify` has found; 2 invalid input or settings; 3 another job
has taken over a consumer of `run`. Each command loads Spark only when it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.terminal.output import say, say_json, say_json_text, say_lines
from dispatcher.terminal.plain_help import PlainTyper
from spark_sink.log_lines import formatter
from spark_sink.mirror.own_command import PROGRAM, completing, option_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.request_commands import RequestTable
    from spark_sink.mirror.table_lines import TableLine
    from spark_sink.mirror.values.settings import MirrorSettings

log = logging.getLogger("spark_sink.mirror")

EXIT_FAULT, EXIT_INPUT = 1, 2

app = PlainTyper(
    name=PROGRAM,
    help="Mirror the databases that binlog-dispatcher delivers into Delta tables.",
    epilog="Exit codes: 0 success, 1 an error or a difference, 2 the input or the settings are wrong, 3 another job has"
    " taken over a consumer.",
    add_completion=False,
)

Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config", "-c", help="YAML file, or folder of YAML files. Repeatable.", show_default=False
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="Address of the daemon, like http://host:8085; the addresses of several, with commas."
    ),
]
Consumers = Annotated[
    list[str] | None, typer.Option("--consumer", help="Consumer to mirror. Repeatable.")
]
Target = Annotated[
    str | None, typer.Option(help="Folder of the Delta tables; any path that Spark can write.")
]
TokenFile = Annotated[Path | None, typer.Option(help="File that contains the API token.")]
Conf = Annotated[
    list[str] | None, typer.Option(help="Further Spark setting as key=value. Repeatable.")
]
LogLevel = Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")]


@contextmanager
def faults_as_exit_codes(complete: Callable[[str], str]) -> Iterator[None]:
    """Print a BinlogError or an error of Spark in one line, and exit: with 2 if the user's input or settings are wrong,
    otherwise with 1. `complete` adds this process's options to the commands in a message."""
    try:
        yield
    except BinlogError as error:
        say_lines(complete(str(error)), err=True)
        wrong_input = isinstance(error, UserError) or error.kind is ErrorKind.SETTINGS
        raise typer.Exit(EXIT_INPUT if wrong_input else EXIT_FAULT) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        from spark_sink.mirror.values.faults import in_one_line  # noqa: PLC0415

        say(in_one_line(error), err=True)
        raise typer.Exit(EXIT_FAULT) from None


def settings_of(config: list[Path] | None, **options: Any) -> MirrorSettings:
    """Returns the settings.

    `options`: the values of command line options, None for an option that is not given. The names are the keys of the
    settings, with `__` instead of the dot.

    Raises `SettingsError` with all errors.
    """
    from spark_sink.mirror.values.settings import load_mirror_settings  # noqa: PLC0415

    given = {key.replace("__", "."): value for key, value in options.items() if value is not None}
    if (pairs := given.get("spark.conf")) and all("=" in pair for pair in pairs):
        # The settings merge a mapping with the file's mapping; a list would replace the file's mapping.
        parts = (pair.partition("=") for pair in pairs)
        given["spark.conf"] = {key.strip(): text.strip() for key, _, text in parts}
    overrides = {key: (option_name(key), value) for key, value in given.items()}
    settings = load_mirror_settings(config or [], overrides)
    complete = completing(config or [], given, settings)
    configure_log(settings.log_level, settings.log_format, complete)
    return settings


def configure_log(level: str, form: str = "console", complete: Callable[[str], str] = str) -> None:
    """Log to stderr: the mirror's own messages from `level` on, and the messages of libraries from WARNING on.

    `form`: `console` or `json`; `complete` adds this process's options to the commands in a message.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(form, complete))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("spark_sink").setLevel(level)
    if level != "DEBUG":
        # py4j logs traces of the faults that the job logs itself, some of them with the root logger.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        handler.addFilter(lambda record: Path(record.pathname).parent.name != "py4j")


@app.callback()
def _root() -> None:
    """Mirror the databases that binlog-dispatcher delivers into Delta tables."""


@app.command()
def run(  # noqa: PLR0913 - each option is one setting
    *,
    config: Config = None,
    url: Url = None,
    consumer: Consumers = None,
    target: Target = None,
    stages: Annotated[
        str | None, typer.Option(help="log, apply, or both (the default) in one application.")
    ] = None,
    available_now: Annotated[
        bool | None,
        typer.Option(
            "--available-now",
            help="Mirror up to the end that the server's log has at the start, then end.",
        ),
    ] = None,
    trigger_interval: Annotated[
        str | None, typer.Option(help="Shortest time between two appends, like '500 ms'.")
    ] = None,
    max_bytes_per_trigger: Annotated[
        str | None, typer.Option(help="Bytes of an append, like 16MiB.")
    ] = None,
    parallel_tables: Annotated[
        int | None, typer.Option(help="Tables to which changes are applied at a time.")
    ] = None,
    invalid_dates: Annotated[
        str | None, typer.Option(help="What a date like 0000-00-00 becomes: null, error or text.")
    ] = None,
    fail_on_data_loss: Annotated[
        bool | None,
        typer.Option(
            "--fail-on-data-loss/--no-fail-on-data-loss",
            help="If the server has purged changes before they were read: stop, or skip them and continue.",
            show_default=False,
        ),
    ] = None,
    retry_timeout_seconds: Annotated[
        int | None, typer.Option(help="How long to wait for a daemon that does not answer.")
    ] = None,
    token_file: TokenFile = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="PEM file of the authority of the daemon's certificate.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark master; that of spark-submit overrides it.")
    ] = None,
    conf: Conf = None,
    log_level: LogLevel = None,
    copy_missing: Annotated[
        bool,
        typer.Option(
            "--copy",
            help="Copy the tables that the mirror lacks, show the progress, and go on mirroring.",
        ),
    ] = False,
    until_copied: Annotated[
        bool,
        typer.Option(
            "--until-copied", help="As --copy, but end when all of these tables are complete."
        ),
    ] = False,
) -> None:
    """Mirror until stopped.

    Example: binlog-mirror run --config mirror.yaml
    """
    complete = _completing(config, target)
    with faults_as_exit_codes(complete):
        settings = settings_of(
            config,
            url=url,
            consumers=consumer or None,
            target=target,
            stages=stages,
            available_now=available_now,
            trigger_interval=trigger_interval,
            max_bytes_per_trigger=max_bytes_per_trigger,
            parallel_tables=parallel_tables,
            invalid_dates=invalid_dates,
            fail_on_data_loss=fail_on_data_loss,
            retry_timeout_seconds=retry_timeout_seconds,
            token_file=token_file,
            ca_file=ca_file,
            spark__master=master,
            spark__conf=conf or None,
            log_level=log_level,
        )
        log.info("mirroring %s into %s", ", ".join(settings.consumers), settings.target)
        from spark_sink.mirror.assembly import make_applier  # noqa: PLC0415
        from spark_sink.mirror.check_command import require_consumer  # noqa: PLC0415
        from spark_sink.mirror.copy_watch import chosen_watch  # noqa: PLC0415
        from spark_sink.mirror.job import Job  # noqa: PLC0415
        from spark_sink.mirror.server_names import with_server_names  # noqa: PLC0415

        if settings.stages != "apply":
            require_consumer(settings)
        if settings.stages != "log":
            settings = with_server_names(settings)
        watch = chosen_watch(
            settings, until_copied=until_copied, go_on=copy_missing, complete=complete
        )
        applier = make_applier if settings.stages != "log" else None
        code = Job(settings, applier, watch, complete).run()
    raise typer.Exit(code)


def _completing(config: list[Path] | None, target: str | None) -> Callable[[str], str]:
    return completing(config or [], {"target": target} if target else {})


Tables = Annotated[
    list[str], typer.Argument(help="Tables like shop.orders, or patterns like 'shop.*'.")
]


def _settings_of_target(
    config: list[Path] | None, target: str | None, conf: list[str] | None = None
) -> MirrorSettings:
    """Returns the settings for a command that uses no daemon and no consumer. So placeholders fill the settings that
    name a daemon and consumers."""
    return settings_of(
        config,
        url=None if config else "http://127.0.0.1:1",
        consumers=None if config else ["none"],
        target=target,
        spark__conf=conf or None,
        log_level=None if config else "WARNING",
    )


@contextmanager
def _control_of(
    config: list[Path] | None, target: str | None, conf: list[str] | None
) -> Iterator[tuple[RequestTable, MirrorSettings]]:
    """Yields the control table and the settings. Starts Spark only if the target is not on a local file system."""
    with faults_as_exit_codes(_completing(config, target)):
        settings = _settings_of_target(config, target, conf)
        from spark_sink.mirror.lake.local_control import LocalControl  # noqa: PLC0415

        local = LocalControl.of(settings.target)
        if local is not None:
            yield local, settings
            return
    with _spark_of(config, target, conf) as (spark, settings):
        from spark_sink.long_work import long_work  # noqa: PLC0415
        from spark_sink.mirror.lake.control_table import ControlTable  # noqa: PLC0415

        with long_work(f"writing the request into {settings.target}"):
            yield ControlTable(spark, settings.target), settings


def _job_with_masks(settings: MirrorSettings, config: list[Path] | None) -> Callable[..., None]:
    """Returns `require_job_with_masks` for these files of settings."""
    from spark_sink.mirror.request_commands import require_job_with_masks  # noqa: PLC0415

    given = config or []
    files = [file for path in given for file in (path.glob("*.y*ml") if path.is_dir() else [path])]
    changed_at = max((file.stat().st_mtime for file in files), default=0.0)
    at = datetime.fromtimestamp(changed_at, UTC)
    return lambda rows, names: require_job_with_masks(rows, settings, at, names)


@contextmanager
def _spark_of(
    config: list[Path] | None, target: str | None, conf: list[str] | None
) -> Iterator[tuple[SparkSession, MirrorSettings]]:
    """Yields Spark and the settings, for a command that reads or writes the target."""
    with faults_as_exit_codes(_completing(config, target)):
        settings = _settings_of_target(config, target, conf)
        from spark_sink.mirror.command_session import command_session  # noqa: PLC0415

        with command_session(settings) as spark:
            yield spark, settings


@contextmanager
def _lines_of(
    config: list[Path] | None, target: str | None, conf: list[str] | None, patterns: list[str]
) -> Iterator[tuple[Callable[[], list[TableLine]], MirrorSettings]]:
    """Yields a function that reads the lines of `tables` and `top`, and the settings. Starts Spark only if the target
    cannot be read without it."""
    with faults_as_exit_codes(_completing(config, target)):
        settings = _settings_of_target(config, target, conf)
        if (first := _local_lines(settings, patterns)) is not None:
            again = iter(partial(_local_lines_again, settings, patterns), None)
            yield partial(next, chain([first], again)), settings
            return
    with _spark_of(config, target, conf) as (spark, settings):
        from spark_sink.long_work import long_work  # noqa: PLC0415
        from spark_sink.mirror.spark_facts import SparkFacts  # noqa: PLC0415
        from spark_sink.mirror.table_lines import table_lines  # noqa: PLC0415

        facts = SparkFacts(spark, settings.target)
        # Only the first reading takes long: it loads classes of the JVM.
        shown: Iterator[AbstractContextManager[object]] = chain(
            [long_work(f"reading the tables of {settings.target}")], repeat(nullcontext())
        )

        def lines() -> list[TableLine]:
            with next(shown):
                return table_lines(facts, patterns, settings.interval_s)

        yield lines, settings


def _local_lines(settings: MirrorSettings, patterns: list[str]) -> list[TableLine] | None:
    """Returns the lines of `tables` and `top`, read without Spark; None if only Spark can read the target."""
    from spark_sink.mirror.local_facts import LocalFacts  # noqa: PLC0415
    from spark_sink.mirror.table_lines import table_lines  # noqa: PLC0415

    facts = LocalFacts.of(settings.target)
    if facts is None:
        return None
    try:
        return table_lines(facts, patterns, settings.interval_s)
    except (OSError, ValueError):  # Delta's own reader reads the log, or says what is damaged
        return None


def _local_lines_again(settings: MirrorSettings, patterns: list[str]) -> list[TableLine]:
    """Returns the lines of a target that was read without Spark before. Raises `BinlogError` TARGET_FILES."""
    lines = _local_lines(settings, patterns)
    if lines is None:
        raise BinlogError(
            ErrorKind.TARGET_FILES,
            "the tables can no longer be read without Spark",
            where=settings.target,
            remedy="start the command again",
        )
    return lines


def _refuse_unknown(
    config: list[Path] | None, target: str | None, conf: list[str] | None, patterns: list[str]
) -> None:
    """End the command at a pattern that fits no table, before Spark starts. A target that only Spark can read is not
    looked at."""
    with faults_as_exit_codes(_completing(config, target)):
        from spark_sink.mirror.lake.local_control import LocalControl  # noqa: PLC0415
        from spark_sink.mirror.rules.chosen_tables import require_fits  # noqa: PLC0415

        local = LocalControl.of(_settings_of_target(config, target, conf).target)
        if patterns and local is not None:
            records = local.rows().records.values()
            require_fits([r.name for r in records if not r.is_dropped], patterns)


@app.command()
def check(
    *, config: Config = None, url: Url = None, consumer: Consumers = None, target: Target = None
) -> None:
    """Check the settings, and what they name.

    Example: binlog-mirror check --config mirror.yaml

    The command asks the daemon and the server of the copies, without Spark. It names the masked columns, and where the
    target has their values unmasked.
    """
    with faults_as_exit_codes(_completing(config, target)):
        settings = settings_of(config, url=url, consumers=consumer or None, target=target)
        from spark_sink.mirror.check_command import check_mirror  # noqa: PLC0415

        found = check_mirror(settings)
    for line in (*(f"warning: {text}" for text in found.warnings), *found.errors):
        say_lines(line, err=True)
    if found.errors:
        raise typer.Exit(EXIT_INPUT)
    if found.masked:
        say(f"masked: {', '.join(found.masked)}")
    count = len(settings.consumers)
    say(f"OK: {count} consumer{'s' if count != 1 else ''} checked, no errors")


@app.command()
def tables(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables, or patterns like 'shop.*'. Default: all.")
    ] = None,
    *,
    config: Config = None,
    target: Target = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per table.")] = False,
    conf: Conf = None,
) -> None:
    """Show state, lag and last error of the mirrored tables.

    Example: binlog-mirror tables --config mirror.yaml
    """
    from spark_sink.mirror.table_lines import completed_line, text_lines  # noqa: PLC0415

    complete = _completing(config, target)
    with _lines_of(config, target, conf, tables or []) as (read, _):
        found = read()
    lines = [completed_line(line, complete) for line in found]
    if as_json:
        for line in lines:
            say_json(line.as_dict())
        return
    for text in text_lines(lines, datetime.now(UTC)):
        say(text)


@app.command()
def top(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables, or patterns like 'shop.*'. Default: all.")
    ] = None,
    *,
    config: Config = None,
    target: Target = None,
    once: Annotated[bool, typer.Option("--once", help="Print one view and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per reading, until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, help="Time between two readings.")
    ] = 5.0,
    conf: Conf = None,
) -> None:
    """Show consumers, tables, copies and steps live.

    q or Ctrl-C ends it.

    Example: binlog-mirror top --config mirror.yaml
    """
    from dispatcher.terminal.live import check_terminal, show  # noqa: PLC0415

    with faults_as_exit_codes(_completing(config, target)):
        check_terminal(once=once, as_json=as_json)
    found = _lines_of(config, target, conf, tables or [])
    with suppress(KeyboardInterrupt), found as (read, settings):
        from spark_sink.mirror.top import mirror_readings  # noqa: PLC0415

        readings = mirror_readings(read, settings, _completing(config, target))
        show(readings, every, once=once, as_json=as_json)


@app.command()
def resolve(
    tables: Tables,
    *,
    how: Annotated[
        str,
        typer.Option(
            "--as",
            help="applied: I have applied the change by hand. skip: leave it out. retry: try it again."
            " recopy: copy the table. partial: go on without the older rows.",
        ),
    ],
    config: Config = None,
    target: Target = None,
    conf: Conf = None,
) -> None:
    """Say how stopped tables go on.

    The running job follows this at once, otherwise the next job does.

    Example: binlog-mirror resolve shop.orders --as recopy --config mirror.yaml
    """
    with faults_as_exit_codes(_completing(config, target)):
        from spark_sink.mirror.rules.chosen_tables import RESOLUTIONS  # noqa: PLC0415

        if how not in RESOLUTIONS:
            choices = ", ".join(RESOLUTIONS)
            raise UserError(ErrorKind.REQUEST, f"--as {how} is none of {choices}")
    with _control_of(config, target, conf) as (control, settings):
        from spark_sink.mirror.request_commands import request_resolution  # noqa: PLC0415
        from spark_sink.mirror.rules.table_record import Wish  # noqa: PLC0415

        require = _job_with_masks(settings, config)
        chosen = request_resolution(control, tables, Wish(how), require)
    for record in chosen:
        say(f"{record.label}: {how}")


@app.command()
def adopt(
    tables: Tables,
    *,
    consumer: Annotated[str, typer.Option(help="The consumer that gets the tables.")],
    config: Config = None,
    target: Target = None,
    conf: Conf = None,
) -> None:
    """Give tables of another consumer to a consumer.

    They keep the rows that they have.

    Example: binlog-mirror adopt shop.orders --consumer new --config mirror.yaml
    """
    with _spark_of(config, target, conf) as (spark, settings):
        from spark_sink.long_work import long_work  # noqa: PLC0415
        from spark_sink.mirror.adopt_command import adopt_tables  # noqa: PLC0415

        with long_work("adopt", unit="tables") as count:
            adopted = adopt_tables(spark, settings.target, consumer, tables, count)
    for record in adopted:
        say(f"{record.label}: of {consumer}")


@app.command()
def copy(
    tables: Tables,
    *,
    consumer: Annotated[
        str, typer.Option(help="The consumer of tables that are not yet in the mirror.")
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Also copy complete tables that fit a pattern.")
    ] = False,
    config: Config = None,
    target: Target = None,
    conf: Conf = None,
) -> None:
    """Ask for copies of tables from the server.

    The running job makes them, otherwise the next job does. A pattern with * leaves out complete tables; a whole name
    does not.

    Example: binlog-mirror copy 'shop.*' --config mirror.yaml
    """
    with _control_of(config, target, conf) as (control, settings):
        from spark_sink.mirror.request_commands import request_copies  # noqa: PLC0415
        from spark_sink.mirror.rules.remedies import MIRROR  # noqa: PLC0415

        require = _job_with_masks(settings, config)
        asked = request_copies(control, settings, tables, consumer, again=again, require=require)
    for name in asked.chosen:
        say(f"{'.'.join(name)}: copy")
    if asked.chosen:
        text = f"requested; the job makes the copies, and {MIRROR} tables shows their states"
        say(_completing(config, target)(text), err=True)
    if asked.complete:
        say(f"{len(asked.complete)} tables are complete already; --again copies them, too")


@app.command()
def repair(
    tables: Tables, *, config: Config = None, target: Target = None, conf: Conf = None
) -> None:
    """Ask for tables to be compared with the server now.

    The running job rewrites the rows that differ, otherwise the next job does.

    Example: binlog-mirror repair shop.orders --config mirror.yaml
    """
    with _control_of(config, target, conf) as (control, settings):
        from spark_sink.mirror.request_commands import request_repair  # noqa: PLC0415
        from spark_sink.mirror.values.settings import require_proofs  # noqa: PLC0415

        require_proofs(settings)
        chosen = request_repair(control, tables)
    for record in chosen:
        say(f"{record.label}: repair")


@app.command()
def evidence(
    tables: Tables,
    *,
    count: Annotated[
        int, typer.Option(min=1, help="How many of each table's newest differences to print.")
    ] = 1,
    config: Config = None,
    target: Target = None,
) -> None:
    """Print the rows of differences that the job has found.

    One JSON object a difference. The target must be a local folder.

    Example: binlog-mirror evidence shop.orders --config mirror.yaml
    """
    with faults_as_exit_codes(_completing(config, target)):
        from spark_sink.mirror.evidence import local_folder, newest_evidence  # noqa: PLC0415

        settings = _settings_of_target(config, target)
        folder = local_folder(settings.target)
        if folder is None:
            raise UserError(
                ErrorKind.REQUEST,
                f"the target {settings.target} is not a local folder",
                remedy="copy the file that python -m spark_sink tables names, and read the copy",
            )
        for text in newest_evidence(folder, tables, count):
            say_json_text(text)


@app.command()
def changelog(  # noqa: PLR0913 - each option is one choice
    table: Annotated[str, typer.Argument(help="A table like shop.orders.")],
    *,
    start: Annotated[
        str | None,
        typer.Option("--from", help="First entry of the log (lsn), or time of commit in ISO 8601."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="Entry or time before which the changes end.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Print at most so many changes.", show_default=False)
    ] = None,
    consumer: Annotated[
        str, typer.Option(help="The consumer, if several consumers have the table.")
    ] = "",
    config: Config = None,
    target: Target = None,
    conf: Conf = None,
) -> None:
    """Print the logged changes of a table as JSON.

    The changes are in order, one object a line.

    Example: binlog-mirror changelog shop.orders --config mirror.yaml
    """
    with faults_as_exit_codes(_completing(config, target)):
        from spark_sink.mirror.changelog import ChangelogRange  # noqa: PLC0415

        within = ChangelogRange.parse(start, end)
    with _spark_of(config, target, conf) as (spark, settings):
        from spark_sink.long_work import long_work  # noqa: PLC0415
        from spark_sink.mirror.changelog import json_lines, table_changes  # noqa: PLC0415

        database, _, name = table.partition(".")
        with long_work(f"reading the changes of {table}"):
            frame = table_changes(
                spark, settings.target, table, consumer=consumer, within=within,
                invalid_dates=settings.invalid_dates,
                rules=settings.table_policy((database, name)).rules,
            )  # fmt: skip
            lines = json_lines(frame, limit)
            first = list(islice(lines, 1))  # Spark computes the changes before it returns the first
        for line in chain(first, lines):
            say_json_text(line)


@app.command("verify")
def verify_mirror(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables, or patterns like 'shop.*'. Default: all.")
    ] = None,
    *,
    wait_seconds: Annotated[
        float, typer.Option(help="How long to wait until a table is at the server's position.")
    ] = 120,
    config: Config = None,
    target: Target = None,
    conf: Conf = None,
) -> None:
    """Compare tables with the server, at one position each.

    The exit code is 1 if one is not equal.

    Example: binlog-mirror verify --config mirror.yaml
    """
    _refuse_unknown(config, target, conf, tables or [])
    with _spark_of(config, target, conf) as (spark, settings):
        from spark_sink.long_work import long_work  # noqa: PLC0415
        from spark_sink.mirror.assembly import apply_options  # noqa: PLC0415
        from spark_sink.mirror.runtime.catalog import published_difference  # noqa: PLC0415
        from spark_sink.mirror.verify.verify import VerifyWatch  # noqa: PLC0415
        from spark_sink.mirror.verify_command import run_verify  # noqa: PLC0415

        announced: set[str] = set()

        def counting(label: str, rows: int) -> AbstractContextManager[Callable[[int], None]]:
            is_first = label not in announced  # a table may be compared at several positions
            announced.add(label)
            return long_work(f"verify {label}", rows, "rows", announced=is_first)

        found = run_verify(
            spark,
            settings,
            tables or [],
            wait_s=wait_seconds,
            watch=VerifyWatch(
                lambda difference: say_lines(_completing(config, target)(str(difference))),
                counting,
                published_difference(spark, apply_options(settings)),
            ),
        )
    if any(difference.verdict != "equal" for difference in found):
        raise typer.Exit(EXIT_FAULT)


def main() -> None:
    """Run the command line."""
    app()
