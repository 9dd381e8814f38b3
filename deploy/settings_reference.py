"""Writes docs/settings.md from the models of the settings: `python -m deploy.settings_reference`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dispatcher.settings.reference import SettingReference, daemon_settings, section_settings
from spark_sink.mirror.values.settings import MirrorSettings

PATH = Path(__file__).parents[1] / "docs/settings.md"

_ABOUT = {
    "defaults": "Each consumer can override each of these settings, in its own section.",
    "consumers.NAME": "`NAME`: at most 64 letters, digits, `_`, `.` and `-`. A consumer needs `databases`, and either "
    "`mysql` with `password_file` or `password`, or `files`. It may also set each key of `defaults`.",
    "sources.NAME": "Sources for which tokens may [declare consumers](operating.md#declared-consumers) over the API. "
    "`NAME`: as for a consumer. A source needs `names`, `databases`, and either `mysql` with `password_file` or "
    "`password`, or `files`. It may also set each key of `defaults` except `use_binlog_client` and `mqtt`, for its "
    "consumers.",
    "api": "A change of the limits, of `listen`, `advertise`, `proxies` or `tls` needs a restart; changes of the "
    "other settings take effect at a reload.",
    "front": "Without this section the daemon serves no replication clients ([front.md](front.md)). A change needs a "
    "restart.",
    "state": "A change of these settings needs a restart.",
    "log": "",
    "mqtt": "Without this section nothing is published.",
    "webhook": "Without this section no event is sent ([webhook.md](webhook.md)). It needs `secret_file` or `secret`.",
}  # fmt: skip


def of_mirror() -> list[SettingReference]:
    """The settings of the mirror."""
    # The keys of `tables` are patterns that the user chooses, not names.
    rows = section_settings("", MirrorSettings)
    return [row._replace(path=row.path.replace("tables.NAME", "tables.PATTERN")) for row in rows]


def _section_name(path: str) -> str:
    section = path.partition(".")[0]
    return f"{section}.NAME" if section in ("consumers", "sources") else section


def _table(rows: Iterable[SettingReference], *, without: str = "") -> str:
    lines = ["| setting | type | default | unit | meaning |", "|---|---|---|---|---|"]
    for row in rows:
        default = f"`{row.default}`" if row.default not in ("", "required") else row.default
        kind = f"{row.type} {row.limits}".rstrip()
        name = row.path.removeprefix(without)
        lines.append(f"| `{name}` | {kind} | {default} | {row.unit} | {row.meaning} |")
    return "\n".join(lines)


def text() -> str:
    """The complete document."""
    rows = list(daemon_settings())
    sections = [
        "\n\n".join(
            part
            for part in (
                f"### `{name}`",
                about,
                _table(
                    (row for row in rows if _section_name(row.path) == name), without=f"{name}."
                ),
            )
            if part
        )
        for name, about in _ABOUT.items()
    ]
    daemon = "\n\n".join(sections)
    return f"""# Settings

`python -m deploy.settings_reference` writes this page from the models of the settings. Complete examples:
[config/dispatcher.example.yaml](../config/dispatcher.example.yaml) and
[config/mirror.example.yaml](../config/mirror.example.yaml).

* Settings come from the files of `--config`, from environment variables, and from options of the command line, in this
  order. A later value overrides an earlier one. `--config` is repeatable; a folder stands for its `*.yaml` and `*.yml`
  files.
* An environment variable's name is the setting's path in capitals with `__` between its parts:
  `DISPATCHER__API__LISTEN`, `DISPATCHER__CONSUMERS__SHOP__PASSWORD`. For the mirror the names begin with `SPARK_SINK_`:
  `SPARK_SINK_TARGET`, `SPARK_SINK_COPY__MYSQL`.
* In files, `${{NAME}}` stands for the value of an environment variable, `$${{NAME}}` for a literal `${{NAME}}`.
  Relative file names are relative to the folder of the settings file.
* A size is a number of bytes, or `64MiB` (powers of 1024), or `64MB` (powers of 1000).
* `[]` in a path stands for the elements of a list. If the column `default` is empty, the setting is not set by default.
  Unknown keys are errors.

`binlog-dispatcher check --config F` reports all errors at once, with file and line.

## The daemon

{daemon}

## The mirror

[spark.md](spark.md#the-mirror) describes the job.

{_table(of_mirror())}
"""


def main() -> None:
    PATH.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
