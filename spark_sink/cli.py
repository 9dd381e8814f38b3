"""The command line of the mirror: `python -m spark_sink COMMAND`.

Exit codes: 0 success, 2 invalid input or settings, 1 any other error. Each command loads Spark only when it runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dispatcher.model.errors import BinlogError, ErrorKind, UserError

if TYPE_CHECKING:
    from spark_sink.mirror.settings import MirrorSettings

EXIT_FAULT, EXIT_INPUT = 1, 2

app = typer.Typer(
    name="python -m spark_sink",
    help="Mirror the databases that binlog-dispatcher delivers into Delta tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config", "-c", help="YAML file, or folder of YAML files. Repeatable.", show_default=False
    ),
]
Url = Annotated[str | None, typer.Option(help="Address of the daemon, like http://host:8085.")]
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
def faults_as_exit_codes() -> Iterator[None]:
    """Print a BinlogError in one line, and exit with 2 for the user's input and settings, else with 1."""
    try:
        yield
    except BinlogError as error:
        typer.echo(str(error), err=True)
        wrong_input = isinstance(error, UserError) or error.kind is ErrorKind.SETTINGS
        raise typer.Exit(EXIT_INPUT if wrong_input else EXIT_FAULT) from None


def settings_of(config: list[Path] | None, **options: Any) -> MirrorSettings:
    """Returns the settings; `options`: by their dotted keys with `__` for the dot, None for those that are not given.

    Raises `SettingsError` with all errors.
    """
    from spark_sink.mirror.settings import load_mirror_settings  # noqa: PLC0415

    given = {key.replace("__", "."): value for key, value in options.items() if value is not None}
    overrides = {
        key: (f"--{_OPTION_NAMES.get(key, key).replace('_', '-')}", value)
        for key, value in given.items()
    }
    settings = load_mirror_settings(config or [], overrides)
    configure_log(settings.log_level)
    return settings


_OPTION_NAMES = {"consumers": "consumer", "spark.conf": "conf", "spark.master": "master"}


def configure_log(level: str) -> None:
    """Log to stderr: the mirror's own messages from `level` on, those of libraries from WARNING on."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("spark_sink").setLevel(level)
    if level != "DEBUG":
        # py4j logs traces of the faults that the job logs itself.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)


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
            "--available-now", help="Mirror up to the server's tip at the start, then end."
        ),
    ] = None,
    trigger_interval: Annotated[
        str | None, typer.Option(help="Shortest time between two appends, like '500 ms'.")
    ] = None,
    max_bytes_per_trigger: Annotated[
        str | None, typer.Option(help="Bytes of an append, like 16MiB.")
    ] = None,
    parallel_tables: Annotated[
        int | None, typer.Option(help="Tables that are brought forward at a time.")
    ] = None,
    invalid_dates: Annotated[
        str | None, typer.Option(help="What a date like 0000-00-00 becomes: null, error or text.")
    ] = None,
    retry_timeout_seconds: Annotated[
        int | None, typer.Option(help="How long to wait for a daemon that does not answer.")
    ] = None,
    token_file: TokenFile = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="PEM file of the authority of the daemon's certificate.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master; spark-submit's wins.")] = None,
    conf: Conf = None,
    log_level: LogLevel = None,
) -> None:
    """Mirror until stopped."""
    with faults_as_exit_codes():
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
            retry_timeout_seconds=retry_timeout_seconds,
            token_file=token_file,
            ca_file=ca_file,
            spark__master=master,
            spark__conf=conf or None,
            log_level=log_level,
        )
        from spark_sink.job import Job  # noqa: PLC0415
        from spark_sink.mirror.assembly import make_applier  # noqa: PLC0415

        code = Job(settings, make_applier if settings.stages != "log" else None).run()
    raise typer.Exit(code)


def main() -> None:
    """Run the command line."""
    app()
